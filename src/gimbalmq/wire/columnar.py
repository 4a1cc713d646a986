"""The whole-column steps behind `columns`; imports numpy and pyarrow, so import it late.

`record_places` finds the records; everything else is one step per column. Texts and bodies are cut
out by Arrow itself: the buffer is declared to be an array of alternating gaps and wanted parts, of
which the parts are taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from gimbalmq.errors import ConfigurationError, ProtocolError
from gimbalmq.wire.arrow_parts import (
    ARROW_BYTES_MAX,
    Places,
    array_of,
    buffer_of,
    cut,
    cut_text,
    view_of,
)
from gimbalmq.wire.compression import compression_of, decompress
from gimbalmq.wire.ids import host_text
from gimbalmq.wire.record import ReceivedMessage, decode_records, encode_record
from gimbalmq.wire.record_layout import COMPRESSED, INNER_BATCH, V6_EXTRA_BYTES
from gimbalmq.wire.record_places import Buffers, RecordPlaces

__all__ = ["decode", "schema_of"]


_HEX: Final = np.frombuffer(b"0123456789ABCDEF", np.uint8)
_US_PER_MS: Final = 1000
_MS_MAX: Final = ((1 << 63) - 1) // _US_PER_MS

_TYPES: Final[dict[str, pa.DataType]] = {
    "topic": pa.string(),
    "broker": pa.string(),
    "queue_id": pa.int32(),
    "queue_offset": pa.int64(),
    "message_id": pa.string(),
    "keys": pa.string(),
    "tags": pa.string(),
    "body": pa.binary(),
    "born_timestamp": pa.timestamp("us", tz="UTC"),
    "store_timestamp": pa.timestamp("us", tz="UTC"),
    "born_host": pa.string(),
    "sys_flag": pa.int32(),
    "reconsume_times": pa.int32(),
    "properties": pa.map_(pa.string(), pa.string()),
}


def schema_of(columns: Sequence[str]) -> pa.Schema:
    """The schema of these columns, all nullable."""
    return pa.schema([pa.field(name, _TYPES[name]) for name in columns])


def decode(
    buffers: Buffers, columns: Sequence[str], ranges: Sequence[tuple[int, int]] | None
) -> pa.RecordBatch:
    """See `columns.decode_columns`."""
    records = RecordPlaces(buffers)
    if records.any_flag(INNER_BATCH):
        records = RecordPlaces([(_with_inner_as_records(data), broker) for data, broker in buffers])
    if ranges is not None:
        records.keep_ranges(ranges)
    arrays = [_READERS[name](records) for name in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=schema_of(columns))


def _with_inner_as_records(data: bytes | bytearray | memoryview) -> bytes:
    """The same messages with each message of an inner batch as a record of its own."""
    return b"".join(map(_as_record, decode_records(data, "")))


def _as_record(message: ReceivedMessage) -> bytes:
    born_host, _, born_port = message.born_host.rpartition(":")
    store_host, _, store_port = message.store_host.rpartition(":")
    return encode_record(
        topic=message.record_topic,
        body=message.stored_body,
        properties=message.stored_properties,
        queue_id=message.queue_id,
        queue_offset=message.queue_offset,
        physical_offset=message.physical_offset,
        sys_flag=message.sys_flag,
        flag=message.flag,
        born_timestamp_ms=message.born_timestamp_ms,
        born_host=(born_host, int(born_port)),
        store_timestamp_ms=message.store_timestamp_ms,
        store_host=(store_host, int(store_port)),
        reconsume_times=message.reconsume_times,
        prepared_transaction_offset=message.prepared_transaction_offset,
    )


def _body(records: RecordPlaces) -> Any:
    stored = cut(records.arrow, *records.body_place, pa.binary())
    packed = np.flatnonzero(records.flags & COMPRESSED)
    if not len(packed):
        return stored
    expanded: list[bytes] = []
    for row in packed.tolist():
        compression = compression_of(int(records.flags[row]))
        assert compression is not None
        try:
            expanded.append(decompress(stored[row].as_py(), compression))
        except ProtocolError as error:
            offset = int(records.head("queue_offset")[row])
            raise ProtocolError(f"the message at queue offset {offset}: {error}") from error
    if stored.nbytes + sum(map(len, expanded)) > ARROW_BYTES_MAX:
        raise ConfigurationError(
            "the bodies have more than 2 GiB when decompressed, too much for one Arrow column: "
            "decode fewer pull answers at once"
        )
    index = np.arange(len(stored), dtype=np.int32)
    index[packed] = len(stored) + np.arange(len(packed), dtype=np.int32)
    return pa.concat_arrays([stored, pa.array(expanded, pa.binary())]).take(array_of(index))


def _message_id(records: RecordPlaces) -> Any:
    unique = records.properties.column(b"UNIQ_KEY")
    absent = np.flatnonzero(unique.is_null().to_numpy(zero_copy_only=False))
    if not len(absent):
        return unique
    index = np.arange(len(unique), dtype=np.int32)
    index[absent] = len(unique) + np.arange(len(absent), dtype=np.int32)
    return pa.concat_arrays([unique, _offset_ids(records, absent)]).take(array_of(index))


def _offset_ids(records: RecordPlaces, rows: Places) -> Any:
    """Offset message ids of some rows."""
    host_from = (records.starts + 64 + records.born_extra)[rows]
    host_bytes = (8 + records.store_extra)[rows]
    offset_from = records.starts[rows] + 28
    data = view_of(records.data, "u1")
    ids: list[Any] = []
    order: list[Places] = []
    for width in (8, 20):
        chosen = np.flatnonzero(host_bytes == width)
        hosts = data[host_from[chosen, None] + np.arange(width)]
        offsets = data[offset_from[chosen, None] + np.arange(8)]
        packed = np.concatenate((hosts, offsets), axis=1)
        digits = np.stack((_HEX[packed >> 4], _HEX[packed & 15]), axis=2)
        bounds = np.arange(len(chosen) + 1, dtype=np.int32) * (2 * (width + 8))
        buffers = [None, buffer_of(bounds), buffer_of(np.ascontiguousarray(digits))]
        ids.append(pa.Array.from_buffers(pa.string(), len(chosen), buffers))
        order.append(chosen)
    return pa.concat_arrays(ids).take(array_of(np.argsort(np.concatenate(order))))


def _born_host(records: RecordPlaces) -> Any:
    # Senders are few: the text is made once for each address.
    texts: list[str] = []
    codes = np.zeros(len(records.starts), np.int32)
    for extra in (0, V6_EXTRA_BYTES):
        rows = np.flatnonzero(records.born_extra == extra)
        hosts = view_of(records.data, f"V{8 + extra}")[records.starts[rows] + 48]
        # Numbers are sorted many times faster than bytes.
        known, places = np.unique(hosts if extra else hosts.view(np.int64), return_inverse=True)
        codes[rows] = places + len(texts)
        texts += [host_text(host.tobytes()) for host in known]
    return pa.array(texts, pa.string()).take(array_of(codes))


def _time(milliseconds: Places) -> Any:
    microseconds = np.clip(milliseconds, -_MS_MAX, _MS_MAX) * _US_PER_MS
    return array_of(microseconds).cast(_TYPES["born_timestamp"])


def _int32(numbers: Places) -> Any:
    return array_of(numbers.astype(np.int32))


_READERS: Final[dict[str, Callable[[RecordPlaces], Any]]] = {
    "topic": lambda records: cut_text(records.arrow, *records.topic_place),
    "broker": lambda records: pa.array(records.brokers, pa.string()).take(
        array_of(records.sources)
    ),
    "queue_id": lambda records: _int32(records.head("queue_id")),
    "queue_offset": lambda records: array_of(records.head("queue_offset")),
    "message_id": _message_id,
    "keys": lambda records: records.properties.column(b"KEYS"),
    "tags": lambda records: records.properties.column(b"TAGS"),
    "body": _body,
    "born_timestamp": lambda records: _time(records.head("born_at")),
    "store_timestamp": lambda records: _time(records.longs(56 + records.born_extra)),
    "born_host": _born_host,
    "sys_flag": lambda records: _int32(records.flags),
    "reconsume_times": lambda records: _int32(
        records.ints(72 + records.born_extra + records.store_extra)
    ),
    "properties": lambda records: records.properties.map_column(),
}

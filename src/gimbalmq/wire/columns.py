"""Pull answers straight to Arrow columns, for those who read many messages at once.

Only the columns asked for are decoded. The work is done in whole-column steps of numpy and
pyarrow (the `spark` extra), which pay off from about a thousand messages on: collect several pull
answers before decoding. For single messages use `record.decode_records`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from gimbalmq.errors import ConfigurationError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["COLUMNS", "column_schema", "decode_columns"]

#: All columns, in the order in which they are shown when none are chosen.
COLUMNS: Final = (
    "topic",
    "broker",
    "queue_id",
    "queue_offset",
    "message_id",
    "keys",
    "tags",
    "body",
    "born_timestamp",
    "store_timestamp",
    "born_host",
    "sys_flag",
    "reconsume_times",
    "properties",
)


def _check(columns: Sequence[str]) -> None:
    unknown = [name for name in columns if name not in COLUMNS]
    if unknown:
        raise ConfigurationError(
            f"unknown column {', '.join(map(repr, unknown))}: there are {', '.join(COLUMNS)}"
        )


def column_schema(columns: Sequence[str] = COLUMNS) -> pa.Schema:
    """The Arrow schema of these columns; every field is nullable.

    >>> column_schema(["body", "queue_offset"]).names
    ['body', 'queue_offset']
    """
    _check(columns)
    try:
        from gimbalmq.wire import columnar
    except ImportError as error:
        raise _missing() from error
    return columnar.schema_of(columns)


def decode_columns(
    buffers: Sequence[tuple[bytes | bytearray | memoryview, str]],
    columns: Sequence[str] = COLUMNS,
    *,
    ranges: Sequence[tuple[int, int]] | None = None,
) -> pa.RecordBatch:
    """The messages of pull answers as one record batch, one row per message.

    Bodies are decompressed and inner batches expanded. `topic` is the name that the record is
    stored under, also for retry topics, because `queue_id` and `queue_offset` count there; where
    a retried message came from is in its properties (RETRY_TOPIC). `message_id` is the sender's
    unique id, or the offset id of messages without one. `keys` is the text as stored, keys
    separated by blanks. Times beyond what a timestamp can hold become the last one it can.

    Args:
        buffers: the body of each pull answer, with the name of the broker it came from.
        columns: names out of `COLUMNS`, in the order wanted.
        ranges: for each buffer the offsets to keep, first inclusive and second exclusive; an
            answer may hold more than was asked for.

    Raises:
        ProtocolError: a record is cut off or corrupt; the text says where.
        ConfigurationError: an unknown column, the extra is missing, or more than 2 GiB at once.

    >>> from gimbalmq.wire.record import encode_record
    >>> answer = encode_record(topic="orders", body=b"paid", queue_offset=7)
    >>> decode_columns([(answer, "broker-a")], ["queue_offset", "body"]).to_pylist()
    [{'queue_offset': 7, 'body': b'paid'}]
    """
    _check(columns)
    if ranges is not None and len(ranges) != len(buffers):
        raise ConfigurationError(f"{len(buffers)} buffers need as many ranges, not {len(ranges)}")
    try:
        from gimbalmq.wire import columnar
    except ImportError as error:
        raise _missing() from error
    return columnar.decode(buffers, columns, ranges)


def _missing() -> ConfigurationError:
    return ConfigurationError(
        'decoding to columns needs numpy and pyarrow: pip install "gimbalmq[spark]"'
    )

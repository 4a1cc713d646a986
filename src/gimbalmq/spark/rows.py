"""Rows to messages: whole columns at a time, by Arrow and numpy, imported late.

A record batch becomes one array whose element i is row i exactly as it stands in a wire batch, so
that any run of rows is a slice of one buffer. Where a row cannot become a message, the error
names it. This file decides the bytes of a row, not where it goes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute

from gimbalmq.errors import ConfigurationError
from gimbalmq.flows.outgoing import SendSettings, check_sendable
from gimbalmq.spark.ids import DIGEST_CHARS, ROW_ID_PROPERTY, row_digests
from gimbalmq.spark.rows_text import (
    as_binary,
    bytes_of,
    first_true,
    fixed_binary,
    has_separator,
    java_hashes,
    join,
    map_texts,
    offsets_of,
    property_part,
)
from gimbalmq.spark.write_columns import RowLayout
from gimbalmq.spark.write_options import check_target
from gimbalmq.wire.names import Namespace

__all__ = ["EncodedRows", "RowEncoder", "slices"]

_PROPERTIES_BYTES_MAX: Final = 32767
#: So much is encoded at once, about: bounds memory, and stays far from Arrow's 2 GiB.
_SLICE_BYTES: Final = 4 << 20
#: While so many rows are encoded, the same number is under way, and brokers do not wait.
_SLICE_ROWS: Final = 4096
#: Size, magic, CRC, flag and body length, then the length of the properties.
_HEAD: Final = np.dtype([(name, ">i4") for name in ("size", "magic", "crc", "flag", "body")])
_ENTRY_BYTES: Final = _HEAD.itemsize + 2
_DELAY_LEVEL_MAX: Final = 18
_NO_NAMESPACE: Final = Namespace()

#: The stubs know fewer forms of arguments than these functions take.
pc: Final[Any] = pyarrow.compute

Mask = npt.NDArray[np.bool_]


class EncodedRows(msgspec.Struct, frozen=True):
    """The rows of a record batch, ready to be cut into requests."""

    #: Each row as an entry of a wire batch, and its parts for a request of its own.
    entries: Any
    bodies: Any
    properties: Any
    #: The topics as brokers know them, and for each row which of them.
    topics: tuple[str, ...]
    topic_of: npt.NDArray[np.int64]
    #: Rows that cannot be in a wire batch (delays), or are better off alone (compressed).
    single: Mask
    #: Java's hash of each row's key, and which rows have a key.
    hashes: npt.NDArray[np.int64]
    keyed: Mask
    ids: Any

    def __len__(self) -> int:
        return len(self.entries)


class RowEncoder:
    """Encodes the record batches of one task; `where` names the task in errors."""

    def __init__(
        self,
        layout: RowLayout,
        *,
        topic: str | None,
        by_key: bool,
        new_ids: Callable[[int], Sequence[str]],
        where: str,
        namespace: Namespace = _NO_NAMESPACE,
    ) -> None:
        self._layout = layout
        self._topic = topic
        self._by_key = by_key
        self._new_ids = new_ids
        self._where = where
        self._space = namespace
        # As clients with a namespace do; brokers and consumers of such instances may look at it.
        self._instance = (
            b"" if namespace.name is None else b"INSTANCE_ID\x01%s\x02" % namespace.name.encode()
        )
        self._limits = SendSettings()
        self._frame = repr((topic, sorted(layout.names))).encode()
        #: Rows of record batches before the current one.
        self.rows_before = 0

    def encode(self, batch: pa.RecordBatch) -> EncodedRows:
        """The messages of a record batch.

        Raises:
            ConfigurationError: a row cannot be a message; says which and why.
        """
        count = batch.num_rows
        bodies = self._bodies(batch)
        topics, topic_of = self._topics(batch)
        keys = self._keys(batch)
        tags = self._text(batch, "tags")
        sharding = self._text(batch, "sharding_key")
        all_properties, own_properties = self._map(batch)
        delays, delayed = self._delays(batch)
        ids = self._ids(batch, keys, all_properties)
        unique = pa.array(self._new_ids(count), pa.binary())
        properties = join(
            b"UNIQ_KEY\x01",
            unique,
            b"\x02WAIT\x01true\x02" + self._instance,
            property_part("TAGS", tags),
            property_part("KEYS", keys),
            *delays,
            property_part("__SHARDINGKEY", sharding),
            own_properties,
            property_part(ROW_ID_PROPERTY, ids),
        )
        lengths = _lengths(properties)
        self._refuse(
            lengths > _PROPERTIES_BYTES_MAX,
            "properties",
            f"keys, tags and properties take more than {_PROPERTIES_BYTES_MAX} bytes: put large "
            "values into the body",
        )
        entries = _entries(bodies, properties, lengths)
        hashed = sharding if sharding is not None else keys
        if self._by_key and hashed is not None:
            hashes, keyed = java_hashes(hashed)
        else:
            hashes, keyed = np.zeros(count, np.int64), np.zeros(count, np.bool_)
        single = delayed | (_lengths(bodies) >= self._limits.compress_msg_body_over_howmuch)
        self.rows_before += count
        return EncodedRows(
            entries, bodies, properties, topics, topic_of, single, hashes, keyed, ids
        )

    # ---- columns -----------------------------------------------------------------------------

    def _column(self, batch: pa.RecordBatch, name: str) -> Any | None:
        place = self._layout.places.get(name)
        return None if place is None else batch.column(place)

    def _bodies(self, batch: pa.RecordBatch) -> Any:
        column = self._column(batch, "body")
        assert column is not None
        bodies = as_binary(column)
        self._refuse(_nulls(bodies), "body", "it is null: a message needs a body")
        sizes = _lengths(bodies)
        self._refuse(sizes == 0, "body", "it is empty: brokers refuse that")
        limit = self._limits.max_message_size
        self._refuse(sizes > limit, "body", f"it has more than {limit} bytes, the limit of brokers")
        return bodies

    def _topics(self, batch: pa.RecordBatch) -> tuple[tuple[str, ...], npt.NDArray[np.int64]]:
        column = self._column(batch, "topic")
        if self._topic is not None:
            return (self._space.wire(self._topic),), np.zeros(batch.num_rows, np.int64)
        assert column is not None
        self._refuse(
            _nulls(column), "topic", "it is null: give every row one, or give option 'topic'"
        )
        encoded = column.dictionary_encode()
        topics = tuple(encoded.dictionary.to_pylist())
        topic_of = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        for number, topic in enumerate(topics):
            try:
                check_target(topic)
                check_sendable(topic)
            except ConfigurationError as error:
                self._refuse(topic_of == number, "topic", str(error))
        return tuple(map(self._space.wire, topics)), topic_of

    def _text(self, batch: pa.RecordBatch, name: str) -> Any | None:
        column = self._column(batch, name)
        if column is None:
            return None
        texts = as_binary(column)
        self._refuse(
            has_separator(texts),
            name,
            "it contains U+0001 or U+0002, with which RocketMQ separates properties",
        )
        return texts

    def _keys(self, batch: pa.RecordBatch) -> Any | None:
        """The keys of each row as one text, separated by blanks."""
        column = self._column(batch, "keys")
        if column is None or not pa.types.is_list(column.type):
            return self._text(batch, "keys")
        # Spark may say of the keys that they are not null, which Arrow takes for another type.
        column = column.cast(pa.list_(pa.string()))
        flat = column.flatten()
        bad = _nulls(flat) | _mask(
            pc.or_(pc.equal(flat, ""), pc.match_substring_regex(flat, r"\s"))
        )
        if bad.any():
            rows = pc.list_parent_indices(column).to_numpy(zero_copy_only=False)
            of_row = np.zeros(batch.num_rows, np.bool_)
            of_row[rows[bad]] = True
            self._refuse(
                of_row,
                "keys",
                "a key is null, empty or contains white space, with which RocketMQ separates keys",
            )
        texts = as_binary(pc.binary_join(column, " "))
        self._refuse(
            has_separator(texts),
            "keys",
            "a key contains U+0001 or U+0002, with which RocketMQ separates properties",
        )
        return texts

    def _map(self, batch: pa.RecordBatch) -> tuple[Any | None, Any | None]:
        column = self._column(batch, "properties")
        if column is None:
            return None, None
        every, own, bad = map_texts(column)
        self._refuse(
            bad,
            "properties",
            "a name or value contains U+0001 or U+0002, with which RocketMQ separates properties",
        )
        return every, own

    def _delays(self, batch: pa.RecordBatch) -> tuple[tuple[Any | None, Any | None], Mask]:
        count = batch.num_rows
        level, moment = self._column(batch, "delay_level"), self._column(batch, "deliver_at")
        levels = np.zeros(count, np.int64) if level is None else _numbers(level)
        self._refuse(
            (levels < 0) | (levels > _DELAY_LEVEL_MAX),
            "delay_level",
            f"levels are 1 to {_DELAY_LEVEL_MAX}, or 0 or null for none",
        )
        by_level = levels > 0
        by_moment = np.zeros(count, np.bool_) if moment is None else ~_nulls(moment)
        self._refuse(
            by_level & by_moment, "deliver_at", "delay_level is set as well: a message has one"
        )
        delay = timer = None
        if by_level.any():
            texts = pa.array(levels, mask=~by_level).cast(pa.string())
            delay = property_part("DELAY", as_binary(texts))
        if moment is not None and by_moment.any():
            ms = pc.floor(
                pc.divide(moment.cast(pa.timestamp("us", "UTC")).cast(pa.int64()), 1000.0)
            )
            timer = property_part(
                "TIMER_DELIVER_MS", as_binary(ms.cast(pa.int64()).cast(pa.string()))
            )
        return (delay, timer), by_level | by_moment

    # ---- ids ---------------------------------------------------------------------------------

    def _ids(self, batch: pa.RecordBatch, keys: Any | None, properties: Any | None) -> Any:
        place = self._layout.id_place
        if place is None:
            contents = self._contents(batch, keys, properties)
            digests = row_digests(bytes_of(contents), offsets_of(contents).tolist(), self._frame)
            return fixed_binary(np.frombuffer(digests, np.uint8), DIGEST_CHARS)
        name, column = self._layout.names[place], batch.column(place)
        ids = as_binary(column if pa.types.is_string(column.type) else column.cast(pa.string()))
        self._refuse(
            _nulls(ids) | (_lengths(ids) == 0),
            name,
            "it is null or empty, but option 'idColumn' makes it the row's id: give every row one",
        )
        self._refuse(
            has_separator(ids),
            name,
            "it contains U+0001 or U+0002, with which RocketMQ separates properties",
        )
        return ids

    def _contents(self, batch: pa.RecordBatch, keys: Any | None, properties: Any | None) -> Any:
        """Everything that is in a row, in one text: the columns by name, their lengths first."""
        texts = []
        for place in sorted(range(batch.num_columns), key=self._layout.names.__getitem__):
            name, column = self._layout.names[place], batch.column(place)
            if name == "keys" and keys is not None:
                texts.append(keys)
            elif name == "properties" and properties is not None:
                texts.append(properties)
            elif pa.types.is_timestamp(column.type):
                texts.append(as_binary(column.cast(pa.int64()).cast(pa.string())))
            elif pa.types.is_integer(column.type):
                texts.append(as_binary(column.cast(pa.string())))
            else:
                texts.append(as_binary(column))
        sizes = np.empty((batch.num_rows, len(texts)), ">i4")
        for number, text in enumerate(texts):
            # -1 tells null from empty.
            sizes[:, number] = np.where(_nulls(text), -1, _lengths(text))
        return join(fixed_binary(sizes, 4 * len(texts)), *texts)

    # ---- errors ------------------------------------------------------------------------------

    def _refuse(self, bad: Mask, column: str, why: str) -> None:
        row = first_true(bad)
        if row is not None:
            raise ConfigurationError(
                f"row {self.rows_before + row} of {self._where} cannot be written: "
                f"column '{column}': {why}"
            )


def slices(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A record batch in pieces of bounded size, at least a row each."""
    rows = min(max(1, batch.num_rows * _SLICE_BYTES // max(batch.nbytes, 1)), _SLICE_ROWS)
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def _entries(bodies: Any, properties: Any, properties_bytes: npt.NDArray[np.int64]) -> Any:
    heads = np.zeros(len(bodies), _HEAD)
    heads["body"] = _lengths(bodies)
    heads["size"] = heads["body"] + _ENTRY_BYTES + properties_bytes
    return join(
        fixed_binary(heads, _HEAD.itemsize),
        bodies,
        fixed_binary(properties_bytes.astype(">i2"), 2),
        properties,
    )


def _lengths(array: Any) -> npt.NDArray[np.int64]:
    lengths: npt.NDArray[np.int64] = (
        pc.fill_null(pc.binary_length(array), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    )
    return lengths


def _numbers(column: Any) -> npt.NDArray[np.int64]:
    numbers: npt.NDArray[np.int64] = pc.fill_null(column.cast(pa.int64()), 0).to_numpy(
        zero_copy_only=False
    )
    return numbers


def _mask(array: Any) -> Mask:
    mask: Mask = pc.fill_null(array, False).to_numpy(zero_copy_only=False).astype(np.bool_)
    return mask


def _nulls(array: Any) -> Mask:
    if not array.null_count:
        return np.zeros(len(array), np.bool_)
    return _mask(array.is_null())

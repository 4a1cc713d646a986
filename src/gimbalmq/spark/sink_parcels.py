"""Encoded rows to requests: which rows leave together, and to which queue.

A parcel is what one request carries: rows of one topic for one queue, as a wire batch or, for
rows that cannot be in a batch, one by itself. Rows with equal keys stay in order: they are in one
queue, and parcels of one queue are sent one after another. Knows no connections.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gimbalmq.flows.batch import BATCH_PROPERTIES
from gimbalmq.flows.outgoing import SendSettings
from gimbalmq.model.queue import MessageQueue
from gimbalmq.spark.rows import EncodedRows
from gimbalmq.spark.rows_text import bytes_of, offsets_of
from gimbalmq.wire.codes import CompressionType, SysFlag
from gimbalmq.wire.compression import compress

__all__ = ["Parcel", "ParcelCutter"]

#: A wire batch of so much is as quick as larger ones, and keeps several in flight.
_PARCEL_BYTES: Final = 256 << 10
_PARCEL_ROWS: Final = 512
#: Where the rate is limited, so many are sent in a second at least, if there are rows for them.
_PARCELS_PER_S: Final = 4
_COMPRESSED: Final = int(SysFlag.COMPRESSED)

Rows = npt.NDArray[np.int64]


class Parcel(msgspec.Struct, frozen=True):
    """What one request carries; `queue` is None when any will do."""

    topic: str
    queue: MessageQueue | None
    body: bytes
    properties: str
    sys_flag: int
    #: Whether the body is a wire batch.
    batch: bool
    #: How to find the rows again: the record batch, and their places in it.
    source: EncodedRows
    rows: Rows
    #: Rows of the task before the record batch.
    rows_before: int

    def describe(self) -> str:
        """The rows in words, for errors."""
        numbers, ids = self.rows + self.rows_before, self.source.ids
        first = ids[int(self.rows[0])].as_py().decode()
        if len(numbers) == 1:
            return f"row {numbers[0]} (id {first})"
        last = ids[int(self.rows[-1])].as_py().decode()
        return f"{len(numbers)} rows from {numbers[0]} to {numbers[-1]} (ids {first} to {last})"

    def split(self) -> Iterator[Parcel]:
        """Each row as a parcel of its own."""
        for row in self.rows:
            yield _single(self.source, int(row), self.topic, self.queue, self.rows_before)


class ParcelCutter:
    """Cuts the record batches of one task; `queues_of` gives the publish list of a topic."""

    def __init__(
        self,
        queues_of: Callable[[str], Sequence[MessageQueue]],
        *,
        in_flight_max: int,
        rows_per_s: int | None = None,
    ) -> None:
        self._queues_of = queues_of
        # Two parcels at least fit into the bound, so that one is on its way while one is made.
        rows_max = min(_PARCEL_ROWS, in_flight_max // 2)
        if rows_per_s is not None:
            rows_max = min(rows_max, rows_per_s // _PARCELS_PER_S)
        self._rows_max = max(1, rows_max)

    def cut(self, rows: EncodedRows, rows_before: int) -> Iterator[Parcel]:
        """The parcels of a record batch, those of different queues in turn."""
        lines = []
        for number, topic in enumerate(rows.topics):
            of_topic = np.flatnonzero(rows.topic_of == number)
            if not len(of_topic):
                continue
            queues = self._queues_of(topic)
            keyless = of_topic[~rows.keyed[of_topic]]
            if len(keyless):
                share = -(-len(keyless) // len(queues))
                limit = min(self._rows_max, max(share, 1))
                lines.append(_line(rows, keyless, topic, None, rows_before, limit))
            keyed = of_topic[rows.keyed[of_topic]]
            # Java's remainder keeps the sign of the dividend, so abs() first is the same.
            places = np.abs(rows.hashes[keyed]) % len(queues)
            for place in np.unique(places):
                queue = queues[int(place)]
                picked = keyed[places == place]
                lines.append(_line(rows, picked, topic, queue, rows_before, self._rows_max))
        for turn in itertools.zip_longest(*lines):
            yield from (parcel for parcel in turn if parcel is not None)


def _line(
    source: EncodedRows,
    rows: Rows,
    topic: str,
    queue: MessageQueue | None,
    rows_before: int,
    rows_max: int,
) -> Iterator[Parcel]:
    """The parcels of rows that go the same way, in order."""
    entries = source.entries
    if len(rows) != len(source):
        entries = entries.take(pa.array(rows))
    data, offsets = bytes_of(entries), offsets_of(entries)
    singles = np.append(np.flatnonzero(source.single[rows]), len(rows))
    start, count = 0, len(rows)
    while start < count:
        next_single = int(singles[np.searchsorted(singles, start)])
        if next_single == start:
            yield _single(source, int(rows[start]), topic, queue, rows_before)
            start += 1
            continue
        fits = int(np.searchsorted(offsets, offsets[start] + _PARCEL_BYTES, side="right")) - 1
        end = min(max(fits, start + 1), start + rows_max, next_single)
        yield Parcel(
            topic,
            queue,
            bytes(data[offsets[start] : offsets[end]]),
            BATCH_PROPERTIES,
            0,
            True,
            source,
            rows[start:end],
            rows_before,
        )
        start = end


def _single(
    source: EncodedRows, row: int, topic: str, queue: MessageQueue | None, rows_before: int
) -> Parcel:
    body, sys_flag = source.bodies[row].as_py(), 0
    limits = SendSettings()
    if len(body) >= limits.compress_msg_body_over_howmuch:
        body = compress(body, CompressionType.ZLIB, level=limits.compress_level)
        sys_flag = _COMPRESSED | int(CompressionType.ZLIB)
    properties = source.properties[row].as_py().decode()
    return Parcel(
        topic, queue, body, properties, sys_flag, False, source, np.array([row]), rows_before
    )

"""Where the records of pull answers are, and the parts of each; imports numpy and pyarrow.

All pull answers are joined into one buffer. Hops from record to record note where each starts, in
all answers at once: from the first records to the second ones, and so on. Numbers are read through
overlapping views of the buffer (a record's head at every byte), indexed by the records' starts.
What becomes of the places, `columnar` decides.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from gimbalmq.errors import ConfigurationError, ProtocolError
from gimbalmq.wire.arrow_parts import ARROW_BYTES_MAX, Places, cut, view_of
from gimbalmq.wire.property_columns import PropertyTable
from gimbalmq.wire.record_layout import (
    MAGIC_V1,
    MAGIC_V2,
    RECORD_BYTES_MIN,
    TOPIC_BYTES_MAX_V1,
    V6_EXTRA_BYTES,
)

__all__ = ["Buffers", "RecordPlaces"]

#: Pull answers, each with the broker that gave it.
Buffers = Sequence[tuple[bytes | bytearray | memoryview, str]]

_BORN_HOST_V6_BIT: Final = 4
_STORE_HOST_V6_BIT: Final = 5

#: What stands at the same place in every record; after the born time only with IPv4 hosts.
_HEAD: Final = np.dtype(
    {
        "names": ["size", "magic", "queue_id", "queue_offset", "flags", "born_at", "body_bytes"],
        "formats": [">i4", ">i4", ">i4", ">i8", ">i4", ">i8", ">i4"],
        "offsets": [0, 4, 12, 20, 36, 40, 84],
        "itemsize": 88,
    }
)
#: From so many answers on, a hop in all of them at once costs less than hops one by one.
_TOGETHER_MIN: Final = 32

_size_at: Final = struct.Struct(">i").unpack_from


class RecordPlaces:
    """The joined buffers, and where the parts of each record are."""

    def __init__(self, buffers: Buffers) -> None:
        self.brokers = [broker for _, broker in buffers]
        sizes = [len(data) for data, _ in buffers]
        if sum(sizes) > ARROW_BYTES_MAX:
            raise ConfigurationError(
                f"{sum(sizes)} bytes are more than one Arrow column can hold (2 GiB): "
                "decode fewer pull answers at once"
            )
        self.data = (
            bytes(buffers[0][0]) if len(buffers) == 1 else b"".join([data for data, _ in buffers])
        )
        self.arrow = pa.py_buffer(self.data)
        #: Where each record starts, and the index of the buffer that it came in.
        self.starts, self.sources = _hop(self.data, sizes)
        # As plain bytes: numpy copies the fields of records one by one.
        self._heads = view_of(self.data, f"V{_HEAD.itemsize}")[self.starts].view(_HEAD)
        self._check_magic()

    def head(self, field: str) -> Places:
        """A number of each record that stands at the same place in all of them."""
        numbers: Places = self._heads[field].astype(np.int64)
        return numbers

    def _check_magic(self) -> None:
        magics = self.head("magic")
        wrong = np.flatnonzero((magics != MAGIC_V1) & (magics != MAGIC_V2))
        if len(wrong):
            raise self._corrupt(wrong, "it has no magic number")

    def _corrupt(self, wrong: Places, what: str) -> ProtocolError:
        first = int(wrong[0])
        source = int(self.sources[first])
        before = int(self.starts[int(np.argmax(self.sources == source))])
        return ProtocolError(
            f"record at byte {int(self.starts[first]) - before} of pull answer {source} from "
            f"broker '{self.brokers[source]}' is corrupt: {what}"
        )

    def any_flag(self, bits: int) -> bool:
        """Whether some record has all of these sysFlag bits."""
        return bool(np.any(self.flags & bits == bits))

    def keep_ranges(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Drop the records whose queue offset is outside the range of their buffer."""
        bounds = np.array(ranges, np.int64).reshape(-1, 2)[self.sources]
        offsets = self.head("queue_offset")
        kept = (offsets >= bounds[:, 0]) & (offsets < bounds[:, 1])
        if kept.all():
            return
        self.starts, self.sources = self.starts[kept], self.sources[kept]
        self._heads = self._heads[kept]
        for name in ("flags", "born_extra", "store_extra"):
            self.__dict__.pop(name, None)

    def ints(self, offset: int | Places) -> Places:
        """The 32-bit number at an offset of each record."""
        numbers: Places = view_of(self.data, ">i4")[self.starts + offset].astype(np.int64)
        return numbers

    def longs(self, offset: int | Places) -> Places:
        """The 64-bit number at an offset of each record."""
        numbers: Places = view_of(self.data, ">i8")[self.starts + offset].astype(np.int64)
        return numbers

    @functools.cached_property
    def flags(self) -> Places:
        """The sysFlag of each record."""
        return self.head("flags")

    @functools.cached_property
    def born_extra(self) -> Places:
        """How much longer than IPv4 the born host of each record is."""
        return (self.flags >> _BORN_HOST_V6_BIT & 1) * V6_EXTRA_BYTES

    @functools.cached_property
    def store_extra(self) -> Places:
        """How much longer than IPv4 the store host of each record is."""
        return (self.flags >> _STORE_HOST_V6_BIT & 1) * V6_EXTRA_BYTES

    @functools.cached_property
    def body_place(self) -> tuple[Places, Places]:
        """Where each body starts and ends."""
        extra = self.born_extra + self.store_extra
        body_from = self.starts + 88 + extra
        self._check_fits(body_from)
        lengths = self.ints(84 + extra) if extra.any() else self.head("body_bytes")
        body_until = body_from + lengths
        wrong = np.flatnonzero((lengths < 0) | (body_until + 3 > self.ends))
        if len(wrong):
            raise self._corrupt(wrong, f"its body has {int(lengths[wrong[0]])} bytes")
        return body_from, body_until

    @functools.cached_property
    def ends(self) -> Places:
        """Where each record ends."""
        return self.starts + self.head("size")

    def _check_fits(self, until: Places) -> None:
        wrong = np.flatnonzero(until + 3 > self.ends)
        if len(wrong):
            raise self._corrupt(wrong, "it is too short for its IPv6 hosts")

    @functools.cached_property
    def topic_place(self) -> tuple[Places, Places]:
        """Where each topic starts and ends."""
        at = self.body_place[1]
        lengths = view_of(self.data, "u1")[at].astype(np.int64)
        widths = np.where(self.head("magic") == MAGIC_V1, 1, 2)
        long = widths == 2
        plausible = lengths <= TOPIC_BYTES_MAX_V1
        if long.any():
            lengths = np.where(long, view_of(self.data, ">i2")[at].astype(np.int64), lengths)
            plausible = np.where(long, lengths >= 0, plausible)
        topic_from = at + widths
        topic_until = topic_from + lengths
        wrong = np.flatnonzero(~plausible | (topic_until + 2 > self.ends))
        if len(wrong):
            raise self._corrupt(wrong, f"its topic has {int(lengths[wrong[0]])} bytes")
        return topic_from, topic_until

    @functools.cached_property
    def properties(self) -> PropertyTable:
        """The properties of each record."""
        at = self.topic_place[1]
        lengths = view_of(self.data, ">i2")[at].astype(np.int64)
        properties_until = at + 2 + lengths
        wrong = np.flatnonzero((lengths < 0) | (properties_until > self.ends))
        if len(wrong):
            raise self._corrupt(wrong, "its properties do not fit")
        return PropertyTable(cut(self.arrow, at + 2, properties_until, pa.binary()))


def _hop(data: bytes, sizes: Sequence[int]) -> tuple[Places, Places]:
    """Where each record starts, and the index of the buffer that has it."""
    lengths = np.array(sizes, np.int64)
    ends = np.cumsum(lengths)
    begins = ends - lengths
    regular = _regular(data, begins, lengths)
    if regular is not None:
        return regular
    found, numbers, places = _hop_together(data, begins, ends)
    for number, place in zip(numbers.tolist(), places.tolist(), strict=True):
        found.append(_walk(data, number, place, int(begins[number]), int(ends[number])))
    starts = np.sort(np.concatenate(found)) if found else places
    counts = np.diff(np.searchsorted(starts, ends), prepend=0)
    return starts, np.repeat(np.arange(len(sizes)), counts)


def _regular(data: bytes, begins: Places, lengths: Places) -> tuple[Places, Places] | None:
    """The result of `_hop` when all records of each buffer have one size, as often; else None.

    Guessed from the first record and checked at all others, which is the same as hopping.
    """
    if not len(begins) or lengths.min() < RECORD_BYTES_MIN:
        return None
    words = view_of(data, ">i4")
    firsts = words[begins].astype(np.int64)
    if firsts.min() < RECORD_BYTES_MIN:
        return None
    counts, rest = np.divmod(lengths, firsts)
    if rest.any():
        return None
    sources = np.repeat(np.arange(len(begins)), counts)
    before = np.cumsum(counts) - counts
    steps = firsts[sources]
    starts = begins[sources] + (np.arange(len(sources)) - before[sources]) * steps
    return (starts, sources) if (words[starts] == steps).all() else None


def _hop_together(data: bytes, begins: Places, ends: Places) -> tuple[list[Places], Places, Places]:
    """Starts of records in all buffers, while those with more are many; then which, and where.

    When a buffer is damaged, everything is left to be walked through, which tells the place.
    """
    numbers, places = np.arange(len(begins)), begins
    found: list[Places] = []
    words = view_of(data, ">i4")
    while len(numbers) >= _TOGETHER_MIN:
        left = ends[numbers] - places
        if left.min() < RECORD_BYTES_MIN:
            unfinished = left != 0
            if left[unfinished].min(initial=RECORD_BYTES_MIN) < RECORD_BYTES_MIN:
                return [], np.arange(len(begins)), begins
            numbers, places = numbers[unfinished], places[unfinished]
            continue
        found.append(places)
        steps = words[places]
        if steps.min() < RECORD_BYTES_MIN:
            return [], np.arange(len(begins)), begins
        places = places + steps
    return found, numbers, places


def _walk(data: bytes, number: int, place: int, begin: int, end: int) -> Places:
    """Where the records of one buffer start, from a place on."""
    starts: list[int] = []
    note = starts.append
    last = end - RECORD_BYTES_MIN
    while place <= last:
        note(place)
        record_bytes = _size_at(data, place)[0]
        if record_bytes < RECORD_BYTES_MIN:
            raise _cut_off(number, place - begin)
        place += record_bytes
    if place != end:
        raise _cut_off(number, (place if place < end else starts[-1]) - begin)
    return np.array(starts, np.int64)


def _cut_off(number: int, position: int) -> ProtocolError:
    return ProtocolError(f"record at byte {position} of pull answer {number} is cut off or corrupt")

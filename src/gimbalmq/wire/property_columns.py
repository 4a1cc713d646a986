"""The properties of many messages at once: single values and the whole map, as Arrow columns.

Works on the concatenated properties strings of all rows; imports numpy and pyarrow, so import it
late. The rules are those of `properties`: entries without a name or a value do not exist, and of
a repeated name the last entry counts.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gimbalmq.wire.arrow_parts import Places, array_of, bytes_of, cut_text, offsets_of, view_of

__all__ = ["PropertyTable"]

_NAME_END: Final = 1
_VALUE_END: Final = 2
#: Odd multipliers that spread words over 64 bits; any would do.
_MIX: Final = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F))


class PropertyTable:
    """Where each property of each row is; made once, then asked for columns."""

    def __init__(self, properties: Any) -> None:
        """Take the properties strings as a binary array without nulls."""
        self._rows = len(properties)
        self._data = bytes_of(properties)
        self._find_entries(offsets_of(properties))

    def _find_entries(self, bounds: Places) -> None:
        """Note row, name and value of every entry, in the order of the bytes."""
        size = int(bounds[-1])
        data = view_of(self._data, "u1")[:size]
        marks = np.flatnonzero(data == _VALUE_END)
        # Each row has one segment more than marks; both lists are merged runs, paired by rank.
        starts = np.sort(np.concatenate((bounds[:-1], marks + 1)), kind="stable")
        ends = np.sort(np.concatenate((marks, bounds[1:])), kind="stable")
        marks_before = np.searchsorted(marks, bounds)
        row_of = np.repeat(np.arange(self._rows), np.diff(marks_before) + 1)
        filled = starts < ends
        starts, ends, row_of = starts[filled], ends[filled], row_of[filled]
        separators = np.flatnonzero(data == _NAME_END)
        if len(separators) != len(starts) or not np.all(
            (starts < separators) & (separators < ends)
        ):
            separators = np.append(separators, size)[np.searchsorted(separators, starts)]
        valid = (starts < separators) & (separators + 1 < ends)
        if not valid.all():
            starts, separators, ends = starts[valid], separators[valid], ends[valid]
            row_of = row_of[valid]
        self._starts, self._separators, self._ends, self._row_of = starts, separators, ends, row_of

    def column(self, name: bytes) -> Any:
        """The value of one property in each row, null where it is absent."""
        entries = self._entries_named(name)
        places = np.full(self._rows, -1, np.int64)
        # Of several entries for one row the last one written stays: the later entry.
        places[self._row_of[entries]] = entries
        present = np.flatnonzero(places >= 0)
        chosen = places[present]
        texts = cut_text(self._data, self._separators[chosen] + 1, self._ends[chosen])
        if len(present) == self._rows:
            return texts
        index = np.zeros(self._rows, np.int32)
        index[present] = np.arange(len(present), dtype=np.int32)
        return texts.take(array_of(index, mask=places < 0))

    def _entries_named(self, name: bytes) -> Places:
        entries = np.flatnonzero(self._separators - self._starts == len(name))
        position = 0
        while position < len(name):
            width = next(one for one in (8, 4, 2, 1) if one <= len(name) - position)
            words = view_of(self._data, f"<u{width}")[self._starts[entries] + position]
            wanted = int.from_bytes(name[position : position + width], "little")
            entries = entries[words == wanted]
            position += width
        return entries

    def map_column(self) -> Any:
        """All properties of each row as `map<string, string>`."""
        kept = self._without_repeated()
        starts, separators = self._starts[kept], self._separators[kept]
        counts = np.bincount(self._row_of[kept], minlength=self._rows)
        offsets = np.zeros(self._rows + 1, np.int32)
        np.cumsum(counts, out=offsets[1:])
        return pa.MapArray.from_arrays(
            array_of(offsets),
            cut_text(self._data, starts, separators),
            cut_text(self._data, separators + 1, self._ends[kept]),
        )

    def _without_repeated(self) -> npt.NDArray[np.bool_]:
        """Which entries stay when of each name in a row only the last does."""
        kept = np.ones(len(self._starts), np.bool_)
        marks = self._name_marks()
        ordered = np.sort(marks)
        repeated = ordered[1:][ordered[1:] == ordered[:-1]]
        if not len(repeated):
            return kept
        # Equal marks may still be different names: compare the names themselves.
        data = self._data.to_pybytes()
        last: dict[tuple[int, bytes], int] = {}
        for entry in np.flatnonzero(np.isin(marks, repeated)).tolist():
            name = data[self._starts[entry] : self._separators[entry]]
            before = last.get((int(self._row_of[entry]), name))
            if before is not None:
                kept[before] = False
            last[int(self._row_of[entry]), name] = entry
        return kept

    def _name_marks(self) -> npt.NDArray[np.uint64]:
        """A number per entry that is equal for equal names in one row."""
        lengths = self._separators - self._starts
        # First and last byte, two in between, and the length tell names of a row well apart.
        data = view_of(self._data, "u1")
        marks = lengths.astype(np.uint64)
        for place in (
            self._starts,
            self._separators - 1,
            self._starts + lengths // 2,
            self._starts + lengths // 3,
        ):
            marks = marks * np.uint64(257) + data[place]
        result: npt.NDArray[np.uint64] = marks * _MIX[0] + self._row_of.astype(np.uint64) * _MIX[1]
        return result

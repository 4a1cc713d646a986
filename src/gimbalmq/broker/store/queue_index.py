"""The queue index: where in the log each offset of a queue is.

One entry per message: place in the log, size, hash of the tag, time of storing. Entries lie in
files named by their first offset. The youngest stay in memory, so that reading at the end of a
queue costs no system call; the rest is read when asked for. Entries not yet written are no loss:
recovery makes them again from the log.

An entry whose place is `HOLE` stands for a message that damage took; the offsets after it keep
their meaning. Must not know the log.
"""

from __future__ import annotations

import bisect
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from gimbalmq.broker.store.api import Boundary
from gimbalmq.broker.store.files import OpenFiles, disk_errors

__all__ = ["ENTRY_BYTES", "HOLE", "QueueIndex", "load_queue_index", "unpack_entries"]

#: place in the log, size of the record, hash of the tag, time of storing
_entry: Final = struct.Struct(">qiiq")
_pack: Final = _entry.pack
ENTRY_BYTES: Final = _entry.size
HOLE: Final = -1

_NOWHERE: Final = 1 << 62

#: Kept in memory per queue; half of it goes when it is full.
_TAIL_BYTES_MAX: Final = 512 * ENTRY_BYTES
_NAME_DIGITS: Final = 20


def unpack_entries(data: bytes | bytearray) -> Iterator[tuple[int, int, int, int]]:
    """(place, size, hash of the tag, time of storing) of each entry."""
    return _entry.iter_unpack(data)


class QueueIndex:
    """The entries of one queue, offsets `minimum` to `next_offset`."""

    __slots__ = (
        "_files",
        "_new_names",
        "_per_file",
        "_tail",
        "_tail_from",
        "_unsynced",
        "_written_until",
        "bases",
        "directory",
        "key_seed",
        "minimum",
        "next_offset",
    )

    def __init__(
        self, directory: Path, files: OpenFiles, *, per_file: int, base: int = 0, key_seed: int = 0
    ) -> None:
        self.directory = directory
        #: First offsets of the files, in order; never empty once something was written.
        self.bases: list[int] = []
        self.minimum = self.next_offset = base
        #: Where the hash of a key of this topic starts; kept here because appends need both.
        self.key_seed = key_seed
        self._files = files
        self._per_file = per_file
        self._tail = bytearray()
        self._tail_from = self._written_until = base
        self._unsynced: set[int] = set()
        self._new_names = False

    def add(self, place: int, size: int, tag_hash: int, store_timestamp_ms: int) -> None:
        """Append an entry, to memory only."""
        self._tail += _pack(place, size, tag_hash, store_timestamp_ms)
        self.next_offset += 1

    def make_room(self) -> None:
        """Write out and trim the entries in memory when they have become many.

        Called before a message goes to the log, so that a full disk stops it in time.
        """
        if len(self._tail) >= _TAIL_BYTES_MAX:
            self.write_out()
            keep = _TAIL_BYTES_MAX // 2
            self._tail_from += (len(self._tail) - keep) // ENTRY_BYTES
            del self._tail[:-keep]

    @property
    def written(self) -> bool:
        """Whether the files have every entry."""
        return self._written_until == self.next_offset and bool(self.bases)

    def write_out(self) -> None:
        """Hand the entries that are only in memory to the operating system."""
        while not self.written:
            base = self._file_for(self._written_until)
            count = min(self.next_offset, base + self._per_file) - self._written_until
            at = (self._written_until - self._tail_from) * ENTRY_BYTES
            path = self._path(base)
            fresh = not self.bases or base != self.bases[-1]
            with disk_errors("write the queue index", path):
                descriptor = self._files.get(path)
                if fresh:
                    self._files.disk.resize(descriptor, 0)  # left over from an interrupted removal
                self._files.disk.write_at(
                    descriptor,
                    self._tail[at : at + count * ENTRY_BYTES],
                    (self._written_until - base) * ENTRY_BYTES,
                )
            if fresh:
                self.bases.append(base)
                self._new_names = True
            self._written_until += count
            self._unsynced.add(base)

    def _file_for(self, offset: int) -> int:
        if self.bases and offset < self.bases[-1] + self._per_file:
            return self.bases[-1]
        if not self.bases:
            with disk_errors("make", self.directory):
                self.directory.mkdir(parents=True, exist_ok=True)
        return offset

    def unsynced(self) -> list[Path]:
        """Files and directories that the device may not have yet."""
        paths = [self._path(base) for base in sorted(self._unsynced)]
        if self._new_names:
            paths += [self.directory, self.directory.parent, self.directory.parent.parent]
        return paths

    def mark_synced(self) -> None:
        """The device has what `unsynced` named, and nothing was written since."""
        self._unsynced.clear()
        self._new_names = False

    def entries(self, offset_from: int, offset_until: int) -> bytes | bytearray:
        """The entries of a range of offsets; shorter where it reaches beyond what is held."""
        start = max(offset_from, self.minimum)
        until = min(offset_until, self.next_offset)
        if start >= self._tail_from:
            at = (start - self._tail_from) * ENTRY_BYTES
            return self._tail[at : max(until - self._tail_from, 0) * ENTRY_BYTES]
        parts: list[bytes | bytearray] = []
        while start < min(until, self._tail_from):
            index = bisect.bisect_right(self.bases, start) - 1
            following = self.bases[index + 1] if index + 1 < len(self.bases) else until
            stop = min(until, following, self._tail_from)
            parts.append(self._from_file(self.bases[index], start, stop))
            start = stop
        if start < until:
            parts.append(self.entries(start, until))
        return b"".join(parts)

    def _from_file(self, base: int, start: int, stop: int) -> bytes:
        path = self._path(base)
        with disk_errors("read the queue index", path):
            wanted = (stop - start) * ENTRY_BYTES
            data = os.pread(self._files.get(path), wanted, (start - base) * ENTRY_BYTES)
            if len(data) < wanted:
                raise OSError(f"{wanted - len(data)} bytes are missing at its end")
        return data

    def entry(self, offset: int) -> tuple[int, int, int, int]:
        """(place, size, hash of the tag, time of storing) of an offset that is held."""
        return _entry.unpack(self.entries(offset, offset + 1))

    def offset_at(self, timestamp_ms: int, boundary: Boundary) -> int:
        """See `Store.offset_at`; supposes that the clock never stepped back."""
        held = range(self.minimum, self.next_offset)
        if not held:
            return 0
        if boundary is Boundary.LOWER:
            return held.start + bisect.bisect_left(held, timestamp_ms, key=self._time)
        newer = bisect.bisect_right(held, timestamp_ms, key=self._time)
        return held[newer - 1] if newer else 0

    def _time(self, offset: int) -> int:
        return self.entry(offset)[3]

    def raise_minimum(self, place: int) -> None:
        """Give up the offsets whose records lie before a place of the log."""
        self.minimum = self.first_at_or_after(place)
        while len(self.bases) > 1 and self.bases[1] <= min(self.minimum, self._written_until):
            self._remove(self.bases[0])

    def _place(self, offset: int) -> int:
        """Place of an offset, or of the next one that has one."""
        for at in range(offset, self.next_offset):
            place, size, _, _ = self.entry(at)
            if place != HOLE:
                # A crash of the machine can leave zeros where entries were not synced.
                return place if size > 0 else _NOWHERE
        return _NOWHERE

    def first_at_or_after(self, place: int) -> int:
        """The first offset whose record lies at a place of the log or behind it."""
        held = range(self.minimum, self.next_offset)
        if not held or self._place(held[0]) >= place:
            return held.start
        return held.start + bisect.bisect_left(held, place, key=self._place)

    def cut(self, offset: int) -> None:
        """Forget the entries from an offset on; the last file stays, if empty, for its name."""
        while len(self.bases) > 1 and self.bases[-1] > offset:
            self._remove(self.bases[-1])
        if self.bases:
            base = self.bases[-1]
            if base > offset:
                self.restart(offset)
                return
            path = self._path(base)
            with disk_errors("cut the queue index", path):
                self._files.disk.resize(self._files.get(path), (offset - base) * ENTRY_BYTES)
            self._unsynced.add(base)
        self._tail.clear()
        self._tail_from = self._written_until = self.next_offset = offset
        self.minimum = min(self.minimum, offset)

    def restart(self, offset: int) -> None:
        """Forget everything; the next entry has this offset."""
        for base in tuple(self.bases):
            self._remove(base)
        self._tail.clear()
        self._tail_from = self._written_until = self.next_offset = self.minimum = offset

    def fill_holes(self, offset_until: int, store_timestamp_ms: int) -> None:
        """Stand in for messages that are lost, up to the next one that is not."""
        while self.next_offset < offset_until:
            self.make_room()
            self.add(HOLE, 0, 0, store_timestamp_ms)

    def remove(self) -> None:
        """Remove all files and the directory."""
        self.restart(0)
        with disk_errors("remove", self.directory):
            if self.directory.is_dir():
                self.directory.rmdir()

    def _remove(self, base: int) -> None:
        path = self._path(base)
        self._files.forget(path)
        with disk_errors("remove the queue index", path):
            self._files.disk.remove(path)
        self.bases.remove(base)
        self._unsynced.discard(base)

    def _path(self, base: int) -> Path:
        return self.directory / f"{base:0{_NAME_DIGITS}d}"


def load_queue_index(
    directory: Path, files: OpenFiles, *, per_file: int, key_seed: int = 0
) -> QueueIndex:
    """The index that a directory holds; files that do not join up are cut or removed.

    What is missing then shows as a gap, which recovery fills from the log.
    """
    index = QueueIndex(directory, files, per_file=per_file, key_seed=key_seed)
    with disk_errors("list the queue index in", directory):
        sizes = {
            int(path.name): path.stat().st_size
            for path in directory.iterdir()
            if len(path.name) == _NAME_DIGITS and path.name.isascii() and path.name.isdigit()
        }
    ragged = False
    for base in sorted(sizes):
        index.bases.append(base)
        if len(index.bases) > 1 and base != index.next_offset:
            index._remove(base)  # noqa: SLF001 - this function is half of the class
            continue
        if len(index.bases) == 1:
            index.minimum = base
        count, rest = divmod(sizes[base], ENTRY_BYTES)
        index.next_offset = base + count
        ragged = bool(rest)
    index._tail_from = index._written_until = index.next_offset  # noqa: SLF001 - as above
    if ragged:
        index.cut(index.next_offset)
    return index

"""The key index: which records have a key or a unique id.

Each log segment has its own file, which goes when the segment goes. A file is a row of sorted
runs of 64-bit numbers: the key's hash above, the record's place within the segment below. The run
being filled is in memory; lookups search each run by halving, in a map of the file. Hashes
collide, so whoever asks must compare the key itself.

Runs are in the byte order of the machine; on another machine the file is not recognised, and
recovery makes it again from the log. Must not know the log.
"""

from __future__ import annotations

import bisect
import mmap
import os
import re
import struct
import zlib
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from gimbalmq.broker.store.files import Disk, OpenFiles, disk_errors, rewrite, sync_paths

__all__ = ["KeyIndex"]

#: magic, count, CRC of the numbers, place of the log up to which keys are in this and earlier runs
_run: Final = struct.Struct("=IIIxxxxq")
_MAGIC: Final = 0x6B657973
_NUMBER_BYTES: Final = 8
#: Sorting that many takes some milliseconds, and they take a quarter of a megabyte.
_RUN_COUNT_MAX: Final = 32_768
_SUFFIX: Final = ".keys"
_NAME: Final = re.compile(r"[0-9]{20}\.keys")
_PLACE_BITS: Final = 32
_PLACE_MASK: Final = (1 << _PLACE_BITS) - 1


class KeyIndex:
    """The keys of all segments; those of one of them, the active one, are being added."""

    def __init__(self, directory: Path, files: OpenFiles) -> None:
        with disk_errors("make", directory):
            directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._files = files
        self._disk: Disk = files.disk
        #: Start of the segment whose keys are being added.
        self.active = 0
        self._numbers: array[int] = array("Q")
        #: Where the run in memory goes to in the file of the active segment.
        self._run_at = 0
        self._unsynced: set[int] = set()
        self._sync_failed = False

    def add(self, hashes: Iterable[int], relative_place: int) -> None:
        """Note the hashes of the record at a place of the active segment, in memory only."""
        for number in hashes:
            self._numbers.append(number << _PLACE_BITS | relative_place)

    def make_room(self, covered_until: int) -> None:
        """Write the run in memory when it is full; called before a message goes to the log."""
        if len(self._numbers) >= _RUN_COUNT_MAX:
            self.write_out(covered_until)
            self._run_at += _run.size + len(self._numbers) * _NUMBER_BYTES
            del self._numbers[:]

    def write_out(self, covered_until: int) -> None:
        """Hand the run in memory to the operating system; it stays open for more."""
        numbers = array("Q", sorted(self._numbers)).tobytes()
        head = _run.pack(_MAGIC, len(self._numbers), zlib.crc32(numbers), covered_until)
        path = self._path(self.active)
        with disk_errors("write the key index", path):
            self._disk.write_at(self._files.get(path), head + numbers, self._run_at)
        self._unsynced.add(self.active)

    def roll(self, segment_start: int, covered_until: int) -> None:
        """Finish the active segment's file and begin another's."""
        self.write_out(covered_until)
        self.begin(segment_start)

    def begin(self, segment_start: int) -> None:
        """Start a segment's keys anew, whatever its file holds."""
        self.active = segment_start
        self._run_at = 0
        del self._numbers[:]
        self._discard(segment_start)

    def beside(self) -> KeyIndex:
        """Another one over the same files, to make the keys of a full segment again."""
        return KeyIndex(self._directory, self._files)

    def resume(self, segment_start: int, end: int) -> bool:
        """Go on with a segment whose keys should be complete up to `end`; False if they are not.

        The last run is read back into memory when it has room left.
        """
        path = self._path(segment_start)
        with disk_errors("read the key index", path):
            runs = list(self._runs(path))
            if not runs or runs[-1][3] < end:
                return False
            at, count, crc, _ = runs[-1]
            data = os.pread(self._files.get(path), count * _NUMBER_BYTES, at + _run.size)
        if len(data) != count * _NUMBER_BYTES or zlib.crc32(data) != crc:
            return False
        self.active, self._run_at = segment_start, at
        self._numbers = array("Q", data)
        return True

    def complete(self, segment_start: int, until: int) -> bool:
        """Whether the file of a full segment covers all its records."""
        path = self._path(segment_start)
        with disk_errors("read the key index", path):
            return any(run[3] >= until for run in self._runs(path))

    def places(self, segment_start: int, key_hash: int) -> list[int]:
        """Places in the segment of the records that may have the key, newest first."""
        first = key_hash << _PLACE_BITS
        found: list[int] = []
        path = self._path(segment_start)
        with disk_errors("read the key index", path):
            runs = list(self._runs(path))
            if segment_start == self.active:
                found += [n & _PLACE_MASK for n in self._numbers if n >> _PLACE_BITS == key_hash]
                # What the file has of the run in memory is an older copy of it.
                runs = [run for run in runs if run[0] < self._run_at]
            if runs:
                descriptor = self._files.get(path)
                with mmap.mmap(descriptor, 0, prot=mmap.PROT_READ) as mapped:
                    whole = memoryview(mapped)
                    for at, count, _, _ in runs:
                        start = at + _run.size
                        raw = whole[start : start + count * _NUMBER_BYTES]
                        numbers = raw.cast("Q")
                        found += _matches(numbers, first)
                        numbers.release()
                        raw.release()
                    whole.release()
        return sorted(set(found), reverse=True)

    def _runs(self, path: Path) -> Iterator[tuple[int, int, int, int]]:
        """(place in the file, count, CRC, covered until) of each run; stops at damage."""
        if not path.exists():
            return
        descriptor = self._files.get(path)
        size = os.fstat(descriptor).st_size
        at = 0
        while at + _run.size <= size:
            magic, count, crc, covered = _run.unpack(os.pread(descriptor, _run.size, at))
            until = at + _run.size + count * _NUMBER_BYTES
            if magic != _MAGIC or until > size:
                return
            yield at, count, crc, covered
            at = until

    def sync(self) -> None:
        """Wait until what was written out is on the device."""
        if not self._unsynced:
            return
        paths = [self._path(start) for start in sorted(self._unsynced)]
        if self._sync_failed:
            rewrite(self._disk, paths)
        self._sync_failed = True
        sync_paths(self._disk, [*paths, self._directory])
        self._sync_failed = False
        self._unsynced.clear()

    def drop_outside(self, segment_starts: Iterable[int]) -> None:
        """Remove the files of segments that are gone."""
        kept = {self._path(start).name for start in segment_starts}
        with disk_errors("list the key index in", self._directory):
            stray = [
                path
                for path in self._directory.iterdir()
                if _NAME.fullmatch(path.name) and path.name not in kept
            ]
        for path in stray:
            self._discard(int(path.stem))

    def _discard(self, segment_start: int) -> None:
        path = self._path(segment_start)
        self._files.forget(path)
        self._unsynced.discard(segment_start)
        with disk_errors("remove the key index", path):
            self._disk.remove(path)

    def _path(self, segment_start: int) -> Path:
        return self._directory / f"{segment_start:020d}{_SUFFIX}"


def _matches(numbers: memoryview[int], first: int) -> list[int]:
    found: list[int] = []
    for index in range(bisect.bisect_left(numbers, first), len(numbers)):
        if numbers[index] >> _PLACE_BITS != first >> _PLACE_BITS:
            break
        found.append(numbers[index] & _PLACE_MASK)
    return found

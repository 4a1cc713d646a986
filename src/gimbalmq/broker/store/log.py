"""The commit log: all messages of all topics in one row of segment files.

A segment is a file named by the place of its first byte. It is made at full length with a hole
instead of content, so it takes the space of what is written and can be mapped once. Writes are
plain writes, because a full disk is then an error and not a signal; reads are slices of a
read-only map. An append never crosses segments.

Must not know queues, keys or when to flush.
"""

from __future__ import annotations

import bisect
import mmap
import os
from collections import OrderedDict
from pathlib import Path
from typing import Final

import msgspec

from gimbalmq.broker.store.api import StoreError
from gimbalmq.broker.store.files import Disk, disk_errors, shown
from gimbalmq.broker.store.layout import (
    BLANK_BYTES,
    RESERVE_BYTES,
    SEAL_BYTES,
    Footer,
    blank,
    footer_at,
    make_footer,
    record_size,
    seal,
)

__all__ = ["CommitLog", "LogFlush", "Segment"]

_NAME_DIGITS: Final = 20
_REWRITE_BYTES: Final = 1 << 20


class Segment(msgspec.Struct, eq=False):
    """One file of the log: bytes `start` to `start + limit`, records up to `until`."""

    path: Path
    start: int
    limit: int
    until: int
    #: Earliest and latest time of storing; 0 while there is no record.
    first_ms: int = 0
    last_ms: int = 0

    @property
    def end(self) -> int:
        """The place where the next segment starts."""
        return self.start + self.limit


class LogFlush:
    """Waits for the device; `wait` may run in any thread."""

    __slots__ = ("_directory", "_disk", "error", "failed_path", "names", "paths", "until")

    def __init__(
        self, disk: Disk, paths: list[Path], directory: Path | None, *, until: int, names: int
    ) -> None:
        self._disk = disk
        self._directory = directory
        #: Full segments in order, then the one that was active when the flush began.
        self.paths = paths
        self.until = until
        self.names = names
        self.error: OSError | None = None
        self.failed_path = paths[0] if paths else Path()

    def wait(self) -> None:
        """Sync the files, oldest first, and their directory if it has new names."""
        for path in self.paths:
            try:
                self._sync(path)
            except FileNotFoundError:
                continue  # fell to retention meanwhile
            except OSError as error:
                self.error, self.failed_path = error, path
                return
        if self._directory is not None:
            try:
                self._disk.sync_directory(self._directory)
            except OSError as error:
                self.error, self.failed_path = error, self._directory

    def _sync(self, path: Path) -> None:
        # By name: a descriptor of the owner might be closed while this thread waits.
        descriptor = os.open(path, os.O_RDWR)
        try:
            self._disk.sync(descriptor)
        finally:
            os.close(descriptor)


class CommitLog:
    """The segments of one directory; `start_writing` must come before the first write."""

    def __init__(
        self, directory: Path, disk: Disk, *, segment_bytes: int, maps_max: int = 4
    ) -> None:
        self.directory = directory
        self.segment_bytes = segment_bytes
        self.segments = _segments_in(directory)
        #: The place after the last append.
        self.end = self.segments[-1].start if self.segments else 0
        #: The place up to which the device has everything.
        self.flushed_until = 0
        self._disk = disk
        self._starts = [segment.start for segment in self.segments]
        self._maps: OrderedDict[int, memoryview] = OrderedDict()
        self._maps_max = maps_max
        self._descriptor = -1
        #: The place where the records of an append may end, less its seal.
        self._fits_until = 0
        self._unsynced: list[Segment] = []
        #: How many files were ever made, and of how many the device has the name.
        self._names = self._names_synced = 0
        self._sync_failed = False
        self._tail_dirty = False

    @property
    def start(self) -> int:
        """The first place that is held."""
        return self._starts[0] if self._starts else 0

    @property
    def active(self) -> Segment:
        """The segment that is written to."""
        return self.segments[-1]

    @property
    def records_bytes_max(self) -> int:
        """The most that one append can have in a new segment."""
        return self.segment_bytes - SEAL_BYTES - RESERVE_BYTES

    def start_writing(self, end: int, flushed_until: int) -> None:
        """Take the last segment for writing, from `end` on; makes the first one if there is none.

        Whatever lies behind `end` is wiped. Segments that reach beyond `flushed_until` are synced
        by the next flush.
        """
        if not self.segments:
            os.close(self._add_segment(end))
        active = self.active
        with disk_errors("open the log segment", active.path):
            self._descriptor = self._disk.open(active.path)
            self._disk.resize(self._descriptor, end - active.start)
            active.limit = max(active.limit, self.segment_bytes)
            self._disk.resize(self._descriptor, active.limit)
        self._maps.pop(active.start, None)
        self._fits_until = active.end - SEAL_BYTES - RESERVE_BYTES
        self.end = active.until = end
        self.flushed_until = flushed_until
        self._unsynced = [one for one in self.segments[:-1] if one.end > flushed_until]

    def fits(self, records_bytes: int) -> bool:
        """Whether an append of that many bytes goes into the active segment."""
        return self.end + records_bytes <= self._fits_until

    def write(self, records: bytes, now_ms: int) -> None:
        """Append records that were made for the place `end + SEAL_BYTES` and that fit.

        Raises:
            StoreError: the disk refused; the log is as before.
        """
        active, position = self.segments[-1], self.end
        if self._tail_dirty:
            self._wipe_tail()
        data = seal(records, position, self.flushed_until) + records
        try:
            self._disk.write_at(self._descriptor, data, position - active.start)
        except OSError as error:
            self._tail_dirty = True
            raise shown(error, "store a message in", active.path) from error
        self.end = active.until = position + len(data)
        # The clock may step back: keep the extremes.
        active.last_ms = max(active.last_ms, now_ms)
        if now_ms < active.first_ms or not active.first_ms:
            active.first_ms = now_ms

    def roll(self) -> None:
        """Close the active segment and start the next one.

        Raises:
            StoreError: the disk refused; the active segment stays.
        """
        active = self.active
        rest = active.end - self.end
        footer = make_footer(Footer(self.end, active.first_ms, active.last_ms))
        self._tail_dirty = True
        with disk_errors("close the log segment", active.path):
            self._disk.write_at(self._descriptor, blank(rest), self.end - active.start)
            self._disk.write_at(self._descriptor, footer, active.limit - len(footer))
        descriptor = self._add_segment(active.end)
        os.close(self._descriptor)
        self._descriptor = descriptor
        self._tail_dirty = False
        self._unsynced.append(active)
        self.end = self.active.start
        self._fits_until = self.active.end - SEAL_BYTES - RESERVE_BYTES

    def _add_segment(self, start: int) -> int:
        path = self.directory / f"{start:0{_NAME_DIGITS}d}"
        descriptor = -1
        try:
            descriptor = self._disk.open(path)
            self._disk.resize(descriptor, self.segment_bytes)
        except OSError as error:
            if descriptor >= 0:
                os.close(descriptor)
                self._disk.remove(path)
            raise shown(error, "make the log segment", path) from error
        self.segments.append(Segment(path, start, self.segment_bytes, start))
        self._starts.append(start)
        self._names += 1
        return descriptor

    def _wipe_tail(self) -> None:
        """Zero what a failed write left behind the end, so that no later start can see it."""
        active = self.active
        with disk_errors("clean the log segment", active.path):
            self._disk.resize(self._descriptor, self.end - active.start)
            self._disk.resize(self._descriptor, active.limit)
        self._tail_dirty = False

    def begin_flush(self) -> LogFlush:
        """What is to be synced for everything up to `end` to be safe.

        Raises:
            StoreError: pages that an earlier flush failed to write could not be written again.
        """
        pending = [*self._unsynced, self.active]
        if self._sync_failed:
            # The kernel reports a lost page once and then calls it clean: make it dirty again.
            for segment in pending:
                self._rewrite(segment)
            self._sync_failed = False
        directory = self.directory if self._names > self._names_synced else None
        paths = [one.path for one in pending]
        return LogFlush(self._disk, paths, directory, until=self.end, names=self._names)

    def end_flush(self, flush: LogFlush) -> None:
        """Note that a flush is over.

        Raises:
            StoreError: it failed.
        """
        if flush.error is not None:
            self._sync_failed = True
            raise shown(flush.error, "flush", flush.failed_path) from flush.error
        self.flushed_until = max(self.flushed_until, flush.until)
        self._names_synced = max(self._names_synced, flush.names)
        # The last one was active: if it has been filled meanwhile, its end is not synced yet.
        synced = set(flush.paths[:-1])
        self._unsynced = [one for one in self._unsynced if one.path not in synced]

    def _rewrite(self, segment: Segment) -> None:
        view = self.view(segment)
        with disk_errors("write again after a failed flush", segment.path):
            descriptor = self._disk.open(segment.path)
            try:
                at = max(self.flushed_until - segment.start, 0)
                until = segment.until - segment.start if segment is self.active else segment.limit
                while at < until:
                    chunk = bytes(view[at : min(at + _REWRITE_BYTES, until)])
                    self._disk.write_at(descriptor, chunk, at)
                    at += len(chunk)
            finally:
                os.close(descriptor)

    def segment_of(self, place: int) -> Segment | None:
        """The segment that holds a place of the log."""
        index = bisect.bisect_right(self._starts, place) - 1
        if index < 0 or place >= self.segments[index].end:
            return None
        return self.segments[index]

    def view(self, segment: Segment) -> memoryview:
        """All bytes of a segment; views taken from it outlive the segment."""
        view = self._maps.get(segment.start)
        if view is not None:
            self._maps.move_to_end(segment.start)
            return view
        try:
            descriptor = os.open(segment.path, os.O_RDONLY)
            try:
                mapped = mmap.mmap(descriptor, segment.limit, prot=mmap.PROT_READ)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise shown(error, "read the log segment", segment.path) from error
        except ValueError as error:
            raise StoreError(
                f"the log segment '{segment.path}' is shorter than its {segment.limit} bytes: it "
                "was cut from outside; restart the broker to have it checked",
                path=str(segment.path),
            ) from error
        view = self._maps[segment.start] = memoryview(mapped)
        if len(self._maps) > self._maps_max:
            # Not closed: slices may be on their way to a client. The last one unmaps it.
            self._maps.popitem(last=False)
        return view

    def record_at(self, place: int) -> memoryview | None:
        """The record that starts at a place; None if none does."""
        segment = self.segment_of(place)
        if segment is None or place >= segment.until:
            return None
        view, at = self.view(segment), place - segment.start
        size = record_size(view, at, place)
        if size is None or place + size > segment.until:
            return None
        return view[at : at + size]

    def drop_first(self, count: int) -> list[Segment]:
        """Remove the oldest segments, never the active one; returns those removed."""
        dropped: list[Segment] = []
        for _ in range(min(count, len(self.segments) - 1)):
            segment = self.segments[0]
            with disk_errors("remove the log segment", segment.path):
                self._disk.remove(segment.path)
            del self.segments[0], self._starts[0]
            self._maps.pop(segment.start, None)
            self._unsynced = [one for one in self._unsynced if one is not segment]
            dropped.append(segment)
        return dropped

    def drop_last(self) -> Segment:
        """Remove the newest segment; only before writing starts."""
        segment = self.segments.pop()
        self._starts.pop()
        self._maps.pop(segment.start, None)
        with disk_errors("remove the log segment", segment.path):
            self._disk.remove(segment.path)
        return segment

    def read_footer(self, segment: Segment) -> bool:
        """Take over what a full segment says about itself; False if it does not say it."""
        footer = footer_at(self.view(segment))
        if footer is None or not segment.start <= footer.until <= segment.end:
            return False
        segment.until, segment.first_ms, segment.last_ms = footer
        return True

    def write_footer(self, segment: Segment) -> None:
        """Make a full segment say about itself what is known now."""
        footer = Footer(segment.until, segment.first_ms, segment.last_ms)
        if footer_at(self.view(segment)) == footer:
            return
        data = make_footer(footer)
        with disk_errors("write the footer of the log segment", segment.path):
            descriptor = self._disk.open(segment.path)
            try:
                self._disk.write_at(descriptor, data, segment.limit - len(data))
            finally:
                os.close(descriptor)

    def lengthen(self, segment: Segment, limit: int) -> None:
        """Add a hole to a segment that is shorter than it should be; not while writing."""
        with disk_errors("lengthen the log segment", segment.path):
            descriptor = self._disk.open(segment.path)
            try:
                self._disk.resize(descriptor, limit)
            finally:
                os.close(descriptor)
        segment.limit = limit

    def skip(self, segment: Segment, at: int, size: int) -> None:
        """Mark bytes that cannot be read as bytes to skip; not while writing."""
        if size < BLANK_BYTES:
            return
        with disk_errors("repair the log segment", segment.path):
            descriptor = self._disk.open(segment.path)
            try:
                self._disk.write_at(descriptor, blank(size), at)
            finally:
                os.close(descriptor)

    def close(self) -> None:
        """Let go of the files."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        self._maps.clear()


def _segments_in(directory: Path) -> list[Segment]:
    with disk_errors("list the log in", directory):
        directory.mkdir(parents=True, exist_ok=True)
        named = sorted(
            path
            for path in directory.iterdir()
            if len(path.name) == _NAME_DIGITS and path.name.isascii() and path.name.isdigit()
        )
        return [
            Segment(path, int(path.name), path.stat().st_size, int(path.name)) for path in named
        ]

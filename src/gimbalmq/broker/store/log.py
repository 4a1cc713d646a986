"""The end of the commit log: all messages of all topics are appended here.

Writes are plain writes, because a full disk is then an error and not a signal. An append never
crosses segments; a full one is closed and stays as it is. A flush covers what was appended when
it began.

Must not know queues, keys or when to flush.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from gimbalmq.broker.store.files import Disk, disk_errors, shown
from gimbalmq.broker.store.layout import (
    RESERVE_BYTES,
    SEAL_BYTES,
    Footer,
    blank,
    make_footer,
    seal,
)
from gimbalmq.broker.store.segments import Segment, Segments

__all__ = ["CommitLog", "LogFlush"]

_REWRITE_BYTES: Final = 1 << 20


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
    """Writes to the last of some segments; nobody else changes them meanwhile."""

    def __init__(
        self, segments: Segments, disk: Disk, *, segment_bytes: int, end: int, flushed_until: int
    ) -> None:
        """Take the last segment for writing, from `end` on; makes the first one if there is none.

        Whatever lies behind `end` is wiped. Segments that reach beyond `flushed_until` are synced
        by the next flush.
        """
        self.segments = segments
        self.segment_bytes = segment_bytes
        #: The place after the last append.
        self.end = end
        #: The place up to which the device has everything.
        self.flushed_until = flushed_until
        self._disk = disk
        #: How many files were ever made, and of how many the device has the name.
        self._names = self._names_synced = 0
        self._sync_failed = False
        self._tail_dirty = False
        if not segments.held:
            os.close(self._add_segment(end))
        active = self.active
        with disk_errors("open the log segment", active.path):
            self._descriptor = self._disk.open(active.path)
            self._disk.resize(self._descriptor, end - active.start)
            active.limit = max(active.limit, segment_bytes)
            self._disk.resize(self._descriptor, active.limit)
        segments.forget_view(active)
        active.until = end
        #: The place where the records of an append may end, less its seal.
        self._fits_until = active.end - SEAL_BYTES - RESERVE_BYTES
        self._unsynced = [one for one in segments.held[:-1] if one.end > flushed_until]

    @property
    def active(self) -> Segment:
        """The segment that is written to."""
        return self.segments.held[-1]

    @property
    def records_bytes_max(self) -> int:
        """The most that one append can have in a new segment."""
        return self.segment_bytes - SEAL_BYTES - RESERVE_BYTES

    def fits(self, records_bytes: int) -> bool:
        """Whether an append of that many bytes goes into the active segment."""
        return self.end + records_bytes <= self._fits_until

    def write(self, records: bytes, now_ms: int) -> None:
        """Append records that were made for the place `end + SEAL_BYTES` and that fit.

        Raises:
            StoreError: the disk refused; the log is as before.
        """
        active, position = self.segments.held[-1], self.end
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
        descriptor = self.segments.add(start, self.segment_bytes)
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
        directory = self.segments.directory if self._names > self._names_synced else None
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
        view = self.segments.view(segment)
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

    def drop_first(self, count: int) -> int:
        """Remove the oldest segments, never the active one; returns how many went.

        Each is gone for good before the next goes: a log with a gap in it counts as damaged.
        """
        count = min(count, len(self.segments.held) - 1)
        for _ in range(count):
            gone = self.segments.drop_first()
            self._unsynced = [one for one in self._unsynced if one is not gone]
            with disk_errors("flush", self.segments.directory):
                self._disk.sync_directory(self.segments.directory)
        return count

    def close(self) -> None:
        """Let go of the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

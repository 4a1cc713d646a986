"""The store: a commit log, an index per queue, an index of keys, in one directory.

Theory of operation. `appending` puts messages into the log and then into the indexes in memory.
The indexes follow to disk at their leisure: `recovery` can make them again from the log, from the
last checkpoint on, which `checkpoint` makes in small steps whenever a segment is full.

Decides when each of these parts has its turn: what a start does, when a flush is due, when
segments may go. Must not know how any of them does its work.

    lock              who uses the directory
    log/              segments of the commit log
    queues/T/Q/       index of queue Q of topic T
    keys/             index of keys, one file per segment
    store/            the store's own documents: checkpoint, deleted topics
    config/           documents of the broker: `FileStore.documents`
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from gimbalmq.broker.store.api import (
    Appended,
    Boundary,
    Flush,
    FlushPolicy,
    ReadResult,
    StoredMessage,
    StoreError,
    Wanted,
)
from gimbalmq.broker.store.appending import Appender
from gimbalmq.broker.store.checkpoint import (
    Checkpoint,
    Checkpointer,
    read_checkpoint,
    write_checkpoint,
)
from gimbalmq.broker.store.deletions import Deletions
from gimbalmq.broker.store.documents import Documents
from gimbalmq.broker.store.files import (
    Disk,
    OpenFiles,
    directories_to_make,
    disk_errors,
    sync_paths,
)
from gimbalmq.broker.store.key_index import KeyIndex
from gimbalmq.broker.store.lock import DirectoryLock
from gimbalmq.broker.store.log import CommitLog, LogFlush
from gimbalmq.broker.store.lookup import find_by_key, read_queue
from gimbalmq.broker.store.options import StoreOptions
from gimbalmq.broker.store.queue_table import QueueTable
from gimbalmq.broker.store.recovery import Recovery
from gimbalmq.broker.store.retention import expired
from gimbalmq.broker.store.segments import Segments
from gimbalmq.errors import StateError

__all__ = ["FileStore", "open_store"]

_logger: Final = logging.getLogger("gimbalmq.broker.store")


def open_store(
    directory: Path | str | None,
    *,
    store_host: tuple[str, int],
    options: StoreOptions | None = None,
    disk: Disk | None = None,
) -> FileStore:
    """Open a data directory, repairing what a crash left; None is a temporary one.

    A temporary directory goes at `close`, so nothing waits for its disk. `store_host` is the
    address that records and message ids carry.

    Raises:
        StoreError: the directory is in use, cannot be written, or is damaged.
    """
    options = options or StoreOptions()
    if directory is not None:
        return FileStore(Path(directory), store_host, options, disk or Disk())
    options = msgspec.structs.replace(options, flush=FlushPolicy.NONE)
    with disk_errors("make a directory in", tempfile.gettempdir()):
        path = Path(tempfile.mkdtemp(prefix="gimbalmq-store-"))
    return FileStore(path, store_host, options, disk or Disk(), temporary=True)


class FileStore:
    """A `Store` in a directory; made by `open_store`."""

    def __init__(
        self,
        directory: Path,
        store_host: tuple[str, int],
        options: StoreOptions,
        disk: Disk,
        *,
        temporary: bool = False,
    ) -> None:
        self.directory = directory
        self.store_host = store_host
        self.options = options
        #: What the last `tick` could not do, in words; None when all is well.
        self.problem: str | None = None
        self._disk = disk
        self._temporary = temporary
        self._closed = False
        self._sync_each = options.flush is FlushPolicy.EACH and not options.group_commit
        self._unflushed_since_ms: int | None = None
        self._retained_at_ms: int | None = None
        with contextlib.ExitStack() as undo:
            if temporary:
                undo.callback(shutil.rmtree, directory, ignore_errors=True)
            new_names = directories_to_make(directory)
            self._lock = DirectoryLock(directory)
            undo.callback(self._lock.release)
            self._files = OpenFiles(disk)
            undo.callback(self._files.close)
            self._open(undo)
            if not temporary:
                # A file that is safe in a directory that is not would be lost with it.
                sync_paths(disk, {directory, *(path.parent for path in new_names)})
            undo.pop_all()

    def _open(self, undo: contextlib.ExitStack) -> None:
        directory, disk = self.directory, self._disk
        self._notes = Documents(directory / "store", disk)
        #: The broker's own documents: configuration, consumer offsets.
        self.documents = Documents(directory / "config", disk)
        self._queues = QueueTable(directory / "queues", self._files)
        self._deletions = Deletions(self._notes)
        interrupted = [topic for topic in self._deletions.unfinished if self._remove_files(topic)]
        self._queues.load()
        self._keys = KeyIndex(directory / "keys", self._files)
        self._segments = Segments(directory / "log", disk)
        undo.callback(self._segments.close)
        # A topic may have come back since: its index went with the old one's, its messages not.
        recovery = self._recover(check_all=self.options.check_all or bool(interrupted))
        self._deletions.end_at(recovery.end)
        self._log = CommitLog(
            self._segments,
            disk,
            segment_bytes=self.options.segment_bytes,
            end=recovery.end,
            flushed_until=recovery.flushed_until,
        )
        undo.callback(self._log.close)
        self._append = Appender(self._log, self._queues, self._keys, self.store_host).append
        self._checkpoints = Checkpointer(
            self._notes,
            disk,
            self._log,
            self._queues,
            self._keys,
            indexed_until=recovery.scanned_from,
            flush=self.flush,
        )
        if not self.report.clean and self.options.flush is not FlushPolicy.NONE:
            self.flush()

    def _recover(self, *, check_all: bool) -> Recovery:
        recovery = Recovery(
            self._segments,
            self._queues,
            self._keys,
            segment_bytes=self.options.segment_bytes,
            checkpoint=read_checkpoint(self._notes),
            deleted=self._deletions.before,
            salvage=self.options.salvage,
            check_all=check_all,
        )
        #: What opening the directory found and repaired.
        self.report = recovery.run()
        for repair in self.report.repairs:
            _logger.warning("data directory '%s': %s", self.directory, repair)
        if not self._temporary:
            checkpoint = Checkpoint(recovery.scanned_from, recovery.flushed_until)
            write_checkpoint(self._notes, checkpoint)
        return recovery

    # Writing

    def append(self, messages: Sequence[StoredMessage], now_ms: int) -> list[Appended]:
        """See `Store.append`."""
        if self._closed:
            raise self._closed_error()
        if not messages:
            return []
        appended = self._append(messages, now_ms)
        if self._unflushed_since_ms is None:
            self._unflushed_since_ms = now_ms
        if self._sync_each:
            self.flush()
        return appended

    # Flushing

    @property
    def flush_wanted(self) -> bool:
        """See `Store.flush_wanted`."""
        return (
            self.options.flush is FlushPolicy.EACH
            and self.options.group_commit
            and self._log.flushed_until < self._log.end
        )

    def flush_due(self, now_ms: int) -> bool:
        """Whether the interval of `FlushPolicy.INTERVAL` is over for some message."""
        since = self._unflushed_since_ms
        return (
            self.options.flush is FlushPolicy.INTERVAL
            and since is not None
            and not 0 <= now_ms - since < self.options.flush_interval_ms
        )

    def flush(self) -> None:
        """See `Store.flush`."""
        flush = self.begin_flush()
        flush.wait()
        self.end_flush(flush)

    def begin_flush(self) -> LogFlush:
        """See `Store.begin_flush`."""
        if self._closed:
            raise self._closed_error()
        flush = self._log.begin_flush()
        self._unflushed_since_ms = None
        return flush

    def end_flush(self, flush: Flush) -> None:
        """See `Store.end_flush`."""
        assert isinstance(flush, LogFlush), "a flush comes from begin_flush"
        try:
            self._log.end_flush(flush)
        except StoreError:
            # Long ago: the interval is over for what was to be flushed.
            self._unflushed_since_ms = 0
            raise

    # Reading

    def read(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        max_messages: int,
        max_bytes: int,
        wanted: Wanted | None = None,
        scan_max: int = 16_384,
    ) -> ReadResult:
        """See `Store.read`."""
        return read_queue(
            self._segments,
            self._queues.get((topic, queue_id)),
            offset,
            max_messages=max_messages,
            max_bytes=max_bytes,
            wanted=wanted,
            scan_max=scan_max,
        )

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """See `Store.bounds`."""
        queue = self._queues.get((topic, queue_id))
        return (0, 0) if queue is None else (queue.minimum, queue.next_offset)

    def offset_at(
        self, topic: str, queue_id: int, timestamp_ms: int, boundary: Boundary = Boundary.LOWER
    ) -> int:
        """See `Store.offset_at`."""
        queue = self._queues.get((topic, queue_id))
        return 0 if queue is None else queue.offset_at(timestamp_ms, boundary)

    def earliest_time(self, topic: str, queue_id: int) -> int:
        """See `Store.earliest_time`."""
        queue = self._queues.get((topic, queue_id))
        if queue is None or queue.minimum == queue.next_offset:
            return -1
        return queue.entry(queue.minimum)[3]

    def record_at(self, physical_offset: int) -> memoryview | None:
        """See `Store.record_at`."""
        return self._segments.record_at(physical_offset)

    def find(
        self, topic: str, key: str, begin_ms: int, end_ms: int, limit: int
    ) -> list[memoryview]:
        """See `Store.find`."""
        return find_by_key(
            self._segments,
            self._keys,
            topic,
            key,
            begin_ms=begin_ms,
            end_ms=end_ms,
            limit=limit,
            deleted_before=self._deletions.before.get(topic, 0),
        )

    def queues(self, topic: str) -> list[int]:
        """See `Store.queues`."""
        return self._queues.numbers(topic)

    def topics(self) -> list[str]:
        """See `Store.topics`."""
        return sorted({topic for topic, _ in self._queues})

    def log_bounds(self) -> tuple[int, int]:
        """See `Store.log_bounds`."""
        return self._segments.start, self._log.end

    # Housekeeping

    def delete_topic(self, topic: str) -> None:
        """See `Store.delete_topic`."""
        if self._closed:
            raise self._closed_error()
        if not self._queues.numbers(topic):
            return
        self._deletions.begin(topic, self._log.end)
        self._remove_files(topic)

    def _remove_files(self, topic: str) -> bool:
        """Finish a deletion; True when there were files left to remove."""
        found = self._queues.remove_topic(topic)
        self._deletions.finish(topic)
        return found

    def tick(self, now_ms: int) -> None:
        """See `Store.tick`."""
        if self._closed:
            return
        troubles: list[str] = []
        # One after the other, whatever fails: on a full disk only retention can make room.
        for step in (self._flush_if_due, self._checkpoint, self._retain):
            try:
                step(now_ms)
            except StoreError as error:
                troubles.append(str(error))
        problem = "; ".join(dict.fromkeys(troubles))
        if problem and problem != self.problem:
            _logger.warning("data directory '%s': %s", self.directory, problem)
        # The first steps of a checkpoint that failed before are not its end.
        if problem or not self._checkpoints.under_way:
            self.problem = problem or None

    def _flush_if_due(self, now_ms: int) -> None:
        if self.flush_due(now_ms):
            self.flush()

    def _checkpoint(self, _now_ms: int) -> None:
        if not self._temporary:
            self._checkpoints.advance()

    def _retain(self, now_ms: int) -> None:
        last = self._retained_at_ms
        if last is not None and 0 <= now_ms - last < self.options.retention_interval_ms:
            return
        self._retained_at_ms = now_ms
        self.retain(now_ms)

    def retain(self, now_ms: int) -> int:
        """Apply the retention policy now; returns how many segments went.

        Segments that are younger than the last checkpoint stay until the next: a queue whose
        messages are all gone must still know its next offset after a crash.
        """
        count = expired(self._segments.held, self.options.retention, now_ms)
        if not self._temporary:
            indexed_until = self._checkpoints.indexed_until
            indexed = [one for one in self._segments.held if one.end <= indexed_until]
            if count > len(indexed):
                count, self._retained_at_ms = len(indexed), None
        if not count:
            return 0
        try:
            dropped = self._log.drop_first(count)
        finally:
            start = self._segments.start
            for queue in self._queues.values():
                queue.raise_minimum(start)
        self._keys.drop_outside(segment.start for segment in self._segments.held)
        self._deletions.forget(start)
        return dropped

    def close(self) -> None:
        """See `Store.close`; lets go of the directory even when the disk refuses."""
        if self._closed:
            return
        try:
            if not self._temporary:
                self._checkpoints.finish()
        finally:
            self._closed = True
            self._log.close()
            self._segments.close()
            self._files.close()
            self._lock.release()
            if self._temporary:
                shutil.rmtree(self.directory, ignore_errors=True)

    def _closed_error(self) -> StateError:
        return StateError(f"the store in '{self.directory}' is closed: open it again")

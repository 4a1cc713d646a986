"""The store: a commit log, an index per queue, an index of keys, in one directory.

Theory of operation. An append goes to the log in one write and then to the indexes in memory;
everything that can fail for lack of space happens before the log is touched, so a message is
stored with all that belongs to it or not at all. The indexes follow to disk at their leisure:
they can be made again from the log, from the last checkpoint on. A checkpoint is due whenever a
segment is full; it is made in small steps by `tick`.

    lock              who uses the directory
    log/              segments of the commit log
    queues/T/Q/       index of queue Q of topic T
    keys/             index of keys, one file per segment
    store/            the store's own documents: checkpoint, deleted topics
    config/           documents of the broker: `FileStore.documents`
"""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Iterator, Sequence
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
from gimbalmq.broker.store.documents import Documents
from gimbalmq.broker.store.files import Disk, OpenFiles, disk_errors, sync_paths
from gimbalmq.broker.store.key_index import KeyIndex
from gimbalmq.broker.store.layout import SEAL_BYTES
from gimbalmq.broker.store.lock import DirectoryLock
from gimbalmq.broker.store.log import CommitLog, LogFlush
from gimbalmq.broker.store.lookup import find_by_key, read_queue
from gimbalmq.broker.store.options import StoreOptions
from gimbalmq.broker.store.queue_index import QueueIndex
from gimbalmq.broker.store.queue_table import QueueTable
from gimbalmq.broker.store.recovery import Checkpoint, Recovery
from gimbalmq.broker.store.retention import expired
from gimbalmq.broker.store.terms import index_terms
from gimbalmq.errors import ConfigurationError, StateError
from gimbalmq.wire.record import encode_record

__all__ = ["FileStore", "open_store"]

_logger: Final = logging.getLogger("gimbalmq.broker.store")

#: Queues synced by one step of a checkpoint.
_QUEUES_PER_STEP: Final = 64


class _Deletions(msgspec.Struct):
    """Topics that were deleted: their records before a place of the log no longer count."""

    before: dict[str, int] = {}
    #: Topics whose files may still be there.
    removing: list[str] = []


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
        self._checkpointing: Iterator[None] | None = None
        #: The place of the log before which the indexes are safe on disk.
        self._indexed_until = 0
        self._lock = DirectoryLock(directory)
        self._files = OpenFiles(disk)
        try:
            self._open()
        except BaseException:
            self._files.close()
            self._lock.release()
            raise

    def _open(self) -> None:
        directory, options, disk = self.directory, self.options, self._disk
        self._notes = Documents(directory / "store", disk)
        #: The broker's own documents: configuration, consumer offsets.
        self.documents = Documents(directory / "config", disk)
        self._queues = QueueTable(directory / "queues", self._files)
        self._deletions = _read_deletions(self._notes)
        for topic in tuple(self._deletions.removing):
            self._finish_deletion(topic)
        self._queues.load()
        self._keys = KeyIndex(directory / "keys", self._files)
        self._log = CommitLog(directory / "log", disk, segment_bytes=options.segment_bytes)
        recovery = Recovery(
            self._log,
            self._queues,
            self._keys,
            checkpoint=_read_checkpoint(self._notes),
            deleted=self._deletions.before,
            salvage=options.salvage,
            check_all=options.check_all,
        )
        #: What opening the directory found and repaired.
        self.report = recovery.run()
        for repair in self.report.repairs:
            _logger.warning("data directory '%s': %s", directory, repair)
        self._write_checkpoint(Checkpoint(recovery.scanned_from, recovery.flushed_until))
        self._indexed_until = recovery.scanned_from
        self._log.start_writing(recovery.end, recovery.flushed_until)
        if not self.report.clean and options.flush is not FlushPolicy.NONE:
            self.flush()

    # Writing

    def append(self, messages: Sequence[StoredMessage], now_ms: int) -> list[Appended]:
        """See `Store.append`."""
        if self._closed:
            raise self._closed_error()
        self._keys.make_room(self._log.end)
        if len(messages) == 1:
            appended = [self._append_one(messages[0], now_ms)]
        elif messages:
            appended = self._append_batch(messages, now_ms)
        else:
            return []
        if self._unflushed_since_ms is None:
            self._unflushed_since_ms = now_ms
        if self._sync_each:
            self.flush()
        return appended

    def _append_one(self, message: StoredMessage, now_ms: int) -> Appended:
        """The usual case, without the bookkeeping of a batch."""
        log = self._log
        queue = self._queues.get((message.topic, message.queue_id))
        if queue is None:
            queue = self._queues.make(message.topic, message.queue_id)
        queue.make_room()
        place = log.end + SEAL_BYTES
        record = self._record(message, queue.next_offset, place, now_ms)
        if not log.fits(len(record)):
            self._roll(len(record))
            place = log.end + SEAL_BYTES
            record = self._record(message, queue.next_offset, place, now_ms)
        log.write(record, now_ms)
        # Nothing below can fail for lack of space: the message is stored.
        return self._index(message, queue, place, len(record), now_ms)

    def _append_batch(self, messages: Sequence[StoredMessage], now_ms: int) -> list[Appended]:
        log = self._log
        records, queues = self._encode(messages, now_ms)
        data = b"".join(records)
        if not log.fits(len(data)):
            self._roll(len(data))
            records, queues = self._encode(messages, now_ms)
            data = b"".join(records)
        place = log.end + SEAL_BYTES
        log.write(data, now_ms)
        appended: list[Appended] = []
        for message, record, queue in zip(messages, records, queues, strict=True):
            appended.append(self._index(message, queue, place, len(record), now_ms))
            place += len(record)
        return appended

    def _index(
        self, message: StoredMessage, queue: QueueIndex, place: int, size: int, now_ms: int
    ) -> Appended:
        queue_offset = queue.next_offset
        if not queue_offset:
            self._queues[message.topic, message.queue_id] = queue
        tag_hash, hashes = index_terms(message.properties, queue.key_seed)
        queue.add(place, size, tag_hash, now_ms)
        if hashes:
            self._keys.add(hashes, place - self._log.active.start)
        return Appended(queue_offset, place, now_ms, size)

    def _encode(
        self, messages: Sequence[StoredMessage], now_ms: int
    ) -> tuple[list[bytes], list[QueueIndex]]:
        """Records for the end of the log, and the queues that they go to."""
        place = self._log.end + SEAL_BYTES
        records: list[bytes] = []
        queues: list[QueueIndex] = []
        made: dict[tuple[str, int], QueueIndex] = {}
        ahead: dict[tuple[str, int], int] = {}
        for message in messages:
            key = (message.topic, message.queue_id)
            queue = self._queues.get(key) or made.get(key)
            if queue is None:
                queue = made[key] = self._queues.make(*key)
            if key not in ahead:
                queue.make_room()
            queue_offset = ahead.get(key, queue.next_offset)
            ahead[key] = queue_offset + 1
            record = self._record(message, queue_offset, place, now_ms)
            records.append(record)
            queues.append(queue)
            place += len(record)
        return records, queues

    def _record(self, message: StoredMessage, queue_offset: int, place: int, now_ms: int) -> bytes:
        return encode_record(
            topic=message.topic,
            body=message.body,
            properties=message.properties,
            queue_id=message.queue_id,
            queue_offset=queue_offset,
            physical_offset=place,
            sys_flag=message.sys_flag,
            flag=message.flag,
            born_timestamp_ms=message.born_timestamp_ms,
            born_host=message.born_host,
            store_timestamp_ms=now_ms,
            store_host=self.store_host,
            reconsume_times=message.reconsume_times,
            prepared_transaction_offset=message.prepared_transaction_offset,
        )

    def _roll(self, records_bytes: int) -> None:
        """Start a new segment for records that do not fit into the active one."""
        log = self._log
        if records_bytes > log.records_bytes_max:
            raise ConfigurationError(
                f"{records_bytes} bytes in one append do not fit into a log segment: send less at "
                f"once, or raise segment_bytes ({self.options.segment_bytes})"
            )
        self._keys.write_out(log.end)
        log.roll()
        self._keys.begin(log.end)

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
            self._log,
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
        return self._log.record_at(physical_offset)

    def find(
        self, topic: str, key: str, begin_ms: int, end_ms: int, limit: int
    ) -> list[memoryview]:
        """See `Store.find`."""
        return find_by_key(
            self._log,
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
        return self._log.start, self._log.end

    # Housekeeping

    def delete_topic(self, topic: str) -> None:
        """See `Store.delete_topic`."""
        if self._closed:
            raise self._closed_error()
        if not self._queues.numbers(topic):
            return
        deletions = self._deletions
        before = {**deletions.before, topic: self._log.end}
        fresh = _Deletions(before, [*deletions.removing, topic])
        self._notes.write("deleted", fresh)
        self._deletions = fresh
        self._finish_deletion(topic)

    def _finish_deletion(self, topic: str) -> None:
        self._queues.remove_topic(topic)
        remaining = [one for one in self._deletions.removing if one != topic]
        self._deletions = _Deletions(self._deletions.before, remaining)
        self._notes.write("deleted", self._deletions)

    def tick(self, now_ms: int) -> None:
        """See `Store.tick`."""
        if self._closed:
            return
        try:
            if self.flush_due(now_ms):
                self.flush()
            self._advance_checkpoint()
            self._retain(now_ms)
        except StoreError as error:
            if self.problem != str(error):
                _logger.warning("data directory '%s': %s", self.directory, error)
            self.problem = str(error)
        else:
            self.problem = None

    def _advance_checkpoint(self) -> None:
        place = self._log.active.start
        if self._checkpointing is None:
            if place <= self._indexed_until or self._temporary:
                return
            self._checkpointing = self._make_checkpoint(place)
        try:
            next(self._checkpointing)
        except StopIteration:
            self._checkpointing = None
        except StoreError:
            self._checkpointing = None  # a generator that raised is over: begin again
            raise

    def _make_checkpoint(self, place: int) -> Iterator[None]:
        """Make all before a place of the log safe, in steps, and leave word of it."""
        if self._log.flushed_until < place:
            self.flush()
        yield
        waiting = list(self._queues.items())
        while waiting:
            some, waiting = waiting[:_QUEUES_PER_STEP], waiting[_QUEUES_PER_STEP:]
            # Topics may have been deleted since the last step.
            self._sync_queues([queue for key, queue in some if self._queues.get(key) is queue])
            yield
        self._keys.sync()
        self._write_checkpoint(Checkpoint(place, self._log.flushed_until))
        self._indexed_until = place

    def _sync_queues(self, queues: Sequence[QueueIndex]) -> None:
        for queue in queues:
            queue.write_out()
        sync_paths(self._disk, {path for queue in queues for path in queue.unsynced()})
        for queue in queues:
            queue.mark_synced()

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
        count = expired(self._log.segments, self.options.retention, now_ms)
        if not self._temporary:
            indexed = [one for one in self._log.segments if one.end <= self._indexed_until]
            if count > len(indexed):
                count, self._retained_at_ms = len(indexed), None
        if not count:
            return 0
        try:
            dropped = self._log.drop_first(count)
        finally:
            start = self._log.start
            for queue in self._queues.values():
                queue.raise_minimum(start)
        self._keys.drop_outside(segment.start for segment in self._log.segments)
        gone = [topic for topic, before in self._deletions.before.items() if before <= start]
        if gone:
            before = {k: v for k, v in self._deletions.before.items() if v > start}
            self._deletions = _Deletions(before, self._deletions.removing)
            self._notes.write("deleted", self._deletions)
        return len(dropped)

    def _write_checkpoint(self, checkpoint: Checkpoint) -> None:
        if not self._temporary:
            self._notes.write("checkpoint", checkpoint)

    def close(self) -> None:
        """See `Store.close`; lets go of the directory even when the disk refuses."""
        if self._closed:
            return
        try:
            if not self._temporary:
                self._stop_cleanly()
        finally:
            self._closed = True
            self._log.close()
            self._files.close()
            self._lock.release()
            if self._temporary:
                shutil.rmtree(self.directory, ignore_errors=True)

    def _stop_cleanly(self) -> None:
        log = self._log
        self.flush()
        self._sync_queues(list(self._queues.values()))
        self._keys.write_out(log.end)
        self._keys.sync()
        entries = sum(queue.next_offset for queue in self._queues.values())
        active = log.active
        self._write_checkpoint(
            Checkpoint(
                log.end,
                log.flushed_until,
                clean=True,
                entries=entries,
                first_ms=active.first_ms,
                last_ms=active.last_ms,
            )
        )

    def _closed_error(self) -> StateError:
        return StateError(f"the store in '{self.directory}' is closed: open it again")


def _read_checkpoint(notes: Documents) -> Checkpoint | None:
    """The last checkpoint; None when it cannot be read, which costs a scan of the whole log."""
    try:
        content = notes.read("checkpoint")
        return None if content is None else msgspec.convert(content, Checkpoint)
    except (StoreError, msgspec.ValidationError) as error:
        _logger.warning("%s", error)
        return None


def _read_deletions(notes: Documents) -> _Deletions:
    content = notes.read("deleted")
    try:
        return _Deletions() if content is None else msgspec.convert(content, _Deletions)
    except msgspec.ValidationError as error:
        path = notes.path("deleted")
        raise StoreError(
            f"'{path}' does not list deleted topics ({error}): restore it from a copy, or remove "
            "it; topics that were deleted may then come back",
            path=str(path),
        ) from error

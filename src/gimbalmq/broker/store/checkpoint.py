"""Checkpoints: up to which place of the log the indexes are safe on disk.

After a crash only what lies behind the last checkpoint is scanned. One is due whenever a segment
is full; it is made in small steps, so that no step holds the broker up: the log first, then the
queues, some at a time, then the keys, and only then the word of it.

Must not know what a scan does with it, nor how messages get into the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from gimbalmq.broker.store.api import StoreError
from gimbalmq.broker.store.documents import Documents
from gimbalmq.broker.store.files import Disk, rewrite, sync_paths
from gimbalmq.broker.store.key_index import KeyIndex
from gimbalmq.broker.store.log import CommitLog
from gimbalmq.broker.store.queue_index import QueueIndex
from gimbalmq.broker.store.queue_table import QueueTable

__all__ = ["Checkpoint", "Checkpointer", "read_checkpoint", "write_checkpoint"]

_logger: Final = logging.getLogger("gimbalmq.broker.store")

_NAME: Final = "checkpoint"
#: Queues synced by one step.
_QUEUES_PER_STEP: Final = 64


class Checkpoint(msgspec.Struct, frozen=True):
    """What the last run left word of.

    Before `log_until` the indexes are complete, before `safe_until` the log is on disk. After a
    clean stop both are the end of the log, `entries` is the sum of the queues' next offsets, and
    the times are those of the last segment.
    """

    log_until: int = 0
    safe_until: int = 0
    clean: bool = False
    entries: int = 0
    first_ms: int = 0
    last_ms: int = 0


def read_checkpoint(notes: Documents) -> Checkpoint | None:
    """The last checkpoint; None when it cannot be read, which costs a scan of the whole log."""
    try:
        content = notes.read(_NAME)
        return None if content is None else msgspec.convert(content, Checkpoint)
    except (StoreError, msgspec.ValidationError) as error:
        _logger.warning("%s", error)
        return None


def write_checkpoint(notes: Documents, checkpoint: Checkpoint) -> None:
    """Leave word; it is on disk when this returns."""
    notes.write(_NAME, checkpoint)


class Checkpointer:
    """Makes the checkpoints of a store that is in use; `flush` waits until its log is safe."""

    def __init__(
        self,
        notes: Documents,
        disk: Disk,
        log: CommitLog,
        queues: QueueTable,
        keys: KeyIndex,
        *,
        indexed_until: int,
        flush: Callable[[], None],
    ) -> None:
        #: The place of the log before which the indexes are safe on disk.
        self.indexed_until = indexed_until
        self._notes = notes
        self._disk = disk
        self._log = log
        self._queues = queues
        self._keys = keys
        self._flush = flush
        self._making: Iterator[None] | None = None
        self._sync_failed = False

    @property
    def under_way(self) -> bool:
        """Whether some steps of a checkpoint are done and others not."""
        return self._making is not None

    def advance(self) -> None:
        """Do the next step of a checkpoint that is due or under way.

        Raises:
            StoreError: the disk refused; the next call begins the checkpoint again.
        """
        place = self._log.active.start
        if self._making is None:
            if place <= self.indexed_until:
                return
            self._making = self._make(place)
        try:
            next(self._making)
        except StopIteration:
            self._making = None
        except StoreError:
            self._making = None  # a generator that raised is over: begin again
            raise

    def _make(self, place: int) -> Iterator[None]:
        """Make all before a place of the log safe, in steps, and leave word of it."""
        if self._log.flushed_until < place:
            self._flush()
        yield
        waiting = list(self._queues.items())
        while waiting:
            some, waiting = waiting[:_QUEUES_PER_STEP], waiting[_QUEUES_PER_STEP:]
            # Topics may have been deleted since the last step.
            self._sync([queue for key, queue in some if self._queues.get(key) is queue])
            yield
        self._sync_failed = False  # every queue has been synced since
        self._keys.sync()
        write_checkpoint(self._notes, Checkpoint(place, self._log.flushed_until))
        self.indexed_until = place

    def finish(self) -> None:
        """Make everything safe, so that the next start has nothing to scan."""
        log = self._log
        self._flush()
        self._sync(list(self._queues.values()))
        self._keys.write_out(log.end)
        self._keys.sync()
        write_checkpoint(
            self._notes,
            Checkpoint(
                log.end,
                log.flushed_until,
                clean=True,
                entries=sum(queue.next_offset for queue in self._queues.values()),
                first_ms=log.active.first_ms,
                last_ms=log.active.last_ms,
            ),
        )

    def _sync(self, queues: Sequence[QueueIndex]) -> None:
        for queue in queues:
            queue.write_out()
        paths = {path for queue in queues for path in queue.unsynced()}
        if self._sync_failed:
            rewrite(self._disk, paths)
        try:
            sync_paths(self._disk, paths)
        except StoreError:
            self._sync_failed = True
            raise
        for queue in queues:
            queue.mark_synced()

"""Messages in memory, for brokers that live in virtual time; outlives a crash of its broker."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gimbalmq.broker.store.api import (
    Appended,
    Boundary,
    Flush,
    ReadResult,
    ReadStatus,
    StoredMessage,
    Wanted,
)
from gimbalmq.broker.store.terms import has_key, index_terms, key_seed
from gimbalmq.wire.record import encode_record

__all__ = ["MemoryStore"]


class _Entry(msgspec.Struct, frozen=True):
    place: int
    tag_hash: int
    stored_ms: int
    record: bytes
    properties: bytes


class _Flushed:
    def wait(self) -> None:
        """There is nothing to wait for."""


class MemoryStore:
    """See `gimbalmq.broker.store.Store`; nothing is ever lost or removed by age."""

    def __init__(self, host: str, port: int) -> None:
        self._store_host = host, port
        self._end = 0
        self._queues: dict[tuple[str, int], list[_Entry]] = {}
        self._records: dict[int, bytes] = {}

    @property
    def flush_wanted(self) -> bool:
        """Never."""
        return False

    def append(self, messages: Sequence[StoredMessage], now_ms: int) -> list[Appended]:
        """Store messages."""
        return [self._append(message, now_ms) for message in messages]

    def _append(self, message: StoredMessage, now_ms: int) -> Appended:
        queue = self._queues.setdefault((message.topic, message.queue_id), [])
        record = encode_record(
            topic=message.topic,
            body=message.body,
            properties=message.properties,
            queue_id=message.queue_id,
            queue_offset=len(queue),
            physical_offset=self._end,
            sys_flag=message.sys_flag,
            flag=message.flag,
            born_timestamp_ms=message.born_timestamp_ms,
            born_host=message.born_host,
            store_timestamp_ms=now_ms,
            store_host=self._store_host,
            reconsume_times=message.reconsume_times,
            prepared_transaction_offset=message.prepared_transaction_offset,
        )
        tag_hash, _hashes = index_terms(message.properties, key_seed(message.topic))
        queue.append(_Entry(self._end, tag_hash, now_ms, record, message.properties))
        self._records[self._end] = record
        appended = Appended(len(queue) - 1, self._end, now_ms, len(record))
        self._end += len(record)
        return appended

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
        """Read records from an offset on."""
        queue = self._queues.get((topic, queue_id), [])
        maximum = len(queue)
        if not maximum:
            return ReadResult([], 0, 0, 0, ReadStatus.NO_MESSAGE_IN_QUEUE)
        if offset < 0:
            return ReadResult([], 0, 0, maximum, ReadStatus.OFFSET_TOO_SMALL)
        if offset >= maximum:
            one = ReadStatus.OFFSET_OVERFLOW_ONE
            status = one if offset == maximum else ReadStatus.OFFSET_OVERFLOW_BADLY
            return ReadResult([], maximum, 0, maximum, status)
        records: list[memoryview] = []
        size = 0
        for entry in queue[offset : offset + scan_max]:
            record = entry.record
            full = len(records) == max_messages or size + len(record) > max_bytes
            if records and full:
                break
            if wanted is None or wanted(entry.tag_hash, lambda found=record: found):  # type: ignore[misc]
                records.append(memoryview(record))
                size += len(record)
            offset += 1
        status = ReadStatus.FOUND if records else ReadStatus.NO_MATCHED_MESSAGE
        return ReadResult(records, offset, 0, maximum, status, size)

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """First and next offset."""
        return 0, len(self._queues.get((topic, queue_id), ()))

    def offset_at(
        self, topic: str, queue_id: int, timestamp_ms: int, boundary: Boundary = Boundary.LOWER
    ) -> int:
        """The offset at a moment of storing."""
        queue = self._queues.get((topic, queue_id), [])
        if boundary is Boundary.LOWER:
            return sum(entry.stored_ms < timestamp_ms for entry in queue)
        return max(0, sum(entry.stored_ms <= timestamp_ms for entry in queue) - 1)

    def earliest_time(self, topic: str, queue_id: int) -> int:
        """When the first message was stored."""
        queue = self._queues.get((topic, queue_id))
        return queue[0].stored_ms if queue else -1

    def record_at(self, physical_offset: int) -> memoryview | None:
        """The record at a place of the log."""
        record = self._records.get(physical_offset)
        return None if record is None else memoryview(record)

    def find(
        self, topic: str, key: str, begin_ms: int, end_ms: int, limit: int
    ) -> list[memoryview]:
        """Records with a key, newest first."""
        found = [
            entry
            for (name, _number), queue in self._queues.items()
            for entry in queue
            if name == topic
            and begin_ms <= entry.stored_ms <= end_ms
            and has_key(entry.properties, key.encode())
        ]
        found.sort(key=lambda entry: entry.place, reverse=True)
        return [memoryview(entry.record) for entry in found[:limit]]

    def delete_topic(self, topic: str) -> None:
        """Forget a topic."""
        for key in [key for key in self._queues if key[0] == topic]:
            del self._queues[key]

    def queues(self, topic: str) -> list[int]:
        """Queues that ever held a message."""
        return sorted(number for name, number in self._queues if name == topic)

    def topics(self) -> list[str]:
        """Topics that ever held a message."""
        return sorted({name for name, _number in self._queues})

    def log_bounds(self) -> tuple[int, int]:
        """The whole log."""
        return 0, self._end

    def flush(self) -> None:
        """There is no disk."""

    def begin_flush(self) -> Flush:
        """There is no disk."""
        return _Flushed()

    def end_flush(self, flush: Flush) -> None:
        """There is no disk."""

    def tick(self, now_ms: int) -> None:
        """Nothing is ever due."""

    def close(self) -> None:
        """There is nothing to let go."""

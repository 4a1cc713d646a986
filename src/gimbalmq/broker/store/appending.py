"""How messages get into the store: encoded for their place, written to the log, then indexed.

Everything that can fail for lack of space happens before the log is touched, so a message is
stored with all that belongs to it or not at all: room in the indexes first, then one write to the
log, then the indexes in memory.

Must not know when what was written is safe: flushes and checkpoints are the owner's.
"""

from __future__ import annotations

from collections.abc import Sequence

from gimbalmq.broker.store.api import Appended, StoredMessage
from gimbalmq.broker.store.key_index import KeyIndex
from gimbalmq.broker.store.layout import SEAL_BYTES
from gimbalmq.broker.store.log import CommitLog
from gimbalmq.broker.store.queue_index import QueueIndex
from gimbalmq.broker.store.queue_table import QueueTable
from gimbalmq.broker.store.terms import index_terms
from gimbalmq.errors import ConfigurationError
from gimbalmq.wire.record import encode_record

__all__ = ["Appender"]


class Appender:
    """Appends to a log and the indexes that go with it."""

    __slots__ = ("_keys", "_log", "_queues", "_store_host")

    def __init__(
        self, log: CommitLog, queues: QueueTable, keys: KeyIndex, store_host: tuple[str, int]
    ) -> None:
        self._log = log
        self._queues = queues
        self._keys = keys
        self._store_host = store_host

    def append(self, messages: Sequence[StoredMessage], now_ms: int) -> list[Appended]:
        """Store messages as one batch, which must not be empty; see `Store.append`."""
        self._keys.make_room(self._log.end)
        if len(messages) == 1:
            return [self._append_one(messages[0], now_ms)]
        return self._append_batch(messages, now_ms)

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
            store_host=self._store_host,
            reconsume_times=message.reconsume_times,
            prepared_transaction_offset=message.prepared_transaction_offset,
        )

    def _roll(self, records_bytes: int) -> None:
        """Start a new segment for records that do not fit into the active one."""
        log = self._log
        if records_bytes > log.records_bytes_max:
            raise ConfigurationError(
                f"{records_bytes} bytes in one append do not fit into a log segment: send less at "
                f"once, or raise segment_bytes ({log.segment_bytes})"
            )
        self._keys.write_out(log.end)
        log.roll()
        self._keys.begin(log.end)

"""What is handed out by pops and not yet acknowledged, by group and queue.

Keeps the group's offset below everything that is out, so that nothing is lost by a restart, and
brings back what is out for too long: through the retry topic for pops, or, for a group that pops
in order, by handing it out again before anything later.
"""

from __future__ import annotations

import heapq
import struct
from collections.abc import Iterable
from typing import Final

import msgspec

from gimbalmq.broker.processors.schedule import restored, with_property
from gimbalmq.broker.state import BrokerState
from gimbalmq.broker.store.api import Wanted
from gimbalmq.wire.names import RETRY_PREFIX, pop_retry_topic
from gimbalmq.wire.pop import PopHandle, retry_digit
from gimbalmq.wire.properties import encode_properties
from gimbalmq.wire.record import decode_records, encode_record

__all__ = ["ORDER_QUEUE", "PopTable", "Popped"]

#: Stands in handles for "popped in order".
ORDER_QUEUE: Final = 999
_RETRY_QUEUES: Final = 1
#: More than this handed out of one queue and not acknowledged: the group must first catch up.
_OUT_MAX: Final = 20_000
_REVIVALS_MAX: Final = 1_000
_NEVER: Final = 1 << 62

_offset_of: Final = struct.Struct(">20xq").unpack_from
_Key = tuple[str, str, int]


class Popped(msgspec.Struct, frozen=True):
    """What one pop takes from one queue."""

    topic: str
    queue_id: int
    offsets: list[int]
    records: list[memoryview]
    next_offset: int
    popped_ms: int
    hidden_ms: int
    #: In order: how often each was handed out before.
    counts: dict[int, int]


class _Out(msgspec.Struct):
    until_ms: int
    popped_ms: int
    times: int = 0


class _Line(msgspec.Struct):
    """A queue as one group pops it."""

    next_offset: int
    out: dict[int, _Out] = msgspec.field(default_factory=dict)
    ordered: bool = False

    @property
    def done_until(self) -> int:
        """Everything before is acknowledged."""
        return min(self.out, default=self.next_offset)


class PopTable:
    """Lines by group, topic and queue."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._lines: dict[_Key, _Line] = {}
        #: (until, line, offset) of what is out; entries that no longer hold are skipped.
        self._due: list[tuple[int, _Key, int]] = []

    @property
    def next_due_ms(self) -> int:
        """When something that is out may have to come back."""
        return self._due[0][0] if self._due else _NEVER

    def position(self, group: str, topic: str, queue_id: int, *, from_end: bool) -> int:
        """The next offset that a pop of this group takes from a queue."""
        return self._line((group, topic, queue_id), from_end=from_end).next_offset

    def pop(
        self,
        group: str,
        topic: str,
        queue_id: int,
        *,
        limit: int,
        hidden_ms: int,
        now_ms: int,
        wanted: Wanted | None,
        ordered: bool,
        from_end: bool,
    ) -> Popped | None:
        """Take up to `limit` messages and hide them; None when there is nothing to take."""
        key = group, topic, queue_id
        line = self._line(key, from_end=from_end)
        line.ordered = ordered
        start = line.next_offset
        if ordered and line.out:
            if any(one.until_ms > now_ms for one in line.out.values()):
                return None  # what comes before is still being worked on
            start = min(line.out)
        if len(line.out) >= _OUT_MAX:
            return None
        found = self._state.store.read(
            topic,
            queue_id,
            start,
            max_messages=limit,
            max_bytes=self._state.settings.pull_bytes_max,
            wanted=wanted,
            scan_max=self._state.settings.pull_scan_max,
        )
        line.next_offset = max(found.next_offset, line.next_offset if ordered else 0)
        if not found.records:
            self._commit(key, line)
            return None
        offsets = [_offset_of(record)[0] for record in found.records]
        counts = self._hide(key, line, offsets, now_ms, hidden_ms)
        self._commit(key, line)
        return Popped(
            topic,
            queue_id,
            offsets,
            found.records,
            line.next_offset,
            now_ms,
            hidden_ms,
            counts if ordered else {},
        )

    def shown(self, popped: Popped, topic: str) -> list[bytes | memoryview]:
        """The records as the group sees them: those of a retry topic under the topic's name."""
        if popped.topic == topic:
            return list(popped.records)
        shown: list[bytes | memoryview] = []
        settings = self._state.settings
        for record in popped.records:
            message = decode_records(record, settings.name)[0]
            handle = PopHandle(
                popped.offsets[0],
                popped.popped_ms,
                popped.hidden_ms,
                0,
                retry_digit(popped.topic),
                settings.name,
                popped.queue_id,
                message.queue_offset,
            )
            host, _, port = message.born_host.rpartition(":")
            shown.append(
                encode_record(
                    topic=topic,
                    body=message.stored_body,
                    properties=encode_properties(message.properties | {"POP_CK": str(handle)}),
                    queue_id=message.queue_id,
                    queue_offset=message.queue_offset,
                    physical_offset=message.physical_offset,
                    sys_flag=message.sys_flag,
                    flag=message.flag,
                    born_timestamp_ms=message.born_timestamp_ms,
                    born_host=(host, int(port)),
                    store_timestamp_ms=message.store_timestamp_ms,
                    store_host=(settings.host, settings.port),
                    reconsume_times=message.reconsume_times,
                    prepared_transaction_offset=message.prepared_transaction_offset,
                )
            )
        return shown

    def ack(
        self,
        group: str,
        topic: str,
        queue_id: int,
        offsets: Iterable[int],
        popped_ms: int,
        now_ms: int,
    ) -> None:
        """Take messages as done; those that came back meanwhile stay as they are."""
        del now_ms
        key = group, topic, queue_id
        line = self._lines.get(key)
        if line is None:
            return
        for offset in offsets:
            out = line.out.get(offset)
            if out is not None and out.popped_ms == popped_ms:
                del line.out[offset]
        self._commit(key, line)

    def hide(
        self,
        group: str,
        topic: str,
        queue_id: int,
        offset: int,
        popped_ms: int,
        now_ms: int,
        hidden_ms: int,
    ) -> None:
        """Change until when a message is hidden; the handle's pop time changes with it."""
        key = group, topic, queue_id
        line = self._lines.get(key)
        out = None if line is None else line.out.get(offset)
        if out is not None and out.popped_ms == popped_ms:
            out.until_ms = now_ms + hidden_ms
            out.popped_ms = now_ms
            heapq.heappush(self._due, (out.until_ms, key, offset))

    def revive(self, now_ms: int) -> set[str]:
        """Bring back what is out for too long; returns the topics in which it can be had again."""
        topics: set[str] = set()
        for _ in range(_REVIVALS_MAX):
            if not self._due or self._due[0][0] > now_ms:
                break
            until_ms, key, offset = self._due[0]
            line = self._lines.get(key)
            out = None if line is None else line.out.get(offset)
            if line is not None and out is not None and out.until_ms == until_ms:
                if line.ordered:
                    topics.add(key[1])
                else:
                    # Stored before it leaves the list: a full disk must not lose it.
                    topics.add(self._store_again(key, offset, now_ms))
                    del line.out[offset]
                    self._commit(key, line)
            heapq.heappop(self._due)
        return topics

    def _line(self, key: _Key, *, from_end: bool) -> _Line:
        group, topic, queue_id = key
        reset = self._state.offsets.take_reset(topic, group, queue_id)
        if reset is not None:
            self._lines[key] = _Line(reset)
        line = self._lines.get(key)
        minimum, maximum = self._state.store.bounds(topic, queue_id)
        if line is None:
            offset = self._state.offsets.get(topic, group, queue_id)
            if offset is None:
                to_end = from_end and not topic.startswith(RETRY_PREFIX)
                offset = maximum if to_end else minimum
            line = self._lines[key] = _Line(offset)
        line.next_offset = max(minimum, min(line.next_offset, maximum))
        return line

    def _hide(
        self, key: _Key, line: _Line, offsets: list[int], now_ms: int, hidden_ms: int
    ) -> dict[int, int]:
        until_ms = now_ms + hidden_ms
        counts: dict[int, int] = {}
        for offset in offsets:
            before = line.out.get(offset)
            counts[offset] = 0 if before is None else before.times + 1
            line.out[offset] = _Out(until_ms, now_ms, counts[offset])
            heapq.heappush(self._due, (until_ms, key, offset))
        return counts

    def _commit(self, key: _Key, line: _Line) -> None:
        group, topic, queue_id = key
        self._state.offsets.commit(topic, group, queue_id, line.done_until)

    def _store_again(self, key: _Key, offset: int, now_ms: int) -> str:
        group, topic, queue_id = key
        retry = topic if topic.startswith(RETRY_PREFIX) else pop_retry_topic(topic, group)
        message = self._state.message_in(topic, queue_id, offset)
        if message is None:
            return retry  # retention was faster
        self._state.topics.ensure(retry, _RETRY_QUEUES, now_ms)
        again = restored(message)
        if "ORIGIN_GROUP" not in message.properties:
            again = with_property(again, "ORIGIN_GROUP", group)
        again = msgspec.structs.replace(
            again,
            topic=retry,
            queue_id=0,
            reconsume_times=message.reconsume_times + 1,
        )
        self._state.append(again, now_ms)
        return retry

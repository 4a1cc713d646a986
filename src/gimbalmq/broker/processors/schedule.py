"""Messages that wait for their time: delay levels and timers.

A delayed message is stored in a topic of the broker's own, one queue per level, and stored again
in its real topic when its time has come (ScheduleMessageService); the queue of a level is in the
order of time, so only its head needs watching. A timer may end at any moment (TimerMessageStore):
those of one topic are kept in a heap that is rebuilt from the log at start.
"""

from __future__ import annotations

import heapq
from typing import Final

import msgspec

from gimbalmq.broker import fields
from gimbalmq.broker.effects import Channel, RefusalError
from gimbalmq.broker.state import BrokerState, Handler
from gimbalmq.broker.store.api import Appended, StoredMessage
from gimbalmq.broker.topics import TIMER_TOPIC
from gimbalmq.core import delays
from gimbalmq.core.delays import SCHEDULE_TOPIC
from gimbalmq.wire.bodies.shape import write_document
from gimbalmq.wire.codes import RequestCode, ResponseCode
from gimbalmq.wire.command import Command, response_to
from gimbalmq.wire.pop import RecallHandle
from gimbalmq.wire.properties import decode_properties, encode_properties, find_property
from gimbalmq.wire.record import ReceivedMessage, decode_records

__all__ = ["Schedule", "restored", "with_property"]

_DELAY_DOCUMENT: Final = "delayOffset"
_TIMER_DOCUMENT: Final = "timers"
#: Messages delivered before others get their turn; the rest follows at once.
_DELIVERIES_MAX: Final = 256
_SAVE_MS: Final = 1_000
_NEVER: Final = 1 << 62
_TIMERS: Final = ("TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS")


class _TimerFile(msgspec.Struct):
    """Everything before `offset` is delivered, and of what follows `done`."""

    offset: int = 0
    done: list[int] = msgspec.field(default_factory=list)


class Schedule:
    """Parks messages and delivers them when they are due."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._levels = state.settings.delay_levels_ms
        self._offsets = _load_delays(state, len(self._levels))
        #: When the head of each level is due.
        self._heads = [self._head_due(level) for level in range(1, len(self._levels) + 1)]
        #: (due, offset in the timer topic) of every timer that is not delivered.
        self._timers: list[tuple[int, int]] = []
        self._waiting: dict[int, str] = {}
        self._done: set[int] = set()
        self._timers_from = 0
        self._load_timers()
        self._dirty = False
        self._next_save_ms = 0

    @property
    def handlers(self) -> dict[int, Handler]:
        """What this processor answers."""
        return {
            RequestCode.GET_ALL_DELAY_OFFSET: self._get_offsets,
            RequestCode.RECALL_MESSAGE: self._recall,
        }

    @property
    def next_due_ms(self) -> int:
        """When the next message is due."""
        timer = self._timers[0][0] if self._timers else _NEVER
        return min(timer, *self._heads, self._next_save_ms if self._dirty else _NEVER)

    def store(self, message: StoredMessage, now_ms: int) -> tuple[Appended, str]:
        """Store a message, in its topic or where it waits; a handle to recall it if it waits."""
        level = self._level(message.properties)
        if level > 0:
            return self._park_level(message, level, now_ms)
        due_ms = self._timer(message.properties, now_ms)
        if due_ms is not None:
            return self._park_timer(message, due_ms, now_ms)
        return self._state.append(message, now_ms), ""

    def tick(self, now_ms: int) -> None:
        """Deliver what is due."""
        for level in range(1, len(self._levels) + 1):
            if self._heads[level - 1] <= now_ms:
                self._deliver_level(level, now_ms)
        budget = _DELIVERIES_MAX
        while budget and self._timers and self._timers[0][0] <= now_ms:
            self._deliver_timer(heapq.heappop(self._timers)[1], now_ms)
            budget -= 1
        if self._dirty and now_ms >= self._next_save_ms:
            self.save()
            self._next_save_ms = now_ms + _SAVE_MS

    def save(self) -> None:
        """Remember what is delivered."""
        self._state.documents.save(_DELAY_DOCUMENT, self._encoded())
        timers = _TimerFile(self._timers_from, sorted(self._done))
        self._state.documents.save(_TIMER_DOCUMENT, msgspec.json.encode(timers))
        self._dirty = False

    # Delay levels

    def _level(self, properties: bytes) -> int:
        text = find_property(properties, b"DELAY")
        if text is None:
            return 0
        try:
            return min(int(text), len(self._levels))
        except ValueError:
            raise RefusalError(
                ResponseCode.SYSTEM_ERROR, f"delay level {text[:40]!r} is no number"
            ) from None

    def _park_level(self, message: StoredMessage, level: int, now_ms: int) -> tuple[Appended, str]:
        message = _without_timer(message)
        stored = self._state.append(_parked(message, SCHEDULE_TOPIC, level - 1), now_ms)
        due = delays.due_ms(level, stored.store_timestamp_ms, self._levels)
        self._heads[level - 1] = min(self._heads[level - 1], due)
        return stored, self._handle(message, due)

    def _head_due(self, level: int) -> int:
        head = self._state.message_in(SCHEDULE_TOPIC, level - 1, self._offsets[level])
        if head is not None:
            return delays.due_ms(level, head.store_timestamp_ms, self._levels)
        minimum, maximum = self._state.store.bounds(SCHEDULE_TOPIC, level - 1)
        if self._offsets[level] < minimum < maximum:
            # Retention has taken what was to be delivered: go on with what is left.
            self._offsets[level] = minimum
            return self._head_due(level)
        return _NEVER

    def _deliver_level(self, level: int, now_ms: int) -> None:
        for _ in range(_DELIVERIES_MAX):
            offset = self._offsets[level]
            head = self._state.message_in(SCHEDULE_TOPIC, level - 1, offset)
            if head is None or head.store_timestamp_ms + self._levels[level - 1] > now_ms:
                break
            self._state.append(restored(head), now_ms)
            self._offsets[level] = offset + 1
            self._dirty = True
        self._heads[level - 1] = self._head_due(level)

    def _get_offsets(self, request: Command, channel: Channel, now_ms: int) -> Command:
        del channel, now_ms
        return response_to(request, body=self._encoded())

    def _encoded(self) -> bytes:
        table = {str(level): offset for level, offset in self._offsets.items()}
        return write_document({"offsetTable": table})

    # Timers

    def _timer(self, properties: bytes, now_ms: int) -> int | None:
        """When a message with a timer is due; None without one, or when it is due already."""
        if b"TIMER_DEL" not in properties:
            return None
        if find_property(properties, b"TIMER_OUT_MS") is not None:
            return None  # it has waited already, and comes back as a dead letter
        settings = self._state.settings
        due_ms = None
        for name, unit_ms, start_ms in (
            (b"TIMER_DELAY_SEC", 1000, now_ms),
            (b"TIMER_DELAY_MS", 1, now_ms),
            (b"TIMER_DELIVER_MS", 1, 0),
        ):
            text = find_property(properties, name)
            if text is not None:
                try:
                    due_ms = start_ms + int(text) * unit_ms
                except ValueError:
                    raise RefusalError(
                        ResponseCode.MESSAGE_ILLEGAL,
                        f"timer message illegal: {name.decode()} is {text[:40]!r}, no number",
                    ) from None
                break
        if due_ms is None:
            return None
        if due_ms - now_ms > settings.timer_max_ms:
            raise RefusalError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"timer message illegal, the delay time should not be bigger than the max delay "
                f"{settings.timer_max_ms}ms",
            )
        due_ms -= due_ms % settings.timer_precision_ms
        return due_ms if due_ms > now_ms else None

    def _park_timer(self, message: StoredMessage, due_ms: int, now_ms: int) -> tuple[Appended, str]:
        waiting = with_property(message, "TIMER_OUT_MS", str(due_ms))
        waiting = with_property(waiting, "TIMER_ENQUEUE_MS", str(now_ms))
        stored = self._state.append(_parked(waiting, TIMER_TOPIC, 0), now_ms)
        self._watch(stored.queue_offset, due_ms, _unique_id(message.properties))
        return stored, self._handle(message, due_ms)

    def _watch(self, offset: int, due_ms: int, unique_id: str) -> None:
        heapq.heappush(self._timers, (due_ms, offset))
        self._waiting[offset] = unique_id

    def _deliver_timer(self, offset: int, now_ms: int) -> None:
        if offset not in self._waiting:
            return  # recalled
        parked = self._state.message_in(TIMER_TOPIC, 0, offset)
        if parked is not None:
            message = with_property(restored(parked), "TIMER_DEQUEUE_MS", str(now_ms))
            self._state.append(message, now_ms)
        self._end_timer(offset)

    def _end_timer(self, offset: int) -> None:
        del self._waiting[offset]
        self._done.add(offset)
        self._dirty = True
        maximum = self._state.store.bounds(TIMER_TOPIC, 0)[1]
        self._timers_from = min(self._waiting, default=maximum)
        self._done = {one for one in self._done if one >= self._timers_from}

    def _load_timers(self) -> None:
        data = self._state.documents.load(_TIMER_DOCUMENT)
        known = _TimerFile() if data is None else msgspec.json.decode(data, type=_TimerFile)
        self._timers_from, self._done = known.offset, set(known.done)
        minimum, maximum = self._state.store.bounds(TIMER_TOPIC, 0)
        offset = max(known.offset, minimum)
        while offset < maximum:
            found = self._state.store.read(
                TIMER_TOPIC, 0, offset, max_messages=1024, max_bytes=1 << 24
            )
            if not found.records:
                break
            for record in found.records:
                message = decode_records(record, self._state.settings.name)[0]
                if message.queue_offset not in self._done:
                    due_ms = int(message.property_value("TIMER_OUT_MS") or 0)
                    self._watch(message.queue_offset, due_ms, message.message_id)
            offset = found.next_offset

    # Recall

    def _handle(self, message: StoredMessage, due_ms: int) -> str:
        return str(
            RecallHandle(
                message.topic,
                self._state.settings.name,
                str(due_ms),
                _unique_id(message.properties),
            )
        )

    def _recall(self, request: Command, channel: Channel, now_ms: int) -> Command:
        """Take a timer back; a message of a delay level cannot be."""
        del channel, now_ms
        if not self._state.settings.recall:
            raise RefusalError(ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden")
        handle = RecallHandle.parse(fields.text(request, "recallHandle"))
        for offset, unique_id in self._waiting.items():
            if unique_id == handle.message_id:
                self._end_timer(offset)
                return response_to(request, fields={"msgId": unique_id})
        raise RefusalError(
            ResponseCode.ILLEGAL_OPERATION,
            f"message {handle.message_id} waits no longer, or is no timer",
        )


def _load_delays(state: BrokerState, levels: int) -> dict[int, int]:
    data = state.documents.load(_DELAY_DOCUMENT)
    table: dict[int, int] = {}
    if data is not None:
        read = msgspec.json.decode(data, type=dict[str, dict[str, int]])
        table = {int(level): offset for level, offset in read.get("offsetTable", {}).items()}
    return {level: table.get(level, 0) for level in range(1, levels + 1)}


def _unique_id(properties: bytes) -> str:
    return (find_property(properties, b"UNIQ_KEY") or b"").decode("utf-8", "replace")


def with_property(message: StoredMessage, name: str, value: str) -> StoredMessage:
    """A message with one more property; of a repeated name the last one counts."""
    properties = message.properties
    if properties and not properties.endswith(b"\x02"):
        properties += b"\x02"
    properties += f"{name}\x01{value}\x02".encode()
    return msgspec.structs.replace(message, properties=properties)


def _without_timer(message: StoredMessage) -> StoredMessage:
    """A message whose delay level counts, now and when it comes back."""
    if b"TIMER_DEL" not in message.properties:
        return message
    kept = decode_properties(message.properties)
    for name in _TIMERS:
        kept.pop(name, None)
    return msgspec.structs.replace(message, properties=encode_properties(kept))


def _parked(message: StoredMessage, topic: str, queue_id: int) -> StoredMessage:
    """A message where it waits, with its real place among its properties."""
    parked = with_property(message, "REAL_TOPIC", message.topic)
    parked = with_property(parked, "REAL_QID", str(message.queue_id))
    return msgspec.structs.replace(parked, topic=topic, queue_id=queue_id)


def restored(parked: ReceivedMessage) -> StoredMessage:
    """A message that has waited, at its real place."""
    host, _, port = parked.born_host.rpartition(":")
    return StoredMessage(
        parked.property_value("REAL_TOPIC") or parked.record_topic,
        int(parked.property_value("REAL_QID") or 0),
        parked.stored_body,
        flag=parked.flag,
        sys_flag=parked.sys_flag,
        born_timestamp_ms=parked.born_timestamp_ms,
        born_host=(host, int(port)),
        reconsume_times=parked.reconsume_times,
        prepared_transaction_offset=parked.prepared_transaction_offset,
        properties=encode_properties(parked.properties),
    )

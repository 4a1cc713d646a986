"""Half messages: stored aside until their producer commits or rolls back, or is asked.

As in Java a decided half message is marked in a log of its own (`OP_TOPIC`), so that a restart
knows what is still open. A check stores the half message anew, and the producer answers with the
offsets of the check. Unlike Java, which then delivers twice, a second decision about the same
half message is refused, unless the broker is to be `faithful`.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

import msgspec

from gimbalmq.broker import fields
from gimbalmq.broker.effects import Channel, RefusalError
from gimbalmq.broker.processors.schedule import Schedule, restored, with_property
from gimbalmq.broker.state import BrokerState, Handler
from gimbalmq.broker.store.api import Appended, StoredMessage
from gimbalmq.broker.topics import CHECKED_OUT_TOPIC, HALF_TOPIC, OP_TOPIC
from gimbalmq.wire.codes import RequestCode, ResponseCode
from gimbalmq.wire.command import Command, response_to
from gimbalmq.wire.ids import parse_offset_id
from gimbalmq.wire.properties import encode_properties
from gimbalmq.wire.record import ReceivedMessage, decode_records, encode_record

__all__ = ["Transactions"]

_COMMIT: Final = 8
_ROLLBACK: Final = 12
_TRANSACTION_BITS: Final = 0xC
#: The tag of an entry in the log of decisions; its body is the offset of the half message.
_OP_PROPERTIES: Final = b"TAGS\x01d\x02"
_DOCUMENT: Final = "transactions"
_PLACE: Final = ("REAL_TOPIC", "REAL_QID")
_CHECKS: Final = "TRANSACTION_CHECK_TIMES"
_CHECKED_OUT_QUEUES: Final = 1
_NEVER: Final = 1 << 62


class _Checkpoint(msgspec.Struct):
    """Half messages and decisions before these offsets need not be looked at again."""

    half: int = 0
    op: int = 0


class Transactions:
    """Keeps half messages and asks their producers."""

    def __init__(self, state: BrokerState, schedule: Schedule, now_ms: int) -> None:
        self._state = state
        self._schedule = schedule
        #: Offset in the half topic to the moment it was stored, oldest first.
        self._open: OrderedDict[int, int] = OrderedDict()
        self._next_check_ms = now_ms + state.settings.transaction_check_ms
        data = state.documents.load(_DOCUMENT)
        self._checkpoint = (
            _Checkpoint() if data is None else msgspec.json.decode(data, type=_Checkpoint)
        )
        self._load()

    @property
    def handlers(self) -> dict[int, Handler]:
        """What this processor answers."""
        return {
            RequestCode.END_TRANSACTION: self._end,
            RequestCode.RESUME_CHECK_HALF_MESSAGE: self._resume_check,
        }

    @property
    def next_due_ms(self) -> int:
        """When the open half messages are looked at again."""
        return self._next_check_ms if self._open else _NEVER

    def prepare(self, message: StoredMessage, now_ms: int) -> Appended:
        """Store a half message aside."""
        half = with_property(message, "REAL_TOPIC", message.topic)
        half = with_property(half, "REAL_QID", str(message.queue_id))
        half = msgspec.structs.replace(
            half, topic=HALF_TOPIC, queue_id=0, sys_flag=message.sys_flag & ~_TRANSACTION_BITS
        )
        stored = self._state.append(half, now_ms)
        self._open[stored.queue_offset] = stored.store_timestamp_ms
        return stored

    def tick(self, now_ms: int) -> None:
        """Ask the producers of half messages that are open for long."""
        if now_ms < self._next_check_ms:
            return
        settings = self._state.settings
        self._next_check_ms = now_ms + settings.transaction_check_ms
        for offset, stored_ms in list(self._open.items()):
            half = self._state.message_in(HALF_TOPIC, 0, offset)
            if half is None:
                del self._open[offset]
                continue
            immunity = half.property_value("CHECK_IMMUNITY_TIME_IN_SECONDS") or ""
            age_ms = int(immunity) * 1000 if immunity.isdigit() else settings.transaction_timeout_ms
            if now_ms - stored_ms >= age_ms:
                self._check(half, now_ms)
        self.save()

    def save(self) -> None:
        """Remember from where on half messages may be open."""
        half_until = self._state.store.bounds(HALF_TOPIC, 0)[1]
        op_until = self._state.store.bounds(OP_TOPIC, 0)[1]
        if self._open:
            # Decisions about later half messages are still needed, wherever they are.
            checkpoint = _Checkpoint(next(iter(self._open)), self._checkpoint.op)
        else:
            checkpoint = _Checkpoint(half_until, op_until)
        if checkpoint != self._checkpoint:
            self._checkpoint = checkpoint
            self._state.documents.save(_DOCUMENT, msgspec.json.encode(checkpoint))

    def _load(self) -> None:
        decided = {int(message.body) for message in self._scan(OP_TOPIC, self._checkpoint.op)}
        for half in self._scan(HALF_TOPIC, self._checkpoint.half):
            if half.queue_offset not in decided:
                self._open[half.queue_offset] = half.store_timestamp_ms

    def _scan(self, topic: str, offset: int) -> list[ReceivedMessage]:
        minimum, maximum = self._state.store.bounds(topic, 0)
        offset = max(offset, minimum)
        messages: list[ReceivedMessage] = []
        while offset < maximum:
            found = self._state.store.read(topic, 0, offset, max_messages=1024, max_bytes=1 << 24)
            if not found.records:
                break
            for record in found.records:
                messages += decode_records(record, self._state.settings.name)
            offset = found.next_offset
        return messages

    # Decisions

    def _end(self, request: Command, channel: Channel, now_ms: int) -> Command | None:
        del channel
        decision = fields.number(request, "commitOrRollback")
        if decision not in {_COMMIT, _ROLLBACK}:
            return None  # the producer does not know yet; as in Java, not even an answer
        half = self._half(request)
        if decision == _COMMIT:
            self._commit(half, now_ms)
        self._decide(half.queue_offset, now_ms)
        return response_to(request)

    def _half(self, request: Command) -> ReceivedMessage:
        place = fields.number(request, "commitLogOffset")
        offset = fields.number(request, "tranStateTableOffset")
        half = self._state.message_at(place)
        if half is None or half.record_topic != HALF_TOPIC:
            raise RefusalError(
                ResponseCode.SYSTEM_ERROR,
                f"Find prepared transaction message failed: none at {place}",
            )
        if half.property_value("PGROUP") != fields.text(request, "producerGroup"):
            raise RefusalError(ResponseCode.SYSTEM_ERROR, "The producer group wrong")
        if half.queue_offset != offset:
            raise RefusalError(
                ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong"
            )
        if offset not in self._open and not self._state.settings.faithful:
            raise RefusalError(
                ResponseCode.ILLEGAL_OPERATION,
                f"half message {offset} was decided before, or checked again: end it once, with "
                "the offsets of the last check",
            )
        return half

    def _commit(self, half: ReceivedMessage, now_ms: int) -> None:
        message = restored(half)
        kept = {name: value for name, value in half.properties.items() if name not in _PLACE}
        message = msgspec.structs.replace(
            message,
            properties=encode_properties(kept),
            sys_flag=message.sys_flag & ~_TRANSACTION_BITS | _COMMIT,
            prepared_transaction_offset=half.physical_offset,
        )
        self._schedule.store(message, now_ms)

    def _decide(self, offset: int, now_ms: int) -> None:
        self._state.append(
            StoredMessage(
                OP_TOPIC,
                0,
                str(offset).encode(),
                properties=_OP_PROPERTIES,
                born_timestamp_ms=now_ms,
                born_host=(self._state.settings.host, self._state.settings.port),
            ),
            now_ms,
        )
        self._open.pop(offset, None)

    # Check-back

    def _check(self, half: ReceivedMessage, now_ms: int) -> None:
        settings = self._state.settings
        times = half.property_value(_CHECKS) or "0"
        count = int(times) if times.isdigit() else 0
        if count >= settings.transaction_checks_max:
            self._state.topics.ensure(CHECKED_OUT_TOPIC, _CHECKED_OUT_QUEUES, now_ms)
            given_up = msgspec.structs.replace(restored(half), topic=CHECKED_OUT_TOPIC, queue_id=0)
            self._state.append(given_up, now_ms)
            self._decide(half.queue_offset, now_ms)
            return
        channel = self._state.producers.any_channel(half.property_value("PGROUP") or "")
        if channel is None:
            return
        again, stored = self._store_again(half, count + 1, now_ms)
        self._ask(channel, again, stored)

    def _store_again(
        self, half: ReceivedMessage, count: int, now_ms: int
    ) -> tuple[StoredMessage, Appended]:
        message = msgspec.structs.replace(
            restored(half),
            topic=HALF_TOPIC,
            queue_id=0,
            properties=encode_properties(half.properties | {_CHECKS: str(count), "WAIT": "false"}),
        )
        stored = self._state.append(message, now_ms)
        self._open[stored.queue_offset] = stored.store_timestamp_ms
        self._decide(half.queue_offset, now_ms)
        return message, stored

    def _ask(self, channel: Channel, half: StoredMessage, stored: Appended) -> None:
        settings = self._state.settings
        record = encode_record(
            topic=HALF_TOPIC,
            body=half.body,
            properties=half.properties,
            queue_id=0,
            queue_offset=stored.queue_offset,
            physical_offset=stored.physical_offset,
            sys_flag=half.sys_flag,
            flag=half.flag,
            born_timestamp_ms=half.born_timestamp_ms,
            born_host=half.born_host,
            store_timestamp_ms=stored.store_timestamp_ms,
            store_host=(settings.host, settings.port),
            reconsume_times=half.reconsume_times,
        )
        received = decode_records(record, settings.name)[0]
        shown = _shown(received, (settings.host, settings.port))
        unique = received.property_value("UNIQ_KEY") or ""
        self._state.push(
            channel,
            RequestCode.CHECK_TRANSACTION_STATE,
            {
                "tranStateTableOffset": str(stored.queue_offset),
                "commitLogOffset": str(stored.physical_offset),
                "msgId": unique,
                "transactionId": unique,
                "offsetMsgId": self._state.message_id(stored.physical_offset),
                "topic": HALF_TOPIC,
                "bname": settings.name,
            },
            shown,
        )

    def _resume_check(self, request: Command, channel: Channel, now_ms: int) -> Command:
        """An admin has a half message asked about again: one that was given up too."""
        del channel
        half = self._state.message_at(_place(fields.text(request, "msgId")))
        if half is None or half.record_topic not in {HALF_TOPIC, CHECKED_OUT_TOPIC}:
            raise RefusalError(
                ResponseCode.SYSTEM_ERROR,
                "Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed: there is no half message "
                "with this id",
            )
        self._store_again(half, 0, now_ms)
        return response_to(request)


def _place(message_id: str) -> int:
    return parse_offset_id(message_id).offset


def _shown(half: ReceivedMessage, store_host: tuple[str, int]) -> bytes:
    """The record that a producer is asked about: its real place, its body not compressed."""
    host, _, port = half.born_host.rpartition(":")
    return encode_record(
        topic=half.property_value("REAL_TOPIC") or "",
        body=half.body,
        properties=encode_properties(half.properties),
        queue_id=int(half.property_value("REAL_QID") or 0),
        queue_offset=half.queue_offset,
        physical_offset=half.physical_offset,
        sys_flag=half.sys_flag & ~1,
        flag=half.flag,
        born_timestamp_ms=half.born_timestamp_ms,
        born_host=(host, int(port)),
        store_timestamp_ms=half.store_timestamp_ms,
        store_host=store_host,
        reconsume_times=half.reconsume_times,
    )

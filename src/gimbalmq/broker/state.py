"""What the request processors of one broker share: tables, store, and what is to be sent.

Every append goes through here, so that whoever waits for messages hears of them; every notice to
a group too, so that the group's setting decides in one place.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from gimbalmq.broker.documents import Documents
from gimbalmq.broker.effects import Channel, Effect, RefusalError, Send
from gimbalmq.broker.groups import ConsumerGroup, ConsumerTable, ProducerTable
from gimbalmq.broker.locks import LockTable
from gimbalmq.broker.offsets import OffsetTable
from gimbalmq.broker.settings import BrokerSettings
from gimbalmq.broker.store.api import Appended, Store, StoredMessage, StoreError
from gimbalmq.broker.subscriptions import GroupTable
from gimbalmq.broker.topics import TopicTable
from gimbalmq.errors import ConfigurationError, GimbalError
from gimbalmq.wire.codes import RequestCode, ResponseCode
from gimbalmq.wire.command import FLAG_ONEWAY, Command, response_to
from gimbalmq.wire.ids import format_offset_id
from gimbalmq.wire.record import ReceivedMessage, decode_records

__all__ = ["Arrival", "BrokerState", "Handler", "Tally", "refused"]

#: Answers a request; None when the answer comes later, or never.
Handler = Callable[[Command, Channel, int], Command | None]
_OnAnswer = Callable[[Command | None, int], None]

_OPAQUE_MAX: Final = (1 << 31) - 1


def refused(request: Command, error: GimbalError) -> Command:
    """The answer to a request that could not be done."""
    match error:
        case RefusalError():
            return response_to(request, error.answer_code, error.remark, dict(error.fields))
        case StoreError():
            return response_to(request, ResponseCode.SERVICE_NOT_AVAILABLE, str(error))
        case _:
            return response_to(request, ResponseCode.SYSTEM_ERROR, str(error))


class Arrival(msgspec.Struct, frozen=True):
    """Messages that were just stored in one queue; `offset_until` is its next offset."""

    topic: str
    queue_id: int
    offset_until: int
    messages: Sequence[StoredMessage]


class Tally(msgspec.Struct):
    """What the broker has done since its start."""

    started_ms: int
    stored: int = 0
    stored_bytes: int = 0
    given: int = 0
    given_bytes: int = 0


class _Asked(msgspec.Struct, frozen=True):
    channel: Channel
    until_ms: int
    on_answer: _OnAnswer


class BrokerState:
    """The tables of a broker; one machine owns them and calls everything here."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: Store,
        documents: Documents,
        chance: random.Random,
        now_ms: int,
    ) -> None:
        self.settings = settings
        self.store = store
        self.documents = documents
        self.chance = chance
        self.topics = TopicTable(settings, documents, now_ms)
        self.groups = GroupTable(settings, documents)
        self.offsets = OffsetTable(documents)
        self.consumers = ConsumerTable(channel_life_ms=settings.channel_life_ms)
        self.producers = ProducerTable(channel_life_ms=settings.channel_life_ms)
        self.locks = LockTable(life_ms=settings.lock_life_ms, faithful=settings.faithful)
        self.tally = Tally(now_ms)
        #: Why the disk last refused what the broker itself wanted to store.
        self.trouble = ""
        #: What this call of the machine wants done; the machine empties it.
        self.effects: list[Effect] = []
        self.arrivals: list[Arrival] = []
        self._asked: dict[int, _Asked] = {}
        self._opaque = 0

    def change_settings(self, settings: BrokerSettings) -> None:
        """Work by other settings from now on."""
        self.settings = self.topics.settings = self.groups.settings = settings

    # Messages

    def append(self, message: StoredMessage, now_ms: int) -> Appended:
        """Store one message."""
        return self.append_all([message], now_ms)[0]

    def append_all(self, messages: Sequence[StoredMessage], now_ms: int) -> list[Appended]:
        """Store messages of one queue, all or none.

        Raises:
            RefusalError: the disk refuses (the broker goes on serving reads), or a message is illegal.
        """
        try:
            stored = self.store.append(messages, now_ms)
        except StoreError as error:
            raise RefusalError(ResponseCode.SERVICE_NOT_AVAILABLE, str(error)) from error
        except ConfigurationError as error:
            raise RefusalError(ResponseCode.MESSAGE_ILLEGAL, str(error)) from error
        first = messages[0]
        self.tally.stored += len(messages)
        self.tally.stored_bytes += sum(one.size for one in stored)
        self.arrivals.append(
            Arrival(first.topic, first.queue_id, stored[-1].queue_offset + 1, messages)
        )
        return stored

    def message_id(self, physical_offset: int) -> str:
        """The offset id of a record of this broker."""
        return format_offset_id(self.settings.host, self.settings.port, physical_offset)

    def message_at(self, physical_offset: int) -> ReceivedMessage | None:
        """The message whose record starts at a place of the log."""
        record = self.store.record_at(physical_offset) if physical_offset >= 0 else None
        return None if record is None else decode_records(record, self.settings.name)[0]

    def message_in(self, topic: str, queue_id: int, offset: int) -> ReceivedMessage | None:
        """The message at an offset of a queue."""
        found = self.store.read(topic, queue_id, offset, max_messages=1, max_bytes=1)
        if not found.records:
            return None
        message = decode_records(found.records[0], self.settings.name)[0]
        return message if message.queue_offset == offset else None

    # Clients

    def notify(self, group: ConsumerGroup) -> None:
        """Tell every member of a group that its members have changed, if the group wants that."""
        config = self.groups.get(group.name)
        if group.is_broadcasting or (
            config is not None and not config.notify_consumer_ids_changed_enable
        ):
            return
        for channel in group.members:
            self.push(
                channel, RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": group.name}
            )

    def push(
        self, channel: Channel, code: RequestCode, fields: dict[str, str], body: bytes = b""
    ) -> None:
        """Send a client a request that it does not answer."""
        command = Command(code, fields, body, self._next_opaque(), FLAG_ONEWAY)
        self.effects.append(Send(channel, command))

    def ask(
        self,
        channel: Channel,
        code: int,
        fields: dict[str, str],
        body: bytes,
        now_ms: int,
        on_answer: _OnAnswer,
    ) -> None:
        """Send a client a request; `on_answer` gets its answer, or None when none came."""
        opaque = self._next_opaque()
        until_ms = now_ms + self.settings.relay_timeout_ms
        self._asked[opaque] = _Asked(channel, until_ms, on_answer)
        self.effects.append(Send(channel, Command(code, fields, body, opaque)))

    def relay(
        self,
        request: Command,
        asker: Channel,
        channel: Channel,
        now_ms: int,
        *,
        body: bytes = b"",
    ) -> None:
        """Pass a request on to a client, and the client's answer back to who asked."""

        def on_answer(answer: Command | None, _: int) -> None:
            if answer is None:
                reply = response_to(
                    request,
                    ResponseCode.CONSUME_MSG_TIMEOUT,
                    f"client {channel.address} did not answer in time",
                )
            else:
                reply = response_to(
                    request, answer.code, answer.remark, answer.fields, bytes(answer.body)
                )
            self.effects.append(Send(asker, reply))

        self.ask(channel, request.code, dict(request.fields), body, now_ms, on_answer)

    def answered(self, channel: Channel, answer: Command, now_ms: int) -> None:
        """Take a client's answer; one that nobody waits for is dropped."""
        asked = self._asked.get(answer.opaque)
        if asked is not None and asked.channel is channel:
            del self._asked[answer.opaque]
            asked.on_answer(answer, now_ms)

    def give_up_asking(self, now_ms: int, closed: Channel | None = None) -> None:
        """End the questions whose time is over, or whose connection has closed."""
        over = [
            opaque
            for opaque, asked in self._asked.items()
            if asked.channel is closed or asked.until_ms <= now_ms
        ]
        for opaque in over:
            self._asked.pop(opaque).on_answer(None, now_ms)

    def _next_opaque(self) -> int:
        self._opaque = self._opaque % _OPAQUE_MAX + 1
        return self._opaque

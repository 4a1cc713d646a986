"""Sends: single messages, batches, replies, and messages that come back from consumers.

Follows SendMessageProcessor, ReplyMessageProcessor and AbstractSendMessageProcessor of 5.5. What
waits for its time goes to `Schedule`, what waits for a decision to `Transactions`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import msgspec

from gimbalmq.broker import fields
from gimbalmq.broker.effects import Channel, RefusalError
from gimbalmq.broker.processors.schedule import Schedule
from gimbalmq.broker.processors.transaction import Transactions
from gimbalmq.broker.state import BrokerState, Handler
from gimbalmq.broker.store.api import Appended, StoredMessage
from gimbalmq.broker.topics import check_topic_name
from gimbalmq.wire.batch import decode_batch
from gimbalmq.wire.bodies import TopicConfig
from gimbalmq.wire.codes import RequestCode, ResponseCode
from gimbalmq.wire.command import Command, response_to
from gimbalmq.wire.ids import UniqueIds, month_start_ms
from gimbalmq.wire.names import (
    RETRY_PREFIX,
    SEND_FORBIDDEN_TOPICS,
    TEMPLATE_TOPIC,
    dlq_topic,
)
from gimbalmq.wire.properties import encode_properties, find_property, parse_properties

__all__ = ["SendProcessor"]

_DLQ_QUEUES: Final = 1
#: Java reads a batch's or message's flags from these bits; the transaction bits say "half".
_PREPARED: Final = 0x4
_TRANSACTION_BITS: Final = 0xC
#: Property names that make it necessary to take the properties apart.
_SPECIAL: Final = ("POP_CK", "MSG_REGION", "TRACE_ON", "CLUSTER\x01", "__RMQ.TRANSIENT.")
_TRANSIENT: Final = "__RMQ.TRANSIENT."

_V1_NAMES: Final = {
    "a": "producerGroup",
    "b": "topic",
    "c": "defaultTopic",
    "d": "defaultTopicQueueNums",
    "e": "queueId",
    "f": "sysFlag",
    "g": "bornTimestamp",
    "h": "flag",
    "i": "properties",
    "j": "reconsumeTimes",
    "l": "maxReconsumeTimes",
    "m": "batch",
}
_V2_NAMES: Final = {name: name for name in _V1_NAMES}


class _Header(msgspec.Struct):
    topic: str
    queue_id: int
    properties: str
    born_ms: int
    flag: int
    sys_flag: int
    template: str
    template_queues: int
    reconsume_times: int
    retries_max: int | None
    is_batch: bool
    group: str


class SendProcessor:
    """Stores what producers send."""

    def __init__(self, state: BrokerState, schedule: Schedule, transactions: Transactions) -> None:
        self._state = state
        self._schedule = schedule
        self._transactions = transactions
        settings = state.settings
        self._always = {
            "MSG_REGION": settings.region,
            "TRACE_ON": "true" if settings.trace_on else "false",
        }
        self._stamped = {**self._always, "CLUSTER": settings.cluster}
        self._stamp = encode_properties(self._stamped).decode()
        self._ids = UniqueIds(settings.host, settings.port, state.chance.getrandbits(32))

    @property
    def handlers(self) -> dict[int, Handler]:
        """What this processor answers."""
        return {
            RequestCode.SEND_MESSAGE: self._send,
            RequestCode.SEND_MESSAGE_V2: self._send,
            RequestCode.SEND_BATCH_MESSAGE: self._send,
            RequestCode.SEND_REPLY_MESSAGE: self._send_reply,
            RequestCode.SEND_REPLY_MESSAGE_V2: self._send_reply,
        }

    def _send(self, request: Command, channel: Channel, now_ms: int) -> Command | None:
        try:
            header = _read_header(request)
            self._check(header, request)
            config = self._topic(header, now_ms)
            self._choose_queue(header, config)
            self._to_dead_letters(header, now_ms)
            if header.is_batch:
                return self._store_batch(request, header, channel, now_ms)
            message = self._message(header, bytes(request.body), channel, now_ms)
            return self._store(request, header, message, now_ms)
        except RefusalError as refusal:
            refusal.fields.update(self._always)
            raise

    def _check(self, header: _Header, request: Command) -> None:
        topic = header.topic
        if topic in SEND_FORBIDDEN_TOPICS:
            raise RefusalError(
                ResponseCode.NO_PERMISSION, f"the topic[{topic}] is forbidden for sending messages"
            )
        settings = self._state.settings
        if not request.body:
            raise RefusalError(
                ResponseCode.SYSTEM_ERROR, f"a message for topic '{topic}' has no body"
            )
        if len(request.body) > settings.body_bytes_max:
            raise RefusalError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the message body has {len(request.body)} bytes, the limit is "
                f"{settings.body_bytes_max}",
            )

    def _topic(self, header: _Header, now_ms: int) -> TopicConfig:
        """The topic, made from its template if need be."""
        topics = self._state.topics
        config = topics.get(header.topic)
        if config is not None:
            return config
        check_topic_name(header.topic)
        if header.topic.startswith(RETRY_PREFIX):
            group = self._state.groups.require(header.topic.removeprefix(RETRY_PREFIX), now_ms)
            return topics.ensure(header.topic, max(1, group.retry_queues), now_ms)
        config = topics.create_from_template(
            header.topic, header.template, header.template_queues, now_ms
        )
        if config is None:
            raise RefusalError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{header.topic}] not exist, apply first please!",
            )
        return config

    def _choose_queue(self, header: _Header, config: TopicConfig) -> None:
        if header.queue_id < 0:
            header.queue_id = self._state.chance.randrange(max(1, config.write_queues))
        limit = max(config.read_queues, config.write_queues)
        if header.queue_id >= limit:
            raise RefusalError(
                ResponseCode.INVALID_PARAMETER,
                f"request queueId[{header.queue_id}] is illegal, topic '{config.name}' on "
                f"{self._state.settings.name} has {limit} queues",
            )

    def _to_dead_letters(self, header: _Header, now_ms: int) -> None:
        """Give a message that a consumer sends back itself up when it failed too often."""
        if not header.topic.startswith(RETRY_PREFIX):
            return
        if header.is_batch:
            raise RefusalError(
                ResponseCode.MESSAGE_ILLEGAL, "batch request does not support retry group "
            )
        group = header.topic.removeprefix(RETRY_PREFIX)
        limit = self._state.groups.require(group, now_ms).retry_max_times
        if header.retries_max is not None:
            limit = header.retries_max
        # A group that holds locks consumes in order: it has already tried as often as it may.
        if header.reconsume_times > limit or self._state.locks.holds_any(group, now_ms):
            header.topic = dlq_topic(group)
            header.queue_id = 0
            self._state.topics.ensure(header.topic, _DLQ_QUEUES, now_ms)
            header.properties += "\x02DELAY\x010\x02"

    def _message(
        self, header: _Header, body: bytes, channel: Channel, now_ms: int
    ) -> StoredMessage:
        properties = header.properties
        if properties and not properties.endswith("\x02"):
            properties += "\x02"
        if any(name in properties for name in _SPECIAL):
            kept = parse_properties(properties)
            kept = {
                name: value
                for name, value in kept.items()
                if name != "POP_CK" and not name.startswith(_TRANSIENT)
            }
            text = encode_properties(kept | self._stamped)
        else:
            text = (properties + self._stamp).encode("utf-8", "replace")
        if find_property(text, b"UNIQ_KEY") is None:
            text += f"UNIQ_KEY\x01{self._new_id(now_ms)}\x02".encode()
        if len(text) > self._state.settings.properties_bytes_max:
            raise RefusalError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the message properties have {len(text)} bytes, the limit is "
                f"{self._state.settings.properties_bytes_max}",
            )
        return StoredMessage(
            header.topic,
            header.queue_id,
            body,
            flag=header.flag,
            sys_flag=header.sys_flag,
            born_timestamp_ms=header.born_ms,
            born_host=(channel.host, channel.port),
            reconsume_times=header.reconsume_times,
            properties=text,
        )

    def _store(
        self, request: Command, header: _Header, message: StoredMessage, now_ms: int
    ) -> Command:
        handle = ""
        if find_property(message.properties, b"TRAN_MSG") == b"true":
            stored = self._transactions.prepare(message, now_ms)
        else:
            bits = message.sys_flag & _TRANSACTION_BITS
            if bits:
                message = msgspec.structs.replace(message, sys_flag=message.sys_flag & ~bits)
            stored, handle = self._schedule.store(message, now_ms)
        answer = self._answer(request, header, [stored], message.properties)
        if handle:
            answer.fields["recallHandle"] = handle
        return answer

    def _store_batch(
        self, request: Command, header: _Header, channel: Channel, now_ms: int
    ) -> Command:
        shared = header.properties.encode()
        if find_property(shared, b"DELAY") is not None:
            raise RefusalError(
                ResponseCode.MESSAGE_ILLEGAL, "a batch of messages cannot be delayed"
            )
        born_host = channel.host, channel.port
        messages = [
            StoredMessage(
                header.topic,
                header.queue_id,
                entry.body,
                flag=entry.flag,
                sys_flag=header.sys_flag,
                born_timestamp_ms=header.born_ms,
                born_host=born_host,
                reconsume_times=header.reconsume_times,
                properties=entry.properties or f"UNIQ_KEY\x01{self._new_id(now_ms)}\x02".encode(),
            )
            for entry in decode_batch(request.body)
        ]
        stored = self._state.append_all(messages, now_ms)
        return self._answer(request, header, stored, shared)

    def _answer(
        self, request: Command, header: _Header, stored: list[Appended], properties: bytes
    ) -> Command:
        ids = ",".join(self._state.message_id(one.physical_offset) for one in stored)
        answer = {
            "msgId": ids,
            "queueId": str(header.queue_id),
            "queueOffset": str(stored[0].queue_offset),
            **self._always,
        }
        unique = find_property(properties, b"UNIQ_KEY")
        if unique is not None:
            answer["transactionId"] = unique.decode("utf-8", "replace")
        return response_to(request, fields=answer)

    def _send_reply(self, request: Command, channel: Channel, now_ms: int) -> Command | None:
        header = _read_header(request)
        self._check(header, request)
        config = self._topic(header, now_ms)
        self._choose_queue(header, config)
        message = self._message(header, bytes(request.body), channel, now_ms)
        target = parse_properties(header.properties).get("REPLY_TO_CLIENT", "")
        receiver = self._state.producers.channel_of(target)
        stored = self._state.append(message, now_ms)
        answer = self._answer(request, header, [stored], message.properties)
        if receiver is None:
            answer.code = int(ResponseCode.SYSTEM_ERROR)
            answer.remark = f"push reply message fail, channel of <{target}> not found."
            return answer
        self._state.ask(
            receiver,
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
            self._reply_fields(header, message, stored),
            message.body,
            now_ms,
            lambda _answer, _now_ms: None,
        )
        return answer

    def _reply_fields(
        self, header: _Header, message: StoredMessage, stored: Appended
    ) -> dict[str, str]:
        host, port = message.born_host
        return {
            "producerGroup": header.group,
            "topic": header.topic,
            "defaultTopic": header.template,
            "defaultTopicQueueNums": str(header.template_queues),
            "queueId": str(header.queue_id),
            "sysFlag": str(header.sys_flag),
            "bornTimestamp": str(header.born_ms),
            "flag": str(header.flag),
            "properties": message.properties.decode("utf-8", "replace"),
            "reconsumeTimes": str(header.reconsume_times),
            "unitMode": "false",
            "bornHost": f"{host}:{port}",
            "storeHost": self._state.settings.address,
            "storeTimestamp": str(stored.store_timestamp_ms),
        }

    def _new_id(self, now_ms: int) -> str:
        moment = datetime.fromtimestamp(now_ms / 1000, UTC)
        return self._ids.next(now_ms, month_start_ms(moment))


def _read_header(request: Command) -> _Header:
    version_1 = request.code in {RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE}
    names = _V1_NAMES if version_1 else _V2_NAMES
    given = request.fields
    return _Header(
        topic=fields.text(request, names["b"]),
        queue_id=_int32(request, names["e"]),
        properties=given.get(names["i"], ""),
        born_ms=fields.number(request, names["g"]),
        flag=_int32(request, names["h"]),
        sys_flag=_int32(request, names["f"]),
        template=given.get(names["c"], TEMPLATE_TOPIC),
        template_queues=fields.number_or(request, names["d"], 4),
        reconsume_times=max(0, fields.number_or(request, names["j"])) & 0x7FFFFFFF,
        retries_max=fields.retries_max(request, names["l"]),
        is_batch=fields.flag(request, names["m"]),
        group=given.get(names["a"], ""),
    )


def _int32(request: Command, name: str) -> int:
    value = fields.number(request, name)
    if not -0x80000000 <= value <= 0x7FFFFFFF:
        raise RefusalError(ResponseCode.SYSTEM_ERROR, f"field '{name}' is {value}: it has 32 bits")
    return value

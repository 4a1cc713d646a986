"""A message to send, and what the broker said about it.

A received message is a lazy view over the bytes that came in; it lives in `wire.received`.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

import msgspec

from gimbalmq.errors import ConfigurationError
from gimbalmq.model.queue import MessageQueue

__all__ = ["RESERVED_PROPERTIES", "Message", "PullStatus", "SendResult", "SendStatus"]

#: Property names that RocketMQ itself writes; user code may not (their meaning would be lost).
RESERVED_PROPERTIES: Final = frozenset(
    [
        "KEYS",
        "TAGS",
        "WAIT",
        "DELAY",
        "TIMER_DELIVER_MS",
        "TIMER_DELAY_SEC",
        "TIMER_DELAY_MS",
        "TIMER_OUT_MS",
        "TIMER_ENQUEUE_MS",
        "TIMER_DEQUEUE_MS",
        "TIMER_ROLL_TIMES",
        "TIMER_ROLL_LABEL",
        "TIMER_DEL_UNIQKEY",
        "TIMER_DELAY_LEVEL",
        "REAL_TOPIC",
        "REAL_QID",
        "RETRY_TOPIC",
        "RECONSUME_TIME",
        "MAX_RECONSUME_TIMES",
        "ORIGIN_MESSAGE_ID",
        "DLQ_ORIGIN_TOPIC",
        "DLQ_ORIGIN_MESSAGE_ID",
        "ORIGIN_GROUP",
        "UNIQ_KEY",
        "EXTEND_UNIQ_INFO",
        "DUP_INFO",
        "TRAN_MSG",
        "PGROUP",
        "TRAN_PREPARED_QUEUE_OFFSET",
        "TRANSACTION_CHECK_TIMES",
        "CHECK_IMMUNITY_TIME_IN_SECONDS",
        "__transactionId__",
        "MIN_OFFSET",
        "MAX_OFFSET",
        "CONSUME_START_TIME",
        "CLUSTER",
        "MSG_REGION",
        "TRACE_ON",
        "TRACE_CONTEXT",
        "INSTANCE_ID",
        "BUYER_ID",
        "TRANSFER_FLAG",
        "CORRECTION_FLAG",
        "MQ2_FLAG",
        "MSG_TYPE",
        "CORRELATION_ID",
        "REPLY_TO_CLIENT",
        "TTL",
        "ARRIVE_TIME",
        "PUSH_REPLY_TIME",
        "__SHARDINGKEY",
        "POP_CK",
        "POP_CK_OFFSET",
        "1ST_POP_TIME",
        "INNER_NUM",
        "INNER_BASE",
        "INNER_MULTI_DISPATCH",
        "INNER_MULTI_QUEUE_OFFSET",
        "__LITE_TOPIC",
        "_SYS_MSG_PRIORITY_",
        "__BORNHOST",
        "BORN_TIMESTAMP",
        "__CRC32#",
        "REDIRECT",
        "PROPERTY_FORWARD_QUEUE_ID",
        "TRANS_OFFSET",
    ]
)

_SEPARATORS: Final = ("\x01", "\x02")
_NO_KEYS: Final = ()


class Message:
    """A message to send.

    `keys` make it findable and `tags` let consumers filter; `sharding_key` picks the queue as
    Java's hash would, so that messages with equal keys keep their order. `delay_level` (1 is 1 s,
    2 is 5 s, ... 18 is 2 h; 0 is none) or `deliver_at`, an aware datetime, keep it back for a while.

    >>> message = Message("orders", b"paid", tags="paid", keys=["42"], properties={"shop": "7"})
    >>> message.keys
    ('42',)
    """

    __slots__ = (
        "body",
        "delay_level",
        "deliver_at",
        "keys",
        "properties",
        "sharding_key",
        "tags",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        body: bytes,
        *,
        tags: str | None = None,
        keys: str | Iterable[str] = _NO_KEYS,
        properties: Mapping[str, str] | None = None,
        delay_level: int | None = None,
        deliver_at: datetime | None = None,
        sharding_key: str | int | None = None,
    ) -> None:
        if type(body) is not bytes:
            body = _as_bytes(topic, body)
        self.topic = topic
        self.body = body
        self.tags = tags
        self.keys: tuple[str, ...] = _NO_KEYS
        self.properties: dict[str, str] = {}
        self.delay_level = delay_level
        self.deliver_at = deliver_at
        self.sharding_key = sharding_key
        if keys is not _NO_KEYS or properties or tags:
            self.keys = (keys,) if isinstance(keys, str) else _keys(topic, keys)
            self.properties = _properties(topic, properties)
            _check_texts(self)
        if sharding_key is not None:
            _check_sharding_key(topic, sharding_key)
        if delay_level is not None or deliver_at is not None:
            _check_delay(topic, delay_level, deliver_at)

    def __repr__(self) -> str:
        return (
            f"Message(topic={self.topic!r}, body={len(self.body)} bytes, "
            f"tags={self.tags!r}, keys={self.keys!r})"
        )


def _as_bytes(topic: str, body: object) -> bytes:
    if not isinstance(body, bytes | bytearray | memoryview):
        raise ConfigurationError(
            f"body of a message for topic '{topic}' is {type(body).__name__}: "
            "give bytes, for example text.encode()"
        )
    return bytes(body)


def _unlike(what: str, topic: str, value: object, wanted: str) -> ConfigurationError:
    return ConfigurationError(
        f"{what} of a message for topic '{topic}' is {value!r}: give {wanted}"
    )


def _keys(topic: str, keys: Iterable[str]) -> tuple[str, ...]:
    try:
        return tuple(keys)
    except TypeError as error:
        raise _unlike("keys", topic, keys, "text, or a list of texts") from error


def _properties(topic: str, properties: Mapping[str, str] | None) -> dict[str, str]:
    try:
        return dict(properties or {})
    except (TypeError, ValueError) as error:
        raise _unlike("properties", topic, properties, "a dict from text to text") from error


def _check_texts(message: Message) -> None:
    if not (message.tags is None or isinstance(message.tags, str)):
        raise _unlike("tags", message.topic, message.tags, "text: a message has one tag")
    for name, value in message.properties.items():
        if name in RESERVED_PROPERTIES:
            raise ConfigurationError(
                f"property '{name}' is reserved by RocketMQ: choose another name, or use the "
                "argument of Message made for it (keys, tags, delay_level, deliver_at)"
            )
        if not name or not value:
            raise ConfigurationError(
                f"property '{name}' = '{value}': brokers drop empty names and values; leave it out"
            )
    texts = [*message.properties, *message.properties.values(), *message.keys, message.tags or ""]
    for text in texts:
        _check_separators(text)
    for key in message.keys:
        if not key or any(character.isspace() for character in key):
            raise ConfigurationError(
                f"key '{key}' is empty or contains white space, with which RocketMQ separates keys"
            )


def _check_separators(text: object) -> None:
    if not isinstance(text, str):
        raise ConfigurationError(
            f"{text!r} is {type(text).__name__}: keys, and names and values of properties, are "
            "text, for example str(value)"
        )
    if any(separator in text for separator in _SEPARATORS):
        raise ConfigurationError(
            f"{text!r} contains U+0001 or U+0002, with which RocketMQ separates properties"
        )


def _check_sharding_key(topic: str, key: object) -> None:
    if not isinstance(key, str | int) or isinstance(key, bool) or key == "":
        raise ConfigurationError(
            f"sharding_key of a message for topic '{topic}' is {key!r}: give text that is not "
            "empty, or a whole number"
        )
    if isinstance(key, str):
        _check_separators(key)


def _check_delay(topic: str, level: object, moment: object) -> None:
    if level is not None and (not isinstance(level, int) or isinstance(level, bool) or level < 0):
        raise ConfigurationError(
            f"delay_level of a message for topic '{topic}' is {level!r}: give a level of the "
            "broker's, 1 (1 s) to 18 (2 h) unless it was configured otherwise, or 0 for none"
        )
    if level and moment is not None:
        raise ConfigurationError(
            f"a message for topic '{topic}' has delay_level and deliver_at: give one of them"
        )
    if moment is None:
        return
    if not isinstance(moment, datetime):
        raise _unlike("deliver_at", topic, moment, "an aware datetime")
    if moment.tzinfo is None:
        raise ConfigurationError(
            f"deliver_at of a message for topic '{topic}' has no time zone: "
            "give an aware datetime, for example datetime.now(timezone.utc)"
        )


class SendStatus(enum.Enum):
    """How safely the broker stored the message; all four mean stored."""

    SEND_OK = 0
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12


class SendResult(msgspec.Struct, frozen=True, gc=False):
    """Where a message went.

    >>> queue = MessageQueue("orders", "broker-a", 3)
    >>> result = SendResult(SendStatus.SEND_OK, "7F000001", "0A000001", queue, 42)
    >>> result.queue.path, result.queue_offset
    ('orders/broker-a/3', 42)
    """

    status: SendStatus
    message_id: str
    offset_message_id: str
    queue: MessageQueue
    queue_offset: int


class PullStatus(enum.Enum):
    """What a pull found."""

    FOUND = 0
    NO_NEW_MESSAGE = 19
    NO_MATCHED_MESSAGE = 20
    OFFSET_ILLEGAL = 21

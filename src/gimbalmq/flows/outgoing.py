"""From a user's message to what goes over the wire: checks, properties, compression."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Final

import msgspec

from gimbalmq.errors import ConfigurationError
from gimbalmq.flows.route import TopicTemplate
from gimbalmq.model.message import Message
from gimbalmq.wire.codes import CompressionType, SysFlag
from gimbalmq.wire.compression import compress
from gimbalmq.wire.names import SEND_FORBIDDEN_TOPICS, TEMPLATE_TOPIC, check_topic
from gimbalmq.wire.properties import first_properties, format_properties

__all__ = [
    "Outgoing",
    "SendSettings",
    "body_of",
    "check_sendable",
    "more_properties",
    "prepare",
    "properties_of",
]

_PROPERTIES_BYTES_MAX: Final = 32767
_FIRST_BYTES_WITHOUT_ID: Final = len(first_properties(""))
_COMPRESSED: Final = int(SysFlag.COMPRESSED)


class SendSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of outgoing messages, with Java's names and defaults."""

    max_message_size: int = 4 << 20
    compress_msg_body_over_howmuch: int = 4096
    compress_type: CompressionType = CompressionType.ZLIB
    compress_level: int = 5
    default_topic_queue_nums: int = 4
    create_topic_key: str = TEMPLATE_TOPIC

    @property
    def template(self) -> TopicTemplate:
        """What topics that do not exist yet are made from."""
        return TopicTemplate(self.create_topic_key, self.default_topic_queue_nums)


class Outgoing(msgspec.Struct, frozen=True, gc=False):
    """A message ready to be sent to any queue."""

    message_id: str
    properties: str
    body: bytes
    sys_flag: int


def prepare(
    message: Message,
    unique_id: str,
    settings: SendSettings,
    extra: Mapping[str, str] | None = None,
) -> Outgoing:
    """Check a message and give it its wire form; `extra` are properties of the client's own.

    Raises:
        ConfigurationError: the topic may not be sent to, the body is empty or too large, or the
            properties are too long. A broker would refuse all of these, or worse, not.
    """
    body, sys_flag = body_of(message, settings)
    return Outgoing(unique_id, properties_of(message, unique_id, extra), body, sys_flag)


def body_of(message: Message, settings: SendSettings) -> tuple[bytes, int]:
    """The body as it goes over the wire, and the system flag that says how.

    Raises:
        ConfigurationError: the topic may not be sent to, or the body is empty or too large.
    """
    check_sendable(message.topic)
    body = message.body
    size = len(body)
    if not 0 < size <= settings.max_message_size:
        raise _bad_size(message.topic, size, settings)
    if size < settings.compress_msg_body_over_howmuch:
        return body, 0
    body = compress(body, settings.compress_type, level=settings.compress_level)
    return body, _COMPRESSED | settings.compress_type


def properties_of(message: Message, unique_id: str, extra: Mapping[str, str] | None = None) -> str:
    """The properties string of a message.

    Raises:
        ConfigurationError: it would be too long, or is not text.
    """
    return first_properties(unique_id) + more_properties(message, len(unique_id), extra)


def more_properties(
    message: Message, id_digits: int, extra: Mapping[str, str] | None = None
) -> str:
    """The part of the properties string that is the message's own, behind the first ones.

    These take room as well, the more the longer the id is.

    Raises:
        ConfigurationError: it would be too long, or is not text.
    """
    text = ""
    if message.tags:
        text += f"TAGS\x01{message.tags}\x02"
    if message.keys:
        text += f"KEYS\x01{' '.join(message.keys)}\x02"
    if message.delay_level is not None:
        text += f"DELAY\x01{message.delay_level}\x02"
    if message.deliver_at is not None:
        text += f"TIMER_DELIVER_MS\x01{int(message.deliver_at.timestamp() * 1000)}\x02"
    if message.sharding_key is not None:
        text += f"__SHARDINGKEY\x01{message.sharding_key}\x02"
    if message.properties:
        text += format_properties(message.properties)
    if extra:
        text += format_properties(extra)
    # Few messages need the closer look: ASCII is text, a byte a character.
    if text:
        first_bytes = _FIRST_BYTES_WITHOUT_ID + id_digits
        if not text.isascii() or len(text) + first_bytes > _PROPERTIES_BYTES_MAX:
            _check_properties(message.topic, text, first_bytes)
    return text


@functools.lru_cache(maxsize=1024)
def check_sendable(topic: str) -> None:
    """Refuse a topic that clients may not send to."""
    check_topic(topic)
    if topic in SEND_FORBIDDEN_TOPICS:
        raise ConfigurationError(f"topic '{topic}' belongs to the broker: send elsewhere")


def _bad_size(topic: str, size: int, settings: SendSettings) -> ConfigurationError:
    if size == 0:
        return ConfigurationError(
            f"the body of a message for topic '{topic}' is empty: brokers refuse that"
        )
    return ConfigurationError(
        f"the body of a message for topic '{topic}' has {size} bytes; the limit is "
        f"{settings.max_message_size} (max_message_size, and the broker's own limit)"
    )


def _check_properties(topic: str, text: str, first_bytes: int) -> None:
    try:
        size = first_bytes + len(text.encode())
    except UnicodeEncodeError as error:
        raise ConfigurationError(
            f"keys, tags or properties of a message for topic '{topic}' are not text (a lone "
            f"surrogate): {error}"
        ) from error
    if size > _PROPERTIES_BYTES_MAX:
        raise ConfigurationError(
            f"keys, tags and properties of a message for topic '{topic}' take {size} bytes; the "
            f"limit is {_PROPERTIES_BYTES_MAX}: put large values into the body"
        )

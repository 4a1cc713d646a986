"""From a user's message to what goes over the wire: checks, properties, compression."""

from __future__ import annotations

from typing import Final

import msgspec

from gimbalmq.errors import ConfigurationError
from gimbalmq.model.message import Message
from gimbalmq.wire.codes import CompressionType, SysFlag
from gimbalmq.wire.compression import compress
from gimbalmq.wire.names import SEND_FORBIDDEN_TOPICS, check_topic
from gimbalmq.wire.properties import format_properties

__all__ = ["Outgoing", "SendSettings", "prepare"]

_PROPERTIES_BYTES_MAX: Final = 32767
_ZLIB: Final = int(SysFlag.COMPRESSED | CompressionType.ZLIB)


class SendSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of outgoing messages, with Java's names and defaults."""

    max_message_size: int = 4 << 20
    compress_msg_body_over_howmuch: int = 4096
    default_topic_queue_nums: int = 4


class Outgoing(msgspec.Struct, frozen=True):
    """A message ready to be sent to any queue."""

    message_id: str
    properties: str
    body: bytes
    sys_flag: int


def prepare(message: Message, unique_id: str, settings: SendSettings) -> Outgoing:
    """Check a message and give it its wire form.

    Raises:
        ConfigurationError: the topic may not be sent to, the body is empty or too large, or the
            properties are too long. A broker would refuse all of these, or worse, not.
    """
    check_topic(message.topic)
    if message.topic in SEND_FORBIDDEN_TOPICS:
        raise ConfigurationError(f"topic '{message.topic}' belongs to the broker: send elsewhere")
    body, sys_flag = message.body, 0
    if not body:
        raise ConfigurationError(
            f"the body of a message for topic '{message.topic}' is empty: brokers refuse that"
        )
    if len(body) > settings.max_message_size:
        raise ConfigurationError(
            f"the body of a message for topic '{message.topic}' has {len(body)} bytes; the limit "
            f"is {settings.max_message_size} (max_message_size, and the broker's own limit)"
        )
    if len(body) >= settings.compress_msg_body_over_howmuch:
        body, sys_flag = compress(body, CompressionType.ZLIB), _ZLIB
    properties = format_properties(_properties(message, unique_id))
    if len(properties) * 4 > _PROPERTIES_BYTES_MAX:  # at most four bytes a character
        size = len(properties.encode())
        if size > _PROPERTIES_BYTES_MAX:
            raise ConfigurationError(
                f"keys, tags and properties of a message for topic '{message.topic}' take {size} "
                f"bytes; the limit is {_PROPERTIES_BYTES_MAX}: put large values into the body"
            )
    return Outgoing(unique_id, properties, body, sys_flag)


def _properties(message: Message, unique_id: str) -> dict[str, str]:
    # WAIT: as Java, ask for the durability that the broker is configured for.
    properties = {"UNIQ_KEY": unique_id, "WAIT": "true"}
    if message.tags:
        properties["TAGS"] = message.tags
    if message.keys:
        properties["KEYS"] = " ".join(message.keys)
    if message.delay_level is not None:
        properties["DELAY"] = str(message.delay_level)
    if message.deliver_at is not None:
        properties["TIMER_DELIVER_MS"] = str(int(message.deliver_at.timestamp() * 1000))
    if message.sharding_key is not None:
        properties["__SHARDINGKEY"] = str(message.sharding_key)
    properties.update(message.properties)
    return properties

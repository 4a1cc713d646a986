"""Several messages in one request: what may go together, and where a batch must be cut.

A batch has one topic and one queue, carries no delays and is never compressed. Each message keeps
its own id; the batch itself has none, because 4.9 brokers would give it to every message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from gimbalmq.errors import ConfigurationError
from gimbalmq.flows.outgoing import (
    SendSettings,
    check_sendable,
    more_properties,
    properties_of,
)
from gimbalmq.model.message import Message
from gimbalmq.wire.batch import ENTRY_BYTES_MIN, BatchEntry, entry_frame
from gimbalmq.wire.names import RETRY_PREFIX
from gimbalmq.wire.properties import first_properties

__all__ = [
    "BATCH_PROPERTIES",
    "OutgoingBatch",
    "batch_entry",
    "cut_batches",
    "entry_bytes",
]

#: Properties of the batch itself; those of its messages are inside.
BATCH_PROPERTIES: Final = "WAIT\x01true\x02"


class OutgoingBatch(msgspec.Struct, frozen=True):
    """One wire batch: the ids of its messages, in order, and its body."""

    message_ids: tuple[str, ...]
    body: bytes


def entry_bytes(entry: BatchEntry) -> int:
    """How much of a batch's size one message takes."""
    return ENTRY_BYTES_MIN + len(entry.body) + len(entry.properties)


def batch_entry(
    message: Message, unique_id: str, extra: Mapping[str, str] | None = None
) -> BatchEntry:
    """One message as it stands in a batch: as it is, never compressed."""
    if not message.body:
        raise _empty(message)
    return BatchEntry(message.body, properties_of(message, unique_id, extra).encode())


def cut_batches(
    messages: Sequence[Message],
    message_ids: Sequence[str],
    settings: SendSettings,
    extra: Mapping[str, str] | None = None,
) -> list[OutgoingBatch]:
    """Encode messages of one topic into as few batches as fit, in order.

    Raises:
        ConfigurationError: there are no messages, their topics differ, or one of them cannot go
            into a batch.
    """
    if not messages:
        raise ConfigurationError("send_batch got no messages: give at least one")
    topic, limit = messages[0].topic, settings.max_message_size
    _check_topic(topic)
    batches: list[OutgoingBatch] = []
    parts: list[bytes] = []
    size = first = 0
    # Messages that follow each other are alike as a rule: their lengths are written down once.
    body_bytes = properties_bytes = added = 0
    start = middle = b""
    for number, (message, message_id) in enumerate(zip(messages, message_ids, strict=True)):
        body = message.body
        if (
            message.topic != topic
            or not body
            or message.delay_level is not None
            or message.deliver_at is not None
        ):
            raise _unfit(message, topic)
        text = first_properties(message_id) + more_properties(message, len(message_id), extra)
        properties = text.encode()
        if len(body) != body_bytes or len(properties) != properties_bytes:
            body_bytes, properties_bytes = len(body), len(properties)
            added = ENTRY_BYTES_MIN + body_bytes + properties_bytes
            if added > limit:
                raise _too_large(topic, added, limit)
            start, middle = entry_frame(body_bytes, properties_bytes)
        if size + added > limit:
            batches.append(OutgoingBatch(tuple(message_ids[first:number]), b"".join(parts)))
            parts, size, first = [], 0, number
        parts += (start, body, middle, properties)
        size += added
    batches.append(OutgoingBatch(tuple(message_ids[first:]), b"".join(parts)))
    return batches


def _check_topic(topic: str) -> None:
    check_sendable(topic)
    if topic.startswith(RETRY_PREFIX):
        raise ConfigurationError(
            f"topic '{topic}' is a retry topic, which takes no batches: send one by one"
        )


def _unfit(message: Message, topic: str) -> ConfigurationError:
    """Why a message cannot go into a batch of that topic: brokers would refuse it, or lose it."""
    if message.topic != topic:
        return ConfigurationError(
            f"a batch has one topic: there are '{topic}' and '{message.topic}'; send one batch for "
            "each"
        )
    if not message.body:
        return _empty(message)
    return ConfigurationError(
        f"a message for topic '{topic}' has a delay, which batches cannot carry: send it by itself"
    )


def _too_large(topic: str, size: int, limit: int) -> ConfigurationError:
    return ConfigurationError(
        f"a message for topic '{topic}' takes {size} bytes of a batch; the limit is {limit}: send "
        "it by itself, where it is compressed"
    )


def _empty(message: Message) -> ConfigurationError:
    return ConfigurationError(
        f"the body of a message for topic '{message.topic}' is empty: brokers refuse that"
    )

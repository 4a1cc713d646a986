"""Several messages in one request: what may go together, and where a batch must be cut.

A batch has one topic and one queue, carries no delays and is never compressed. Each message keeps
its own id; the batch itself has none, because 4.9 brokers would give it to every message.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from gimbalmq.errors import ConfigurationError
from gimbalmq.flows.outgoing import SendSettings, check_sendable, properties_of
from gimbalmq.model.message import Message
from gimbalmq.wire.batch import ENTRY_BYTES_MIN, BatchEntry, entry_parts
from gimbalmq.wire.names import RETRY_PREFIX

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
    message_ids: Iterable[str],
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
    ids: list[str] = []
    parts: list[bytes] = []
    size = 0
    for message, message_id in zip(messages, message_ids, strict=True):
        body = message.body
        delayed = message.delay_level is not None or message.deliver_at is not None
        if message.topic != topic or not body or delayed:
            raise _unfit(message, topic)
        properties = properties_of(message, message_id, extra).encode()
        added = ENTRY_BYTES_MIN + len(body) + len(properties)
        if added > limit:
            raise ConfigurationError(
                f"a message for topic '{topic}' takes {added} bytes of a batch; the limit is "
                f"{limit}: send it by itself, where it is compressed"
            )
        if size + added > limit:
            batches.append(OutgoingBatch(tuple(ids), b"".join(parts)))
            ids, parts, size = [], [], 0
        ids.append(message_id)
        parts += entry_parts(body, properties)
        size += added
    batches.append(OutgoingBatch(tuple(ids), b"".join(parts)))
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


def _empty(message: Message) -> ConfigurationError:
    return ConfigurationError(
        f"the body of a message for topic '{message.topic}' is empty: brokers refuse that"
    )

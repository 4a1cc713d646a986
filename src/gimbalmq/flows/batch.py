"""Several messages in one request: what may go together, and where a batch must be cut.

A batch has one topic and one queue, carries no delays and is never compressed. Each message keeps
its own id; the batch itself has none, because 4.9 brokers would give it to every message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from gimbalmq.errors import ConfigurationError
from gimbalmq.flows.outgoing import SendSettings, check_sendable, properties_of
from gimbalmq.model.message import Message
from gimbalmq.wire.batch import BatchEntry, encode_batch
from gimbalmq.wire.names import RETRY_PREFIX

__all__ = [
    "BATCH_PROPERTIES",
    "OutgoingBatch",
    "batch_entry",
    "check_batchable",
    "cut_batches",
    "entry_bytes",
]

#: Properties of the batch itself; those of its messages are inside.
BATCH_PROPERTIES: Final = "WAIT\x01true\x02"

#: Size, magic, CRC, flag and two lengths stand before body and properties.
_ENTRY_BYTES: Final = 22


class OutgoingBatch(msgspec.Struct, frozen=True):
    """One wire batch: the ids of its messages, in order, and its body."""

    message_ids: tuple[str, ...]
    body: bytes


def entry_bytes(entry: BatchEntry) -> int:
    """How much of a batch's size one message takes."""
    return _ENTRY_BYTES + len(entry.body) + len(entry.properties)


def check_batchable(message: Message) -> None:
    """Refuse what brokers would refuse, or lose, inside a batch."""
    if message.delay_level is not None or message.deliver_at is not None:
        raise ConfigurationError(
            f"a message for topic '{message.topic}' has a delay, which batches cannot carry: send "
            "it by itself"
        )
    if message.topic.startswith(RETRY_PREFIX):
        raise ConfigurationError(
            f"topic '{message.topic}' is a retry topic, which takes no batches: send one by one"
        )


def batch_entry(
    message: Message, unique_id: str, extra: Mapping[str, str] | None = None
) -> BatchEntry:
    """One message as it stands in a batch: as it is, never compressed."""
    if not message.body:
        raise ConfigurationError(
            f"the body of a message for topic '{message.topic}' is empty: brokers refuse that"
        )
    return BatchEntry(message.body, properties_of(message, unique_id, extra).encode())


def cut_batches(
    messages: Sequence[Message],
    new_id: Callable[[], str],
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
    topic = messages[0].topic
    check_sendable(topic)
    limit = settings.max_message_size
    batches: list[OutgoingBatch] = []
    ids: list[str] = []
    entries: list[BatchEntry] = []
    size = 0
    for message in messages:
        if message.topic != topic:
            raise ConfigurationError(
                f"a batch has one topic: there are '{topic}' and '{message.topic}'; send one "
                "batch for each"
            )
        check_batchable(message)
        unique_id = new_id()
        entry = batch_entry(message, unique_id, extra)
        added = entry_bytes(entry)
        if added > limit:
            raise ConfigurationError(
                f"a message for topic '{topic}' takes {added} bytes of a batch; the limit is "
                f"{limit}: send it by itself, where it is compressed"
            )
        if size + added > limit:
            batches.append(OutgoingBatch(tuple(ids), encode_batch(entries)))
            ids, entries, size = [], [], 0
        ids.append(unique_id)
        entries.append(entry)
        size += added
    batches.append(OutgoingBatch(tuple(ids), encode_batch(entries)))
    return batches

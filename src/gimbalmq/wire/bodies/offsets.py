"""Tables of offsets, most of them keyed by queues."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gimbalmq.model.queue import MessageQueue
from gimbalmq.wire.bodies.shape import (
    Document,
    convert,
    java_names,
    queue_from,
    queue_keyed,
    queue_map,
    read_document,
    write_document,
)

__all__ = [
    "ConsumeStats",
    "ConsumerStatus",
    "QueueProgress",
    "QueueRange",
    "TopicStats",
    "decode_consume_stats",
    "decode_consumer_offsets",
    "decode_consumer_status",
    "decode_offset_file",
    "decode_reset_offsets",
    "decode_topic_stats",
    "encode_consume_stats",
    "encode_consumer_offsets",
    "encode_consumer_status",
    "encode_offset_file",
    "encode_reset_offsets",
    "encode_topic_stats",
]


class QueueProgress(msgspec.Struct, frozen=True, rename=java_names()):
    """How far a group is in a queue; `broker_offset` is one past the last message."""

    broker_offset: int = 0
    consumer_offset: int = 0
    pull_offset: int = 0
    last_timestamp: int = 0


class ConsumeStats(msgspec.Struct, frozen=True):
    """How far a group is, in all queues of a broker."""

    queues: dict[MessageQueue, QueueProgress]
    consume_tps: float = 0.0


class QueueRange(msgspec.Struct, frozen=True, rename=java_names()):
    """What a queue holds: from `min_offset` to before `max_offset`."""

    min_offset: int = 0
    max_offset: int = 0
    last_update_timestamp: int = 0


class TopicStats(msgspec.Struct, frozen=True):
    """What the queues of a topic hold on a broker."""

    queues: dict[MessageQueue, QueueRange]
    put_tps: float = 0.0


class ConsumerStatus(msgspec.Struct, frozen=True):
    """Offsets of one client, and of all clients by id."""

    queues: dict[MessageQueue, int]
    clients: dict[str, dict[MessageQueue, int]] = msgspec.field(default_factory=dict)


def encode_consume_stats(stats: ConsumeStats) -> bytes:
    """The answer to GET_CONSUME_STATS."""
    return write_document(
        {
            "consumeTps": stats.consume_tps,
            "offsetTable": queue_keyed(stats.queues),
        }
    )


def decode_consume_stats(data: Document) -> ConsumeStats:
    """Read the answer to GET_CONSUME_STATS."""
    what = "consume stats"
    read = read_document(data, what)
    table = queue_map(read.get("offsetTable"), what)
    return ConsumeStats(
        {queue: convert(one, QueueProgress, what) for queue, one in table.items()},
        convert(read.get("consumeTps", 0.0), float, what),
    )


def encode_topic_stats(stats: TopicStats) -> bytes:
    """The answer to GET_TOPIC_STATS_INFO."""
    return write_document(
        {
            "offsetTable": queue_keyed(stats.queues),
            "topicPutTps": stats.put_tps,
        }
    )


def decode_topic_stats(data: Document) -> TopicStats:
    """Read the answer to GET_TOPIC_STATS_INFO."""
    what = "topic stats"
    read = read_document(data, what)
    table = queue_map(read.get("offsetTable"), what)
    return TopicStats(
        {queue: convert(one, QueueRange, what) for queue, one in table.items()},
        convert(read.get("topicPutTps", 0.0), float, what),
    )


def encode_reset_offsets(offsets: Mapping[MessageQueue, int]) -> bytes:
    """The body of RESET_CONSUMER_CLIENT_OFFSET, and of the answer to the admin's request."""
    return write_document({"offsetTable": queue_keyed(offsets)})


def decode_reset_offsets(data: Document) -> dict[MessageQueue, int]:
    """Read new offsets: a map keyed by queues, or the list that C++ tools cause."""
    what = "reset offsets"
    table = read_document(data, what).get("offsetTable")
    if isinstance(table, list):
        entries = convert(table, list[dict[str, Any]], what)
        return {queue_from(one, what): convert(one.get("offset"), int, what) for one in entries}
    return _offsets(table, what)


def _offsets(table: Any, what: str) -> dict[MessageQueue, int]:
    return {queue: convert(one, int, what) for queue, one in queue_map(table, what).items()}


def encode_consumer_status(status: ConsumerStatus) -> bytes:
    """The answer to GET_CONSUMER_STATUS_FROM_CLIENT."""
    return write_document(
        {
            "consumerTable": {
                client: queue_keyed(table) for client, table in status.clients.items()
            },
            "messageQueueTable": queue_keyed(status.queues),
        }
    )


def decode_consumer_status(data: Document) -> ConsumerStatus:
    """Read the answer to GET_CONSUMER_STATUS_FROM_CLIENT."""
    what = "consumer status"
    read = read_document(data, what)
    clients = convert(read.get("consumerTable", {}), dict[str, Any], what)
    return ConsumerStatus(
        _offsets(read.get("messageQueueTable"), what),
        {client: _offsets(table, what) for client, table in clients.items()},
    )


def encode_consumer_offsets(offsets: Mapping[tuple[str, str], Mapping[int, int]]) -> bytes:
    """All offsets of a broker: (topic, group) to queue id to offset."""
    return write_document(
        {
            "offsetTable": {
                f"{topic}@{group}": {str(queue_id): offset for queue_id, offset in queues.items()}
                for (topic, group), queues in offsets.items()
            }
        }
    )


def decode_consumer_offsets(data: Document) -> dict[tuple[str, str], dict[int, int]]:
    """Read all offsets of a broker: (topic, group) to queue id to offset."""
    what = "consumer offsets"
    table = convert(
        read_document(data, what).get("offsetTable", {}), dict[str, dict[int, int]], what
    )
    return {
        (topic, group): queues
        for (topic, _, group), queues in (
            (name.partition("@"), queues) for name, queues in table.items()
        )
    }


def encode_offset_file(offsets: Mapping[MessageQueue, int]) -> bytes:
    """The file in which a broadcasting consumer keeps its offsets, as Java writes it."""
    return encode_reset_offsets(offsets)


def decode_offset_file(data: Document) -> dict[MessageQueue, int]:
    """Read the file in which a broadcasting consumer, ours or Java's, keeps its offsets."""
    what = "offset file"
    return _offsets(read_document(data, what).get("offsetTable"), what)

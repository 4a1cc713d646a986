"""A queue: the unit that is shared out."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter

import msgspec

from gimbalmq.errors import ConfigurationError
from gimbalmq.model.java import utf16_key

__all__ = ["MessageQueue", "parse_queue", "sorted_queues"]


class MessageQueue(msgspec.Struct, frozen=True, cache_hash=True):
    """One queue of a topic on a broker set, named as RocketMQ names it.

    Ordered by topic, broker, queue id, as Java orders it, so that members in both languages
    compute the same shares.

    >>> queue = MessageQueue("orders", "broker-a", 3)
    >>> str(queue)
    'MessageQueue [topic=orders, brokerName=broker-a, queueId=3]'
    >>> queue < MessageQueue("orders", "broker-a", 10)
    True
    """

    topic: str
    broker: str
    queue_id: int

    def __str__(self) -> str:
        # The exact text that Java hashes for CONSISTENT_HASH.
        return (
            f"MessageQueue [topic={self.topic}, brokerName={self.broker}, queueId={self.queue_id}]"
        )

    @property
    def path(self) -> str:
        """`topic/broker/queue_id`, the short form of the command line and of Spark's offsets."""
        return f"{self.topic}/{self.broker}/{self.queue_id}"

    @property
    def sort_key(self) -> tuple[bytes, bytes, int]:
        """What orders queues as Java does: UTF-16 units, then the number."""
        return utf16_key(self.topic), utf16_key(self.broker), self.queue_id

    def __lt__(self, other: MessageQueue) -> bool:
        return self.sort_key < other.sort_key

    def __le__(self, other: MessageQueue) -> bool:
        return self.sort_key <= other.sort_key

    def __gt__(self, other: MessageQueue) -> bool:
        return self.sort_key > other.sort_key

    def __ge__(self, other: MessageQueue) -> bool:
        return self.sort_key >= other.sort_key


def sorted_queues(queues: Iterable[MessageQueue]) -> list[MessageQueue]:
    """Queues in Java's order; several times faster than `sorted` on ASCII names."""
    listed = list(queues)
    if all(queue.topic.isascii() and queue.broker.isascii() for queue in listed):
        # Sorting is stable, and three sorts by one plain value beat one by a tuple four times.
        for name in ("queue_id", "broker", "topic"):
            listed.sort(key=attrgetter(name))
        return listed
    return sorted(listed, key=lambda queue: queue.sort_key)


def parse_queue(path: str) -> MessageQueue:
    """Read `topic/broker/queue_id`.

    >>> parse_queue("orders/broker-a/3")
    MessageQueue(topic='orders', broker='broker-a', queue_id=3)
    """
    topic, separator, rest = path.partition("/")
    broker, second, number = rest.rpartition("/")
    # isascii: str.isdigit alone also accepts superscripts, which int() refuses.
    if not (separator and second and topic and broker and number.isascii() and number.isdigit()):
        raise ConfigurationError(
            f"'{path}' is not a queue: write topic/broker/queue, for example orders/broker-a/3"
        )
    return MessageQueue(topic, broker, int(number))

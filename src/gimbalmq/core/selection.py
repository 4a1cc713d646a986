"""Which queue a message is sent to.

The rule is Java's `TopicPublishInfo`: a counter per thread that starts anywhere (so that many
producers do not march in step), steps before use, and keeps 31 bits. A retry avoids the broker
that has just failed while another one exists. Fault tolerance changes the rule: see `fault`.
"""

from __future__ import annotations

from collections.abc import Sequence

from gimbalmq.errors import ConfigurationError
from gimbalmq.model.java import hash_code, hash_code_long
from gimbalmq.model.queue import MessageQueue

__all__ = ["RoundRobin", "queue_by_key"]


class RoundRobin:
    """A counter that walks the publish list; one per thread.

    >>> ring = RoundRobin(start=0)
    >>> queues = [MessageQueue("t", broker, i) for broker in ("a", "b") for i in (0, 1)]
    >>> ring.next(queues).path, ring.next(queues, avoid_broker="a").path
    ('t/a/1', 't/b/0')
    """

    __slots__ = ("_counter",)

    def __init__(self, start: int) -> None:
        self._counter = start & 0xFFFFFFFF

    def restart(self, start: int) -> None:
        """Go on from somewhere else; Java does so before a retry with fault tolerance."""
        self._counter = start & 0xFFFFFFFF

    def step(self) -> int:
        """The next number, 31 bits."""
        self._counter = (self._counter + 1) & 0xFFFFFFFF
        return self._counter & 0x7FFFFFFF

    def steps(self, count: int) -> list[int]:
        """The next numbers, as `step` would give them."""
        first = self._counter + 1
        self._counter = (self._counter + count) & 0xFFFFFFFF
        return [number & 0x7FFFFFFF for number in range(first, first + count)]

    def next(
        self, queues: Sequence[MessageQueue], *, avoid_broker: str | None = None
    ) -> MessageQueue:
        """The next queue; with `avoid_broker`, the next one elsewhere, if there is any."""
        if avoid_broker is not None:
            for _ in queues:
                queue = queues[self.step() % len(queues)]
                if queue.broker != avoid_broker:
                    return queue
        # Written out, not `step`: every send of a producer comes through here.
        self._counter = counter = (self._counter + 1) & 0xFFFFFFFF
        return queues[(counter & 0x7FFFFFFF) % len(queues)]


def queue_by_key(queues: Sequence[MessageQueue], key: str | int) -> MessageQueue:
    """The queue that Java's `SelectMessageQueueByHash` picks for the key.

    An integer hashes as Java's Integer when it fits 32 bits, else as a Long.

    >>> queues = [MessageQueue("t", "a", i) for i in range(8)]
    >>> [queue_by_key(queues, key).queue_id for key in ("order-1", "hello", 12345678901, -7)]
    [6, 2, 1, 7]
    """
    if isinstance(key, str):
        code = hash_code(key)
    elif -(1 << 31) <= key < 1 << 31:
        code = key
    elif -(1 << 63) <= key < 1 << 63:
        code = hash_code_long(key)
    else:
        raise ConfigurationError(f"sharding key {key} does not fit 64 bits: give text instead")
    # Java's remainder keeps the sign of the dividend, so abs() first is the same.
    return queues[abs(code) % len(queues)]

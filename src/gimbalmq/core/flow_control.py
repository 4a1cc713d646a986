"""Whether a queue may be pulled now, given what is cached of it.

Java asks again every 50 ms while a limit is exceeded. Here the machine asks again whenever
messages finish, so a queue that was held back continues without a pause and without polling.
All comparisons are strict, as in Java: up to one pull more than the limit may be cached.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

import msgspec

from gimbalmq.core.process_queue import ProcessQueue

__all__ = ["NO_ROOM", "FlowLimits", "HeldBack", "Room", "held_back", "room_for"]

_MIB: Final = 1 << 20


class HeldBack(enum.Enum):
    """Why a queue is not pulled for now."""

    ALL = "cached messages of all queues over pull_threshold_for_all"
    COUNT = "cached messages over pull_threshold_for_queue"
    SIZE = "cached bytes over pull_threshold_size_for_queue"
    SPAN = "offset span over consume_concurrently_max_span"


class FlowLimits(msgspec.Struct, frozen=True):
    """Java's limits for one queue, with Java's names and defaults.

    Those for a topic, when not -1, are shared out over all queues that a member holds, of
    whatever topic, and then stand in for those of a queue.

    >>> FlowLimits(pull_threshold_for_topic=1000).shared_by(3).pull_threshold_for_queue
    333
    """

    pull_threshold_for_queue: int = 1000
    pull_threshold_size_for_queue: int = 100  # MiB, whole ones, as Java divides
    consume_concurrently_max_span: int = 2000
    pull_threshold_for_topic: int = -1
    pull_threshold_size_for_topic: int = -1  # MiB
    #: For all queues of a member together; -1: none.
    pull_threshold_for_all: int = -1

    def shared_by(self, queues: int) -> FlowLimits:
        """The limits of each of so many held queues; without any, nothing changes."""
        if queues <= 0:
            return self
        count, size = self.pull_threshold_for_topic, self.pull_threshold_size_for_topic
        if count == -1 and size == -1:
            return self
        return msgspec.structs.replace(
            self,
            pull_threshold_for_queue=(
                self.pull_threshold_for_queue if count == -1 else max(1, count // queues)
            ),
            pull_threshold_size_for_queue=(
                self.pull_threshold_size_for_queue if size == -1 else max(1, size // queues)
            ),
        )


class Room(NamedTuple):
    """How far and how much a queue may still be read before flow control holds it back.

    As long as no more than this has come, one more answer may come along: as many as would have
    come if each had been asked for by itself.
    """

    offsets: int
    size: int

    def left_after(self, offsets: int, size: int) -> bool:
        """Whether one more answer may come with what has come already."""
        return offsets <= self.offsets and size <= self.size


#: Each answer by itself.
NO_ROOM: Final = Room(-1, -1)


def room_for(queue: ProcessQueue, limits: FlowLimits) -> Room:
    """The room of a queue that is not held back."""
    offsets = min(
        limits.pull_threshold_for_queue - queue.cached_count,
        limits.consume_concurrently_max_span - queue.span,
    )
    size = (limits.pull_threshold_size_for_queue + 1) * _MIB - 1 - queue.cached_bytes
    return Room(offsets, size)


def held_back(
    queue: ProcessQueue, limits: FlowLimits, *, in_order: bool = False
) -> HeldBack | None:
    """The first limit that the queue exceeds, in Java's order; None means pull now.

    The span says how far a stuck message is left behind; in a queue that is consumed strictly in
    order nothing is, so it does not count there.
    """
    if queue.cached_count > limits.pull_threshold_for_queue:
        return HeldBack.COUNT
    if queue.cached_bytes // _MIB > limits.pull_threshold_size_for_queue:
        return HeldBack.SIZE
    if not in_order and queue.span > limits.consume_concurrently_max_span:
        return HeldBack.SPAN
    return None

"""Whether a queue may be pulled now, given what is cached of it.

Java asks again every 50 ms while a limit is exceeded. Here the machine asks again whenever
messages finish, so a queue that was held back continues without a pause and without polling.
All comparisons are strict, as in Java: up to one pull more than the limit may be cached.
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from gimbalmq.core.process_queue import ProcessQueue

__all__ = ["FlowLimits", "HeldBack", "held_back"]

_MIB: Final = 1 << 20


class HeldBack(enum.Enum):
    """Why a queue is not pulled for now."""

    COUNT = "cached messages over pull_threshold_for_queue"
    SIZE = "cached bytes over pull_threshold_size_for_queue"
    SPAN = "offset span over consume_concurrently_max_span"


class FlowLimits(msgspec.Struct, frozen=True):
    """Java's limits for one queue, with Java's names and defaults."""

    pull_threshold_for_queue: int = 1000
    pull_threshold_size_for_queue: int = 100  # MiB, whole ones, as Java divides
    consume_concurrently_max_span: int = 2000


def held_back(queue: ProcessQueue, limits: FlowLimits) -> HeldBack | None:
    """The first limit that the queue exceeds, in Java's order; None means pull now."""
    if queue.cached_count > limits.pull_threshold_for_queue:
        return HeldBack.COUNT
    if queue.cached_bytes // _MIB > limits.pull_threshold_size_for_queue:
        return HeldBack.SIZE
    if queue.span > limits.consume_concurrently_max_span:
        return HeldBack.SPAN
    return None

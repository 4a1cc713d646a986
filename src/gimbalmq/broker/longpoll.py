"""Requests that wait for messages: parked by queue, woken by what arrives there.

Only the table; what a woken request does is its processor's business. The number of parked
requests is bounded, and those of a closed connection are dropped.
"""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

from gimbalmq.broker.effects import Channel
from gimbalmq.broker.filters import MessageFilter
from gimbalmq.broker.state import Arrival
from gimbalmq.wire.command import Command

__all__ = ["ParkedPull", "ParkedTable"]


class ParkedPull(msgspec.Struct, frozen=True, eq=False):
    """A pull that found nothing, and until when it may wait."""

    request: Command
    channel: Channel
    offset: int
    until_ms: int
    filter: MessageFilter | None

    def is_wanted(self, arrival: Arrival) -> bool:
        """Whether one of the messages that arrived is for this pull."""
        if arrival.offset_until <= self.offset:
            return False
        return self.filter is None or any(map(self.filter.wants, arrival.messages))


_Parked = TypeVar("_Parked", bound=ParkedPull)


class ParkedTable(Generic[_Parked]):
    """Parked requests by topic and queue, at most `limit` of them."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._queues: dict[tuple[str, int], list[_Parked]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def park(self, topic: str, queue_id: int, parked: _Parked) -> bool:
        """Keep a request; False when there are too many, and it must be answered now."""
        if self._count >= self._limit:
            return False
        self._queues.setdefault((topic, queue_id), []).append(parked)
        self._count += 1
        return True

    def take_wanted(self, arrival: Arrival) -> list[_Parked]:
        """Remove and return the requests that the arrival answers."""
        key = arrival.topic, arrival.queue_id
        waiting = self._queues.get(key)
        if waiting is None:
            return []
        return self._take(key, [one for one in waiting if one.is_wanted(arrival)])

    def take_due(self, now_ms: int, maximum_of: dict[tuple[str, int], int]) -> list[_Parked]:
        """Remove and return what has waited long enough, or has messages whatever its filter."""
        due: list[_Parked] = []
        for key, waiting in list(self._queues.items()):
            maximum = maximum_of.get(key, 0)
            due += self._take(
                key, [one for one in waiting if one.until_ms <= now_ms or one.offset < maximum]
            )
        return due

    def queues(self) -> list[tuple[str, int]]:
        """The queues that somebody waits for."""
        return list(self._queues)

    def drop(self, channel: Channel) -> None:
        """Forget the requests of a closed connection."""
        for key, waiting in list(self._queues.items()):
            self._take(key, [one for one in waiting if one.channel is channel])

    def _take(self, key: tuple[str, int], taken: list[_Parked]) -> list[_Parked]:
        if not taken:
            return taken
        chosen = set(map(id, taken))
        left = [one for one in self._queues[key] if id(one) not in chosen]
        self._count -= len(taken)
        if left:
            self._queues[key] = left
        else:
            del self._queues[key]
        return taken

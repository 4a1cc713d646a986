"""Messages of one queue by key: those of one key one after the other, keys side by side.

A lane exists while a message of its key is with a worker, waits for one, or pauses after a
failure. Knows neither listeners nor offsets; `keyed` decides what a result means.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator

from gimbalmq.core.process_queue import Batch

__all__ = ["Lane", "Lanes"]


class Lane:
    """The messages of one key that are not done, the first of them with a worker if `busy`."""

    __slots__ = ("busy", "key", "resumes_at", "waiting")

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.busy = False
        #: Until when the key pauses after a failure; None when it does not.
        self.resumes_at: float | None = None
        self.waiting: deque[tuple[Batch, int]] = deque()


class Lanes:
    """The lanes of one held queue."""

    __slots__ = ("_by_key",)

    def __init__(self) -> None:
        self._by_key: dict[Hashable, Lane] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def __iter__(self) -> Iterator[Lane]:
        return iter(tuple(self._by_key.values()))

    def add(self, key: Hashable, batch: Batch, position: int) -> None:
        """Put a message at the end of its key's lane."""
        lane = self._by_key.get(key)
        if lane is None:
            lane = self._by_key[key] = Lane(key)
        lane.waiting.append((batch, position))

    def of(self, key: Hashable) -> Lane:
        """The lane of a key that has messages."""
        return self._by_key[key]

    def first_is_done(self, lane: Lane) -> None:
        """Take the first message off its lane; an empty lane is forgotten."""
        lane.waiting.popleft()
        if not lane.waiting:
            del self._by_key[lane.key]

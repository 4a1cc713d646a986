"""The messages of one owned queue that are cached, running or done, and the offset to commit.

One pulled reply is one `Batch`; a worker finishes a run of messages of a batch at a time, so the
book-keeping costs per run, not per message. The commit offset is always the lowest unfinished
offset: a message that is still running holds back everything behind it, and nothing that was
never handed to a listener is ever skipped.

Knows neither sockets nor listeners; `machine` decides when to put and when to finish.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

__all__ = ["Batch", "ProcessQueue"]


class Batch:
    """The messages of one pulled reply, by position; `messages` is opaque here."""

    __slots__ = (
        "_ahead",
        "_lowest",
        "body_bytes",
        "handed_out",
        "messages",
        "offsets",
        "remaining",
    )

    def __init__(self, messages: Sequence[Any], offsets: Sequence[int], body_bytes: int) -> None:
        assert len(messages) == len(offsets) > 0
        self.messages = messages
        self.offsets = offsets
        self.body_bytes = body_bytes
        #: How many messages are not finished yet.
        self.remaining = len(messages)
        #: Before which position all is with a user who polls; not done for that.
        self.handed_out = 0
        #: The first position that is not done.
        self._lowest = 0
        #: What is done, one byte each; None while that is all before the lowest, as it is when
        #: messages end in order.
        self._ahead: bytearray | None = None

    def finish(self, first: int, until: int) -> int:
        """Mark positions [first, until) as done; returns how many were not done before."""
        if first == self._lowest and self._ahead is None:
            fresh = until - first
            self._lowest = until
        else:
            fresh = self._finish_ahead(first, until)
        self.remaining -= fresh
        return fresh

    def _finish_ahead(self, first: int, until: int) -> int:
        done = self._ahead
        if done is None:
            done = self._ahead = bytearray(len(self.offsets))
            done[: self._lowest] = b"\x01" * self._lowest
        fresh = until - first - done.count(1, first, until)
        done[first:until] = b"\x01" * (until - first)
        if first <= self._lowest:
            # find() stops at the first unfinished position; -1 means that all are done.
            lowest = done.find(0, self._lowest)
            self._lowest = len(done) if lowest < 0 else lowest
        return fresh

    def is_done(self, position: int) -> bool:
        """Whether a message is finished."""
        return position < self._lowest or (self._ahead is not None and bool(self._ahead[position]))

    def unfinished(self, first: int, until: int) -> list[tuple[int, int]]:
        """The runs of positions in [first, until) that are not done."""
        runs: list[tuple[int, int]] = []
        for position in range(first, until):
            if self.is_done(position):
                continue
            if runs and runs[-1][1] == position:
                runs[-1] = runs[-1][0], position + 1
            else:
                runs.append((position, position + 1))
        return runs

    @property
    def lowest_unfinished(self) -> int:
        """Offset of the first message that is not done; only asked while one remains."""
        return self.offsets[self._lowest]


class ProcessQueue:
    """What this member holds of one queue, from the acquisition to the release.

    >>> held = ProcessQueue(offset=5)
    >>> batch = held.put(["a", "b", "c"], [5, 6, 7], body_bytes=3, next_offset=8)
    >>> held.finish(batch, 1, 2)
    1
    >>> held.commit_offset
    5
    >>> held.finish(batch, 0, 1), held.commit_offset
    (1, 7)
    >>> held.finish(batch, 2, 3), held.commit_offset
    (1, 8)
    """

    __slots__ = ("_batches", "_handed_until", "cached_bytes", "cached_count", "next_offset")

    def __init__(self, offset: int) -> None:
        #: The offset to pull next; everything below it is cached, done or filtered out.
        self.next_offset = offset
        self.cached_count = 0
        #: Bodies of batches that are not wholly finished; a batch counts in full until then.
        self.cached_bytes = 0
        self._batches: deque[Batch] = deque()
        #: One past the last offset that a user who polls was given.
        self._handed_until = offset

    def put(
        self, messages: Sequence[Any], offsets: Sequence[int], *, body_bytes: int, next_offset: int
    ) -> Batch:
        """Cache one pulled reply; offsets ascend and continue what was put before."""
        assert offsets[0] >= self.next_offset, (offsets[0], self.next_offset)
        batch = Batch(messages, offsets, body_bytes)
        self._batches.append(batch)
        self.cached_count += len(messages)
        self.cached_bytes += body_bytes
        last = offsets[-1]
        self.next_offset = next_offset if next_offset > last else last + 1
        return batch

    def advance(self, next_offset: int) -> None:
        """Skip a range in which nothing matched; never moves back."""
        self.next_offset = max(self.next_offset, next_offset)

    def hand_out(self, batch: Batch, until: int) -> None:
        """A user who polls has the messages of a batch before a position, and commits them later.

        They hold the commit offset back, but are cached here no longer.
        """
        self.cached_count -= until - batch.handed_out
        batch.handed_out = until
        self._handed_until = batch.offsets[until - 1] + 1
        if until == len(batch.offsets):
            self.cached_bytes -= batch.body_bytes
            batch.messages = ()

    def finish(self, batch: Batch, first: int, until: int) -> int:
        """Mark a run of a batch as done; returns how many were not done before."""
        fresh = batch.finish(first, until)
        if until > batch.handed_out:
            self.cached_count -= fresh
            if fresh and not batch.remaining:
                self.cached_bytes -= batch.body_bytes
        batches = self._batches
        while batches and not batches[0].remaining:
            batches.popleft()
        return fresh

    @property
    def commit_offset(self) -> int:
        """The next offset that a new owner must read: the lowest unfinished one."""
        batches = self._batches
        return batches[0].lowest_unfinished if batches else self.next_offset

    @property
    def cached_from(self) -> int:
        """The lowest offset that is cached, if one is."""
        return max(self.commit_offset, self._handed_until)

    @property
    def span(self) -> int:
        """Distance from the lowest to the highest cached offset; 0 when empty."""
        batches = self._batches
        return max(0, batches[-1].offsets[-1] - self.cached_from) if batches else 0

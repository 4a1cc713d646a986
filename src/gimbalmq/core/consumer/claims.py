"""What waits for listeners, and what workers have of it; the same for threads, tasks, virtual ones.

A pulled reply waits as one piece of work, and a free worker claims a run of it. How long a run is,
and when a worker gives the rest of one back, is up to whoever runs the workers; so is the lock, if
they are threads. An ordered piece is claimed whole.

When a queue is given up, what waits of it is discarded; except what comes before messages that have
begun. Their offsets cannot be stored before its own, so they would be delivered twice.
"""

from __future__ import annotations

from collections import deque

import msgspec

from gimbalmq.core.consumer.effects import Consume
from gimbalmq.core.consumer.events import Consumed
from gimbalmq.model.queue import MessageQueue

__all__ = ["Claim", "Claims"]

_Key = tuple[MessageQueue, int]
#: Of what, which positions [first, until).
Claim = tuple[Consume, int, int]


class _InHand:
    """What workers have of one acquisition of a queue, and how far they have begun."""

    __slots__ = ("begun", "bound", "ends", "messages")

    def __init__(self) -> None:
        #: How many messages are claimed and not yet accounted for.
        self.messages = 0
        #: The last offset of each claim that is not accounted for, by its first.
        self.ends: dict[int, int] = {}
        #: The highest offset that was begun in the others.
        self.begun = -1
        #: Set when the queue was given up: only messages below this offset begin any more.
        self.bound: int | None = None

    def highest(self) -> int:
        """The highest offset that was begun, or may be at any moment."""
        return max(self.begun, *self.ends.values()) if self.ends else self.begun


class Claims:
    """The work of one consumer.

    >>> from gimbalmq.core.process_queue import Batch
    >>> queue, batch = MessageQueue("orders", "broker-a", 0), Batch("abcde", range(5), 5)
    >>> claims = Claims()
    >>> claims.add(Consume(queue, 1, batch, 0, 5))
    >>> consume, first, until = claims.claim(2)
    >>> first, until, claims.cancel(queue, 1), bool(claims.waiting)
    (0, 2, 2, False)
    """

    __slots__ = ("_in_hand", "number", "waiting")

    def __init__(self) -> None:
        #: What nobody has claimed yet; pieces are replaced when a part of them is claimed.
        self.waiting: deque[Consume] = deque()
        #: How many claims there were.
        self.number = 0
        #: By queue and epoch, from the first claim until it is given up and accounted for.
        self._in_hand: dict[_Key, _InHand] = {}

    def add(self, consume: Consume) -> None:
        """Let a run of messages wait for a worker."""
        self.waiting.append(consume)

    def claim(self, most: int) -> Claim:
        """Take what waits longest; at most so many messages of it, unless they are ordered."""
        consume = self.waiting.popleft()
        first, until = consume.first, consume.until
        if until - first > most and not consume.ordered:
            until = first + most
            self.waiting.appendleft(msgspec.structs.replace(consume, first=until))
        key = consume.queue, consume.epoch
        in_hand = self._in_hand.get(key)
        if in_hand is None:
            in_hand = self._in_hand[key] = _InHand()
        in_hand.messages += until - first
        offsets = consume.batch.offsets
        in_hand.ends[offsets[first]] = offsets[until - 1]
        self.number += 1
        return consume, first, until

    def is_over(self, consume: Consume, until: int) -> bool:
        """Whether the rest of a claim must not wait again.

        That is so when its queue was given up and no later message of it has begun.
        """
        in_hand = self._in_hand.get((consume.queue, consume.epoch))
        if in_hand is None or in_hand.bound is None:
            return False
        return consume.batch.offsets[until - 1] >= in_hand.bound

    def give_back(self, consume: Consume, first: int, until: int) -> None:
        """Let the end of a claim wait again, before all else."""
        in_hand = self._in_hand[consume.queue, consume.epoch]
        in_hand.messages -= until - first
        offsets = consume.batch.offsets
        end = offsets[until - 1]
        begin = next(begin for begin, last in in_hand.ends.items() if last == end)
        if begin == offsets[first]:
            del in_hand.ends[begin]  # nothing of it has begun
        else:
            in_hand.ends[begin] = offsets[first - 1]
        self.waiting.appendleft(msgspec.structs.replace(consume, first=first, until=until))

    def cancel(self, queue: MessageQueue, epoch: int) -> int:
        """Give a queue up; returns how many messages of it run or still have to.

        Asked a second time, nothing of it has to: whoever waited for it does so no longer.
        """
        in_hand = self._in_hand.get((queue, epoch))
        bound = -1
        if in_hand is not None and in_hand.bound is None:
            bound = in_hand.highest()
        waiting: deque[Consume] = deque()
        kept = 0
        for one in self.waiting:
            if one.queue != queue or one.epoch != epoch:
                waiting.append(one)
            elif one.batch.offsets[one.first] < bound:
                waiting.append(one)
                kept += one.until - one.first
        self.waiting = waiting
        if in_hand is None:
            return 0
        in_hand.bound = bound
        if not (in_hand.messages or kept):
            del self._in_hand[queue, epoch]
        return in_hand.messages + kept

    def account(self, done: Consumed) -> None:
        """The owner has taken a result in: its messages are no longer running."""
        if done.first == done.until:
            return  # all of it was given back
        key = done.queue, done.epoch
        in_hand = self._in_hand[key]
        in_hand.messages -= done.until - done.first
        offsets = done.batch.offsets
        in_hand.ends.pop(offsets[done.first], None)
        reached = done.until if done.reached is None else done.reached
        if reached > done.first and offsets[reached - 1] > in_hand.begun:
            in_hand.begun = offsets[reached - 1]
        if in_hand.bound is not None and not in_hand.messages and not self._waits(key):
            del self._in_hand[key]

    def _waits(self, key: _Key) -> bool:
        return any((one.queue, one.epoch) == key for one in self.waiting)

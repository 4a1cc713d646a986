"""What waits for listeners, and what workers have of it; the same for threads, tasks, virtual ones.

A pulled reply waits as one piece of work, and a free worker claims a run of it. How long a run is,
and when a worker gives the rest of one back, is up to whoever runs the workers; so is the lock, if
they are threads. An ordered piece is claimed whole.
"""

from __future__ import annotations

from collections import deque

import msgspec

from gimbalmq.core.consumer.effects import Consume
from gimbalmq.core.consumer.events import Consumed
from gimbalmq.model.queue import MessageQueue

__all__ = ["Claim", "Claims"]

_Key = tuple[MessageQueue, int]
#: Its number, higher than those of all before; and of what, which positions [first, until).
Claim = tuple[int, Consume, int, int]


class _InHand(msgspec.Struct):
    """What workers have of one acquisition of a queue."""

    #: How many are claimed and not yet accounted for.
    messages: int = 0
    #: The number of the newest claim.
    newest: int = 0
    #: Whether the queue was given up: nothing new of it starts.
    cancelled: bool = False


class Claims:
    """The work of one consumer.

    >>> from gimbalmq.core.process_queue import Batch
    >>> queue, batch = MessageQueue("orders", "broker-a", 0), Batch("abcde", range(5), 5)
    >>> claims = Claims()
    >>> claims.add(Consume(queue, 1, batch, 0, 5))
    >>> number, consume, first, until = claims.claim(2)
    >>> first, until, claims.cancel(queue, 1), bool(claims.waiting)
    (0, 2, 2, False)
    """

    __slots__ = ("_in_hand", "number", "waiting")

    def __init__(self) -> None:
        #: What nobody has claimed yet; pieces are replaced when a part of them is claimed.
        self.waiting: deque[Consume] = deque()
        #: The number of the newest claim of all.
        self.number = 0
        #: By queue and epoch; those of which workers have nothing are left out.
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
        self.number = in_hand.newest = number = self.number + 1
        return number, consume, first, until

    def is_cancelled(self, consume: Consume) -> bool:
        """Whether its queue was given up: then nothing of it may wait again."""
        in_hand = self._in_hand.get((consume.queue, consume.epoch))
        return in_hand is not None and in_hand.cancelled

    def give_back(self, consume: Consume, first: int, until: int) -> None:
        """Let the end of a claim wait again, before all else."""
        self._in_hand[consume.queue, consume.epoch].messages -= until - first
        self.waiting.appendleft(msgspec.structs.replace(consume, first=first, until=until))

    def cancel(self, queue: MessageQueue, epoch: int) -> int:
        """Discard what waits of a queue; returns how many messages workers still hold."""
        self.waiting = deque(
            one for one in self.waiting if one.queue != queue or one.epoch != epoch
        )
        in_hand = self._in_hand.get((queue, epoch))
        if in_hand is None or not in_hand.messages:
            return 0
        in_hand.cancelled = True
        return in_hand.messages

    def is_newest(self, number: int, consume: Consume) -> bool:
        """Whether no later messages of the queue were claimed.

        If some were, this claim has to be finished even when the queue is given up: their offsets
        cannot be stored before those of this one, so they would be delivered twice.
        """
        in_hand = self._in_hand.get((consume.queue, consume.epoch))
        return in_hand is None or in_hand.newest <= number

    def account(self, done: Consumed) -> None:
        """The owner has taken a result in: its messages are no longer running."""
        key = done.queue, done.epoch
        in_hand = self._in_hand[key]
        in_hand.messages -= done.until - done.first
        if not in_hand.messages:
            del self._in_hand[key]

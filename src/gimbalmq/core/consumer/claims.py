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

    __slots__ = ("_cancelled", "_newest", "_running", "number", "waiting")

    def __init__(self) -> None:
        #: What nobody has claimed yet; pieces are replaced when a part of them is claimed.
        self.waiting: deque[Consume] = deque()
        #: The number of the newest claim of all.
        self.number = 0
        #: Messages that are claimed and not yet accounted for, by queue and epoch.
        self._running: dict[_Key, int] = {}
        #: The number of the newest claim of each of those.
        self._newest: dict[_Key, int] = {}
        #: Those that were given up: nothing new of them starts.
        self._cancelled: set[_Key] = set()

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
        self._running[key] = self._running.get(key, 0) + until - first
        self.number = self._newest[key] = self.number + 1
        return self.number, consume, first, until

    def is_cancelled(self, consume: Consume) -> bool:
        """Whether its queue was given up: then nothing of it may wait again."""
        return (consume.queue, consume.epoch) in self._cancelled

    def give_back(self, consume: Consume, first: int, until: int) -> None:
        """Let the end of a claim wait again, before all else."""
        self._running[consume.queue, consume.epoch] -= until - first
        self.waiting.appendleft(msgspec.structs.replace(consume, first=first, until=until))

    def cancel(self, queue: MessageQueue, epoch: int) -> int:
        """Discard what waits of a queue; returns how many messages workers still hold."""
        self.waiting = deque(
            one for one in self.waiting if one.queue != queue or one.epoch != epoch
        )
        running = self._running.get((queue, epoch), 0)
        if running:
            self._cancelled.add((queue, epoch))
        return running

    def is_newest(self, number: int, consume: Consume) -> bool:
        """Whether no later messages of the queue were claimed.

        If some were, this claim has to be finished even when the queue is given up: their offsets
        cannot be stored before those of this one, so they would be delivered twice.
        """
        return self._newest.get((consume.queue, consume.epoch), number) <= number

    def account(self, done: Consumed) -> None:
        """The owner has taken a result in: its messages are no longer running."""
        key = done.queue, done.epoch
        left = self._running[key] - (done.until - done.first)
        if left:
            self._running[key] = left
        else:
            del self._running[key]
            self._newest.pop(key, None)
            self._cancelled.discard(key)

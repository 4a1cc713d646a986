"""Messages that wait for a user who polls.

Takes the place of the worker threads for pull consumers. What a poll hands out counts as done
when the user comes back for more (or commits), so a crash in between loses nothing. Where only a
commit counts it may be long until then, so it is told at once what is no longer waiting here.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from gimbalmq.core.consumer.effects import Consume
from gimbalmq.core.consumer.events import Consumed, Polled
from gimbalmq.model.queue import MessageQueue
from gimbalmq.runtime.running import RunningWork

__all__ = ["PollQueue"]


class PollQueue:
    """Pulled replies in order of arrival; a poll gets up to `most` messages of one."""

    def __init__(
        self,
        finished: Callable[[Consumed], None],
        most: int,
        polled: Callable[[Polled], None] | None = None,
    ) -> None:
        self._finished = finished
        self._most = most
        self._polled = polled
        self._changed = threading.Condition()
        self._waiting: deque[Consume] = deque()
        self._handed_out: list[Consume] = []
        self._closed = False

    # ---- owner -------------------------------------------------------------------------------

    def submit(self, consume: Consume) -> None:
        """Let a pulled reply wait for the next poll."""
        with self._changed:
            self._waiting.append(consume)
            self._changed.notify()

    def cancel(self, queue: MessageQueue, epoch: int) -> int:
        """Discard what waits of a queue, and forget what was handed out but not settled."""

        def stays(consume: Consume) -> bool:
            return consume.queue != queue or consume.epoch != epoch

        with self._changed:
            self._waiting = deque(filter(stays, self._waiting))
            # The user may still work on these; whoever owns the queue next gets them again.
            self._handed_out = list(filter(stays, self._handed_out))
        return 0

    def accounted(self, done: Consumed) -> None:
        """Nothing to do: only what waits is kept here."""

    def running(self) -> list[RunningWork]:
        """Nothing: how long a user takes with what was handed out is the user's business."""
        return []

    # ---- user --------------------------------------------------------------------------------

    def poll(self, timeout_s: float) -> list[Any]:
        """The next messages of one queue, or an empty list when none came in time."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while not self._waiting:
                remaining_s = deadline - time.monotonic()
                if self._closed or remaining_s <= 0:
                    return []
                self._changed.wait(remaining_s)
            consume = self._take_next()
            self._handed_out.append(consume)
            messages = list(consume.batch.messages[consume.first : consume.until])
            if self._polled is not None:
                # With the lock held: whoever settles this comes after it.
                self._polled(Polled(consume.queue, consume.epoch, consume.batch, consume.until))
        return messages

    def _take_next(self) -> Consume:
        consume = self._waiting.popleft()
        until = consume.first + self._most
        if until >= consume.until:
            return consume
        self._waiting.appendleft(msgspec.structs.replace(consume, first=until))
        self._changed.notify()  # another thread may be polling, too
        return msgspec.structs.replace(consume, until=until)

    def settle(self) -> None:
        """Everything that was handed out is done."""
        with self._changed:
            done, self._handed_out = self._handed_out, []
        for one in done:
            self._finished(Consumed(one.queue, one.epoch, one.batch, one.first, one.until))

    def close(self) -> None:
        """Let a waiting poll return."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

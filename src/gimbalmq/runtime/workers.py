"""The threads that run listeners.

A pulled reply waits here as one piece of work; a free worker claims a run of it. How long a run
is depends on how quick listeners are: with quick ones a whole reply, because threads that pass
single messages around fight for the interpreter lock and lose more than they gain; with slow
ones a single message, so that all workers share even one queue. A worker whose listener turns
out slow in the middle of a run gives the rest back. An ordered run is claimed whole.

Knows threads and work, not brokers: results go to `finished`, on the worker's thread.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Final

import msgspec

from gimbalmq.core.consumer.effects import Consume
from gimbalmq.core.consumer.events import Consumed
from gimbalmq.model.queue import MessageQueue
from gimbalmq.runtime.listening import Listening
from gimbalmq.runtime.running import RunningWork

__all__ = ["WorkerPool"]

#: A run is cut so that it takes about this long; also the time after which a run in progress is
#: shared with other workers.
_RUN_S: Final = 0.002
#: Weight of the newest measurement in the running mean of seconds per message.
_NEWEST: Final = 0.3


class _Work:
    """What is left of one `Consume`."""

    __slots__ = ("consume", "next")

    def __init__(self, consume: Consume) -> None:
        self.consume = consume
        self.next = consume.first


class WorkerPool:
    """Runs the listeners of one consumer on `workers` threads."""

    def __init__(
        self,
        name: str,
        listening: Listening,
        finished: Callable[[Consumed], None],
        *,
        workers: int,
    ) -> None:
        self._listening = listening
        self._finished = finished
        self._changed = threading.Condition()
        self._waiting: deque[_Work] = deque()
        #: Claimed and not yet accounted for, by queue and epoch.
        self._running: Counter[tuple[MessageQueue, int]] = Counter()
        #: Those of them whose queue was given up: nothing new of them starts.
        self._cancelled: set[tuple[MessageQueue, int]] = set()
        self._current: dict[int, RunningWork] = {}
        self._idle = 0
        self._stopped = False
        #: None until the first run was measured: then runs are single messages.
        self._seconds_each: float | None = None
        self._threads = [
            threading.Thread(target=self._work, name=f"gimbalmq-{name}-{number}", daemon=True)
            for number in range(workers)
        ]

    # ---- owner -------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def submit(self, consume: Consume) -> None:
        """Let a run of messages wait for a worker."""
        with self._changed:
            self._waiting.append(_Work(consume))
            self._changed.notify()

    def cancel(self, queue: MessageQueue, epoch: int) -> int:
        """Discard what waits of a queue; returns how many messages workers still hold."""
        with self._changed:
            self._waiting = deque(
                work
                for work in self._waiting
                if work.consume.queue != queue or work.consume.epoch != epoch
            )
            running = self._running[queue, epoch]
            if running:
                self._cancelled.add((queue, epoch))
            return running

    def accounted(self, done: Consumed) -> None:
        """The owner has taken a result in: its messages are no longer running."""
        key = done.queue, done.epoch
        with self._changed:
            self._running[key] -= done.until - done.first
            if not self._running[key]:
                del self._running[key]
                self._cancelled.discard(key)

    def running(self) -> list[RunningWork]:
        """What the workers are doing now."""
        return list(self._current.values())

    def stop(self) -> None:
        """Let the threads end after what they run now; does not wait for them."""
        with self._changed:
            self._stopped = True
            self._waiting.clear()
            self._changed.notify_all()

    def join(self, timeout_s: float) -> bool:
        """Wait for the threads; False when a listener is still running after that time."""
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    # ---- workers -----------------------------------------------------------------------------

    def _work(self) -> None:
        thread_id = threading.get_ident()
        width = self._listening.batch_size
        while (claim := self._claim()) is not None:
            consume, first, until = claim
            started = time.monotonic()
            work = RunningWork(consume, first, until, started, thread_id, width)
            self._current[thread_id] = work
            done = self._listening.run(work, _RUN_S)
            del self._current[thread_id]
            reached = until if done.reached is None else done.reached
            self._measured((time.monotonic() - started) / max(reached - first, 1))
            if reached < until and not consume.ordered and self._give_back(consume, reached, until):
                done = msgspec.structs.replace(done, until=reached, reached=None)
            self._finished(done)

    def _claim(self) -> tuple[Consume, int, int] | None:
        with self._changed:
            while not self._waiting:
                if self._stopped:
                    return None
                self._idle += 1
                self._changed.wait()
                self._idle -= 1
            work = self._waiting[0]
            consume, first = work.consume, work.next
            until = consume.until
            if not consume.ordered:
                until = min(first + self._run_length(), until)
            work.next = until
            if until == consume.until:
                self._waiting.popleft()
            self._running[consume.queue, consume.epoch] += until - first
            if self._waiting and self._idle:
                self._changed.notify()
            return consume, first, until

    def _run_length(self) -> int:
        if self._listening.batch_size > 1:
            return self._listening.batch_size
        if self._seconds_each is None:
            return 1
        return max(1, int(_RUN_S / max(self._seconds_each, 1e-7)))

    def _measured(self, seconds_each: float) -> None:
        known = self._seconds_each
        self._seconds_each = (
            seconds_each if known is None else known + _NEWEST * (seconds_each - known)
        )

    def _give_back(self, consume: Consume, first: int, until: int) -> bool:
        """Let the rest of a run wait again; not when it must not start any more."""
        permit = consume.permit
        if permit is not None and time.monotonic() >= permit.valid_until:
            return False
        key = consume.queue, consume.epoch
        rest = msgspec.structs.replace(consume, first=first, until=until)
        with self._changed:
            if self._stopped or key in self._cancelled:
                return False
            self._running[key] -= until - first
            self._waiting.appendleft(_Work(rest))
            self._changed.notify()
            return True

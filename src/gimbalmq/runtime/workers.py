"""The threads that run listeners.

A pulled reply waits here as one piece of work; a free worker claims a run of it. How long a run
is depends on how quick listeners are: with quick ones a whole reply, because threads that pass
single messages around fight for the interpreter lock and lose more than they gain; with slow
ones a single message, so that all workers share even one queue. A worker whose listener turns
out slow in the middle of a run gives the rest back. An ordered run is claimed whole.

For the same reason quick listeners are run by one worker, however much waits: no other is woken
while it goes on claiming. One more stands by, looks now and then, and helps out when the first is
held up by a slow message.

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
from gimbalmq.runtime.parking import Parking
from gimbalmq.runtime.running import RunningWork

__all__ = ["WorkerPool"]

#: A run is cut so that it takes about this long; also the time after which a run in progress is
#: shared with other workers.
_RUN_S: Final = 0.002
#: Below this many seconds per message, handing messages to other threads costs more than it saves.
_QUICK_S: Final = 0.00005
#: How often the worker that stands by looks whether it is needed.
_STANDBY_S: Final = 0.005
#: How many of the latest runs say how quick listeners are. The shortest counts: a run may have
#: waited for the interpreter lock, but none is shorter than its listeners need.
_RUNS: Final = 4

_NEVER: Final = float("inf")

_Key = tuple[MessageQueue, int]


class _Work:
    """What is left of one `Consume`."""

    __slots__ = ("consume", "next")

    def __init__(self, consume: Consume) -> None:
        self.consume = consume
        self.next = consume.first


def _at_once(action: Callable[[], None]) -> None:
    action()


class WorkerPool:
    """Runs the listeners of one consumer on `workers` threads.

    `soon` runs something after what its owner does now; work that is submitted together then
    wakes one worker once.
    """

    def __init__(
        self,
        name: str,
        listening: Listening,
        finished: Callable[[Consumed], None],
        *,
        workers: int,
        soon: Callable[[Callable[[], None]], None] = _at_once,
    ) -> None:
        self._listening = listening
        self._finished = finished
        self._soon = soon
        self._lock = threading.Lock()
        self._parking = Parking(self._lock)
        self._waiting: deque[_Work] = deque()
        #: Claimed and not yet accounted for, by queue and epoch.
        self._running: Counter[_Key] = Counter()
        #: The number of the newest claim, of all and of each of those queues.
        self._claims = 0
        self._newest: dict[_Key, int] = {}
        #: Queues that were given up: nothing new of them starts.
        self._cancelled: set[_Key] = set()
        self._current: dict[int, RunningWork] = {}
        #: Workers that are not waiting for something to do.
        self._active = workers
        self._standing_by = False
        self._calling = False
        self._stopped = False
        self._recent: deque[float] = deque(maxlen=_RUNS)
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
        with self._lock:
            self._waiting.append(_Work(consume))
            if self._calling:
                return
            self._calling = True
        self._soon(self._call)

    def _call(self) -> None:
        with self._lock:
            self._calling = False
            self._call_for_help()

    def cancel(self, queue: MessageQueue, epoch: int) -> int:
        """Discard what waits of a queue; returns how many messages workers still hold."""
        with self._lock:
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
        with self._lock:
            self._running[key] -= done.until - done.first
            if not self._running[key]:
                del self._running[key]
                self._newest.pop(key, None)
                self._cancelled.discard(key)

    def running(self) -> list[RunningWork]:
        """What the workers are doing now."""
        return list(self._current.values())

    def stop(self) -> None:
        """Let the threads end after what they run now; does not wait for them."""
        with self._lock:
            self._stopped = True
            self._waiting.clear()
            self._parking.wake_all()

    def join(self, timeout_s: float) -> bool:
        """Wait for the threads; False when a listener is still running after that time."""
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    # ---- workers -----------------------------------------------------------------------------

    def _work(self) -> None:
        while (claim := self._claim()) is not None:
            number, consume, first, until = claim
            done = self._run(consume, first, until, _RUN_S)
            while done.reached is not None and not consume.ordered:
                begun = msgspec.structs.replace(done, until=done.reached, reached=None)
                if self._give_back(consume, begun.until, until):
                    done = begun
                elif self._must_go_on(number, consume):
                    self._finished(begun)
                    done = self._run(consume, begun.until, until, _NEVER)
                else:
                    break
            self._finished(done)

    def _run(self, consume: Consume, first: int, until: int, share_after_s: float) -> Consumed:
        thread_id = threading.get_ident()
        started = time.monotonic()
        work = RunningWork(consume, first, until, started, thread_id, self._listening.batch_size)
        self._current[thread_id] = work
        done = self._listening.run(work, share_after_s)
        del self._current[thread_id]
        reached = until if done.reached is None else done.reached
        self._measured((time.monotonic() - started) / max(reached - first, 1))
        return done

    def _claim(self) -> tuple[int, Consume, int, int] | None:
        with self._lock:
            if not self._waiting:
                self._wait_to_be_needed()
                if not self._waiting:
                    return None
            work = self._waiting[0]
            consume, first = work.consume, work.next
            until = consume.until
            if not consume.ordered:
                until = min(first + self._run_length(), until)
            work.next = until
            if until == consume.until:
                self._waiting.popleft()
            key = consume.queue, consume.epoch
            self._running[key] += until - first
            self._claims += 1
            self._newest[key] = self._claims
            self._call_for_help()
            return self._claims, consume, first, until

    # ---- who is needed; the lock is held -----------------------------------------------------

    def _quick(self) -> bool:
        return self._seconds_each is not None and self._seconds_each < _QUICK_S

    def _call_for_help(self) -> None:
        """Wake a worker for what waits: to take it, or to stand by for who is busy with it."""
        if self._waiting and not (self._active and self._standing_by and self._quick()):
            self._parking.wake()

    def _wait_to_be_needed(self) -> None:
        self._active -= 1
        while not self._stopped:
            if self._waiting and not (self._active and self._quick()):
                break
            if self._waiting and not self._standing_by:
                if self._stand_by():
                    break
            else:
                self._parking.sleep()
        self._active += 1

    def _stand_by(self) -> bool:
        """Watch the others while they claim; True when something waits that they do not take."""
        self._standing_by = True
        claims = None
        while claims != self._claims and self._quick() and not self._stopped:
            claims = self._claims
            self._lock.release()
            try:
                time.sleep(_STANDBY_S)
            finally:
                self._lock.acquire()
        self._standing_by = False
        return bool(self._waiting)

    # ---- runs --------------------------------------------------------------------------------

    def _run_length(self) -> int:
        if self._listening.batch_size > 1:
            return self._listening.batch_size
        if self._seconds_each is None:
            return 1
        return max(1, int(_RUN_S / max(self._seconds_each, 1e-7)))

    def _measured(self, seconds_each: float) -> None:
        self._recent.append(seconds_each)
        # Another worker may append meanwhile; a copy cannot change under `min`.
        self._seconds_each = min(tuple(self._recent))

    def _give_back(self, consume: Consume, first: int, until: int) -> bool:
        """Let the rest of a run wait again; not when it must not start any more."""
        permit = consume.permit
        if permit is not None and time.monotonic() >= permit.valid_until:
            return False
        key = consume.queue, consume.epoch
        rest = msgspec.structs.replace(consume, first=first, until=until)
        with self._lock:
            if self._stopped or key in self._cancelled:
                return False
            self._running[key] -= until - first
            self._waiting.appendleft(_Work(rest))
            self._call_for_help()
            return True

    def _must_go_on(self, number: int, consume: Consume) -> bool:
        """Whether a cancelled run has to be finished, because later messages were claimed.

        Their offsets cannot be stored before those of this run: they would be delivered twice.
        """
        permit = consume.permit
        if permit is not None and time.monotonic() >= permit.valid_until:
            return False
        with self._lock:
            return self._newest.get((consume.queue, consume.epoch), number) > number

"""The threads that run listeners.

A pulled reply waits here as one piece of work; a free worker claims a run of it. How long a run
is depends on how quick listeners are: with quick ones a whole reply, because threads that pass
single messages around fight for the interpreter lock and lose more than they gain; with slow
ones a single message (or batch, where listeners get those), so that all workers share even one
queue. An ordered run is claimed whole.

For the same reason quick listeners are run by one worker, however much waits: no other is woken
while it goes on claiming. One more stands by and looks now and then. It helps out when the first is
held up, and when a listener turns out slow in the middle of a run it takes the rest of that run
away, for all to share. So the worker itself need not look at the clock after each message.

Quicker still is the thread that the messages come from, the owner's: it has them at hand. Where it
runs errands, quick listeners become one, as long as a worker stands by to call another thread to
the owner's work when the errand takes long. After that, it is left alone for a while.

Knows threads and work, not brokers: results go to `finished`, on the worker's thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from gimbalmq.core.consumer.claims import Claims
from gimbalmq.core.consumer.effects import Consume
from gimbalmq.core.consumer.events import Consumed
from gimbalmq.model.queue import MessageQueue
from gimbalmq.runtime.listening import Listening
from gimbalmq.runtime.parking import Parking
from gimbalmq.runtime.running import RunningWork

__all__ = ["ErrandRunner", "WorkerPool"]

#: A run is cut so that it takes about this long.
_RUN_S: Final = 0.002
#: A run that nobody watches is no longer. Should its listeners turn slow, nobody takes the rest of
#: it away, and its offset stands still until its end.
_UNWATCHED_MESSAGES: Final = 128
#: Below this many seconds per message, handing messages to other threads costs more than it saves.
_QUICK_S: Final = 0.00005
#: How soon the worker that stands by looks whether it is needed, and how long a run may take
#: before the rest of it is shared.
_STANDBY_S: Final = 0.005
#: How long it waits at most between two looks. While all goes well it looks less and less often,
#: because whoever works has to stop for each look, and wait for its turn to go on.
_STANDBY_S_MAX: Final = 0.02
#: How much slower than before a run may make listeners seem: it may have waited for the
#: interpreter lock, but none is shorter than its listeners need.
_SLOWER_MOST: Final = 8.0
#: Less than any listener takes, and more than a clock that stands still says.
_SECONDS_EACH_MIN: Final = 1e-7

#: How long an errand may keep the owner's thread; a busy machine may keep it from running, too.
_ERRAND_S_MAX: Final = 0.02
#: How long the owner's thread is left alone after an errand took too long, at first and at most.
_ALONE_S: Final = 1.0
_ALONE_S_MAX: Final = 300.0

_NEVER: Final = float("inf")


class ErrandRunner(Protocol):
    """An owner whose thread can run listeners."""

    def errand(self, action: Callable[[], None]) -> None:
        """Run something on the owner's thread, after what it does now; called on that thread."""

    def replace(self, thread_id: int) -> None:
        """Let another thread do the owner's work, if that one still is on an errand."""


def _at_once(action: Callable[[], None]) -> None:
    action()


class WorkerPool:
    """Runs the listeners of one consumer on `workers` threads.

    `soon` runs something after what its owner does now; work that is submitted together then
    wakes one worker once. `owner` may take part with its own thread.
    """

    def __init__(
        self,
        name: str,
        listening: Listening,
        finished: Callable[[Consumed], None],
        *,
        workers: int,
        soon: Callable[[Callable[[], None]], None] = _at_once,
        owner: ErrandRunner | None = None,
    ) -> None:
        self._listening = listening
        self._width = listening.batch_size
        self._owner = owner
        #: The thread that is on an errand for this pool; None when none is, or it took too long.
        self._errand: int | None = None
        self._alone_until = 0.0
        self._alone_s = _ALONE_S
        self._finished = finished
        self._soon = soon
        self._lock = threading.Lock()
        self._parking = Parking(self._lock)
        self._claims = Claims()
        self._current: dict[int, RunningWork] = {}
        #: Workers that are not waiting for something to do.
        self._active = workers
        self._standing_by = False
        #: Whether the next worker that has nothing to do is to stand by, and counts as doing so.
        self._appointed = False
        self._calling = False
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
        with self._lock:
            self._claims.add(consume)
            if self._calling:
                return
            self._calling = True
        self._soon(self._call)

    def _call(self) -> None:
        owner = self._owner
        with self._lock:
            self._calling = False
            if owner is None or not self._suits_owner():
                self._call_for_help()
                return
            self._errand = threading.get_ident()
            self._active += 1
        owner.errand(self._work_for_owner)

    def cancel(self, queue: MessageQueue, epoch: int) -> int:
        """Give a queue up; returns how many messages of it run or still have to."""
        with self._lock:
            left = self._claims.cancel(queue, epoch)
            for work in tuple(self._current.values()):
                of_it = work.consume.queue == queue and work.consume.epoch == epoch
                if of_it and self._claims.is_over(work.consume, work.until):
                    work.take_rest()
            return left

    def accounted(self, done: Consumed) -> None:
        """The owner has taken a result in: its messages are no longer running."""
        with self._lock:
            self._claims.account(done)

    def running(self) -> list[RunningWork]:
        """What the workers are doing now."""
        return list(self._current.values())

    def stop(self) -> None:
        """Let the threads end after what they run now; does not wait for them."""
        with self._lock:
            self._stopped = True
            self._claims.waiting.clear()
            for work in tuple(self._current.values()):
                work.take_rest()
            self._end_errand()
            self._parking.wake_all()

    def join(self, timeout_s: float) -> bool:
        """Wait for the threads; False when a listener is still running after that time."""
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))
        # What was an errand has no thread of this pool.
        while self._elsewhere() and time.monotonic() < deadline:
            time.sleep(_STANDBY_S)
        return not (self._elsewhere() or any(thread.is_alive() for thread in self._threads))

    def _elsewhere(self) -> bool:
        """Whether a thread that is not the caller's runs a listener."""
        return any(thread_id != threading.get_ident() for thread_id in tuple(self._current))

    # ---- workers -----------------------------------------------------------------------------

    def _work(self) -> None:
        thread_id = threading.get_ident()
        while (work := self._claim(thread_id)) is not None:
            self._run(work, thread_id)

    def _run(self, work: RunningWork, thread_id: int) -> None:
        try:
            done = self._listening.run(work, _NEVER)
        finally:
            del self._current[thread_id]
        reached = done.until
        if done.reached is not None:
            reached = done.reached
            done = self._settled(work, done)
        self._measured(done.took_s / max(reached - done.first, 1))
        self._finished(done)

    def _claim(self, thread_id: int) -> RunningWork | None:
        with self._lock:
            if not self._claims.waiting:
                self._wait_to_be_needed()
                if not self._claims.waiting:
                    return None
            work = self._claimed(thread_id, time.monotonic())
            if self._claims.waiting or work.left() > 1:
                self._call_for_help()
            return work

    def _claimed(self, thread_id: int, now: float) -> RunningWork:
        consume, first, until = self._claims.claim(self._run_length())
        work = RunningWork(consume, first, until, now, thread_id, self._width)
        if not consume.ordered:
            work.parts()  # from now on others can take from it
        self._current[thread_id] = work
        return work

    def _settled(self, work: RunningWork, done: Consumed) -> Consumed:
        """What a run has done that did not come to its end."""
        with self._lock:  # somebody may be taking the rest of it in this moment
            if not work.shared:
                return done
            return msgspec.structs.replace(done, until=work.until, reached=None)

    # ---- the owner's thread ------------------------------------------------------------------

    def _suits_owner(self) -> bool:
        """Whether the owner's thread should run what waits, which then is watched; lock held."""
        if self._active or self._stopped or not self._quick():
            return False
        first = self._claims.waiting[0] if self._claims.waiting else None
        if first is None or first.ordered or first.permit is not None:
            return False
        if self._alone_until and time.monotonic() < self._alone_until:
            return False
        if not self._standing_by:
            self._standing_by = self._appointed = self._parking.wake()
        return self._standing_by

    def _work_for_owner(self) -> None:
        """Run what waits, as an errand; not for longer than a run takes."""
        thread_id = threading.get_ident()
        end_at = time.monotonic() + _RUN_S
        try:
            while (work := self._claim_for_owner(thread_id, end_at)) is not None:
                self._run(work, thread_id)
        finally:
            with self._lock:
                self._active -= 1
                if self._errand == thread_id:
                    self._errand = None
                waiting = bool(self._claims.waiting) and not self._calling
                self._calling = self._calling or waiting
        if waiting:
            self._soon(self._call)

    def _claim_for_owner(self, thread_id: int, end_at: float) -> RunningWork | None:
        with self._lock:
            waiting, now = self._claims.waiting, time.monotonic()
            if self._errand != thread_id or not waiting or now >= end_at:
                return None
            first = waiting[0]
            if first.ordered or first.permit is not None:
                return None
            return self._claimed(thread_id, now)

    def _end_errand(self) -> None:
        """Let the owner go on with another thread: this one has not come back; lock held."""
        if self._owner is not None and self._errand is not None:
            self._owner.replace(self._errand)
            self._errand = None

    # ---- who is needed; the lock is held -----------------------------------------------------

    def _quick(self) -> bool:
        return self._seconds_each is not None and self._seconds_each < _QUICK_S

    def _call_for_help(self) -> None:
        """Wake a worker for what waits or runs: to take it, or to stand by for who is busy."""
        if self._standing_by and (not self._claims.waiting or (self._active and self._quick())):
            return
        if self._claims.waiting or self._watched():
            self._parking.wake()

    def _watched(self) -> bool:
        """Whether somebody has several messages, the first of which may hold up the others."""
        return self._errand is not None or any(
            work.left() for work in tuple(self._current.values())
        )

    def _wait_to_be_needed(self) -> None:
        self._active -= 1
        while not self._stopped:
            waiting = self._claims.waiting
            if self._appointed:
                self._appointed = False
                if self._stand_by():
                    break
            elif waiting and not (self._active and self._quick()):
                break
            elif not self._standing_by and (waiting or self._watched()):
                if self._stand_by():
                    break
            else:
                self._parking.sleep()
        self._active += 1

    def _stand_by(self) -> bool:
        """Watch the others while they claim; True when something waits that they do not take."""
        self._standing_by = True
        number, pause_s = None, _STANDBY_S
        while not self._stopped and (number != self._claims.number or self._watched()):
            number = self._claims.number
            self._lock.release()
            try:
                time.sleep(pause_s)
            finally:
                self._lock.acquire()
            pause_s = _STANDBY_S if self._share_late() else min(2.0 * pause_s, _STANDBY_S_MAX)
            if self._claims.waiting and (number == self._claims.number or not self._quick()):
                break
        self._standing_by = False
        return bool(self._claims.waiting)

    def _share_late(self) -> bool:
        """Let the rest of runs that take too long wait again, for all to take; False: none does."""
        now, late = time.monotonic(), False
        for work in tuple(self._current.values()):
            if now - work.since < _STANDBY_S:
                continue
            late = True
            if work.thread_id == self._errand and now - work.since >= _ERRAND_S_MAX:
                self._end_errand()
                self._alone_until = now + self._alone_s
                self._alone_s = min(2.0 * self._alone_s, _ALONE_S_MAX)
            if rest := work.take_rest():
                first = work.until - rest
                self._claims.give_back(work.consume, first, work.until)
                work.until, work.shared = first, True
                self._seconds_each = (now - work.since) / max(first - work.first, 1)
        return late

    # ---- runs --------------------------------------------------------------------------------

    def _run_length(self) -> int:
        """How many messages make a run: whole batches, where listeners get those."""
        width = self._width
        if self._seconds_each is None:
            return width
        messages = _RUN_S / self._seconds_each
        if not self._standing_by:
            messages = min(messages, _UNWATCHED_MESSAGES)
        return max(1, int(messages / width)) * width

    def _measured(self, seconds_each: float) -> None:
        known = self._seconds_each
        if known is not None and seconds_each > _SLOWER_MOST * known:
            seconds_each = _SLOWER_MOST * known
        self._seconds_each = max(_SECONDS_EACH_MIN, seconds_each)

"""Listeners on an event loop: the tasks that run them, at most `workers` at a time.

The counterpart of `workers` and `listening` for coroutines, with the same meaning: a pulled reply
waits as one piece of work, tasks claim runs of it, short ones while listeners are slow; an ordered
run is claimed whole. Listeners that are plain functions run on threads, so that they do not hold
up the loop.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor as ThreadExecutor
from typing import Any, Final, cast

import msgspec

from gimbalmq.core.consumer.claims import Claims
from gimbalmq.core.consumer.effects import Consume
from gimbalmq.core.consumer.events import Consumed
from gimbalmq.model.queue import MessageQueue
from gimbalmq.runtime.coroutines import (
    CoroutineListener,
    contained,
    coroutine_stack,
    is_coroutine_listener,
    taken_out,
)
from gimbalmq.runtime.listening import Listener, ListenerSettings, Listening
from gimbalmq.runtime.ordered_run import OrderedRun
from gimbalmq.runtime.running import RunningWork
from gimbalmq.runtime.verdicts import consumed, delay_level, failed, may_start, report

__all__ = ["LoopListening", "TaskPool"]

#: As for threads: a run is cut so that it takes about this long, or shared after it.
_RUN_S: Final = 0.002
_NEWEST: Final = 0.3
#: Whatever a coroutine raises is its verdict, except what is not its own: an interrupt hits the
#: thread of the loop wherever it is, a cancellation ends the task, GeneratorExit the coroutine.
_VERDICTS: Final = (Exception, SystemExit)


class LoopListening(Listening):
    """The listeners of one consumer: coroutine functions, or functions for `threads`."""

    def __init__(
        self,
        listener_for: Callable[[str], Listener | None],
        settings: ListenerSettings,
        threads: ThreadExecutor,
    ) -> None:
        super().__init__(listener_for, settings)
        self._loop = asyncio.get_running_loop()
        self._threads = threads

    def directly(self, message: Any) -> object:
        """Have the listener of a message's topic consume it; from another thread, which waits."""
        outcome = super().directly(message)
        if not inspect.isawaitable(outcome):
            return outcome
        awaited = asyncio.run_coroutine_threadsafe(contained(outcome), self._loop)
        return taken_out(*awaited.result())

    async def run_async(self, work: RunningWork, share_after_s: float) -> Consumed:
        """Run over the work; a run of single messages may end early, to be shared."""
        own = self._listener_for(work.consume.queue.topic)
        if own is not None and not is_coroutine_listener(own):
            # One hop to a thread for the whole run, where it goes on as any other.
            return await self._loop.run_in_executor(
                self._threads, self._run_on_thread, work, share_after_s
            )
        if work.consume.ordered:
            return await self._in_order_async(work)
        if self._settings.batch_size > 1:
            return await self._batch_async(work)
        return await self._one_by_one_async(work, share_after_s)

    def _run_on_thread(self, work: RunningWork, share_after_s: float) -> Consumed:
        work.thread_id = threading.get_ident()  # for those who ask where it is
        work.since = time.monotonic()  # a thread that comes late has as much time as any other
        return super().run(work, share_after_s)

    # ---- the three ways ----------------------------------------------------------------------

    async def _one_by_one_async(self, work: RunningWork, share_after_s: float) -> Consumed:
        consume = work.consume
        failures: list[tuple[int, int]] = []
        started = now = time.monotonic()
        position = work.first
        while (
            position < work.until
            and now < started + share_after_s
            and may_start(consume.permit, now)
        ):
            work.position = position
            message = consume.batch.messages[position]
            try:
                await self._await(consume, message, message)
            except _VERDICTS as error:
                failures.append((position, delay_level(error)))
                report(error, message)
            position += 1
            now = time.monotonic()
        return consumed(work, position, failures, now - started)

    async def _batch_async(self, work: RunningWork) -> Consumed:
        consume = work.consume
        started = time.monotonic()
        if not may_start(consume.permit, started):
            return consumed(work, work.first, [], 0.0)
        failures: list[tuple[int, int]] = []
        batch = list(consume.batch.messages[work.first : work.until])
        for _listener, positions, messages in self._by_listener(consume, work.first, batch):
            try:
                await self._await(consume, messages[0], messages)
            except _VERDICTS as error:
                failures += failed(error, positions, consume.batch)
        return consumed(work, work.until, sorted(failures), time.monotonic() - started)

    async def _in_order_async(self, work: RunningWork) -> Consumed:
        consume = work.consume
        run = OrderedRun(work, self._settings, time.monotonic())
        while messages := run.next(time.monotonic()):
            try:
                verdict = await self._await(consume, messages[0], run.argument())
            except _VERDICTS as error:
                run.raised(error)
            else:
                run.returned(verdict)
        return run.result(time.monotonic())

    async def _await(self, consume: Consume, message: Any, argument: Any) -> object:
        listener = self._listener_of(consume, message)
        try:
            if is_coroutine_listener(listener):
                said = await cast("CoroutineListener", listener)(argument)
            else:
                said = await self._loop.run_in_executor(
                    self._threads, _on_thread, listener, argument
                )
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # The listener awaited something that was cancelled; its message is to come again.
            raise RuntimeError("what the listener waited for was cancelled") from error
        self._wonder_at(said)
        return said


def _on_thread(listener: Listener, argument: Any) -> object:
    """Call a listener away from the loop, which must not take what it raises for its own."""
    try:
        return listener(argument)
    except _VERDICTS:
        raise
    except BaseException as error:
        raise RuntimeError(f"the listener raised {type(error).__name__}") from error


class TaskPool:
    """Runs the listeners of one consumer in tasks; everything happens on the loop."""

    def __init__(
        self, listening: LoopListening, finished: Callable[[Consumed], None], *, workers: int
    ) -> None:
        self._listening = listening
        self._finished = finished
        self._workers = workers
        self._claims = Claims()
        self._tasks: dict[asyncio.Task[None], RunningWork | None] = {}
        self._stopped = False
        self._seconds_each: float | None = None
        #: Numbers for runs, where threads have their ids; below 0, so that none is a thread's.
        self._numbers = itertools.count(-1, -1)

    # ---- owner -------------------------------------------------------------------------------

    def submit(self, consume: Consume) -> None:
        """Let a run of messages wait for a task."""
        self._claims.add(consume)
        self._add_task()

    def cancel(self, queue: MessageQueue, epoch: int) -> int:
        """Give a queue up; returns how many messages of it run or still have to."""
        return self._claims.cancel(queue, epoch)

    def accounted(self, done: Consumed) -> None:
        """The owner has taken a result in: its messages are no longer running."""
        self._claims.account(done)

    def running(self) -> list[RunningWork]:
        """What listeners are doing now."""
        return [work for work in self._tasks.values() if work is not None]

    def stack_of(self, number: int) -> str | None:
        """Where the task is that has a run; None for a run on a thread."""
        for task, work in self._tasks.items():
            if work is not None and work.thread_id == number < 0:
                return coroutine_stack(task.get_coro())
        return None

    def stop(self) -> None:
        """Start nothing more."""
        self._stopped = True
        self._claims.waiting.clear()

    async def join(self, timeout_s: float) -> bool:
        """Wait for what runs, then cancel it; False when something had to be cancelled."""
        current = asyncio.current_task()
        tasks = [task for task in self._tasks if task is not current]
        if not tasks:
            return True
        _done, late = await asyncio.wait(tasks, timeout=timeout_s)
        for task in late:
            task.cancel()
        if late:
            # A listener that swallows its cancellation is left to the loop.
            await asyncio.wait(late, timeout=timeout_s)
        return not late

    # ---- tasks -------------------------------------------------------------------------------

    def _add_task(self) -> None:
        if not self._stopped and len(self._tasks) < self._workers:
            task = asyncio.get_running_loop().create_task(self._work())
            self._tasks[task] = None
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        if not task.cancelled():
            task.result()  # the loop reports a fault of ours

    async def _work(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        while self._claims.waiting and not self._stopped:
            work = self._tasks[task] = self._claim()
            if self._claims.waiting:
                self._add_task()
            started = time.monotonic()
            done = await self._listening.run_async(work, _RUN_S)
            self._tasks[task] = None
            reached = work.until if done.reached is None else done.reached
            self._measured((time.monotonic() - started) / max(reached - work.first, 1))
            if reached < work.until and self._give_back(work, reached):
                done = msgspec.structs.replace(done, until=reached, reached=None)
            self._finished(done)
            # Listeners that never wait must not keep heartbeats from being sent.
            await asyncio.sleep(0)

    def _claim(self) -> RunningWork:
        consume, first, until = self._claims.claim(self._run_length())
        width = self._listening.batch_size
        return RunningWork(consume, first, until, time.monotonic(), next(self._numbers), width)

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

    def _give_back(self, work: RunningWork, first: int) -> bool:
        """Let the rest of a run wait again; not when it must not start any more."""
        consume = work.consume
        if consume.ordered or self._stopped or self._claims.is_over(consume, work.until):
            return False
        if not may_start(consume.permit, time.monotonic()):
            return False
        self._claims.give_back(consume, first, work.until)
        return True

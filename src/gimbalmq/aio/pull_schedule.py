"""Tasks of a pull consumer that run for each of its queues, on the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections import defaultdict
from collections.abc import Callable

from gimbalmq.client.pull_schedule import PullTask, pause_s, task_failed
from gimbalmq.model.queue import MessageQueue

__all__ = ["LoopSchedule"]


class LoopSchedule:
    """Runs the tasks of one pull consumer, so many at a time."""

    def __init__(self, at_once: int) -> None:
        self._room = asyncio.Semaphore(at_once)
        #: By queue: set when the queue is no longer this member's.
        self._turns: dict[MessageQueue, asyncio.Event] = {}
        self._running: set[asyncio.Task[None]] = set()
        #: Those of them that run the user's task, and do not wait for their turn.
        self._busy: set[asyncio.Task[None] | None] = set()
        #: By queue: held while its task runs, which may outlast the queue; it may come back before.
        self._alone: defaultdict[MessageQueue, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._stopped = False

    def update(
        self, topic: str, task: PullTask, held: Callable[[], frozenset[MessageQueue]]
    ) -> None:
        """Start turns for queues that came, and end those of queues that went."""
        if self._stopped:
            return
        queues = held()
        for queue in [one for one in self._turns if one.topic == topic and one not in queues]:
            self._turns.pop(queue).set()
        for queue in sorted(queues - self._turns.keys()):
            over = self._turns[queue] = asyncio.Event()
            running = asyncio.get_running_loop().create_task(self._run(queue, task, over))
            self._running.add(running)
            running.add_done_callback(self._running.discard)

    async def _run(self, queue: MessageQueue, task: PullTask, over: asyncio.Event) -> None:
        while not over.is_set():
            async with self._alone[queue], self._room:
                if over.is_set():
                    return
                self._busy.add(asyncio.current_task())
                try:
                    delay_s = await self._once(queue, task)
                finally:
                    self._busy.discard(asyncio.current_task())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay_s):
                    await over.wait()

    @staticmethod
    async def _once(queue: MessageQueue, task: PullTask) -> float:
        try:
            outcome = task(queue)
            return pause_s(await outcome if inspect.isawaitable(outcome) else outcome)
        except (Exception, SystemExit):  # noqa: BLE001 - user code
            return task_failed(queue)

    async def stop(self) -> None:
        """Start no task any more, and wait for those that run."""
        self._stopped = True
        for over in self._turns.values():
            over.set()
        # A task may stop its consumer; it cannot wait for itself, nor for those who wait for it.
        for waiting in self._running - self._busy:
            waiting.cancel()
        others = self._running - {asyncio.current_task()}
        if others:
            await asyncio.wait(others)

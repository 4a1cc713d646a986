"""Tasks of a pull consumer that run for each queue of a topic, while the queue is its member's.

A task pulls what it wants and says after how long it wants to run again. Which queues there are
is told from outside; here is only when a task runs, and on which thread.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol, TypeAlias

from gimbalmq.errors import ConfigurationError, StateError
from gimbalmq.model.queue import MessageQueue

__all__ = ["PullSchedule", "PullTask", "Schedule", "pause_s", "task_failed"]

_log = logging.getLogger("gimbalmq.consumer")

#: Gets a queue; returns (or awaits) the seconds until it runs for the queue again, None for 0.2.
PullTask: TypeAlias = Callable[[MessageQueue], float | Awaitable[float | None] | None]
Later: TypeAlias = Callable[[float, Callable[[], None]], None]

#: Java's pause when a task does not choose one, and after one that failed.
_PAUSE_S: Final = 0.2
_PAUSE_AFTER_ERROR_S: Final = 1.0


class _Turn:
    """The task of one queue, until the queue is no longer this member's."""

    def __init__(self, queue: MessageQueue, task: PullTask) -> None:
        self.queue = queue
        self.task = task
        self.over = False


class Schedule(Protocol):
    """Whoever runs the tasks: threads, or an event loop."""

    def update(
        self, topic: str, task: PullTask, held: Callable[[], frozenset[MessageQueue]]
    ) -> None:
        """The queues of a topic that are this member's may have changed."""


def pause_s(chosen: object) -> float:
    """How long to wait after a run that returned this."""
    if chosen is None:
        return _PAUSE_S
    if isinstance(chosen, int | float) and chosen >= 0:
        return float(chosen)
    raise ConfigurationError(f"a pull task returned {chosen!r}: give seconds, 0 or more, or None")


def task_failed(queue: MessageQueue) -> float:
    """Log that a task raised; returns how long to wait."""
    _log.exception("pull task of %s failed; it runs again in 1 s", queue.path)
    return _PAUSE_AFTER_ERROR_S


class PullSchedule:
    """Runs the tasks of one pull consumer on threads of its own."""

    def __init__(self, group: str, threads: int, later: Later) -> None:
        self._pool = ThreadPoolExecutor(threads, f"gimbalmq-{group}-pull")
        self._later = later
        self._lock = threading.Lock()
        self._turns: dict[MessageQueue, _Turn] = {}
        #: Queues whose task runs, and what begins when it has ended: a queue may come back before.
        self._busy: dict[MessageQueue, _Turn | None] = {}
        self._stopped = False
        self._inside = threading.local()

    def update(
        self, topic: str, task: PullTask, held: Callable[[], frozenset[MessageQueue]]
    ) -> None:
        """Start turns for queues that came, and end those of queues that went."""
        with self._lock:
            if self._stopped:
                return
            queues = held()  # within the lock, so that an older answer never comes later
            for queue in [one for one in self._turns if one.topic == topic and one not in queues]:
                self._turns.pop(queue).over = True
            fresh = [_Turn(queue, task) for queue in sorted(queues) if queue not in self._turns]
            self._turns.update({turn.queue: turn for turn in fresh})
        for turn in fresh:
            self._submit(turn)

    def _submit(self, turn: _Turn) -> None:
        with contextlib.suppress(RuntimeError):  # shut down meanwhile
            self._pool.submit(self._run, turn)

    def _run(self, turn: _Turn) -> None:
        with self._lock:
            if turn.over:
                return
            if turn.queue in self._busy:
                self._busy[turn.queue] = turn
                return
            self._busy[turn.queue] = None
        self._inside.running = True
        try:
            delay_s = pause_s(turn.task(turn.queue))
        except BaseException:  # noqa: BLE001 - user code, whose thread would end without a word
            delay_s = task_failed(turn.queue)
        finally:
            self._inside.running = False
            with self._lock:
                waiting = self._busy.pop(turn.queue)
        if waiting is not None:
            self._submit(waiting)
        elif not turn.over:
            with contextlib.suppress(StateError):  # the client has stopped meanwhile
                self._later(delay_s, lambda: self._submit(turn))

    def stop(self) -> None:
        """Start no task any more, and wait for those that run."""
        with self._lock:
            self._stopped = True
            for turn in self._turns.values():
                turn.over = True
        # A task may stop its consumer; it cannot wait for itself.
        self._pool.shutdown(wait=not getattr(self._inside, "running", False))

"""Carries out what the supervisor machine decides: processes, timers, signals. Decides nothing.

Everything arrives in one queue and is handled on the main thread, one after the other.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Final

import msgspec

from gimbalmq.cli.worker import events as ev
from gimbalmq.cli.worker.machine import SupervisorMachine, SupervisorSettings
from gimbalmq.cli.worker.processes import ChildProcess
from gimbalmq.cli.worker.reports import (
    Ask,
    DrainNow,
    Failed,
    HurryUp,
    Joined,
    Report,
    Setup,
    Status,
)
from gimbalmq.cli.worker.silence import Silence

__all__ = ["ChildNow", "Supervisor", "WorkerNow"]

_SIGNALS: Final[dict[int, ev.Event]] = {
    signal.SIGTERM: ev.StopAsked(),
    signal.SIGINT: ev.StopAsked(),
    signal.SIGHUP: ev.ReloadAsked(),
}


class ChildNow(msgspec.Struct, frozen=True):
    """What is known of one child at this moment; `status` is None when it did not answer.

    `silent_s` is the time since the first question that it missed, when it missed the last one.
    """

    number: int
    state: str
    restarts: int
    pid: int | None
    client_id: str | None
    status: Status | None
    silent_s: float = 0.0


class WorkerNow(msgspec.Struct, frozen=True):
    """What is known of a worker at this moment."""

    stopping: bool
    reloading: bool
    children: tuple[ChildNow, ...]
    reloads: dict[str, int]


class Supervisor:
    """Runs the children of one worker; `run` returns the exit code."""

    def __init__(
        self,
        setup: Setup,
        settings: SupervisorSettings,
        *,
        nameserver: str | None,
        tell: Callable[[ev.Tell, int | None], None],
        output: Callable[[int, str, str], None],
    ) -> None:
        """`tell` gets notices with the child's process id, `output` what children write."""
        self._setup = setup
        self._machine = SupervisorMachine(settings)
        self._environ = dict(os.environ)
        if nameserver is not None:
            self._environ["NAMESRV_ADDR"] = nameserver
        # What a child prints is read through a pipe: it must not wait in a buffer.
        self._environ["PYTHONUNBUFFERED"] = "1"
        self._tell, self._output = tell, output
        self._inbox: queue.SimpleQueue[ev.Event | Callable[[], None]] = queue.SimpleQueue()
        self._timers: list[tuple[float, int, ev.SetTimer]] = []
        self._order = itertools.count()
        self._processes: dict[int, ChildProcess] = {}
        self._client_ids: dict[int, str] = {}
        self._questions = itertools.count(1)
        #: Whoever waits for a child's answer, by question.
        self._asked: dict[int, queue.SimpleQueue[Status]] = {}
        self._silence = Silence()
        self._silence_lock = threading.Lock()

    # ---- main thread -------------------------------------------------------------------------

    def run(self) -> int:
        """Start the children and look after them until all have ended."""
        with self._signals():
            self._inbox.put(ev.Began())
            try:
                while True:
                    code = self._step()
                    if code is not None:
                        return code
            finally:
                for process in self._processes.values():
                    process.kill()

    def _step(self) -> int | None:
        event = self._next()
        if callable(event):
            event()
            return None
        if isinstance(event, ev.ChildExited):
            self._processes.pop(event.number, None)
            self._client_ids.pop(event.number, None)
        for effect in self._machine.handle(event, time.monotonic()):
            if isinstance(effect, ev.End):
                return effect.code
            self._perform(effect)
        return None

    def _next(self) -> ev.Event | Callable[[], None]:
        while True:
            now = time.monotonic()
            if self._timers and self._timers[0][0] <= now:
                timer = heapq.heappop(self._timers)[2]
                return ev.TimerFired(timer.name, timer.number, timer.epoch)
            wait_s = self._timers[0][0] - now if self._timers else None
            with contextlib.suppress(queue.Empty):
                return self._inbox.get(timeout=wait_s)

    def _perform(self, effect: ev.Effect) -> None:
        match effect:
            case ev.Spawn(number, epoch):
                self._spawn(number, epoch)
            case ev.Drain(number):
                self._processes[number].order(DrainNow())
            case ev.Hurry(number):
                self._processes[number].order(HurryUp())
            case ev.Kill(number):
                self._processes[number].kill()
            case ev.SetTimer():
                at = time.monotonic() + effect.delay_s
                heapq.heappush(self._timers, (at, next(self._order), effect))
            case ev.Tell():
                process = self._processes.get(effect.number)
                self._tell(effect, None if process is None else process.pid)

    def _spawn(self, number: int, epoch: int) -> None:
        def reported(report: Report) -> None:
            match report:
                case Joined(_, client_id):
                    self._inbox.put(lambda: self._client_ids.__setitem__(number, client_id))
                    self._inbox.put(ev.ChildReady(number, epoch))
                case Failed(failure, reason):
                    self._inbox.put(ev.ChildFailed(number, epoch, failure, reason))
                case Status():
                    waiting = self._asked.get(report.question)
                    if waiting is not None:
                        waiting.put(report)

        self._processes[number] = ChildProcess(
            msgspec.structs.replace(self._setup, number=number),
            self._environ,
            on_report=reported,
            on_line=lambda stream, line: self._output(number, stream, line),
            on_exit=lambda code: self._inbox.put(ev.ChildExited(number, epoch, code)),
        )

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        def take(number: int, _frame: FrameType | None) -> None:
            # The queue may be put to from a signal handler.
            self._inbox.put(_SIGNALS[number])

        before = {number: signal.signal(number, take) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    # ---- any thread --------------------------------------------------------------------------

    def now(self, timeout_s: float = 2.0) -> WorkerNow:
        """What is known now; children that do not answer in time have no status."""
        seen: queue.SimpleQueue[tuple[WorkerNow, dict[int, int], queue.SimpleQueue[Status]]]
        seen = queue.SimpleQueue()
        self._inbox.put(lambda: seen.put(self._look()))
        deadline = time.monotonic() + timeout_s
        worker, questions, answers = seen.get(timeout=timeout_s)
        found: dict[int, Status] = {}
        try:
            while len(found) < len(questions):
                status = answers.get(timeout=max(0.0, deadline - time.monotonic()))
                found[questions[status.question]] = status
        except queue.Empty:
            pass  # the rest did not answer, which is what the caller is told
        finally:
            for question in questions:
                self._asked.pop(question, None)
        return msgspec.structs.replace(worker, children=self._heard(worker.children, found))

    def _heard(
        self, children: tuple[ChildNow, ...], found: dict[int, Status]
    ) -> tuple[ChildNow, ...]:
        """The children with what they answered, or how long they have been silent."""
        pids = {child.number: child.pid for child in children if child.pid is not None}
        now = time.monotonic()
        with self._silence_lock:
            answered = [pid for number, pid in pids.items() if number in found]
            self._silence.note(list(pids.values()), answered, now)
            return tuple(
                msgspec.structs.replace(
                    child,
                    status=found.get(child.number),
                    silent_s=0.0 if child.pid is None else self._silence.of(child.pid, now),
                )
                for child in children
            )

    def _look(self) -> tuple[WorkerNow, dict[int, int], queue.SimpleQueue[Status]]:
        answers: queue.SimpleQueue[Status] = queue.SimpleQueue()
        questions: dict[int, int] = {}
        children = []
        for child in self._machine.children.values():
            process = self._processes.get(child.number)
            children.append(
                ChildNow(
                    child.number,
                    child.state.value,
                    child.restarts,
                    None if process is None else process.pid,
                    self._client_ids.get(child.number),
                    None,
                )
            )
            if process is not None:
                question = next(self._questions)
                questions[question] = child.number
                self._asked[question] = answers
                # Not here: a child that does not read must not hold up the others.
                ask = Ask(question)
                threading.Thread(target=process.order, args=(ask,), daemon=True).start()
        machine = self._machine
        now = WorkerNow(machine.stopping, machine.reloading, tuple(children), dict(machine.reloads))
        return now, questions, answers

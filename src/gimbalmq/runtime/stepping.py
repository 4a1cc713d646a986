"""Runs a flow on a driver that calls back: the same steps on a thread, on asyncio, in virtual time.

Carries effects out through the driver and resumes the flow with what came of them. Knows nothing
of sockets, loops or clocks.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable
from typing import Any

from gimbalmq.errors import GimbalError
from gimbalmq.flows.effects import Call, Flow, FlowEffect, Notify, Now, Sleep, Together
from gimbalmq.runtime.driver import Driver, Timer
from gimbalmq.wire.command import Command

__all__ = ["FlowRun"]


class FlowRun:
    """One flow on its way; `done` gets its result, or the `GimbalError` it ended with."""

    __slots__ = ("_done", "_driver", "_flow", "_waits_for")

    def __init__(self, driver: Driver, flow: Flow[Any], done: Callable[[Any], None]) -> None:
        self._driver = driver
        self._flow = flow
        self._done = done
        #: What it waits for now, if that can be forgotten.
        self._waits_for: Timer | None = None

    def start(self) -> None:
        """Run up to the first effect that has to be waited for."""
        self._step(functools.partial(next, self._flow))

    def cancel(self) -> None:
        """End the flow where it is; `done` is not called. Not for use by the flow itself."""
        if self._waits_for is not None:
            self._waits_for.cancel()
            self._waits_for = None
        self._flow.close()

    def _step(self, resume: Callable[[], FlowEffect]) -> None:
        flow, driver = self._flow, self._driver
        while True:
            try:
                effect = resume()
            except StopIteration as stop:
                self._done(stop.value)
                return
            except GimbalError as error:
                self._done(error)
                return
            match effect:
                case Now():
                    resume = functools.partial(flow.send, driver.now())
                case Notify():
                    driver.notify(effect.address, effect.command)
                    resume = functools.partial(flow.send, None)
                case Sleep():
                    self._waits_for = driver.call_later(effect.seconds, self._slept)
                    return
                case Call():
                    self._waits_for = driver.call(
                        effect.address, effect.command, effect.timeout_s, self._answered
                    )
                    return
                case Together():
                    side_by_side = _SideBySide(driver, effect, self._ended)
                    self._waits_for = side_by_side
                    side_by_side.start()
                    return

    def _ended(self, results: list[Any]) -> None:
        self._waits_for = None
        self._step(functools.partial(self._flow.send, results))

    def _slept(self) -> None:
        self._waits_for = None
        self._step(functools.partial(self._flow.send, None))

    def _answered(self, answer: Command | GimbalError) -> None:
        self._waits_for = None
        throw = isinstance(answer, GimbalError)
        self._step(functools.partial(self._flow.throw if throw else self._flow.send, answer))


class _SideBySide:
    """Flows that run together; `done` gets what each ended with, in order."""

    __slots__ = ("_at_once", "_done", "_driver", "_results", "_running", "_starting", "_waiting")

    def __init__(self, driver: Driver, effect: Together, done: Callable[[list[Any]], None]) -> None:
        self._driver = driver
        self._done = done
        self._at_once = effect.at_once
        self._waiting = deque(enumerate(effect.flows))
        self._results: list[Any] = [None] * len(effect.flows)
        self._running: dict[int, FlowRun] = {}
        self._starting = False

    def start(self) -> None:
        """Start as many as may run, and say so when none is left."""
        if self._starting:
            return  # one has ended while it was started: the loop below goes on
        self._starting = True
        while self._waiting and len(self._running) < self._at_once:
            number, flow = self._waiting.popleft()
            run = FlowRun(self._driver, flow, functools.partial(self._ended, number))
            self._running[number] = run
            run.start()
        self._starting = False
        if not self._running:
            self._done(self._results)

    def _ended(self, number: int, result: Any) -> None:
        self._results[number] = result
        del self._running[number]
        self.start()

    def cancel(self) -> None:
        """End all of them where they are; `done` is not called."""
        self._waiting.clear()
        running, self._running = self._running, {}
        for run in running.values():
            run.cancel()

"""Runs a flow on a driver that calls back: the same steps on a thread, on asyncio, in virtual time.

Carries effects out through the driver and resumes the flow with what came of them. Knows nothing
of sockets, loops or clocks.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from gimbalmq.errors import GimbalError
from gimbalmq.flows.effects import Call, Flow, FlowEffect, Notify, Now, Sleep
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

    def _slept(self) -> None:
        self._waits_for = None
        self._step(functools.partial(self._flow.send, None))

    def _answered(self, answer: Command | GimbalError) -> None:
        self._waits_for = None
        throw = isinstance(answer, GimbalError)
        self._step(functools.partial(self._flow.throw if throw else self._flow.send, answer))

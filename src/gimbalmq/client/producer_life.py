"""The life of a producer: created, running, stopped; for the producers of both kinds.

A producer lives once, as a consumer does. Knows nothing of what it does while it runs, nor of who
waits for what, on a thread or on an event loop.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Literal, TypeAlias

from gimbalmq.client.outbound import Outbound
from gimbalmq.errors import StateError
from gimbalmq.flows.transaction import TransactionCheck
from gimbalmq.runtime.broker_requests import CheckTransaction

__all__ = ["ProducerLife", "ProducerState", "Registration"]

ProducerState: TypeAlias = Literal[
    "created", "starting", "running", "stopping", "stopped", "failed to start"
]


class ProducerLife:
    """In which state a producer is, and why."""

    group: str
    _state: ProducerState = "created"
    _start_error: BaseException | None = None

    @property
    def state(self) -> ProducerState:
        """Where it is in its life: `"created"`, `"running"`, `"stopped"`, `"failed to start"`."""
        return self._state

    @property
    def start_error(self) -> BaseException | None:
        """What made the start fail; None if nothing did."""
        return self._start_error

    @contextlib.contextmanager
    def _starting(self) -> Iterator[None]:
        """Around a start: it runs afterwards, or keeps what was raised."""
        if self._state != "created":
            raise self._refusal(": make a new one")
        self._state = "starting"
        try:
            yield
        except BaseException as error:
            self._state, self._start_error = "failed to start", error
            raise
        self._state = "running"

    def _not_running_error(self, advice: str) -> StateError:
        """The error for a call that needs a running producer; `advice` is for a new one."""
        new = f": {advice}" if self._state == "created" else ""
        return self._refusal(f", not running{new}")

    def _refusal(self, consequence: str) -> StateError:
        """An error that says in which state the producer is, because of what, and what follows."""
        words = f"is {self._state}"
        if self._start_error is not None:
            words = f"failed to start ({type(self._start_error).__name__}: {self._start_error})"
        error = StateError(f"producer of group '{self.group}' {words}{consequence}")
        error.__cause__ = self._start_error
        return error


class Registration:
    """A producer's place in its instance; used on the driver's side."""

    def __init__(self, outbound: Outbound, check: CheckTransaction | None) -> None:
        self._outbound = outbound
        self._instance = outbound.holder.instance
        self._check = check
        self._begun = False

    def begin(self) -> None:
        """Register it.

        Raises:
            StateError: the instance has a producer of its group.
        """
        check = None if self._check is None else self._asked
        self._instance.add_producer(self._outbound.wire_group, check)
        self._begun = True
        self._outbound.publishing.start_detector()

    def end(self, done: Callable[[], None] = lambda: None) -> None:
        """Take that back, if it came to it; `done` when brokers have heard of it, or cannot."""
        if not self._begun:
            done()
            return
        self._outbound.publishing.stop_detector()
        self._instance.remove_producer(self._outbound.wire_group, done)

    def _asked(self, address: str, check: TransactionCheck) -> None:
        assert self._check is not None
        # The user knows the message by its topic without namespace, as consumers do.
        check.message.namespace = self._outbound.namespace
        self._check(address, check)

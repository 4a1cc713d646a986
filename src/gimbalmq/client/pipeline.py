"""Sends that nobody waits for: many in flight on the engine's connections, within bounds.

The engine thread reads many answers in one go, and settles accounts once per reading. A caller that
finds no room waits until a good part of it is free, and then fills that in one go: threads that
pass single messages fight for the interpreter lock and lose more than they gain. Sendings leave by
the engine thread; plain messages leave as `frames`, on the callers' threads, in the same room.

Callers may be interrupted (Ctrl-C) between any two steps, and what they have begun must not be left
half done: nobody would ever end it. So a message is counted and handed over in one step, which the
interpreter does not leave: attributes are set, and a method of C is called last. Locks are taken as
locks and not as conditions, whose entering is Python, after which an interrupt leaves them taken.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from gimbalmq.client.futures import SendFuture
from gimbalmq.client.shared import SharedInstance
from gimbalmq.errors import GimbalError, SendError, StateError
from gimbalmq.flows.send import Attempt, Sending
from gimbalmq.model.message import SendResult
from gimbalmq.wire.command import Command

__all__ = ["Flight", "Pipeline"]

_T = TypeVar("_T")


class Flight:
    """One sending in flight; called by the engine with the answer to its last attempt."""

    __slots__ = ("_pipeline", "_sending", "future", "messages", "size", "step")

    def __init__(
        self,
        pipeline: Pipeline,
        sending: Sending,
        size: int,
        messages: int = 1,
        future: SendFuture | None = None,
    ) -> None:
        self._pipeline = pipeline
        self._sending = sending
        #: The attempt to carry out next; None while the answer to the last one is awaited.
        self.step: Attempt | None = None
        self.size = size
        self.messages = messages
        self.future = future or SendFuture()

    @property
    def attempt_timeout_s(self) -> float:
        """How long the attempt may take."""
        return self._sending.attempt_timeout_s

    def start(self, now_s: float) -> None:
        """Choose the first attempt.

        Raises:
            SendError: there is nowhere to send to.
        """
        self.step = self._sending.start(now_s)

    def __call__(self, outcome: Command | GimbalError) -> None:
        """Take the answer, or the reason why there is none."""
        try:
            step = self._sending.answered(outcome, time.monotonic())
        except GimbalError as error:
            self.fail(error)
            return
        if isinstance(step, SendResult):
            self._pipeline.settled(self.size, self.messages)
            self.future.set_result(step)
        else:
            self.step = step
            self._pipeline.carry_out(self)

    def fail(self, error: Exception) -> None:
        """It was not stored."""
        self._pipeline.settled(self.size, self.messages)
        self.future.set_exception(error)


class Pipeline:
    """The sends in flight of one running producer."""

    def __init__(self, shared: SharedInstance, *, messages_max: int, bytes_max: int) -> None:
        self._shared = shared
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        #: With so little left in flight whoever waits for room fills it.
        self._refill_messages = messages_max * 3 // 4
        self._refill_bytes = bytes_max * 3 // 4
        # Of the kind that only its owner can release, whatever interrupts a wait.
        self._lock = threading.RLock()
        self._room = threading.Condition(self._lock)
        self._messages = 0
        self._bytes = 0
        self._waiting = 0
        self._closed = False
        self._outbox: deque[Flight] = deque()
        #: Lets something leave by the engine thread in room that it has; see `schedule`.
        self.pass_on = self._outbox.append
        self._scheduled = False
        # What was answered since accounts were last settled; engine thread only.
        self._answered_messages = 0
        self._answered_bytes = 0

    # ---- any thread --------------------------------------------------------------------------

    def take(self, something: _T, size: int, hand_over: Callable[[_T], None]) -> bool:
        """Count one message and hand it over, if there is room; `hand_over` is a method of C.

        There always is on the engine thread, which must not wait.
        """
        with self._lock:
            if self._closed:
                raise StateError("this producer is stopped: make a new one")
            # As `is_full`, written out: every plain message comes through here.
            if (
                self._messages
                and (self._messages >= self._messages_max or self._bytes + size > self._bytes_max)
                and not self._shared.on_engine_thread
            ):
                return False
            self._messages += 1
            self._bytes += size
            hand_over(something)
            return True

    def wait_and_take(
        self, something: _T, size: int, hand_over: Callable[[_T], None], timeout_s: float
    ) -> None:
        """As `take`, but waits for room.

        Raises:
            SendError: there was none within `timeout_s`.
        """
        with self._lock:
            self._wait_for_room(size, timeout_s, 1)
            self._messages += 1
            self._bytes += size
            hand_over(something)

    def wait_for_room(self, size: int, timeout_s: float) -> None:
        """Wait until there is room for a message, without taking it.

        Raises:
            SendError: there was none within `timeout_s`.
        """
        with self._lock:
            self._wait_for_room(size, timeout_s, 1)

    def submit(self, flight: Flight, timeout_s: float) -> SendFuture:
        """Start a flight when there is room for it.

        Raises:
            SendError: there was none within `timeout_s`, or there is nowhere to send to.
        """
        with self._lock:
            self._wait_for_room(flight.size, timeout_s, flight.messages)
            # Not before: its time begins now.
            flight.start(time.monotonic())
            self._messages += flight.messages
            self._bytes += flight.size
            self.pass_on(flight)
        self.schedule()
        return flight.future

    def schedule(self) -> None:
        """Let the engine thread carry out what was passed on, if there is anything."""
        if self._outbox and not self._scheduled:
            self._scheduled = True
            try:
                self._shared.post(self._drain)
            except BaseException:
                # Else nobody would ever schedule again.
                self._scheduled = False
                raise

    def release(self, size: int, messages: int = 1) -> None:
        """Give room back that was not used."""
        with self._lock:
            self._free(messages, size)

    def wait_empty(self, timeout_s: float | None) -> bool:
        """Wait until nothing is in flight; False when that took too long."""
        self.schedule()
        with self._lock:
            self._waiting += 1
            try:
                return self._room.wait_for(lambda: self._messages == 0, timeout_s)
            finally:
                self._waiting -= 1

    def is_full(self, size: int, messages: int = 1) -> bool:
        """Whether messages of this size in all would have to wait for room."""
        # One request alone may be larger than all the room.
        return self._messages > 0 and (
            self._messages + messages > self._messages_max or self._bytes + size > self._bytes_max
        )

    @property
    def is_draining(self) -> bool:
        """Whether something that was submitted has not left yet."""
        return bool(self._outbox)

    @property
    def in_flight(self) -> tuple[int, int]:
        """Messages and bytes that have no answer yet."""
        with self._lock:
            return self._messages, self._bytes

    def close(self) -> None:
        """Take no more; what is in flight ends by its own time limit."""
        with self._lock:
            self._closed = True
            self._room.notify_all()

    def _wait_for_room(self, size: int, timeout_s: float, messages: int) -> None:
        """With the lock; the engine thread does not wait."""
        if self._closed:
            raise StateError("this producer is stopped: make a new one")
        if not self.is_full(size, messages) or self._shared.on_engine_thread:
            return
        self._waiting += 1
        try:
            found = self._room.wait_for(
                lambda: self._closed or not self.is_full(size, messages), timeout_s
            )
        finally:
            self._waiting -= 1
        if self._closed:
            raise StateError("this producer was stopped while a message waited for room")
        if not found:
            raise SendError(
                f"no room for another message within {timeout_s:g} s: {self._messages} messages "
                f"with {self._bytes} bytes are in flight; wait for their results, or raise "
                "back_pressure_for_async_send_num or back_pressure_for_async_send_size"
            )

    def _free(self, messages: int, size: int) -> None:
        self._messages -= messages
        self._bytes -= size
        if self._waiting and (
            self._messages == 0
            or (self._messages <= self._refill_messages and self._bytes <= self._refill_bytes)
        ):
            self._room.notify_all()

    # ---- engine thread -----------------------------------------------------------------------

    def _drain(self) -> None:
        # First the mark, then the messages: what comes after the mark schedules anew.
        self._scheduled = False
        outbox = self._outbox
        while outbox:
            try:
                self.carry_out(outbox[0])
            finally:
                outbox.popleft()  # not before: see `is_draining`

    def carry_out(self, flight: Flight) -> None:
        """Start an attempt."""
        step = flight.step
        assert step is not None
        try:
            self._shared.engine.call(step.address, step.request, flight.attempt_timeout_s, flight)
        except Exception as error:  # noqa: BLE001 - told to whoever waits, who else never hears
            # The request cannot be written down, on whatever connection.
            flight.fail(error)

    def settled(self, size: int, messages: int = 1) -> None:
        """Messages have their result; their room is free when this round of answers is through."""
        first = not self._answered_messages
        self._answered_messages += messages
        self._answered_bytes += size
        if first:
            try:
                self._shared.post(self._settle)
            except StateError:
                # The engine is ending, and this is its last round.
                self._settle()

    def _settle(self) -> None:
        messages, size = self._answered_messages, self._answered_bytes
        self._answered_messages = self._answered_bytes = 0
        with self._lock:
            self._free(messages, size)

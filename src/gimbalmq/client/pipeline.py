"""Sends that nobody waits for: many in flight on the engine's connections, within bounds.

The engine thread reads many answers in one go, and settles accounts once per reading. A caller that
finds no room waits until a good part of it is free, and then fills that in one go: threads that
pass single messages fight for the interpreter lock and lose more than they gain. Sendings leave by
the engine thread; plain messages leave as `frames`, on the callers' threads, in the same room.
"""

from __future__ import annotations

import threading
import time
from collections import deque

from gimbalmq.client.futures import SendFuture
from gimbalmq.client.shared import SharedInstance
from gimbalmq.errors import GimbalError, SendError, StateError
from gimbalmq.flows.send import Attempt, Sending
from gimbalmq.model.message import SendResult
from gimbalmq.wire.command import Command

__all__ = ["Flight", "Pipeline"]


class Flight:
    """One sending in flight; called by the engine with the answer to its last attempt."""

    __slots__ = ("_messages", "_pipeline", "_sending", "_size", "future", "step")

    def __init__(
        self,
        pipeline: Pipeline,
        sending: Sending,
        step: Attempt | None,
        size: int,
        messages: int,
        future: SendFuture,
    ) -> None:
        self._pipeline = pipeline
        self._sending = sending
        #: The attempt to carry out next; None while the answer to the last one is awaited.
        self.step = step
        self._size = size
        self._messages = messages
        self.future = future

    @property
    def attempt_timeout_s(self) -> float:
        """How long the attempt may take."""
        return self._sending.attempt_timeout_s

    def __call__(self, outcome: Command | GimbalError) -> None:
        """Take the answer, or the reason why there is none."""
        try:
            step = self._sending.answered(outcome, time.monotonic())
        except GimbalError as error:
            self.fail(error)
            return
        if isinstance(step, SendResult):
            self._pipeline.settled(self._size, self._messages)
            self.future.set_result(step)
        else:
            self.step = step
            self._pipeline.carry_out(self)

    def fail(self, error: GimbalError) -> None:
        """It was not stored."""
        self._pipeline.settled(self._size, self._messages)
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
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        self._messages = 0
        self._bytes = 0
        self._waiting = 0
        self._closed = False
        self._outbox: deque[Flight] = deque()
        self._scheduled = False
        # What was answered since accounts were last settled; engine thread only.
        self._answered_messages = 0
        self._answered_bytes = 0

    # ---- any thread --------------------------------------------------------------------------

    def reserve(self, size: int, timeout_s: float, messages: int = 1) -> None:
        """Take room for messages of one request; waits for it, except on the engine thread.

        Raises:
            SendError: there was no room within `timeout_s`.
        """
        with self._lock:
            if self._closed:
                raise StateError("this producer is stopped: make a new one")
            if self.is_full(size, messages) and not self._shared.on_engine_thread:
                self._wait_for_room(size, timeout_s, messages)
            self._messages += messages
            self._bytes += size

    def reserve_now(self, size: int) -> bool:
        """Take room for one message, if there is any."""
        with self._lock:
            if self._closed:
                raise StateError("this producer is stopped: make a new one")
            # As `is_full`, written out: every plain message comes through here.
            if self._messages and (
                self._messages >= self._messages_max or self._bytes + size > self._bytes_max
            ):
                return False
            self._messages += 1
            self._bytes += size
            return True

    def release(self, size: int, messages: int = 1) -> None:
        """Give room back that was not used."""
        with self._room:
            self._free(messages, size)

    def submit(
        self,
        sending: Sending,
        step: Attempt,
        size: int,
        messages: int = 1,
        future: SendFuture | None = None,
    ) -> SendFuture:
        """Send, in room that was reserved; never waits."""
        flight = Flight(self, sending, step, size, messages, future or SendFuture())
        self._outbox.append(flight)
        if not self._scheduled:
            self._scheduled = True
            self._shared.post(self._drain)
        return flight.future

    def wait_empty(self, timeout_s: float | None) -> bool:
        """Wait until nothing is in flight; False when that took too long."""
        with self._room:
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
        with self._room:
            return self._messages, self._bytes

    def close(self) -> None:
        """Take no more; what is in flight ends by its own time limit."""
        with self._room:
            self._closed = True
            self._room.notify_all()

    def _wait_for_room(self, size: int, timeout_s: float, messages: int) -> None:
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
            self.carry_out(outbox[0])
            outbox.popleft()  # not before: see `is_draining`

    def carry_out(self, flight: Flight) -> None:
        """Start an attempt."""
        step = flight.step
        assert step is not None
        try:
            self._shared.engine.call(step.address, step.request, flight.attempt_timeout_s, flight)
        except GimbalError as error:
            # The request cannot be written down, on whatever connection.
            flight.fail(error)

    def settled(self, size: int, messages: int = 1) -> None:
        """Messages have their result; their room is free when this round of answers is through."""
        if not self._answered_messages:
            self._shared.post(self._settle)
        self._answered_messages += messages
        self._answered_bytes += size

    def _settle(self) -> None:
        messages, size = self._answered_messages, self._answered_bytes
        self._answered_messages = self._answered_bytes = 0
        with self._room:
            self._free(messages, size)

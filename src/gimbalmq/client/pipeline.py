"""Sends that nobody waits for: many in flight on the engine's connections, within bounds.

Callers hand over prepared sendings; the engine thread writes whatever has gathered in one system
call, reads many answers in one, and settles accounts once per reading. A caller that finds no room
waits until half of the room is free, so that it then fills it in one go: threads that pass single
messages fight for the interpreter lock and lose more than they gain.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from gimbalmq.client.futures import SendFuture
from gimbalmq.client.producer_stats import SendMeter
from gimbalmq.client.shared import SharedInstance
from gimbalmq.errors import GimbalError, SendError, StateError
from gimbalmq.flows.send import Attempt, Sending, stored_result
from gimbalmq.model.message import SendResult, SendStatus
from gimbalmq.wire.command import Command

__all__ = ["Pipeline"]


class _Flight:
    """One sending in flight; called by the engine with the answer to its last attempt."""

    __slots__ = ("_pipeline", "_sending", "attempt_timeout_s", "future", "messages", "size", "step")

    def __init__(
        self,
        pipeline: Pipeline,
        sending: Sending | None,
        step: Attempt,
        attempt_timeout_s: float,
        size: int,
        messages: int,
    ) -> None:
        self._pipeline = pipeline
        self._sending = sending
        #: The attempt to carry out next, and how long it may take.
        self.step = step
        self.attempt_timeout_s = attempt_timeout_s
        self.size = size
        self.messages = messages
        self.future = SendFuture()

    def __call__(self, outcome: Command | GimbalError) -> None:
        try:
            step = self._judge(outcome)
        except GimbalError as error:
            self._pipeline.settled(self)
            self.future.set_exception(error)
            return
        if isinstance(step, SendResult):
            self._pipeline.settled(self)
            self.future.set_result(step)
        else:
            self.step = step
            self._pipeline.carry_out(self)

    def _judge(self, outcome: Command | GimbalError) -> SendResult | Attempt:
        sending = self._sending
        assert sending is not None
        step = sending.answered(outcome, time.monotonic())
        self.attempt_timeout_s = sending.attempt_timeout_s
        return step


class _PlainFlight(_Flight):
    """A message that as a rule is stored at the first attempt: its sending is made when not."""

    __slots__ = ("_make_sending", "_message_id", "_started_s")

    def __init__(
        self,
        pipeline: Pipeline,
        make_sending: Callable[[], Sending],
        step: Attempt,
        message_id: str,
        started_s: float,
        timeout_s: float,
        size: int,
    ) -> None:
        super().__init__(pipeline, None, step, timeout_s, size, 1)
        self._make_sending = make_sending
        self._message_id = message_id
        self._started_s = started_s

    def _judge(self, outcome: Command | GimbalError) -> SendResult | Attempt:
        if self._sending is None:
            if isinstance(outcome, Command) and outcome.code == 0:
                latency_s = time.monotonic() - self._started_s
                self._pipeline.meter.stored(self.step.queue.broker, latency_s)
                return stored_result(self.step.queue, outcome, SendStatus.SEND_OK, self._message_id)
            self._sending = self._make_sending()
            self._sending.adopt(self.step, self._started_s)
        return super()._judge(outcome)


class Pipeline:
    """The sends in flight of one running producer."""

    def __init__(
        self, shared: SharedInstance, *, messages_max: int, bytes_max: int, meter: SendMeter
    ) -> None:
        self._shared = shared
        self.meter = meter
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        self._messages = 0
        self._bytes = 0
        self._waiting = 0
        self._closed = False
        self._outbox: deque[_Flight] = deque()
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
            if self._full(size, messages) and not self._shared.on_engine_thread:
                self._wait_for_room(size, timeout_s, messages)
            self._messages += messages
            self._bytes += size

    def release(self, size: int, messages: int = 1) -> None:
        """Give room back that was not used."""
        with self._room:
            self._free(messages, size)

    def submit(self, sending: Sending, step: Attempt, size: int, messages: int = 1) -> SendFuture:
        """Send, in room that was reserved; never waits."""
        return self._post(_Flight(self, sending, step, sending.attempt_timeout_s, size, messages))

    def submit_plain(
        self,
        make_sending: Callable[[], Sending],
        step: Attempt,
        message_id: str,
        started_s: float,
        timeout_s: float,
        size: int,
    ) -> SendFuture:
        """Send one message whose sending is made only if the first attempt does not store it."""
        return self._post(
            _PlainFlight(self, make_sending, step, message_id, started_s, timeout_s, size)
        )

    def _post(self, flight: _Flight) -> SendFuture:
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

    def _full(self, size: int, messages: int) -> bool:
        # One request alone may be larger than all the room.
        return self._messages > 0 and (
            self._messages + messages > self._messages_max or self._bytes + size > self._bytes_max
        )

    def _wait_for_room(self, size: int, timeout_s: float, messages: int) -> None:
        self._waiting += 1
        try:
            found = self._room.wait_for(
                lambda: self._closed or not self._full(size, messages), timeout_s
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
            or (2 * self._messages <= self._messages_max and 2 * self._bytes <= self._bytes_max)
        ):
            self._room.notify_all()

    # ---- engine thread -----------------------------------------------------------------------

    def _drain(self) -> None:
        # First the mark, then the messages: what comes after the mark schedules anew.
        self._scheduled = False
        outbox = self._outbox
        while outbox:
            self.carry_out(outbox.popleft())

    def carry_out(self, flight: _Flight) -> None:
        """Start an attempt."""
        step = flight.step
        try:
            self._shared.instance.driver.call(
                step.address, step.request, flight.attempt_timeout_s, flight
            )
        except GimbalError as error:
            # The request cannot be written down, on whatever connection.
            self.settled(flight)
            flight.future.set_exception(error)

    def settled(self, flight: _Flight) -> None:
        """A sending has its result; its room is free when this round of answers is through."""
        if not self._answered_messages:
            self._shared.post(self._settle)
        self._answered_messages += flight.messages
        self._answered_bytes += flight.size

    def _settle(self) -> None:
        messages, size = self._answered_messages, self._answered_bytes
        self._answered_messages = self._answered_bytes = 0
        with self._room:
            self._free(messages, size)

"""Sends that nobody waits for: many in flight on the engine's connections, within bounds.

Callers write frames down themselves and hand them to the connection, some dozens in one system
call, so that the broker has work while they go on; the engine thread reads many answers in one, and
settles accounts once per reading. A caller that finds no room waits until a good part of it is
free, and then fills that in one go: threads that pass single messages fight for the interpreter
lock and lose more than they gain. What cannot go out as a frame at once (no connection yet, keys,
TLS, another attempt) goes to the engine thread as a sending.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from gimbalmq.client.futures import SendFuture
from gimbalmq.client.producer_stats import SendMeter
from gimbalmq.client.shared import SharedInstance
from gimbalmq.core.publish import PublishInfo
from gimbalmq.errors import GimbalError, SendError, StateError
from gimbalmq.flows.outgoing import Outgoing
from gimbalmq.flows.send import Attempt, Sending, stored_result
from gimbalmq.model.message import Message, SendResult, SendStatus
from gimbalmq.model.queue import MessageQueue
from gimbalmq.wire.command import Command

__all__ = ["FrameFlight", "Pipeline"]


class _Flight:
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


#: What a frame was made of: the message and its wire form, where it goes, when it was born, its
#: time limit, and when it left.
FrameParts = tuple[Message, Outgoing, PublishInfo, MessageQueue, int, float, float]


class FrameFlight:
    """One message in flight as a frame, as a rule stored by that: its sending is made when not."""

    __slots__ = ("_parts", "_pipeline", "_remake", "future")

    def __init__(
        self, pipeline: Pipeline, remake: Callable[..., Sending], parts: FrameParts
    ) -> None:
        self._pipeline = pipeline
        #: Makes, of the parts, the sending of which this was the first attempt.
        self._remake = remake
        self._parts = parts
        self.future = SendFuture()

    def __call__(self, outcome: Command | GimbalError) -> None:
        """Take the answer, or the reason why there is none."""
        pipeline = self._pipeline
        _message, outgoing, _info, queue, _born_ms, _timeout_s, started_s = self._parts
        size = len(outgoing.body)
        if isinstance(outcome, Command) and outcome.code == 0:
            try:
                result = stored_result(queue, outcome, SendStatus.SEND_OK, outgoing.message_id)
            except GimbalError as error:
                pipeline.settled(size)
                self.future.set_exception(error)
                return
            pipeline.meter.stored(queue.broker, time.monotonic() - started_s)
            pipeline.settled(size)
            self.future.set_result(result)
            return
        _Flight(pipeline, self._remake(*self._parts), None, size, 1, self.future)(outcome)


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
        flight = _Flight(self, sending, step, size, messages, SendFuture())
        self._outbox.append(flight)
        if not self._scheduled:
            self._scheduled = True
            self._shared.post(self._drain)
        return flight.future

    def offer(
        self, flight: FrameFlight, address: str, opaque: int, frame: bytes, timeout_s: float
    ) -> bool:
        """Send a frame, in room that was reserved; False when it has to be a sending."""
        # What was handed to the engine thread before must not be overtaken.
        return not self._outbox and self._shared.engine.offer(
            address, opaque, frame, timeout_s, flight
        )

    def wait_empty(self, timeout_s: float | None) -> bool:
        """Wait until nothing is in flight; False when that took too long."""
        self._shared.engine.write_offered()
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
        self._shared.engine.write_offered()
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
            self.carry_out(outbox[0])
            outbox.popleft()  # not before: see `offer`

    def carry_out(self, flight: _Flight) -> None:
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

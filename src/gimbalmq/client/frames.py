"""Plain messages under way as frames: callers write them down, some dozens in one go.

A message that asks for nothing special is as a rule stored at its first attempt. It needs no
sending, which would know what to do next, until that attempt has failed. Messages gather until
there are some dozens, or until the engine thread comes by; whoever writes then picks their queues,
fills in the templates of these and hands the frames to the connection in one system call. Of what
a message costs, most is paid once for all of them that way, and the broker has work while the
caller goes on.

What cannot leave as a frame (no connection yet, keys, TLS) goes to the pipeline as a sending.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Final, cast

import msgspec

from gimbalmq.client.futures import SendFuture
from gimbalmq.client.outbound import Outbound
from gimbalmq.client.pipeline import Flight, Pipeline
from gimbalmq.client.shared import SharedInstance
from gimbalmq.core.publish import PublishInfo
from gimbalmq.errors import GimbalError
from gimbalmq.flows.outgoing import Outgoing, body_of, more_properties
from gimbalmq.flows.send import Attempt, Sending
from gimbalmq.model.message import Message, SendResult, SendStatus
from gimbalmq.model.queue import MessageQueue
from gimbalmq.transport.nonblocking import Offered
from gimbalmq.transport.requests import Answered, next_opaque
from gimbalmq.wire.command import Command
from gimbalmq.wire.properties import first_properties
from gimbalmq.wire.stored import StoredAnswer
from gimbalmq.wire.templates import SendTemplate

__all__ = ["Frames"]

#: How many messages a caller lets gather before it writes them.
_FRAMES_PER_WRITE: Final = 32
#: Queues whose requests are kept as templates; a topic that is gone leaves its own behind.
_TEMPLATES_MAX: Final = 4096
#: How many may be written down together; ids are made for that many at a time.
_FRAMES_AT_ONCE: Final = 1024
_NO_QUEUE: Final = MessageQueue("", "", 0)


class _FrameFlight(msgspec.Struct, gc=False):
    """One message under way as a frame; called by the engine with an answer that is no success."""

    frames: Frames
    message: Message
    body: bytes
    sys_flag: int
    more_properties: str
    info: PublishInfo
    timeout_s: float
    future: SendFuture
    #: What it is called, where it goes, and when it left; known when it is written down.
    message_id: str = ""
    queue: MessageQueue = _NO_QUEUE
    born_ms: int = 0
    started_s: float = 0.0

    def __call__(self, outcome: Command | GimbalError) -> None:
        """Go on as a sending whose first attempt ended like this."""
        self.frames.try_again(self, outcome)

    @property
    def outgoing(self) -> Outgoing:
        """The message as a sending wants it."""
        properties = first_properties(self.message_id) + self.more_properties
        return Outgoing(self.message_id, properties, self.body, self.sys_flag)


#: What cannot leave, and why.
_Failed = list[tuple[_FrameFlight, GimbalError]]


class Frames:
    """The plain messages of one running producer, from any thread."""

    def __init__(self, shared: SharedInstance, outbound: Outbound, pipeline: Pipeline) -> None:
        self._shared = shared
        self._outbound = outbound
        self._limits, self._id_digits = outbound.limits, outbound.id_digits
        self._pipeline = pipeline
        self._templates: dict[MessageQueue, SendTemplate] = {}
        self._gathered: deque[_FrameFlight] = deque()
        self._scheduled = False
        #: Held while frames are written, so that they leave in the order in which they came.
        self._order = threading.Lock()
        self._together = self._stored_together

    # ---- any thread --------------------------------------------------------------------------

    def send(self, message: Message, info: PublishInfo, timeout_s: float) -> SendFuture:
        """Send a message soon; waits only for room.

        Raises:
            ConfigurationError: it cannot be sent.
        """
        body, sys_flag = body_of(message, self._limits)
        more = more_properties(message, self._id_digits)
        size = len(body)
        if not self._pipeline.reserve_now(size):
            # What gathers holds room; the engine thread would write it, but later.
            self.write()
            self._pipeline.reserve(size, timeout_s)
        future = SendFuture()
        gathered = self._gathered
        gathered.append(_FrameFlight(self, message, body, sys_flag, more, info, timeout_s, future))
        if len(gathered) >= _FRAMES_PER_WRITE:
            self.write()
        elif not self._scheduled:
            # Whoever sent this may not come again.
            self._scheduled = True
            self._shared.post(self._write_scheduled)
        return future

    def write(self) -> None:
        """Let everything leave that has gathered; what comes meanwhile is for the next to write."""
        failed: _Failed = []
        with self._order:
            left = len(self._gathered)
            while left > 0:
                count = min(left, _FRAMES_AT_ONCE)
                left -= count
                for address, requests in self._written_down(count, failed).items():
                    self._offer(address, requests, failed)
        # Not before: callbacks of these futures run here, and may send.
        for flight, error in failed:
            self._pipeline.release(len(flight.body))
            flight.future.set_exception(error)

    def _written_down(self, count: int, failed: _Failed) -> dict[str, list[Offered]]:
        """The frames of the first of what has gathered, by the address that they go to."""
        by_address: dict[str, list[Offered]] = {}
        gathered, templates = self._gathered, self._templates
        next_queue = self._outbound.publishing.turns().next
        started_s, born_ms = time.monotonic(), time.time_ns() // 1_000_000
        for message_id in self._outbound.new_ids(count, born_ms):
            flight = gathered.popleft()
            queue = next_queue(flight.info.queues)
            flight.message_id, flight.queue = message_id, queue
            flight.born_ms, flight.started_s = born_ms, started_s
            template = templates.get(queue) or self._new_template(queue)
            opaque = next_opaque()
            try:
                frame = template.frame(
                    opaque,
                    flight.body,
                    message_id,
                    flight.more_properties,
                    born_ms,
                    flight.sys_flag,
                )
            except GimbalError as error:
                failed.append((flight, error))
                continue
            address = flight.info.masters.get(queue.broker, "")
            offered = (opaque, frame, flight.timeout_s, flight)
            by_address.setdefault(address, []).append(offered)
        return by_address

    def _new_template(self, queue: MessageQueue) -> SendTemplate:
        if len(self._templates) >= _TEMPLATES_MAX:
            self._templates.clear()
        self._templates[queue] = template = self._outbound.template(queue)
        return template

    def _offer(self, address: str, requests: list[Offered], failed: _Failed) -> None:
        # What was handed to the engine thread before must not be overtaken.
        if not self._pipeline.is_draining and self._shared.engine.offer(
            address, requests, self._together
        ):
            return
        for _, _, _, flight in requests:
            assert isinstance(flight, _FrameFlight)
            try:
                self._submit(flight)
            except GimbalError as error:
                failed.append((flight, error))

    def _submit(self, flight: _FrameFlight) -> None:
        """Let a message leave by the engine thread, which opens connections, signs and encrypts."""
        sending = self._sending(flight, flight.outgoing)
        step = sending.start(flight.started_s)
        self._pipeline.submit(sending, step, len(flight.body), future=flight.future)

    def _sending(self, flight: _FrameFlight, outgoing: Outgoing) -> Sending:
        return self._outbound.plain_sending(
            flight.message, outgoing, flight.info, flight.born_ms, flight.timeout_s
        )

    # ---- engine thread -----------------------------------------------------------------------

    def _write_scheduled(self) -> None:
        # First the mark, then the messages: what comes after the mark schedules anew.
        self._scheduled = False
        self.write()

    def _stored_together(self, answers: list[tuple[Answered, StoredAnswer]]) -> None:
        """These messages are stored: a `StoredTogether`."""
        size, results = 0, []
        broker, started_s, run = "", 0.0, 0
        # What is given to `offer` with `_together` comes back here, and nothing else.
        for flight, answer in cast("list[tuple[_FrameFlight, StoredAnswer]]", answers):
            queue, place = flight.queue, answer.place
            if place.queue_id != queue.queue_id:
                queue = MessageQueue(queue.topic, queue.broker, place.queue_id)
            result = SendResult(
                SendStatus.SEND_OK, flight.message_id, place.msg_id, queue, place.queue_offset
            )
            results.append((flight.future, result))
            size += len(flight.body)
            # Most were written together: what they have in common is noted once.
            if flight.started_s != started_s or queue.broker != broker:
                self._note_stored(broker, started_s, run)
                broker, started_s, run = queue.broker, flight.started_s, 0
            run += 1
        self._note_stored(broker, started_s, run)
        self._pipeline.settled(size, len(results))
        SendFuture.set_results(results)

    def _note_stored(self, broker: str, started_s: float, messages: int) -> None:
        if messages:
            self._outbound.meter.stored(broker, time.monotonic() - started_s, messages)

    def try_again(self, flight: _FrameFlight, outcome: Command | GimbalError) -> None:
        """Go on as a sending whose first attempt ended like this."""
        outgoing, queue = flight.outgoing, flight.queue
        sending = self._sending(flight, outgoing)
        request = self._outbound.plain_request(queue, outgoing, flight.born_ms)
        attempt = Attempt(queue, flight.info.masters[queue.broker], request)
        sending.adopt(attempt, flight.started_s)
        Flight(self._pipeline, sending, None, len(flight.body), 1, flight.future)(outcome)

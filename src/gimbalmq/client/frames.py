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
from typing import Final

from gimbalmq.client.futures import SendFuture
from gimbalmq.client.outbound import Outbound
from gimbalmq.client.pipeline import Flight, Pipeline
from gimbalmq.client.shared import SharedInstance
from gimbalmq.core.publish import PublishInfo
from gimbalmq.errors import GimbalError
from gimbalmq.flows.outgoing import Outgoing
from gimbalmq.flows.send import Attempt, Sending, stored_result
from gimbalmq.model.message import Message, SendStatus
from gimbalmq.model.queue import MessageQueue
from gimbalmq.transport.nonblocking import Offered
from gimbalmq.transport.requests import next_opaque
from gimbalmq.wire.command import Command
from gimbalmq.wire.templates import SendTemplate

__all__ = ["Frames"]

#: How many messages a caller lets gather before it writes them.
_FRAMES_PER_WRITE: Final = 32
#: Queues whose requests are kept as templates; a topic that is gone leaves its own behind.
_TEMPLATES_MAX: Final = 4096


class _FrameFlight:
    """One message under way as a frame; called by the engine with the answer."""

    __slots__ = (
        "born_ms",
        "frames",
        "future",
        "info",
        "message",
        "outgoing",
        "queue",
        "started_s",
        "timeout_s",
    )

    #: Where it goes, and when it left; known when it is written down.
    queue: MessageQueue
    started_s: float

    def __init__(
        self,
        frames: Frames,
        message: Message,
        outgoing: Outgoing,
        info: PublishInfo,
        born_ms: int,
        timeout_s: float,
    ) -> None:
        self.frames = frames
        self.message = message
        self.outgoing = outgoing
        self.info = info
        self.born_ms = born_ms
        self.timeout_s = timeout_s
        self.future = SendFuture()

    def __call__(self, outcome: Command | GimbalError) -> None:
        """Take the answer, or the reason why there is none."""
        frames, outgoing = self.frames, self.outgoing
        if not isinstance(outcome, Command) or outcome.code:
            frames.try_again(self, outcome)
            return
        try:
            result = stored_result(self.queue, outcome, SendStatus.SEND_OK, outgoing.message_id)
        except GimbalError as error:
            frames.settled(len(outgoing.body))
            self.future.set_exception(error)
            return
        frames.stored(self.queue.broker, time.monotonic() - self.started_s)
        frames.settled(len(outgoing.body))
        self.future.set_result(result)


#: What cannot leave, and why.
_Failed = list[tuple[_FrameFlight, GimbalError]]


class Frames:
    """The plain messages of one running producer, from any thread."""

    def __init__(self, shared: SharedInstance, outbound: Outbound, pipeline: Pipeline) -> None:
        self._shared = shared
        self._outbound = outbound
        self._next_queue = outbound.publishing.next_queue
        self._pipeline = pipeline
        self._templates: dict[MessageQueue, SendTemplate] = {}
        self._gathered: deque[_FrameFlight] = deque()
        self._scheduled = False
        #: Held while frames are written, so that they leave in the order in which they came.
        self._order = threading.Lock()
        self.stored = outbound.meter.stored
        self.settled = pipeline.settled

    # ---- any thread --------------------------------------------------------------------------

    def send(
        self,
        message: Message,
        outgoing: Outgoing,
        info: PublishInfo,
        born_ms: int,
        timeout_s: float,
    ) -> SendFuture:
        """Send a message soon; waits only for room."""
        size = len(outgoing.body)
        if self._pipeline.is_full(size):
            # What gathers holds room; the engine thread would write it, but later.
            self.write()
        self._pipeline.reserve(size, timeout_s)
        flight = _FrameFlight(self, message, outgoing, info, born_ms, timeout_s)
        self._gathered.append(flight)
        if len(self._gathered) >= _FRAMES_PER_WRITE:
            self.write()
        elif not self._scheduled:
            # Whoever sent this may not come again.
            self._scheduled = True
            self._shared.post(self._write_scheduled)
        return flight.future

    def write(self) -> None:
        """Let everything leave that has gathered."""
        failed: _Failed = []
        with self._order:
            for address, requests in self._written_down(failed).items():
                self._offer(address, requests, failed)
        # Not before: callbacks of these futures run here, and may send.
        for flight, error in failed:
            self._pipeline.release(len(flight.outgoing.body))
            flight.future.set_exception(error)

    def _written_down(self, failed: _Failed) -> dict[str, list[Offered]]:
        """The frames of what has gathered, by the address that they go to."""
        by_address: dict[str, list[Offered]] = {}
        gathered, templates, next_queue = self._gathered, self._templates, self._next_queue
        started_s = time.monotonic()
        for _ in range(len(gathered)):
            flight = gathered.popleft()
            outgoing, opaque = flight.outgoing, next_opaque()
            queue = next_queue(flight.info, None)
            flight.queue, flight.started_s = queue, started_s
            template = templates.get(queue) or self._new_template(queue)
            try:
                frame = template.frame(
                    opaque, outgoing.body, outgoing.properties, flight.born_ms, outgoing.sys_flag
                )
            except GimbalError as error:
                failed.append((flight, error))
                continue
            offered = (opaque, frame, flight.timeout_s, flight)
            address = flight.info.masters.get(queue.broker, "")
            by_address.setdefault(address, []).append(offered)
        return by_address

    def _new_template(self, queue: MessageQueue) -> SendTemplate:
        if len(self._templates) >= _TEMPLATES_MAX:
            self._templates.clear()
        self._templates[queue] = template = self._outbound.template(queue)
        return template

    def _offer(self, address: str, requests: list[Offered], failed: _Failed) -> None:
        # What was handed to the engine thread before must not be overtaken.
        if not self._pipeline.is_draining and self._shared.engine.offer(address, requests):
            return
        for _, _, _, flight in requests:
            assert isinstance(flight, _FrameFlight)
            try:
                self._submit(flight)
            except GimbalError as error:
                failed.append((flight, error))

    def _submit(self, flight: _FrameFlight) -> None:
        """Let a message leave by the engine thread, which opens connections, signs and encrypts."""
        sending = self._sending(flight)
        step = sending.start(flight.started_s)
        self._pipeline.submit(sending, step, len(flight.outgoing.body), future=flight.future)

    def _sending(self, flight: _FrameFlight) -> Sending:
        return self._outbound.plain_sending(
            flight.message, flight.outgoing, flight.info, flight.born_ms, flight.timeout_s
        )

    # ---- engine thread -----------------------------------------------------------------------

    def _write_scheduled(self) -> None:
        # First the mark, then the messages: what comes after the mark schedules anew.
        self._scheduled = False
        self.write()

    def try_again(self, flight: _FrameFlight, outcome: Command | GimbalError) -> None:
        """Go on as a sending whose first attempt ended like this."""
        outgoing, queue = flight.outgoing, flight.queue
        sending = self._sending(flight)
        request = self._outbound.plain_request(queue, outgoing, flight.born_ms)
        attempt = Attempt(queue, flight.info.masters[queue.broker], request)
        sending.adopt(attempt, flight.started_s)
        Flight(self._pipeline, sending, None, len(outgoing.body), 1, flight.future)(outcome)

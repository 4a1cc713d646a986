"""Plain messages under way as frames: callers write them down, some dozens in one go.

A message that asks for nothing special is as a rule stored at its first attempt. It needs no
sending, which would know what to do next, until that attempt has failed. Messages gather until
there are some dozens, or until the engine thread comes by; whoever writes then picks their queues,
fills in the templates of these and hands the frames to the connection in one piece. Of what
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
from gimbalmq.client.targets import Target
from gimbalmq.core.publish import PublishInfo
from gimbalmq.errors import GimbalError
from gimbalmq.flows.outgoing import Outgoing, body_of, more_properties
from gimbalmq.flows.send import Attempt, Sending
from gimbalmq.model.message import Message, SendResult, SendStatus
from gimbalmq.model.queue import MessageQueue
from gimbalmq.transport.nonblocking import Offered
from gimbalmq.transport.requests import Answered, next_opaques
from gimbalmq.wire.command import Command
from gimbalmq.wire.properties import first_properties
from gimbalmq.wire.stored import StoredAnswer
from gimbalmq.wire.templates import born_part

__all__ = ["Frames"]

#: How many messages a caller lets gather before it writes them.
_FRAMES_PER_WRITE: Final = 32
#: How many may be written down together; ids are made for that many at a time.
_FRAMES_AT_ONCE: Final = 1024
_NO_QUEUE: Final = MessageQueue("", "", 0)
#: Reading a member off its enumeration costs half as much as making the result that it is for.
_SEND_OK: Final = SendStatus.SEND_OK


class _Moment(msgspec.Struct, frozen=True, gc=False):
    """When messages were written down together: by the clock, and by the one that never jumps."""

    born_ms: int
    started_s: float


_NEVER: Final = _Moment(0, 0.0)


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
    moment: _Moment = _NEVER

    def __call__(self, outcome: Command | GimbalError) -> None:
        """Go on as a sending whose first attempt ended like this."""
        self.frames.try_again(self, outcome)

    @property
    def outgoing(self) -> Outgoing:
        """The message as a sending wants it."""
        properties = first_properties(self.message_id) + self.more_properties
        return Outgoing(self.message_id, properties, self.body, self.sys_flag)


class _Draft:
    """Frames for one address while they are written down."""

    __slots__ = ("address", "flights", "parts", "timeout_s")

    def __init__(self, address: str, timeout_s: float) -> None:
        self.address = address
        self.timeout_s = timeout_s
        self.parts: list[bytes] = []
        #: By the numbers of their requests.
        self.flights: dict[int, _FrameFlight] = {}


#: What cannot leave, and why.
_Failed = list[tuple[_FrameFlight, GimbalError]]


class Frames:
    """The plain messages of one running producer, from any thread."""

    def __init__(self, shared: SharedInstance, outbound: Outbound, pipeline: Pipeline) -> None:
        self._shared = shared
        self._outbound = outbound
        self._limits, self._id_digits = outbound.limits, outbound.id_digits
        #: Bodies below this size are neither too large nor compressed.
        self._as_it_is_until = min(
            self._limits.compress_msg_body_over_howmuch, self._limits.max_message_size
        )
        self._pipeline = pipeline
        self._targets = outbound.targets
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
        body, sys_flag = message.body, 0
        size = len(body)
        # A topic that was sent to may be sent to.
        if not 0 < size < self._as_it_is_until or message.topic not in self._targets:
            body, sys_flag = body_of(message, self._limits)
            size = len(body)
        more = more_properties(message, self._id_digits)
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
                for draft in self._written_down(count, failed):
                    self._offer(draft, failed)
        # Not before: callbacks of these futures run here, and may send.
        for flight, error in failed:
            self._pipeline.release(len(flight.body))
            flight.future.set_exception(error)

    def _written_down(self, count: int, failed: _Failed) -> list[_Draft]:
        """The frames of the first of what has gathered."""
        drafts: list[_Draft] = []
        open_drafts: dict[str, _Draft] = {}
        popleft = self._gathered.popleft
        born_ms = time.time_ns() // 1_000_000
        moment = _Moment(born_ms, time.monotonic())
        ids, opaques = self._outbound.new_ids(count, born_ms), next_opaques(count)
        turns, born = self._outbound.publishing.turns().steps(count), born_part(born_ms, 0)
        info, targets = None, list[Target]()
        for message_id, opaque, turn in zip(ids, opaques, turns, strict=True):
            flight = popleft()
            if flight.info is not info:
                info = flight.info
                targets = self._targets.of(info)
            target = targets[turn % len(targets)]
            flight.message_id, flight.queue, flight.moment = message_id, target.queue, moment
            try:
                parts = target.template.parts(
                    opaque,
                    flight.body,
                    message_id,
                    flight.more_properties,
                    born if not flight.sys_flag else born_part(born_ms, flight.sys_flag),
                )
            except GimbalError as error:
                failed.append((flight, error))
                continue
            draft = open_drafts.get(target.address)
            if draft is None or draft.timeout_s != flight.timeout_s:
                draft = open_drafts[target.address] = _Draft(target.address, flight.timeout_s)
                drafts.append(draft)
            draft.parts += parts
            draft.flights[opaque] = flight
        return drafts

    def _offer(self, draft: _Draft, failed: _Failed) -> None:
        # What was handed to the engine thread before must not be overtaken.
        if not self._pipeline.is_draining:
            answered = cast("dict[int, Answered]", draft.flights)
            offered = Offered(b"".join(draft.parts), answered, draft.timeout_s)
            if self._shared.engine.offer(draft.address, offered, self._together):
                return
        for flight in draft.flights.values():
            try:
                self._submit(flight)
            except GimbalError as error:
                failed.append((flight, error))

    def _submit(self, flight: _FrameFlight) -> None:
        """Let a message leave by the engine thread, which opens connections, signs and encrypts."""
        sending = self._sending(flight, flight.outgoing)
        step = sending.start(flight.moment.started_s)
        self._pipeline.submit(sending, step, len(flight.body), future=flight.future)

    def _sending(self, flight: _FrameFlight, outgoing: Outgoing) -> Sending:
        return self._outbound.plain_sending(
            flight.message, outgoing, flight.info, flight.moment.born_ms, flight.timeout_s
        )

    # ---- engine thread -----------------------------------------------------------------------

    def _write_scheduled(self) -> None:
        # First the mark, then the messages: what comes after the mark schedules anew.
        self._scheduled = False
        self.write()

    def _stored_together(self, done: list[Answered], answers: list[StoredAnswer]) -> None:
        """These messages are stored: a `StoredTogether`."""
        size, futures, results = 0, [], []
        broker, moment, run = "", _NEVER, 0
        # What is given to `offer` with `_together` comes back here, and nothing else.
        for flight, answer in zip(cast("list[_FrameFlight]", done), answers, strict=True):
            queue, place = flight.queue, answer.place
            if place.queue_id != queue.queue_id:
                queue = MessageQueue(queue.topic, queue.broker, place.queue_id)
            futures.append(flight.future)
            results.append(
                SendResult(_SEND_OK, flight.message_id, place.msg_id, queue, place.queue_offset)
            )
            size += len(flight.body)
            # Most were written together: what they have in common is noted once.
            if flight.moment is not moment or queue.broker != broker:
                self._note_stored(broker, moment, run)
                broker, moment, run = queue.broker, flight.moment, 0
            run += 1
        self._note_stored(broker, moment, run)
        self._pipeline.settled(size, len(results))
        SendFuture.set_results(futures, results)

    def _note_stored(self, broker: str, moment: _Moment, messages: int) -> None:
        if messages:
            latency_s = time.monotonic() - moment.started_s
            self._outbound.meter.stored(broker, latency_s, messages)

    def try_again(self, flight: _FrameFlight, outcome: Command | GimbalError) -> None:
        """Go on as a sending whose first attempt ended like this."""
        outgoing, queue = flight.outgoing, flight.queue
        sending = self._sending(flight, outgoing)
        request = self._outbound.plain_request(queue, outgoing, flight.moment.born_ms)
        attempt = Attempt(queue, flight.info.masters[queue.broker], request)
        sending.adopt(attempt, flight.moment.started_s)
        Flight(self._pipeline, sending, None, len(flight.body), 1, flight.future)(outcome)

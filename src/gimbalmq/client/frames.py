"""Plain messages under way as frames: callers write them down, some dozens in one go.

A message that asks for nothing special is as a rule stored at its first attempt. It needs no
sending, which would know what to do next, until that attempt has failed. Messages gather until
there are some dozens, or until the engine thread comes by; whoever writes then picks their queues,
fills in the templates of these and hands the frames to the connection in one piece. Of what
a message costs, most is paid once for all of them that way, and the broker has work while the
caller goes on.

What cannot leave as a frame (no connection yet, keys, TLS) goes to the pipeline as a sending.

A caller may be interrupted while it writes (see `pipeline`). What it wrote down counts for nothing
until a connection or the pipeline has taken it, which is one step; what nobody took gathers again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

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
_FRAMES_PER_WRITE: Final = 64
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

    __slots__ = ("address", "flights", "offered", "parts", "timeout_s")

    def __init__(self, address: str, timeout_s: float) -> None:
        self.address = address
        self.timeout_s = timeout_s
        self.parts: list[bytes] = []
        #: By the numbers of their requests; without those that the pipeline has.
        self.flights: dict[int, _FrameFlight] = {}
        self.offered: Offered | None = None

    def left(self) -> list[_FrameFlight]:
        """The messages that nobody has taken yet."""
        if self.offered is not None and self.offered.taken:
            return []
        return list(self.flights.values())


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
        self._gathered: list[_FrameFlight] = []
        self._gather = self._gathered.append
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
        future = SendFuture()
        flight = _FrameFlight(self, message, body, sys_flag, more, info, timeout_s, future)
        if not self._pipeline.take(flight, size, self._gather):
            # What gathers holds room; the engine thread would write it, but later.
            self.write()
            self._pipeline.wait_and_take(flight, size, self._gather, timeout_s)
        if len(self._gathered) >= _FRAMES_PER_WRITE:
            self.write()
        elif not self._scheduled:
            self._schedule()
        return future

    def _schedule(self) -> None:
        """Have it written soon: whoever sent it may not come again."""
        self._scheduled = True
        try:
            self._shared.post(self._write_scheduled)
        except BaseException:
            # Else nobody would ever schedule again.
            self._scheduled = False
            raise

    def write(self) -> None:
        """Let everything leave that has gathered; what comes meanwhile is for the next to write."""
        failed: _Failed = []
        try:
            with self._order:
                left = len(self._gathered)
                while left > 0:
                    flights = self._gathered[: min(left, _FRAMES_AT_ONCE)]
                    left -= len(flights)
                    self._let_leave(flights, failed)
        finally:
            # Not before: callbacks of these futures run here, and may send.
            for flight, error in failed:
                self._pipeline.release(len(flight.body))
                flight.future.set_exception(error)

    def _let_leave(self, flights: list[_FrameFlight], failed: _Failed) -> None:
        """Let the first of what has gathered leave."""
        cannot_leave: _Failed = []
        drafts, count = self._written_down(flights, cannot_leave), len(flights)
        del self._gathered[:count]
        try:
            failed += cannot_leave
            for draft in drafts:
                self._offer(draft, failed)
        except BaseException:
            # An interrupt: what nobody has taken is for the next to write.
            self._gathered[:0] = [flight for draft in drafts for flight in draft.left()]
            raise

    def _written_down(self, flights: Sequence[_FrameFlight], failed: _Failed) -> list[_Draft]:
        """The frames of some messages; nothing but these messages knows of it."""
        count = len(flights)
        drafts: list[_Draft] = []
        open_drafts: dict[str, _Draft] = {}
        born_ms = time.time_ns() // 1_000_000
        moment = _Moment(born_ms, time.monotonic())
        ids, opaques = self._outbound.new_ids(count, born_ms), next_opaques(count)
        turns, born = self._outbound.publishing.turns().steps(count), born_part(born_ms, 0)
        info, targets = None, list[Target]()
        for flight, message_id, opaque, turn in zip(flights, ids, opaques, turns, strict=True):
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
            draft.offered = offered
            if self._shared.engine.offer(draft.address, offered, self._together):
                return
        self._pass_on(draft, failed)

    def _pass_on(self, draft: _Draft, failed: _Failed) -> None:
        """Let messages leave by the engine thread, which opens connections, signs and encrypts."""
        flights, pass_on = draft.flights, self._pipeline.pass_on
        what: Any
        hand_over: Callable[[Any], None]
        for opaque, flight in list(flights.items()):
            passed = self._flight(flight, self._sending(flight, flight.outgoing))
            try:
                passed.start(flight.moment.started_s)
            except GimbalError as error:
                what, hand_over = (flight, error), failed.append
            else:
                what, hand_over = passed, pass_on
            # One step, see `pipeline`.
            del flights[opaque]
            hand_over(what)
        self._pipeline.schedule()

    def _sending(self, flight: _FrameFlight, outgoing: Outgoing) -> Sending:
        return self._outbound.plain_sending(
            flight.message, outgoing, flight.info, flight.moment.born_ms, flight.timeout_s
        )

    def _flight(self, flight: _FrameFlight, sending: Sending) -> Flight:
        return Flight(self._pipeline, sending, len(flight.body), future=flight.future)

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
        self._flight(flight, sending)(outcome)

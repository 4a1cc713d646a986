"""A running producer on threads: carries sendings out, inline or pipelined.

A sync send writes, waits and reads on the calling thread; the others go to the engine thread.
What is sent is decided by `Outbound`; `Producer` is the public face.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from gimbalmq.client.batching import Gathered
from gimbalmq.client.frames import Frames
from gimbalmq.client.futures import SendFuture
from gimbalmq.client.outbound import Outbound, SenderSettings, SendWish, not_all_stored
from gimbalmq.client.pipeline import Flight, Pipeline
from gimbalmq.client.selectors import QueueSelector
from gimbalmq.client.shared import SharedInstance
from gimbalmq.core.publish import PublishInfo
from gimbalmq.errors import (
    GimbalError,
    ProtocolError,
    SendError,
    StateError,
    TopicNotFoundError,
    TransportError,
)
from gimbalmq.flows.outgoing import Outgoing, body_of, check_sendable, more_properties
from gimbalmq.flows.send import Attempt, Sending, placed_result
from gimbalmq.model.message import Message, SendResult
from gimbalmq.model.queue import MessageQueue
from gimbalmq.transport.requests import next_opaque
from gimbalmq.wire.command import Command
from gimbalmq.wire.properties import first_properties
from gimbalmq.wire.stored import StoredAnswer
from gimbalmq.wire.templates import born_part

__all__ = ["Sender"]


class Sender(Outbound):
    """Sends for one producer, from any thread."""

    def __init__(self, shared: SharedInstance, settings: SenderSettings) -> None:
        super().__init__(shared, settings, self._send_trace)
        self.shared = shared
        self._pool = shared.pool
        self.pipeline = Pipeline(
            shared,
            messages_max=settings.in_flight_max,
            bytes_max=settings.in_flight_bytes_max,
        )
        self._frames = Frames(shared, self, self.pipeline)
        self.accumulator = self._new_accumulator(self._send_gathered, SendFuture)
        #: Nothing but the message, its queue and its time limit to think of.
        self._plain = (
            self.namespace is None
            and self.trace is None
            and settings.tolerance is None
            and settings.sync_policy.request_timeout_s is None
        )
        #: Whoever waits writes the request as it leaves, so nothing may be left to sign.
        self._plain_sync = self._plain and shared.access.reach.credentials is None

    def info(self, topic: str, timeout_s: float = 3.0) -> PublishInfo:
        """The publish list of a topic, fetched on the calling thread when it is not known yet."""
        known = self.publishing.known(topic)
        if known is not None:
            return known
        return self.shared.inline(self.publishing.find(topic, timeout_s))

    def master(self, topic: str, broker: str, timeout_s: float) -> str:
        """Where a broker of a topic is; empty while it has no master."""
        try:
            return self.info(topic, timeout_s).masters.get(broker, "")
        except (TopicNotFoundError, TransportError):  # not even another one can be sent to
            return ""

    # ---- one message -------------------------------------------------------------------------

    def send(
        self,
        message: Message,
        queue: MessageQueue | None,
        selector: QueueSelector | None,
        timeout_s: float,
    ) -> SendResult:
        """Send on the calling thread and wait for the result."""
        # The engine thread, on which callbacks run, must not wait for what it has to send itself.
        if (
            self.accumulator is not None
            and self.accumulator.takes(message)
            and not self.shared.on_engine_thread
        ):
            return self.gather(message, queue, selector, timeout_s).result()
        started_s = time.monotonic()
        if (
            self._plain_sync
            and queue is None
            and selector is None
            and message.sharding_key is None
            and message.deliver_at is None
            and (info := self.publishing.known(message.topic)) is not None
        ):
            return self._send_plain(message, info, timeout_s, started_s)
        policy = self._settings.sync_policy
        sending, _ = self._prepared(SendWish(message, queue, selector, timeout_s, policy))
        return self._carry_out(sending, started_s)

    def _send_plain(
        self, message: Message, info: PublishInfo, timeout_s: float, started_s: float
    ) -> SendResult:
        """A send without anything special, which as a rule goes well: no book-keeping until not.

        Between two system calls every object touched is a cache miss; this path is half as long
        as the general one.
        """
        now_ms = time.time_ns() // 1_000_000
        message_id = self.new_id(now_ms)
        body, sys_flag = body_of(message, self.limits)
        more = more_properties(message, self.id_digits)
        targets = self.targets.of(info)
        target = targets[self.publishing.turns().step() % len(targets)]
        opaque, born = next_opaque(), born_part(now_ms, sys_flag)
        parts = target.template.parts(opaque, body, message_id, more, born)
        outcome: Command | GimbalError | None = None
        if target.address:
            try:
                answer = self._pool.store(target.address, b"".join(parts), opaque, timeout_s)
            except (TransportError, ProtocolError) as error:
                outcome = error
            else:
                if isinstance(answer, StoredAnswer):
                    self.meter.stored(target.queue.broker, time.monotonic() - started_s)
                    return placed_result(target.queue, answer.place, message_id)
                outcome = answer
        outgoing = Outgoing(message_id, first_properties(message_id) + more, body, sys_flag)
        sending = self._sending(
            message, outgoing, info, None, now_ms, self._settings.sync_policy, timeout_s
        )
        if outcome is None:
            return self._carry_out(sending, started_s)
        request = self.plain_request(target.queue, outgoing, now_ms)
        sending.adopt(Attempt(target.queue, target.address, request), started_s)
        return self._go_on(sending, sending.answered(outcome, time.monotonic()))

    def send_async(
        self,
        message: Message,
        queue: MessageQueue | None,
        selector: QueueSelector | None,
        timeout_s: float,
    ) -> SendFuture:
        """Send on the engine thread; waits only for room, and for the first route of a topic."""
        if self.accumulator is not None and self.accumulator.takes(message):
            return self.gather(message, queue, selector, timeout_s)
        if (
            self._plain
            and queue is None
            and selector is None
            and message.sharding_key is None
            and message.deliver_at is None
        ):
            # A forked child must not touch the connections.
            self.check_process()
            topic = message.topic
            info = self.publishing.known(topic) or self.info(topic, timeout_s)
            return self._frames.send(message, info, timeout_s)
        policy = self._settings.async_policy
        sending, size = self._prepared(SendWish(message, queue, selector, timeout_s, policy))
        return self.pipeline.submit(Flight(self.pipeline, sending, size), timeout_s)

    def send_oneway(
        self, message: Message, queue: MessageQueue | None, selector: QueueSelector | None
    ) -> None:
        """Hand a message to the connection."""
        started_s, timeout_s = time.monotonic(), self._settings.timeout_s
        sending, _ = self._prepared(SendWish(message, queue, selector, timeout_s, self._single))
        attempt = sending.start(time.monotonic(), started_s)
        try:
            self._pool.notify(attempt.address, attempt.request, sending.attempt_timeout_s)
        except TransportError as error:
            sending.answered(error, time.monotonic())

    def send_half(
        self, message: Message, extra: dict[str, str], sys_flag: int, timeout_s: float
    ) -> SendResult:
        """Store a half message."""
        started_s = time.monotonic()
        policy = self._settings.sync_policy
        wish = SendWish(message, None, None, timeout_s, policy, extra, sys_flag)
        sending, _ = self._prepared(wish)
        return self._carry_out(sending, started_s)

    def _prepared(self, wish: SendWish) -> tuple[Sending, int]:
        """A sending that has not started, and its size."""
        now_ms = time.time_ns() // 1_000_000
        # The id comes first: it refuses a forked child, which must not touch the connections.
        message_id = self.new_id(now_ms)
        info = self.info(self.wire_topic(wish.message.topic), wish.timeout_s)
        if wish.message.deliver_at is not None:
            self.shared.inline(self.publishing.check_timers(info, wish.timeout_s))
        return self.prepared(wish, message_id, now_ms, info)

    # ---- carrying out ------------------------------------------------------------------------

    def _carry_out(self, sending: Sending, started_s: float) -> SendResult:
        # Finding the route may have taken some of the time.
        return self._go_on(sending, sending.start(time.monotonic(), started_s))

    def _go_on(self, sending: Sending, step: SendResult | Attempt) -> SendResult:
        call, monotonic = self._pool.call, time.monotonic
        while isinstance(step, Attempt):
            outcome: Command | GimbalError
            try:
                outcome = call(step.address, step.request, sending.attempt_timeout_s)
            except (TransportError, ProtocolError) as error:
                outcome = error
            step = sending.answered(outcome, monotonic())
        return step

    # ---- batches -----------------------------------------------------------------------------

    def send_batch(
        self,
        messages: Sequence[Message],
        queue: MessageQueue | None,
        selector: QueueSelector | None,
        timeout_s: float,
    ) -> tuple[SendResult, ...]:
        """Send messages in as few wire batches as fit, each on the calling thread."""
        now_ms = time.time_ns() // 1_000_000
        batches = self.cut(messages, now_ms)
        topic = messages[0].topic
        info = self.info(self.wire_topic(topic), timeout_s)
        results: list[SendResult] = []
        for sending in self.batch_sendings(
            messages, batches, now_ms, info, queue, selector, timeout_s
        ):
            try:
                results.append(self._carry_out(sending, time.monotonic()))
            except SendError as error:
                raise not_all_stored(len(results), len(batches), topic, error) from error
        return tuple(results)

    # ---- automatic batches -------------------------------------------------------------------

    def gather(
        self,
        message: Message,
        queue: MessageQueue | None,
        selector: QueueSelector | None,
        timeout_s: float,
    ) -> SendFuture:
        """Let a message leave with others of its kind."""
        assert self.accumulator is not None
        check_sendable(message.topic)
        message_id = self.new_id(time.time_ns() // 1_000_000)
        info = self.info(self.wire_topic(message.topic), timeout_s)
        key, entry = self.entry(message, message_id, info, queue, selector, timeout_s)
        self.pipeline.wait_for_room(len(entry.body), timeout_s)
        return self.accumulator.add(key, message_id, entry)

    def _send_gathered(self, gathered: Gathered) -> SendFuture:
        """Send what has gathered; on the engine thread."""
        # Not `info`: it would wait for name servers when the topic has lost its last queue.
        info = self.publishing.known_last(self.wire_topic(gathered.key[0]))
        sending = self.gathered_sending(gathered, info)
        size = sum(len(entry.body) for entry in gathered.entries)
        flight = Flight(self.pipeline, sending, size, len(gathered.entries))
        return self.pipeline.submit(flight, 0.0)

    # ---- end ---------------------------------------------------------------------------------

    def _send_trace(self, message: Message) -> SendFuture:
        """Send a trace message; on the engine thread, with the route known."""
        sending, size = self.trace_sending(message)
        return self.pipeline.submit(Flight(self.pipeline, sending, size), 0.0)

    def flush(self, timeout_s: float | None) -> bool:
        """Wait until everything has its result; False when that took too long."""
        if self.shared.on_engine_thread:
            raise StateError("flush waits, which a callback on the client's own thread must not")
        if self.accumulator is not None:
            self.shared.run(self.accumulator.flush)
        self._frames.write()
        return self.pipeline.wait_empty(timeout_s)

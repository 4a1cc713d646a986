"""A running producer: turns messages into attempts and carries them out, inline or pipelined.

Everything that a send needs is here, ready-made, because a send touches all of it. `Producer` is
the public face: options, life and documentation.
"""

from __future__ import annotations

import functools
import os
import secrets
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from gimbalmq.client.batching import Accumulator, Batching, Gathered
from gimbalmq.client.futures import SendFuture
from gimbalmq.client.pipeline import Pipeline
from gimbalmq.client.publishing import Publishing
from gimbalmq.client.selectors import QueueSelector
from gimbalmq.client.shared import SharedInstance
from gimbalmq.client.tracing import TraceLog
from gimbalmq.core.fault import FaultTolerance
from gimbalmq.core.publish import PublishInfo
from gimbalmq.core.selection import queue_by_key
from gimbalmq.errors import (
    ConfigurationError,
    GimbalError,
    ProtocolError,
    SendError,
    StateError,
    TransportError,
)
from gimbalmq.flows.batch import BATCH_PROPERTIES, batch_entry, cut_batches
from gimbalmq.flows.outgoing import Outgoing, SendSettings, check_sendable, prepare
from gimbalmq.flows.send import Attempt, AttemptReport, Sending, SendPolicy, stored_result
from gimbalmq.model.message import Message, SendResult, SendStatus
from gimbalmq.model.queue import MessageQueue
from gimbalmq.transport.address import local_ip
from gimbalmq.wire.batch import encode_batch
from gimbalmq.wire.command import Command
from gimbalmq.wire.headers import send_batch_request, send_request
from gimbalmq.wire.ids import UniqueIds, month_start_ms
from gimbalmq.wire.names import with_namespace
from gimbalmq.wire.trace import TRACE_GROUP_PREFIX, TraceMessageType

__all__ = ["Sender", "SenderSettings"]


class SenderSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a producer, checked."""

    group: str
    namespace: str | None
    timeout_s: float
    limits: SendSettings
    sync_policy: SendPolicy
    async_policy: SendPolicy
    tolerance: FaultTolerance | None
    in_flight_max: int
    in_flight_bytes_max: int
    batching: Batching | None
    trace_topic: str | None

    def __post_init__(self) -> None:
        numbers = {
            "timeout_s": self.timeout_s,
            "back_pressure_for_async_send_num": self.in_flight_max,
            "back_pressure_for_async_send_size": self.in_flight_bytes_max,
            "max_message_size": self.limits.max_message_size,
            "default_topic_queue_nums": self.limits.default_topic_queue_nums,
        }
        for name, number in numbers.items():
            if number <= 0:
                raise ConfigurationError(f"{name} is {number}: give a number above 0")


class Sender:
    """Sends for one producer, from any thread."""

    def __init__(self, shared: SharedInstance, settings: SenderSettings) -> None:
        self.shared = shared
        self._settings = settings
        self._limits = settings.limits
        self._pool = shared.pool
        namespace = settings.namespace
        self._namespace = namespace
        self.wire_group = with_namespace(namespace, settings.group)
        self._extra = None if namespace is None else {"INSTANCE_ID": namespace}
        self.publishing = Publishing(shared, settings.limits, settings.tolerance)
        self.pipeline = Pipeline(
            shared,
            messages_max=settings.in_flight_max,
            bytes_max=settings.in_flight_bytes_max,
        )
        self.accumulator: Accumulator | None = None
        if settings.batching is not None:
            self.accumulator = Accumulator(
                shared,
                settings.batching,
                self._send_gathered,
                # Large bodies are better off compressed, which a batch cannot be.
                body_bytes_until=settings.limits.compress_msg_body_over_howmuch,
            )
        self.trace: TraceLog | None = None
        if settings.trace_topic is not None:
            self.trace = TraceLog(
                shared, settings.group, settings.trace_topic, settings.limits, self._send_trace
            )
        #: Nothing but the message and its queue to think of.
        self._plain = namespace is None and self.trace is None and settings.tolerance is None
        self._single = msgspec.structs.replace(settings.sync_policy, attempts_max=1)
        self._pid = os.getpid()
        self._ids = UniqueIds(local_ip(), self._pid, secrets.randbits(32))
        self._month_started_ms = self._month_until_ms = 0

    # ---- one message -------------------------------------------------------------------------

    def send(
        self,
        message: Message,
        queue: MessageQueue | None,
        selector: QueueSelector | None,
        timeout_s: float,
    ) -> SendResult:
        """Send on the calling thread and wait for the result."""
        if self.accumulator is not None and self.accumulator.takes(message):
            return self.gather(message, queue, selector, timeout_s).result()
        started_s = time.monotonic()
        if self._plain and queue is None and selector is None and message.sharding_key is None:
            return self._send_plain(message, timeout_s, started_s)
        sending, _ = self._prepared(message, queue, selector, timeout_s, self._settings.sync_policy)
        return self._carry_out(sending, started_s)

    def _send_plain(self, message: Message, timeout_s: float, started_s: float) -> SendResult:
        """A send without anything special, which as a rule goes well: no book-keeping until not.

        On the way between two system calls every object touched is a cache miss; this path is
        a third shorter than the general one.
        """
        now_ms = time.time_ns() // 1_000_000
        message_id = self.new_id(now_ms)
        info = self.publishing.info(message.topic, timeout_s)
        outgoing = prepare(message, message_id, self._limits)
        target = self.publishing.next_queue(info, None)
        request = self._request(target, outgoing, now_ms, 0)
        attempt = None
        if target.broker in info.masters:
            address = info.masters[target.broker]
            outcome: Command | GimbalError
            try:
                outcome = self._pool.call(address, request, timeout_s)
            except (TransportError, ProtocolError) as error:
                outcome = error
            else:
                if outcome.code == 0:
                    return stored_result(target, outcome, SendStatus.SEND_OK, message_id)
            attempt = Attempt(target, address, request)
        sending = self._sending(
            message, outgoing, info, None, now_ms, self._settings.sync_policy, timeout_s
        )
        if attempt is None:
            return self._carry_out(sending, started_s)
        sending.adopt(attempt, started_s)
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
        if self._plain and queue is None and selector is None and message.sharding_key is None:
            return self._send_plain_async(message, timeout_s)
        sending, size = self._prepared(
            message, queue, selector, timeout_s, self._settings.async_policy
        )
        self.pipeline.reserve(size, timeout_s)
        return self._submit(sending, size)

    def _send_plain_async(self, message: Message, timeout_s: float) -> SendFuture:
        """As `_send_plain`: no book-keeping for a message that is stored at the first attempt."""
        now_ms = time.time_ns() // 1_000_000
        message_id = self.new_id(now_ms)
        info = self.publishing.info(message.topic, timeout_s)
        outgoing = prepare(message, message_id, self._limits)
        size = len(outgoing.body)
        self.pipeline.reserve(size, timeout_s)
        target = self.publishing.next_queue(info, None)
        make_sending = functools.partial(
            self._sending,
            message,
            outgoing,
            info,
            None,
            now_ms,
            self._settings.async_policy,
            timeout_s,
        )
        address = info.masters.get(target.broker)
        if address is None:
            return self._submit(make_sending(), size)
        attempt = Attempt(target, address, self._request(target, outgoing, now_ms, 0))
        return self.pipeline.submit_plain(
            make_sending, attempt, message_id, time.monotonic(), timeout_s, size
        )

    def send_oneway(
        self, message: Message, queue: MessageQueue | None, selector: QueueSelector | None
    ) -> None:
        """Hand a message to the connection."""
        sending, _ = self._prepared(
            message, queue, selector, self._settings.timeout_s, self._single
        )
        attempt = sending.start(time.monotonic())
        try:
            self._pool.notify(attempt.address, attempt.request)
        except TransportError as error:
            sending.answered(error, time.monotonic())

    def send_half(
        self, message: Message, extra: dict[str, str], sys_flag: int, timeout_s: float
    ) -> SendResult:
        """Store a half message."""
        started_s = time.monotonic()
        sending, _ = self._prepared(
            message, None, None, timeout_s, self._settings.sync_policy, extra, sys_flag
        )
        return self._carry_out(sending, started_s)

    def _prepared(
        self,
        message: Message,
        queue: MessageQueue | None,
        selector: QueueSelector | None,
        timeout_s: float,
        policy: SendPolicy,
        extra: dict[str, str] | None = None,
        sys_flag: int = 0,
    ) -> tuple[Sending, int]:
        """A sending that has not started, and its size."""
        topic = message.topic
        namespace = self._namespace
        wire_topic = topic if namespace is None else with_namespace(namespace, topic)
        now_ms = time.time_ns() // 1_000_000
        message_id = self.new_id(now_ms)
        publishing = self.publishing
        info = publishing.info(wire_topic, timeout_s)
        if namespace is not None and extra is not None:
            extra = {**extra, "INSTANCE_ID": namespace}
        outgoing = prepare(
            message, message_id, self._limits, self._extra if extra is None else extra
        )
        chosen: MessageQueue | None = None
        if queue is not None or selector is not None or message.sharding_key is not None:
            chosen = self._chosen(info, message, queue, selector)
            if policy is self._settings.sync_policy:
                policy = self._single
        sending = self._sending(
            message, outgoing, info, chosen, now_ms, policy, timeout_s, sys_flag
        )
        return sending, len(outgoing.body)

    def _sending(
        self,
        message: Message,
        outgoing: Outgoing,
        info: PublishInfo,
        chosen: MessageQueue | None,
        now_ms: int,
        policy: SendPolicy,
        timeout_s: float,
        sys_flag: int = 0,
    ) -> Sending:
        publishing, namespace = self.publishing, self._namespace

        def next_attempt(failed_broker: str | None) -> Attempt:
            target = chosen if chosen is not None else publishing.next_queue(info, failed_broker)
            request = self._request(target, outgoing, now_ms, sys_flag)
            address = info.masters.get(target.broker, "")
            if namespace is not None:
                target = MessageQueue(message.topic, target.broker, target.queue_id)
            return Attempt(target, address, request)

        message_id = outgoing.message_id
        stored = self._report_stored(message, message_id, len(message.body), half=sys_flag != 0)
        return Sending(next_attempt, message_id, policy, timeout_s, publishing.report, stored)

    def _request(
        self, target: MessageQueue, outgoing: Outgoing, now_ms: int, sys_flag: int
    ) -> Command:
        limits = self._limits
        return send_request(
            group=self.wire_group,
            queue=target,
            body=outgoing.body,
            properties=outgoing.properties,
            born_timestamp_ms=now_ms,
            sys_flag=outgoing.sys_flag | sys_flag,
            default_topic=limits.create_topic_key,
            default_topic_queues=limits.default_topic_queue_nums,
        )

    def _chosen(
        self,
        info: PublishInfo,
        message: Message,
        queue: MessageQueue | None,
        selector: QueueSelector | None,
    ) -> MessageQueue:
        """The one queue that was asked for, with its name on the wire."""
        if queue is not None and selector is not None:
            raise ConfigurationError("send takes a queue or a selector, not both")
        if queue is None and selector is None:
            assert message.sharding_key is not None
            return queue_by_key(info.queues, message.sharding_key)
        if selector is not None:
            queue = selector(self.user_queues(info, message.topic), message)
        if not isinstance(queue, MessageQueue):
            raise ConfigurationError(
                f"the selector of a message for topic '{message.topic}' returned {queue!r}, which "
                "is no queue"
            )
        wire = MessageQueue(info.route.topic, queue.broker, queue.queue_id)
        if queue.topic != message.topic or wire not in info.queues:
            raise ConfigurationError(
                f"queue {queue.path} is not one of the {len(info.queues)} queues of topic "
                f"'{message.topic}'"
            )
        return wire

    def user_queues(self, info: PublishInfo, topic: str) -> tuple[MessageQueue, ...]:
        """The publish list as users name it: without the namespace."""
        if self._namespace is None:
            return info.queues
        return tuple(MessageQueue(topic, one.broker, one.queue_id) for one in info.queues)

    # ---- carrying out ------------------------------------------------------------------------

    def _carry_out(self, sending: Sending, started_s: float) -> SendResult:
        return self._go_on(sending, sending.start(started_s))

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

    def _submit(self, sending: Sending, size: int, messages: int = 1) -> SendFuture:
        """Send in reserved room; gives the room back when there is nowhere to send to."""
        try:
            step = sending.start(time.monotonic())
        except GimbalError:
            self.pipeline.release(size, messages)
            raise
        return self.pipeline.submit(sending, step, size, messages)

    def _report_stored(
        self, message: Message, message_id: str, body_bytes: int, *, half: bool = False
    ) -> AttemptReport | None:
        """Who is told when a broker has stored a message, if anybody."""
        trace, noted = self.trace, self.publishing.report_stored
        if trace is None:
            return noted
        kind = TraceMessageType.NORMAL
        if half:
            kind = TraceMessageType.TRANSACTION_HALF
        elif message.delay_level is not None or message.deliver_at is not None:
            kind = TraceMessageType.DELAY

        def report(
            attempt: Attempt, outcome: Command | GimbalError, latency_s: float, now_s: float
        ) -> None:
            if noted is not None:
                noted(attempt, outcome, latency_s, now_s)
            trace.sent(message, message_id, body_bytes, kind, attempt, outcome, latency_s)

        return report

    def new_id(self, now_ms: int) -> str:
        """A new unique message id."""
        self._check_process(now_ms)
        return self._ids.next(now_ms, self._month_started_ms)

    def _check_process(self, now_ms: int) -> None:
        """Be ready for ids of this moment.

        Raises:
            StateError: this is a forked child, which would repeat its parent's ids and use its
                parent's connections.
        """
        if os.getpid() != self._pid:
            raise StateError(
                f"the producer of group '{self._settings.group}' was started in process "
                f"{self._pid}: make one in each process"
            )
        if now_ms >= self._month_until_ms:
            # Ids count from the start of the month, so that their time fits 32 bits.
            now = datetime.fromtimestamp(now_ms / 1000, UTC).astimezone()
            self._month_started_ms = month_start_ms(now)
            self._month_until_ms = month_start_ms(now.replace(day=1) + timedelta(days=32))

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
        self._check_process(now_ms)
        new_id = functools.partial(self._ids.next, now_ms, self._month_started_ms)
        batches = cut_batches(messages, new_id, self._limits, self._extra)
        first = messages[0]
        info = self.publishing.info(with_namespace(self._namespace, first.topic), timeout_s)
        chosen = None
        if queue is not None or selector is not None or _common_key(messages) is not None:
            chosen = self._chosen(info, first, queue, selector)
        policy = self._settings.sync_policy if chosen is None else self._single
        results: list[SendResult] = []
        for batch in batches:
            sending = self._batch_sending(
                first, info, chosen, batch.message_ids, batch.body, now_ms, policy, timeout_s
            )
            try:
                results.append(self._carry_out(sending, time.monotonic()))
            except SendError as error:
                if not results:
                    raise
                raise SendError(
                    f"{len(results)} of {len(batches)} batches for topic '{first.topic}' were "
                    f"stored, the next was not: {error}",
                    attempts=error.attempts,
                    code=error.code,
                ) from error
        return tuple(results)

    def _batch_sending(
        self,
        first: Message,
        info: PublishInfo,
        chosen: MessageQueue | None,
        message_ids: Sequence[str],
        body: bytes,
        now_ms: int,
        policy: SendPolicy,
        timeout_s: float,
    ) -> Sending:
        limits = self._limits

        def next_attempt(failed_broker: str | None) -> Attempt:
            target = chosen or self.publishing.next_queue(info, failed_broker)
            request = send_batch_request(
                group=self.wire_group,
                queue=target,
                body=body,
                properties=BATCH_PROPERTIES,
                born_timestamp_ms=now_ms,
                default_topic=limits.create_topic_key,
                default_topic_queues=limits.default_topic_queue_nums,
            )
            address = info.masters.get(target.broker, "")
            if self._namespace is not None:
                target = MessageQueue(first.topic, target.broker, target.queue_id)
            return Attempt(target, address, request)

        ids = ",".join(message_ids)
        stored = self._report_stored(first, ids, len(body))
        return Sending(next_attempt, ids, policy, timeout_s, self.publishing.report, stored)

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
        info = self.publishing.info(with_namespace(self._namespace, message.topic), timeout_s)
        chosen = None
        if queue is not None or selector is not None or message.sharding_key is not None:
            chosen = self._chosen(info, message, queue, selector)
        entry = batch_entry(message, message_id, self._extra)
        self.pipeline.reserve(len(entry.body), timeout_s)
        return self.accumulator.add((message.topic, chosen, message.tags), message_id, entry)

    def _send_gathered(self, gathered: Gathered) -> SendFuture:
        topic, chosen, tags = gathered.key
        size, messages = sum(len(entry.body) for entry in gathered.entries), len(gathered.entries)
        try:
            info = self.publishing.info(with_namespace(self._namespace, topic))
        except GimbalError:
            self.pipeline.release(size, messages)
            raise
        sending = self._batch_sending(
            Message(topic, b"", tags=tags),
            info,
            chosen,
            gathered.message_ids,
            encode_batch(gathered.entries),
            time.time_ns() // 1_000_000,
            self._settings.async_policy,
            self._settings.timeout_s,
        )
        return self._submit(sending, size, messages)

    # ---- traces ------------------------------------------------------------------------------

    def _send_trace(self, message: Message) -> SendFuture:
        """Send a trace message; on the engine thread, with the route known."""
        info = self.publishing.known(message.topic)
        if info is None:
            raise StateError(f"the route of trace topic '{message.topic}' is not known")
        now_ms = time.time_ns() // 1_000_000
        outgoing = prepare(message, self.new_id(now_ms), self._limits)
        group = f"{TRACE_GROUP_PREFIX}-{self._settings.group}"

        def next_attempt(failed_broker: str | None) -> Attempt:
            target = self.publishing.next_queue(info, failed_broker)
            request = send_request(
                group=group,
                queue=target,
                body=outgoing.body,
                properties=outgoing.properties,
                born_timestamp_ms=now_ms,
                sys_flag=outgoing.sys_flag,
                default_topic=self._limits.create_topic_key,
                default_topic_queues=self._limits.default_topic_queue_nums,
            )
            return Attempt(target, info.masters.get(target.broker, ""), request)

        size = len(outgoing.body)
        self.pipeline.reserve(size, 0.0)
        sending = Sending(
            next_attempt,
            outgoing.message_id,
            self._settings.async_policy,
            self._settings.timeout_s,
            self.publishing.report,
        )
        return self._submit(sending, size)

    # ---- end ---------------------------------------------------------------------------------

    def flush(self, timeout_s: float | None) -> bool:
        """Wait until everything has its result; False when that took too long."""
        if self.shared.on_engine_thread:
            raise StateError("flush waits, which a callback on the client's own thread must not")
        if self.accumulator is not None:
            self.accumulator.flush()
        return self.pipeline.wait_empty(timeout_s)


def _common_key(messages: Sequence[Message]) -> str | int | None:
    key = messages[0].sharding_key
    if any(message.sharding_key != key for message in messages):
        raise ConfigurationError(
            "a batch goes to one queue, but its messages have different sharding keys: send one "
            "batch for each key"
        )
    return key

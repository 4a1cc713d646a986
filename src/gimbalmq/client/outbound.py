"""What a producer sends: messages turned into attempts, with everything but the sending itself.

Queue, namespace, compression, ids, traces and fault tolerance are decided here, once for the
producers of both kinds. Whoever sends finds the publish list first, waits for room and for
answers, on a thread or on an event loop.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, TypeVar

import msgspec

from gimbalmq.client.batching import (
    Accumulator,
    Batching,
    BatchKey,
    Gathered,
    SendGathered,
    Waiting,
)
from gimbalmq.client.producer_stats import SendMeter
from gimbalmq.client.publishing import Publishing
from gimbalmq.client.selectors import QueueSelector
from gimbalmq.client.shared import InstanceHolder
from gimbalmq.client.targets import Targets
from gimbalmq.client.tracing import SendTrace, TraceLog
from gimbalmq.core.fault import FaultTolerance
from gimbalmq.core.publish import PublishInfo
from gimbalmq.core.selection import queue_by_key
from gimbalmq.errors import ConfigurationError, GimbalError, SendError, StateError
from gimbalmq.flows.batch import BATCH_PROPERTIES, batch_entry, cut_batches
from gimbalmq.flows.outgoing import Outgoing, SendSettings, check_sendable, prepare
from gimbalmq.flows.send import Attempt, AttemptReport, Sending, SendPolicy
from gimbalmq.model.message import Message
from gimbalmq.model.queue import MessageQueue
from gimbalmq.transport.address import local_ip
from gimbalmq.wire.batch import BatchEntry, encode_batch
from gimbalmq.wire.command import Command
from gimbalmq.wire.headers import send_batch_request, send_request
from gimbalmq.wire.ids import IDS_AT_ONCE, UniqueIds, month_start_ms
from gimbalmq.wire.names import with_namespace
from gimbalmq.wire.templates import SendTemplate
from gimbalmq.wire.trace import TRACE_GROUP_PREFIX, TraceMessageType

__all__ = ["Outbound", "SendWish", "SenderSettings", "not_all_stored"]

_FutureT = TypeVar("_FutureT", bound=Waiting)


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
        if self.sync_policy.request_timeout_s is not None:
            numbers["send_msg_max_timeout_per_request_s"] = self.sync_policy.request_timeout_s
        for name, number in numbers.items():
            if number <= 0:
                raise ConfigurationError(f"{name} is {number}: give a number above 0")


class _Process:
    """This process: asking the system for its number would cost as much as a message's id."""

    def __init__(self) -> None:
        self.look()
        os.register_at_fork(after_in_child=self.look)

    def look(self) -> None:
        self.pid = os.getpid()


_process: Final = _Process()


class SendWish(msgspec.Struct, frozen=True):
    """What somebody wants sent: a message, and all that was said about it."""

    message: Message
    queue: MessageQueue | None
    selector: QueueSelector | None
    timeout_s: float
    policy: SendPolicy
    extra: dict[str, str] | None = None
    sys_flag: int = 0


class Outbound:
    """The outgoing side of one running producer, without the waiting."""

    def __init__(
        self, shared: InstanceHolder, settings: SenderSettings, send_trace: SendTrace
    ) -> None:
        self.holder = shared
        self._settings = settings
        self.limits = settings.limits
        self.namespace = namespace = settings.namespace
        self.wire_group = with_namespace(namespace, settings.group)
        self._extra = None if namespace is None else {"INSTANCE_ID": namespace}
        self.publishing = Publishing(shared, settings.limits, settings.tolerance)
        self.meter = SendMeter(settings.group)
        self.publishing.measure(self.meter)
        self.trace: TraceLog | None = None
        if settings.trace_topic is not None:
            self.trace = TraceLog(
                shared, settings.group, settings.trace_topic, settings.limits, send_trace
            )
        self._single = msgspec.structs.replace(settings.sync_policy, attempts_max=1)
        self._pid = _process.pid
        self._ids = UniqueIds(local_ip(), self._pid, secrets.randbits(32))
        self.id_digits = self._ids.digits
        self._month_started_ms = self._month_until_ms = 0
        self.targets = Targets(self._template)

    def wire_topic(self, topic: str) -> str:
        """The topic as brokers name it.

        Raises:
            ConfigurationError: with its namespace it may not be sent to, or is too long.
        """
        if self.namespace is None:
            return topic
        wire_topic = with_namespace(self.namespace, topic)
        check_sendable(wire_topic)
        return wire_topic

    # ---- one message -------------------------------------------------------------------------

    def prepared(
        self, wish: SendWish, message_id: str, now_ms: int, info: PublishInfo
    ) -> tuple[Sending, int]:
        """A sending that has not started, and its size."""
        message, queue, selector, policy = wish.message, wish.queue, wish.selector, wish.policy
        extra = self._extra if wish.extra is None else {**wish.extra, **(self._extra or {})}
        outgoing = prepare(message, message_id, self.limits, extra)
        chosen: MessageQueue | None = None
        if queue is not None or selector is not None or message.sharding_key is not None:
            chosen = self._chosen(info, message, queue, selector)
            if policy is self._settings.sync_policy:
                policy = self._single
        sending = self._sending(
            message, outgoing, info, chosen, now_ms, policy, wish.timeout_s, wish.sys_flag
        )
        return sending, len(outgoing.body)

    def plain_sending(
        self,
        message: Message,
        outgoing: Outgoing,
        info: PublishInfo,
        now_ms: int,
        timeout_s: float,
    ) -> Sending:
        """The sending of a message that asks for nothing special, and that nobody waits for."""
        policy = self._settings.async_policy
        return self._sending(message, outgoing, info, None, now_ms, policy, timeout_s)

    def plain_request(self, target: MessageQueue, outgoing: Outgoing, now_ms: int) -> Command:
        """The request of such a message."""
        return self._request(target, outgoing, now_ms, 0)

    def _template(self, target: MessageQueue) -> SendTemplate:
        limits = self.limits
        return SendTemplate(
            self.wire_group, target, limits.create_topic_key, limits.default_topic_queue_nums
        )

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
        publishing = self.publishing

        def next_attempt(failed_broker: str | None) -> Attempt:
            target = chosen if chosen is not None else publishing.next_queue(info, failed_broker)
            request = self._request(target, outgoing, now_ms, sys_flag)
            return Attempt(target, info.masters.get(target.broker, ""), request)

        message_id = outgoing.message_id
        return Sending(
            next_attempt,
            message_id,
            policy,
            timeout_s,
            publishing.report,
            self._report_stored(message, message_id, len(message.body), half=sys_flag != 0),
            None if self.namespace is None else message.topic,
        )

    def _request(
        self, target: MessageQueue, outgoing: Outgoing, now_ms: int, sys_flag: int
    ) -> Command:
        limits = self.limits
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
        if self.namespace is None:
            return info.queues
        return tuple(MessageQueue(topic, one.broker, one.queue_id) for one in info.queues)

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
        return self._ids.next(now_ms, self._id_month(now_ms))

    def new_ids(self, count: int, now_ms: int) -> list[str]:
        """New unique message ids, up to `IDS_AT_ONCE`."""
        return self._ids.many(count, now_ms, self._id_month(now_ms))

    def _id_month(self, now_ms: int) -> int:
        """What the time in ids of this moment counts from."""
        self.check_process()
        if now_ms >= self._month_until_ms:
            # Ids count from the start of the month, so that their time fits 32 bits.
            now = datetime.fromtimestamp(now_ms / 1000, UTC).astimezone()
            self._month_started_ms = month_start_ms(now)
            self._month_until_ms = month_start_ms(now.replace(day=1) + timedelta(days=32))
        return self._month_started_ms

    def check_process(self) -> None:
        """Refuse to work where this producer was not started.

        Raises:
            StateError: this is a forked child, which would repeat its parent's ids and use its
                parent's connections.
        """
        if _process.pid != self._pid:
            raise StateError(
                f"the producer of group '{self._settings.group}' was started in process "
                f"{self._pid}: make one in each process"
            )

    # ---- batches -----------------------------------------------------------------------------

    def cut(self, messages: Sequence[Message], now_ms: int) -> list[tuple[Sequence[str], bytes]]:
        """The wire batches that carry some messages: the ids and the body of each."""
        ids: list[str] = []
        # As many as fit into a millisecond; the others have the next one in their ids.
        for later_ms, first in enumerate(range(0, len(messages), IDS_AT_ONCE)):
            ids += self.new_ids(min(IDS_AT_ONCE, len(messages) - first), now_ms + later_ms)
        batches = cut_batches(messages, ids, self.limits, self._extra)
        return [(batch.message_ids, batch.body) for batch in batches]

    def batch_sendings(
        self,
        messages: Sequence[Message],
        batches: Sequence[tuple[Sequence[str], bytes]],
        now_ms: int,
        info: PublishInfo,
        queue: MessageQueue | None,
        selector: QueueSelector | None,
        timeout_s: float,
    ) -> list[Sending]:
        """One sending for each wire batch, to be carried out one after the other."""
        first = messages[0]
        chosen = None
        if queue is not None or selector is not None or _common_key(messages) is not None:
            chosen = self._chosen(info, first, queue, selector)
        policy = self._settings.sync_policy if chosen is None else self._single
        return [
            self._batch_sending(first, info, chosen, ids, body, now_ms, policy, timeout_s)
            for ids, body in batches
        ]

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
        limits = self.limits

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
            return Attempt(target, info.masters.get(target.broker, ""), request)

        ids = ",".join(message_ids)
        return Sending(
            next_attempt,
            ids,
            policy,
            timeout_s,
            self.publishing.report,
            self._report_stored(first, ids, len(body)),
            None if self.namespace is None else first.topic,
        )

    # ---- automatic batches -------------------------------------------------------------------

    def _new_accumulator(
        self, send: SendGathered, future: Callable[[], _FutureT]
    ) -> Accumulator[_FutureT] | None:
        """Where single sends gather, if they are to; `future` makes that of one message."""
        batching = self._settings.batching
        if batching is None:
            return None
        # Large bodies are better off compressed, which a batch cannot be.
        body_bytes_until = self.limits.compress_msg_body_over_howmuch
        return Accumulator(
            self.holder, batching, send, future=future, body_bytes_until=body_bytes_until
        )

    def entry(
        self,
        message: Message,
        message_id: str,
        info: PublishInfo,
        queue: MessageQueue | None,
        selector: QueueSelector | None,
        timeout_s: float,
    ) -> tuple[BatchKey, BatchEntry]:
        """A message as part of a batch that gathers, and what it may go together with."""
        chosen = None
        if queue is not None or selector is not None or message.sharding_key is not None:
            chosen = self._chosen(info, message, queue, selector)
        key = message.topic, chosen, message.tags, timeout_s
        return key, batch_entry(message, message_id, self._extra)

    def gathered_sending(self, gathered: Gathered, info: PublishInfo) -> Sending:
        """What has gathered, as one sending.

        It is tried again as `send` is: some of its messages may have come by that way.
        """
        topic, chosen, tags, timeout_s = gathered.key
        return self._batch_sending(
            Message(topic, b"", tags=tags),
            info,
            chosen,
            gathered.message_ids,
            encode_batch(gathered.entries),
            time.time_ns() // 1_000_000,
            self._settings.sync_policy if chosen is None else self._single,
            timeout_s,
        )

    # ---- traces ------------------------------------------------------------------------------

    def trace_sending(self, message: Message) -> tuple[Sending, int]:
        """A trace message, which has a group of its own, and its size; its route is known."""
        info = self.publishing.known(message.topic)
        if info is None:
            raise StateError(f"the route of trace topic '{message.topic}' is not known")
        now_ms = time.time_ns() // 1_000_000
        outgoing = prepare(message, self.new_id(now_ms), self.limits)
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
                default_topic=self.limits.create_topic_key,
                default_topic_queues=self.limits.default_topic_queue_nums,
            )
            return Attempt(target, info.masters.get(target.broker, ""), request)

        sending = Sending(
            next_attempt,
            outgoing.message_id,
            self._settings.async_policy,
            self._settings.timeout_s,
            self.publishing.report,
        )
        return sending, len(outgoing.body)


def not_all_stored(stored: int, batches: int, topic: str, error: SendError) -> SendError:
    """The error for a batch that was not stored after others were."""
    if not stored:
        return error
    return SendError(
        f"{stored} of {batches} batches for topic '{topic}' were stored, the next was not: {error}",
        attempts=error.attempts,
        code=error.code,
    )


def _common_key(messages: Sequence[Message]) -> str | int | None:
    key = messages[0].sharding_key
    if any(message.sharding_key != key for message in messages):
        raise ConfigurationError(
            "a batch goes to one queue, but its messages have different sharding keys: send one "
            "batch for each key"
        )
    return key

"""The producer: its options, its life, and the ways to send.

A sync send writes, waits and reads on the thread that calls it: handing it to another thread
would cost more than the send. The instance behind it keeps routes fresh, registers the producer
with the brokers, and carries the sends that nobody waits for.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from typing import Self

from gimbalmq.client.lifetime import Lifetime
from gimbalmq.client.producer_life import Registration
from gimbalmq.client.producer_options import ProducerOptions
from gimbalmq.client.producer_stats import ProducerStats, producer_stats
from gimbalmq.client.selectors import QueueSelector
from gimbalmq.client.send_hooks import SendHook, hooked, hooked_future
from gimbalmq.client.sender import Sender
from gimbalmq.client.shared import share
from gimbalmq.client.transaction import (
    CheckAnswer,
    CheckWorker,
    Transaction,
    ending,
    stored_half,
    unsafe_half,
)
from gimbalmq.core.fault import BrokerHealth
from gimbalmq.errors import SendError, StateError, TransportError
from gimbalmq.flows.transaction import (
    HALF_FLAG,
    HalfMessage,
    Outcome,
    TransactionCheck,
    check_transactional,
    half_properties,
)
from gimbalmq.model.message import Message, SendResult, SendStatus
from gimbalmq.model.queue import MessageQueue
from gimbalmq.telemetry.running import began, ended

__all__ = ["Producer", "QueueSelector"]

_log = logging.getLogger("gimbalmq.producer")


class Producer(ProducerOptions[CheckAnswer], Lifetime):
    """Sends messages; a context manager, safe to use from several threads.

    Each thread walks round robin over the queues of all brokers from a random start; a send that
    fails is tried on another broker, within `timeout_s` in all. An unknown topic is created by
    the broker, where brokers allow that.

        with Producer("shop", nameserver="127.0.0.1:9876") as producer:
            result = producer.send(Message("orders", b"...", keys=["42"], tags="paid"))

    Args:
        group: The producer group, a name for producers of one kind.
        nameserver: `host:port`, several separated by `;`; None reads `NAMESRV_ADDR`.
        timeout_s: For one send, all attempts together.
        retries: How many more brokers to try after a failure of a sync send.
        fault_tolerance: Keep away from slow and failing brokers for a while: True, or a
            `FaultTolerance` with other rules and times.
        client_id: A name for this client; producers and consumers with equal names in one
            process share their connections. A producer joins a consumer of its name that is
            running, whatever its strategy, and has its id from then on. None makes a unique one.
        access_key, secret_key, tls, address_map, namespace, namesrv_domain: How the cluster is
            reached; see `AccessOptions`.
        check: Answers a broker that asks what became of a transaction: gets the message and
            returns True (commit), False (roll back) or None (not known yet). Runs on a thread of
            its own.
        batching: Let single sends gather into wire batches: True, or a `Batching`. A batch is tried
            again as `send` is.
        retry_times_when_send_async_failed: As `retries`, for `send_async`, which tries again
            after network failures only.
        retry_another_broker_when_not_store_ok: Whether "stored, but not yet on disk or on a
            slave" is a reason to try another broker.
        retry_response_codes: Refusals to try again after, besides Java's own set.
        send_msg_max_timeout_per_request_s: Limit of one attempt, except the last.
        back_pressure_for_async_send_num, back_pressure_for_async_send_size: How many messages and
            bytes may be in flight before `send_async` waits.
        compress_type, compress_level: How bodies from `compress_msg_body_over_howmuch` bytes on
            are compressed; LZ4 and ZSTD need the extra `compression`.
        enable_trace, trace_topic: Write message traces as Java's clients do.
        create_topic_key, default_topic_queue_nums: The template of topics that do not exist yet,
            and how many queues to ask for.
        max_message_size, poll_name_server_interval_s, heartbeat_broker_interval_s,
            mq_client_api_timeout_s, use_heartbeat_v2: As in Java; the timers have to be those of
            whoever has the same `client_id`.
    """

    def _prepare_life(self) -> None:
        #: Around every send, if somebody wants that.
        self.send_hook: SendHook | None = None
        #: While it runs; and then, until it has stopped, the one that is leaving.
        self._sender: Sender | None = None
        self._leaving: Sender | None = None
        self._checks: CheckWorker | None = None
        self._registration: Registration
        self._stopping = threading.Lock()

    # ---- life --------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start; needed unless the producer is used as a context manager. A producer runs once.

        Raises:
            StateError: it was started before.
            ConfigurationError: clients that share its `client_id` were told otherwise.
        """
        with self._starting(), contextlib.ExitStack() as undo:
            shared = share(self.client_id, self._access, self._instance_settings, any_strategy=True)
            undo.callback(shared.release)
            sender = Sender(shared, self._settings)
            checks = None
            if self._check is not None:
                checks = CheckWorker(self.group, self._check, self._answer_check)
                checks.start()
                undo.callback(checks.stop, 0.0)
            registration = Registration(sender, None if checks is None else checks.ask)
            undo.callback(shared.post, registration.end)
            shared.run(registration.begin)
            self.client_id = shared.instance.client_id
            self._sender, self._checks, self._registration = sender, checks, registration
            undo.pop_all()
        began(self)
        return self

    def stop(self) -> None:
        """Wait for what is in flight, tell the brokers, let go of the connections.

        Waits for results no longer than a send may take. Safe to call again: an interrupted stop
        waits for nothing more, but leaves nothing behind.

        Raises:
            StateError: called by a callback on the client's own thread, which must not wait.
        """
        running = self._sender
        if running is not None and running.shared.on_engine_thread:
            raise StateError(
                f"stop of the producer of group '{self.group}' waits, which a callback on the "
                "client's own thread must not: call it on another thread"
            )
        if not self._stopping.acquire(blocking=False):
            return  # another thread does it
        try:
            sender = self._sender or self._leaving
            if sender is None:
                return
            self._leaving, self._sender = sender, None
            self._state = "stopping"
            ended(self)
            try:
                self._finish(sender)
            finally:
                self._let_go(sender)
        finally:
            self._stopping.release()

    def _finish(self, sender: Sender) -> None:
        """Wait until everything has its result."""
        timeout_s = self._settings.timeout_s
        if self._checks is not None:
            self._checks.stop(timeout_s)
        sender.flush(timeout_s)
        if sender.trace is not None:
            handed_over = threading.Event()
            sender.trace.flush(handed_over.set)
            handed_over.wait(timeout_s)
            sender.pipeline.wait_empty(timeout_s)

    def _let_go(self, sender: Sender) -> None:
        sender.pipeline.close()
        shared, gone = sender.shared, threading.Event()
        try:
            if sender.accumulator is not None:
                shared.post(sender.accumulator.close)
            shared.post(lambda: self._registration.end(gone.set))
            gone.wait(self._settings.timeout_s)
        finally:
            # First: whoever is interrupted in the last line must not release twice.
            self._state, self._leaving = "stopped", None
            shared.release()

    # ---- sending -----------------------------------------------------------------------------

    def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        timeout_s: float | None = None,
    ) -> SendResult:
        """Send a message and wait until a broker has stored it.

            result = producer.send(Message("orders", b"one book", keys=["42"]))
            print(result.queue, result.queue_offset)

        Args:
            message: What to send.
            queue: Send to exactly this queue.
            selector: Picks one of the topic's queues, which is then the only one tried, as it is
                with `queue` and with a message's `sharding_key`.
            timeout_s: Instead of the producer's own.

        Raises:
            SendError: no broker stored it; says what was tried on which broker.
            TopicNotFoundError: the topic does not exist and is not created by brokers.
        """
        sender = self._sender or self._not_running()
        limit_s = self._limit_s(timeout_s)
        if self.send_hook is not None:
            return hooked(
                self.send_hook,
                (message,),
                lambda changed: sender.send(changed[0], queue, selector, limit_s),
            )
        return sender.send(message, queue, selector, limit_s)

    def send_async(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        timeout_s: float | None = None,
    ) -> Future[SendResult]:
        """Send a message and return at once with a future of the result.

        Waits while too much is in flight (`back_pressure_for_async_send_num`, `_size`), for at
        most the time limit, and for the route of a topic that was not sent to before. Network
        failures are tried again on another broker, at a queue of that broker; with `queue`,
        `selector` or a sharding key, at the same queue.

            futures = [producer.send_async(message) for message in messages]
            producer.flush()

        Callbacks added to the future run on the client's own thread: keep them short.

        Raises:
            SendError: there was no room in time.
            ConfigurationError: the message cannot be sent.
        """
        sender = self._sender or self._not_running()
        limit_s = self._limit_s(timeout_s)
        if self.send_hook is not None:
            return hooked_future(
                self.send_hook,
                (message,),
                lambda changed: sender.send_async(changed[0], queue, selector, limit_s),
            )
        return sender.send_async(message, queue, selector, limit_s)

    def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
    ) -> None:
        """Write a message to the connection and wait for nothing: it may get lost.

            producer.send_oneway(Message("orders", b"one book"))

        Raises:
            SendError: there is no connection to the broker, so it was not written.
        """
        sender = self._sender or self._not_running()
        if self.send_hook is not None:
            hooked(
                self.send_hook,
                (message,),
                lambda changed: sender.send_oneway(changed[0], queue, selector),
            )
            return
        sender.send_oneway(message, queue, selector)

    def send_batch(
        self,
        messages: Iterable[Message],
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        timeout_s: float | None = None,
    ) -> tuple[SendResult, ...]:
        """Send messages of one topic together; returns one result per wire batch.

            results = producer.send_batch([Message("orders", b"%d" % n) for n in range(10)])

        They go to one queue and keep their order. More than `max_message_size` bytes are cut into
        several wire batches, which may go to different queues unless `queue`, `selector` or one
        common sharding key says otherwise. In a result the ids of all messages are joined by
        commas, as in Java; `queue_offset` is that of the first.

        Raises:
            SendError: a batch was not stored; says how many before it were.
            ConfigurationError: the topics differ, or a message has a delay.
        """
        sender = self._sender or self._not_running()
        listed: Sequence[Message] = (
            messages if isinstance(messages, list | tuple) else tuple(messages)
        )
        limit_s = self._limit_s(timeout_s)
        if self.send_hook is not None:
            return hooked(
                self.send_hook,
                listed,
                lambda changed: sender.send_batch(changed, queue, selector, limit_s),
            )
        return sender.send_batch(listed, queue, selector, limit_s)

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until every message sent so far with `send_async` has its result.

            futures = [producer.send_async(Message("orders", b"one book")) for _ in range(100)]
            producer.flush(timeout_s=10.0)
            results = [future.result() for future in futures]

        Raises:
            TransportError: that took longer than `timeout_s`.
        """
        sender = self._sender or self._not_running()
        if not sender.flush(timeout_s):
            messages, size = sender.pipeline.in_flight
            raise TransportError(
                f"{messages} messages with {size} bytes still have no result after {timeout_s} s"
            )

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues that messages of a topic are sent to.

            first = producer.queues("orders")[0]
            producer.send(Message("orders", b"one book"), queue=first)

        In the order of the round robin.
        """
        sender = self._sender or self._not_running()
        info = sender.info(sender.wire_topic(topic))
        return sender.user_queues(info, topic)

    def brokers(self) -> dict[str, BrokerHealth]:
        """What fault tolerance knows of each broker; empty while it is off."""
        return (self._sender or self._not_running()).publishing.health()

    def stats(self) -> ProducerStats:
        """What this producer measured: attempts and latency by broker, and what is in flight."""
        sender = self._sender or self._not_running()
        return producer_stats(
            self.group, self.client_id, sender.meter, self.brokers(), sender.pipeline.in_flight
        )

    def _not_running(self) -> Sender:
        raise self._not_running_error("use it in a with statement, or call start() first")

    # ---- transactions ------------------------------------------------------------------------

    def transaction(self, message: Message, *, timeout_s: float | None = None) -> Transaction:
        """A transaction around the with statement's body.

        The message is stored but not delivered before the body runs; it is committed after it and
        rolled back when the body raises. When this process dies in between, the broker asks a
        producer of the group, whose `check` answers.

            with producer.transaction(Message("orders", b"...")) as transaction:
                database.save(order, transaction.message_id)

        Raises (when entered):
            SendError: the broker did not store the message safely; the body does not run.

        Raises (when left):
            SendError: the broker did not confirm the outcome and there is no `check`.
        """
        sender = self._sender or self._not_running()
        check_transactional(message)
        limit_s = self._limit_s(timeout_s)
        wire_topic = sender.wire_topic(message.topic)

        def store_half() -> tuple[SendResult, HalfMessage]:
            extra = half_properties(sender.wire_group)
            result = sender.send_half(message, extra, HALF_FLAG, limit_s)
            half = stored_half(result, wire_topic)
            if result.status is not SendStatus.SEND_OK:
                end(half, Outcome.ROLLBACK, f"stored with {result.status.name} only")
                raise unsafe_half(result, message.topic)
            return result, half

        def end(half: HalfMessage, outcome: Outcome, remark: str | None) -> None:
            address = sender.master(wire_topic, half.broker, limit_s)
            try:
                self._end(sender, address, half, outcome, remark, limit_s)
            except SendError as error:
                if self._check is None:
                    raise
                _log.warning("%s", error)
            if sender.trace is not None:
                sender.trace.ended(address, half, outcome, message)

        return Transaction(store_half, end)

    @staticmethod
    def _end(
        sender: Sender,
        address: str,
        half: HalfMessage,
        outcome: Outcome,
        remark: str | None,
        timeout_s: float,
    ) -> None:
        flow = ending(address, sender.wire_group, half, outcome, remark, timeout_s)
        sender.shared.inline(flow)

    def _answer_check(
        self, address: str, check: TransactionCheck, outcome: Outcome, remark: str | None
    ) -> None:
        sender = self._sender or self._leaving
        if sender is None:
            return  # stopped meanwhile: the broker asks another producer of the group
        self._end(sender, address, check.half, outcome, remark, self._settings.timeout_s)
        if sender.trace is not None:
            sender.trace.ended(address, check.half, outcome, check.message)

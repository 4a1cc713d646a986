"""The producer for asyncio."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Self, TypeVar

from gimbalmq.aio.lifetime import Lifetime
from gimbalmq.aio.sender import Sender
from gimbalmq.aio.shared import check_loop, share
from gimbalmq.aio.transaction import CheckAnswer, Checks, Transaction
from gimbalmq.client.producer_life import Registration
from gimbalmq.client.producer_options import ProducerOptions
from gimbalmq.client.producer_stats import ProducerStats, producer_stats
from gimbalmq.client.selectors import QueueSelector
from gimbalmq.client.send_hooks import SendHook, hooked_async
from gimbalmq.client.transaction import ending, stored_half, unsafe_half
from gimbalmq.core.fault import BrokerHealth
from gimbalmq.errors import SendError, TransportError
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

__all__ = ["Producer"]

_log = logging.getLogger("gimbalmq.producer")
_T = TypeVar("_T")


class Producer(ProducerOptions[CheckAnswer], Lifetime):
    """Sends messages from coroutines; an async context manager.

    Any number of coroutines may send at once: their messages share one connection per broker and
    leave together. At most `back_pressure_for_async_send_num` messages are in flight; further
    sends wait their turn. A send that is cancelled stops waiting; whether its message arrives is
    open.

        async with Producer("shop", nameserver="127.0.0.1:9876") as producer:
            result = await producer.send(Message("orders", b"...", keys=["42"]))

    The options are those of `gimbalmq.Producer`. `check` may be a coroutine function; a plain one
    runs on a thread.
    """

    def _prepare_life(self) -> None:
        #: Around every send, if somebody wants that.
        self.send_hook: SendHook | None = None
        #: While it runs; and then, until it has stopped, the one that is leaving.
        self._sender: Sender | None = None
        self._leaving: Sender | None = None
        self._checks: Checks | None = None
        self._registration: Registration

    # ---- life --------------------------------------------------------------------------------

    async def start(self) -> Self:
        """Start; needed unless the producer is used as a context manager. A producer runs once.

        Raises:
            StateError: it was started before.
            ConfigurationError: clients that share its `client_id` were told otherwise.
        """
        with self._starting():
            shared = await share(
                self.client_id, self._access, self._instance_settings, any_strategy=True
            )
            try:
                sender = Sender(shared, self._settings)
                checks = None if self._check is None else Checks(self._check, self._answer_check)
                registration = Registration(sender, None if checks is None else checks.ask)
                registration.begin()
            except BaseException:
                await shared.release()
                raise
            self.client_id = shared.instance.client_id
            self._sender, self._checks, self._registration = sender, checks, registration
        began(self)
        return self

    async def stop(self) -> None:
        """Wait for what is in flight, tell the brokers, let go of the connections.

        Waits for results no longer than a send may take. Safe to call again: a stop that is
        cancelled waits for nothing more, but leaves nothing behind.
        """
        sender = self._sender
        if sender is None:
            return  # not running, or another task does it
        check_loop(sender.shared, f"the producer of group '{self.group}'")
        self._leaving, self._sender = sender, None
        self._state = "stopping"
        ended(self)
        timeout_s = self._settings.timeout_s
        try:
            if self._checks is not None:
                await self._checks.stop(timeout_s)
            await sender.close(timeout_s)
        finally:
            await self._let_go(sender, timeout_s)

    async def _let_go(self, sender: Sender, timeout_s: float) -> None:
        gone = asyncio.Event()
        self._registration.end(gone.set)
        try:
            async with asyncio.timeout(timeout_s):
                await gone.wait()
        except TimeoutError:
            _log.warning("group %s: not every broker has answered to the goodbye", self.group)
        finally:
            self._state, self._leaving = "stopped", None
            await sender.shared.release()

    # ---- sending -----------------------------------------------------------------------------

    async def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        timeout_s: float | None = None,
    ) -> SendResult:
        """Send a message and wait until a broker has stored it.

            results = await asyncio.gather(*(producer.send(one) for one in messages))

        Args:
            message: What to send.
            queue: Send to exactly this queue.
            selector: Picks one of the topic's queues, which is then the only one tried, as it is
                with `queue` and with a message's `sharding_key`.
            timeout_s: Instead of the producer's own.

        Raises:
            SendError: no broker stored it, or there was no room for it in time.
            TopicNotFoundError: the topic does not exist and is not created by brokers.
        """
        sender, limit_s = self._running(), self._limit_s(timeout_s)
        if self.send_hook is not None:
            return await hooked_async(
                self.send_hook,
                (message,),
                lambda changed: sender.send(changed[0], queue, selector, limit_s),
            )
        return await sender.send(message, queue, selector, limit_s)

    def send_async(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        timeout_s: float | None = None,
    ) -> asyncio.Future[SendResult]:
        """Send a message and return at once with a future of the result.

        It is a task: it waits for room and for the result, and may be cancelled. Network failures
        are tried again, refusals are not. `flush` and `stop` wait for it.

            futures = [producer.send_async(message) for message in messages]
            await producer.flush()

        The future has what `send` raises.
        """
        sender, limit_s = self._running(), self._limit_s(timeout_s)
        if self.send_hook is None:
            return sender.underway(sender.send_later(message, queue, selector, limit_s))
        return sender.underway(
            hooked_async(
                self.send_hook,
                (message,),
                lambda changed: sender.send_later(changed[0], queue, selector, limit_s),
            )
        )

    async def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
    ) -> None:
        """Hand a message to the connection and wait for nothing: it may get lost.

            await producer.send_oneway(Message("orders", b"one book"))

        Raises:
            SendError: there is no connection to the broker, so it was not written.
        """
        sender = self._running()
        if self.send_hook is not None:
            await hooked_async(
                self.send_hook,
                (message,),
                lambda changed: sender.send_oneway(changed[0], queue, selector),
            )
            return
        await sender.send_oneway(message, queue, selector)

    async def send_batch(
        self,
        messages: Iterable[Message],
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        timeout_s: float | None = None,
    ) -> tuple[SendResult, ...]:
        """Send messages of one topic together, in order; returns one result per wire batch.

            results = await producer.send_batch([Message("orders", b"%d" % n) for n in range(10)])

        Raises:
            SendError: a batch was not stored; says how many before it were.
            ConfigurationError: the topics differ, or a message has a delay.
        """
        sender, limit_s = self._running(), self._limit_s(timeout_s)
        listed: Sequence[Message] = (
            messages if isinstance(messages, list | tuple) else tuple(messages)
        )
        if self.send_hook is not None:
            return await hooked_async(
                self.send_hook,
                listed,
                lambda changed: sender.send_batch(changed, queue, selector, limit_s),
            )
        return await sender.send_batch(listed, queue, selector, limit_s)

    async def flush(self, timeout_s: float | None = None) -> None:
        """Send what gathers for a batch, and wait until every message has its result.

            sends = [asyncio.ensure_future(producer.send(Message("orders", b"one"))) for _ in range(100)]
            await asyncio.sleep(0)
            await producer.flush(timeout_s=10.0)

        Raises:
            TransportError: that took longer than `timeout_s`.
        """
        sender = self._running()
        if not await sender.flush(timeout_s):
            raise TransportError(
                f"{sender.room.messages} messages with {sender.room.bytes} bytes still have no "
                f"result after {timeout_s} s"
            )

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues that messages of a topic are sent to.

            first = (await producer.queues("orders"))[0]
            await producer.send(Message("orders", b"one book"), queue=first)

        In the order of the round robin.
        """
        sender = self._running()
        info = await sender.info(sender.wire_topic(topic))
        return sender.user_queues(info, topic)

    def brokers(self) -> dict[str, BrokerHealth]:
        """What fault tolerance knows of each broker; empty while it is off."""
        return self._running().publishing.health()

    def stats(self) -> ProducerStats:
        """What this producer measured: attempts and latency by broker, and what is in flight."""
        sender = self._running()
        in_flight = sender.room.messages, sender.room.bytes
        return producer_stats(self.group, self.client_id, sender.meter, self.brokers(), in_flight)

    def from_thread(self, question: Callable[[], _T], timeout_s: float = 2.0) -> _T:
        """Ask this producer from a thread that is not its loop's: `from_thread(producer.stats)`.

        Raises:
            StateError: it is not running.
            TimeoutError: its loop was busy for all that time.
        """
        return (self._sender or self._not_running()).shared.ask(question, timeout_s)

    def _not_running(self) -> Sender:
        raise self._not_running_error("use it in an async with statement, or await start() first")

    def _running(self) -> Sender:
        sender = self._sender or self._not_running()
        check_loop(sender.shared, f"the producer of group '{self.group}'")
        return sender

    # ---- transactions ------------------------------------------------------------------------

    def transaction(self, message: Message, *, timeout_s: float | None = None) -> Transaction:
        """A transaction around the body of the async with statement.

            async with producer.transaction(Message("orders", b"...")) as transaction:
                await database.save(order, transaction.message_id)

        Raises (when entered):
            SendError: the broker did not store the message safely; the body does not run.

        Raises (when left):
            SendError: the broker did not confirm the outcome and there is no `check`.
        """
        sender = self._running()
        check_transactional(message)
        limit_s = self._limit_s(timeout_s)
        wire_topic = sender.wire_topic(message.topic)

        async def store_half() -> tuple[SendResult, HalfMessage]:
            extra = half_properties(sender.wire_group)
            result = await sender.send_half(message, extra, HALF_FLAG, limit_s)
            half = stored_half(result, wire_topic)
            if result.status is not SendStatus.SEND_OK:
                await end(half, Outcome.ROLLBACK, f"stored with {result.status.name} only")
                raise unsafe_half(result, message.topic)
            return result, half

        async def end(half: HalfMessage, outcome: Outcome, remark: str | None) -> None:
            address = await sender.master(wire_topic, half.broker, limit_s)
            try:
                await self._end(sender, address, half, outcome, remark, limit_s)
            except SendError as error:
                if self._check is None:
                    raise
                _log.warning("%s", error)
            if sender.trace is not None:
                sender.trace.ended(address, half, outcome, message)

        return Transaction(store_half, end)

    @staticmethod
    async def _end(
        sender: Sender,
        address: str,
        half: HalfMessage,
        outcome: Outcome,
        remark: str | None,
        timeout_s: float,
    ) -> None:
        flow = ending(address, sender.wire_group, half, outcome, remark, timeout_s)
        await sender.shared.run(flow)

    async def _answer_check(
        self, address: str, check: TransactionCheck, outcome: Outcome, remark: str | None
    ) -> None:
        sender = self._sender or self._leaving
        if sender is None:
            return  # stopped meanwhile: the broker asks another producer of the group
        await self._end(sender, address, check.half, outcome, remark, self._settings.timeout_s)
        if sender.trace is not None:
            sender.trace.ended(address, check.half, outcome, check.message)

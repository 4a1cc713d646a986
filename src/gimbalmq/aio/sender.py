"""A running producer on an event loop: waits for room and for answers, both cancellable.

What is sent is decided by `Outbound`, as for the producer on threads.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from gimbalmq.aio.shared import LoopInstance
from gimbalmq.client.batching import Accumulator, Gathered
from gimbalmq.client.outbound import Outbound, SenderSettings, SendWish, not_all_stored
from gimbalmq.client.selectors import QueueSelector
from gimbalmq.core.publish import PublishInfo
from gimbalmq.errors import SendError, StateError, TopicNotFoundError, TransportError
from gimbalmq.flows.outgoing import check_sendable
from gimbalmq.flows.send import Sending, SendPolicy, carry_out
from gimbalmq.model.message import Message, SendResult
from gimbalmq.model.queue import MessageQueue

__all__ = ["Room", "Sender"]

_T = TypeVar("_T")


class Room:
    """What is in flight, within bounds; those who wait get room in the order they came."""

    def __init__(self, *, messages_max: int, bytes_max: int) -> None:
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self.messages = 0
        self.bytes = 0
        self._waiting: deque[tuple[int, int, asyncio.Future[None]]] = deque()
        self._empty = asyncio.Event()
        self._empty.set()

    async def take(self, size: int, timeout_s: float, messages: int = 1) -> None:
        """Take room; waits for it.

        Raises:
            SendError: there was none within `timeout_s`.
        """
        if self._waiting or self._full(size, messages):
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            entry = size, messages, turn
            self._waiting.append(entry)
            try:
                async with asyncio.timeout(timeout_s):
                    await turn
            except TimeoutError:
                self._give_up(entry)
                raise SendError(
                    f"no room for another message within {round(timeout_s, 2):g} s: "
                    f"{self.messages} messages with {self.bytes} bytes are in flight; wait for "
                    "their results, or raise back_pressure_for_async_send_num or "
                    "back_pressure_for_async_send_size"
                ) from None
            except asyncio.CancelledError:
                self._give_up(entry)
                raise
            return  # whoever gave the turn has counted us in
        self._count(size, messages)

    def take_now(self, size: int, messages: int = 1) -> None:
        """Take room beyond the bounds: for what must not wait."""
        self._count(size, messages)

    def release(self, size: int, messages: int = 1) -> None:
        """Give room back, to those who wait for it first."""
        self.messages -= messages
        self.bytes -= size
        self._next_turns()
        if not self.messages:
            self._empty.set()

    async def wait_empty(self) -> None:
        """Wait until nothing is in flight."""
        await self._empty.wait()

    def close(self) -> None:
        """Refuse those who still wait."""
        while self._waiting:
            turn = self._waiting.popleft()[2]
            if not turn.done():
                turn.set_exception(
                    StateError("this producer was stopped while a message waited for room")
                )

    def _give_up(self, entry: tuple[int, int, asyncio.Future[None]]) -> None:
        size, messages, turn = entry
        if turn.done() and not turn.cancelled() and turn.exception() is None:
            self.release(size, messages)  # the turn came together with the end of the patience
        elif entry in self._waiting:
            self._waiting.remove(entry)
            self._next_turns()  # a smaller one behind may fit

    def _next_turns(self) -> None:
        while self._waiting:
            size, messages, turn = self._waiting[0]
            if not turn.done() and self._full(size, messages):
                return
            self._waiting.popleft()
            if not turn.done():
                self._count(size, messages)
                turn.set_result(None)

    def _count(self, size: int, messages: int) -> None:
        self.messages += messages
        self.bytes += size
        self._empty.clear()

    def _full(self, size: int, messages: int) -> bool:
        # One request alone may be larger than all the room.
        return self.messages > 0 and (
            self.messages + messages > self._messages_max or self.bytes + size > self._bytes_max
        )


class Sender(Outbound):
    """Sends for one producer, on its loop."""

    def __init__(self, shared: LoopInstance, settings: SenderSettings) -> None:
        super().__init__(shared, settings, self._send_trace)
        self.shared = shared
        self.room = Room(
            messages_max=settings.in_flight_max, bytes_max=settings.in_flight_bytes_max
        )
        self._tasks: set[asyncio.Task[Any]] = set()
        #: Those of them that send for a caller who has gone on.
        self._underway: set[asyncio.Task[SendResult]] = set()
        self.accumulator: Accumulator[asyncio.Future[SendResult]] | None = self._new_accumulator(
            self._send_gathered, asyncio.get_running_loop().create_future
        )

    async def info(self, topic: str, timeout_s: float = 3.0) -> PublishInfo:
        """The publish list of a topic, fetched when it is not known yet."""
        known = self.publishing.known(topic)
        if known is not None:
            return known
        return await self.shared.run(self.publishing.find(topic, timeout_s))

    async def master(self, topic: str, broker: str, timeout_s: float) -> str:
        """Where a broker of a topic is; empty while it has no master."""
        try:
            return (await self.info(topic, timeout_s)).masters.get(broker, "")
        except (TopicNotFoundError, TransportError):  # not even another one can be sent to
            return ""

    # ---- one message -------------------------------------------------------------------------

    async def send(
        self,
        message: Message,
        queue: MessageQueue | None,
        selector: QueueSelector | None,
        timeout_s: float,
    ) -> SendResult:
        """Send and wait for the result."""
        return await self._send(message, queue, selector, timeout_s, self._settings.sync_policy)

    async def send_later(
        self,
        message: Message,
        queue: MessageQueue | None,
        selector: QueueSelector | None,
        timeout_s: float,
    ) -> SendResult:
        """As `send`, for a caller who goes on: a refusal is final."""
        return await self._send(message, queue, selector, timeout_s, self._settings.async_policy)

    async def _send(
        self,
        message: Message,
        queue: MessageQueue | None,
        selector: QueueSelector | None,
        timeout_s: float,
        policy: SendPolicy,
    ) -> SendResult:
        if self.accumulator is not None and self.accumulator.takes(message):
            return await self._gather(message, queue, selector, timeout_s)
        return await self._send_one(SendWish(message, queue, selector, timeout_s, policy))

    async def send_oneway(
        self, message: Message, queue: MessageQueue | None, selector: QueueSelector | None
    ) -> None:
        """Hand a message to the connection."""
        started_s, timeout_s = time.monotonic(), self._settings.timeout_s
        wish = SendWish(message, queue, selector, timeout_s, self._single)
        sending, _ = await self._prepared(wish)
        attempt = sending.start(time.monotonic(), started_s)
        driver = self.shared.driver
        try:
            await driver.reach(attempt.address, sending.attempt_timeout_s)
        except TransportError as error:
            sending.answered(error, time.monotonic())  # says it in the words of a send
        else:
            driver.notify(attempt.address, attempt.request)

    async def send_half(
        self, message: Message, extra: dict[str, str], sys_flag: int, timeout_s: float
    ) -> SendResult:
        """Store a half message."""
        policy = self._settings.sync_policy
        wish = SendWish(message, None, None, timeout_s, policy, extra, sys_flag)
        return await self._send_one(wish)

    async def _send_one(self, wish: SendWish) -> SendResult:
        started_s = time.monotonic()
        sending, size = await self._prepared(wish)
        return await self._carry_out(sending, size, wish.timeout_s, started_s)

    async def _prepared(self, wish: SendWish) -> tuple[Sending, int]:
        """A sending that has not started, and its size."""
        now_ms = time.time_ns() // 1_000_000
        message_id = self.new_id(now_ms)
        info = await self.info(self.wire_topic(wish.message.topic), wish.timeout_s)
        if wish.message.deliver_at is not None:
            await self.shared.run(self.publishing.check_timers(info, wish.timeout_s))
        return self.prepared(wish, message_id, now_ms, info)

    async def _carry_out(
        self, sending: Sending, size: int, timeout_s: float, started_s: float
    ) -> SendResult:
        """Wait for room and for the answers, within one limit of time."""
        await self.room.take(size, max(0.0, started_s + timeout_s - time.monotonic()))
        try:
            return await self.shared.run(carry_out(sending, started_s))
        finally:
            self.room.release(size)

    # ---- batches -----------------------------------------------------------------------------

    async def send_batch(
        self,
        messages: Sequence[Message],
        queue: MessageQueue | None,
        selector: QueueSelector | None,
        timeout_s: float,
    ) -> tuple[SendResult, ...]:
        """Send messages in as few wire batches as fit, one after the other."""
        now_ms = time.time_ns() // 1_000_000
        batches = self.cut(messages, now_ms)
        topic = messages[0].topic
        info = await self.info(self.wire_topic(topic), timeout_s)
        sendings = self.batch_sendings(messages, batches, now_ms, info, queue, selector, timeout_s)
        results: list[SendResult] = []
        for sending, (_ids, body) in zip(sendings, batches, strict=True):
            try:
                started_s = time.monotonic()
                results.append(await self._carry_out(sending, len(body), timeout_s, started_s))
            except SendError as error:
                raise not_all_stored(len(results), len(batches), topic, error) from error
        return tuple(results)

    async def _gather(
        self,
        message: Message,
        queue: MessageQueue | None,
        selector: QueueSelector | None,
        timeout_s: float,
    ) -> SendResult:
        """Let a message leave with others of its kind."""
        assert self.accumulator is not None
        check_sendable(message.topic)
        message_id = self.new_id(time.time_ns() // 1_000_000)
        info = await self.info(self.wire_topic(message.topic), timeout_s)
        key, entry = self.entry(message, message_id, info, queue, selector, timeout_s)
        await self.room.take(len(entry.body), timeout_s)
        return await self.accumulator.add(key, message_id, entry)

    def _send_gathered(self, gathered: Gathered) -> asyncio.Task[SendResult]:
        return self.spawn(self._carry_out_gathered(gathered))

    async def _carry_out_gathered(self, gathered: Gathered) -> SendResult:
        try:
            info = self.publishing.known_last(self.wire_topic(gathered.key[0]))
            sending = self.gathered_sending(gathered, info)
            return await self.shared.run(carry_out(sending))
        finally:
            size = sum(len(entry.body) for entry in gathered.entries)
            self.room.release(size, len(gathered.entries))

    # ---- on the side -------------------------------------------------------------------------

    def _send_trace(self, message: Message) -> asyncio.Task[SendResult]:
        sending, size = self.trace_sending(message)
        self.room.take_now(size)
        return self.spawn(self._carry_out_taken(sending, size))

    async def _carry_out_taken(self, sending: Sending, size: int) -> SendResult:
        try:
            return await self.shared.run(carry_out(sending))
        finally:
            self.room.release(size)

    def underway(self, work: Coroutine[Any, Any, SendResult]) -> asyncio.Task[SendResult]:
        """Send for a caller who goes on; `flush` waits for it."""
        task = self.spawn(work)
        self._underway.add(task)
        task.add_done_callback(self._underway.discard)
        return task

    def spawn(self, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        """Run something that nobody awaits, until the producer stops."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # ---- end ---------------------------------------------------------------------------------

    async def flush(self, timeout_s: float | None) -> bool:
        """Wait until everything has its result; False when that took too long."""
        if self.accumulator is not None:
            self.accumulator.flush()
        try:
            async with asyncio.timeout(timeout_s):
                # Those that have just been asked for take their room when they have begun.
                others = self._underway - {asyncio.current_task()}
                if others:
                    await asyncio.wait(others)
                await self.room.wait_empty()
        except TimeoutError:
            return False
        return True

    async def close(self, timeout_s: float) -> None:
        """Send what is left, traces too; what takes longer is cancelled."""
        try:
            await self.flush(timeout_s)
            if self.trace is not None:
                handed_over = asyncio.Event()
                self.trace.flush(handed_over.set)
                try:
                    async with asyncio.timeout(timeout_s):
                        await handed_over.wait()
                except TimeoutError:
                    pass
                await self.flush(timeout_s)
        finally:
            self.room.close()
            if self.accumulator is not None:
                self.accumulator.close()
            leftover = [task for task in self._tasks if task is not asyncio.current_task()]
            for task in leftover:
                task.cancel()
            if leftover:
                await asyncio.wait(leftover)

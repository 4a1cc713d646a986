"""A member of a consumer group whose listeners are coroutines."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self, cast

from gimbalmq.aio.lifetime import Lifetime
from gimbalmq.aio.membership import Membership
from gimbalmq.aio.sender import Sender
from gimbalmq.aio.shared import LoopInstance
from gimbalmq.aio.watched import Watched
from gimbalmq.client.access import Access
from gimbalmq.client.consumer_trace import TraceNotes, trace_settings
from gimbalmq.client.events import event_message, event_settings
from gimbalmq.client.hooks import AsyncListener, with_hooks, with_hooks_async
from gimbalmq.client.push_subscriber import PushSubscriber
from gimbalmq.core.consumer.effects import RebalanceReport
from gimbalmq.runtime.consumer_host import ConsumerHost
from gimbalmq.runtime.coroutines import is_coroutine_listener
from gimbalmq.runtime.instance import InstanceSettings
from gimbalmq.runtime.listening import Listener
from gimbalmq.runtime.results import Results
from gimbalmq.runtime.tasks import LoopListening, TaskPool
from gimbalmq.telemetry.running import began, ended

__all__ = ["PushConsumer"]


class PushConsumer(PushSubscriber[Membership], Watched, Lifetime):
    """Consumes topics with coroutines, in one group with members of every other kind.

    Verdicts, order, leases, retries and options are those of `gimbalmq.PushConsumer`. `workers`
    says how many listeners run at once. A listener that is a plain function runs on a thread.

        consumer = PushConsumer("billing", nameserver="127.0.0.1:9876")

        @consumer.subscribe("orders", tags="paid || refunded")
        async def bill(message):
            await database.insert(message.message_id, message.body)

        asyncio.run(consumer.run())       # Ctrl-C drains, commits, leaves the group

    `subscribe`, `unsubscribe`, `on_rebalance`, `on_moved`, `assignment`, `pause` and `resume` do
    not wait and are plain methods; callbacks may be coroutine functions.
    """

    def _new_membership(self, access: Access, timers: InstanceSettings) -> Membership:
        self._pool: TaskPool | None = None
        self._threads: ThreadPoolExecutor | None = None
        self._trace: TraceNotes | None = None
        self._trace_sender: Sender | None = None
        return Membership(self.group, self.client_id, access, timers)

    async def start(self) -> Self:
        """Join the group and start to consume.

            await consumer.start()
            try:
                print(consumer.state)
            finally:
                await consumer.stop()

        Raises:
            TransportError: no name server can be reached.
            StateError: started twice, or nothing is subscribed.
        """
        self._check_startable()
        try:
            await self._membership.start(self._build)
        except BaseException:
            await self._end_tasks()
            raise
        began(self)
        return self

    def _build(self, shared: LoopInstance, now_ms: int) -> ConsumerHost:
        host = self._new_host(shared.instance, now_ms)
        # Never inside the claim of a task: the host may submit and cancel in turn.
        finished = Results(shared.post, host.finished)
        # Makes its threads when the first plain function is to be run.
        self._threads = ThreadPoolExecutor(self._workers, f"gimbalmq-{self.group}")
        if self._trace_topic is not None:
            settings = trace_settings(self._wire_group, self._trace_topic)
            self._trace_sender = Sender(shared, settings)
            self._trace = TraceNotes(self._trace_sender, self._wire_group)
        if self._events_topic is not None:
            self._tell_topic(shared, self._events_topic)
        listening = LoopListening(self._call_for, self._listener_settings, self._threads)
        self._pool = TaskPool(listening, finished, workers=self._workers)
        host.attach(self._pool, listening, self._workers)
        for alarm in self._new_alarms(self._pool.stack_of):
            host.watch(alarm)
        return host

    def _tell_topic(self, shared: LoopInstance, topic: str) -> None:
        settings = event_settings(self.group, self._names.name)
        sender = Sender(shared, settings)

        async def tell(report: RebalanceReport) -> None:
            message = event_message(report, self.client_id, topic)
            await sender.send(message, None, None, settings.timeout_s)

        self.on_rebalance(tell)
        self.on_moved(tell)

    def _surrounded(self, listener: Listener) -> Listener:
        before, after, trace = tuple(self._before), tuple(self._after), self._trace
        if is_coroutine_listener(listener):
            awaited = cast("AsyncListener", listener)
            return with_hooks_async(
                awaited if trace is None else _traced_async(awaited, trace), before, after
            )
        return with_hooks(listener if trace is None else _traced(listener, trace), before, after)

    def _busy(self) -> int:
        return 0 if self._pool is None else len(self._pool.running())

    async def check_sql(self, topic: str, sql: str) -> None:
        """Have the brokers of a topic read an SQL expression, while running.

            await consumer.check_sql("orders", "amount > 100")
            consumer.subscribe("orders", sql="amount > 100", listener=bill)

        Before a running consumer subscribes to it, because `subscribe` does not wait.

        Raises:
            ConfigurationError: one of them refuses it.
        """
        await self._membership.shared.run(self._check_sql_flow(topic, sql))

    async def stop(self, drain_s: float = 10.0) -> None:
        """Let running listeners finish, store the offsets, leave the group; safe to call again.

            await consumer.stop(drain_s=30.0)

        Args:
            drain_s: How long to wait for running listeners; those that take longer are
                cancelled, and their messages delivered again, to the next owner of their queue.
        """
        await self._membership.stop(drain_s, self._end_tasks)

    async def _end_tasks(self) -> None:
        ended(self)
        if self._pool is not None:
            self._pool.stop()
            await self._pool.join(1.0)
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
        if self._trace_sender is not None:
            await self._trace_sender.close(3.0)
        if self._local is not None:
            await asyncio.to_thread(self._local.close)

    async def run(self) -> None:
        """Start, consume until SIGINT or SIGTERM, then stop; on the main thread's loop.

            if __name__ == "__main__":
                asyncio.run(consumer.run())

        Where the loop cannot take signals, cancel the task to stop.
        """
        loop = asyncio.get_running_loop()
        signalled = asyncio.Event()
        taken: list[signal.Signals] = []
        for number in (signal.SIGINT, signal.SIGTERM):
            # Not on every platform, nor on another thread's loop.
            with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
                loop.add_signal_handler(number, signalled.set)
                taken.append(number)
        try:
            await self.start()
            await signalled.wait()
        finally:
            await self.stop()
            for number in taken:
                loop.remove_signal_handler(number)


def _traced(listener: Listener, trace: TraceNotes) -> Listener:
    def call(messages: Any) -> object:
        with trace.during(messages):
            return listener(messages)

    return call


def _traced_async(listener: AsyncListener, trace: TraceNotes) -> AsyncListener:
    async def call(messages: Any) -> object:
        with trace.during(messages):
            return await listener(messages)

    return call

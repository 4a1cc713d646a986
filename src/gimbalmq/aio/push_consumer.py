"""A member of a consumer group whose listeners are coroutines."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self, TypeVar, cast

from gimbalmq.aio.lifetime import Lifetime
from gimbalmq.aio.membership import Membership
from gimbalmq.aio.sender import Sender
from gimbalmq.aio.shared import LoopInstance
from gimbalmq.client.access import Access
from gimbalmq.client.consumer_trace import TraceNotes, trace_settings
from gimbalmq.client.events import event_message, event_settings
from gimbalmq.client.hooks import AsyncListener, with_hooks, with_hooks_async
from gimbalmq.client.push_subscriber import PushSubscriber
from gimbalmq.client.stats import Probe
from gimbalmq.core.consumer.effects import RebalanceReport
from gimbalmq.errors import StateError
from gimbalmq.runtime.consumer_host import ConsumerHost
from gimbalmq.runtime.coroutines import is_coroutine_listener
from gimbalmq.runtime.instance import InstanceSettings
from gimbalmq.runtime.listening import Listener
from gimbalmq.runtime.results import Results
from gimbalmq.runtime.tasks import LoopListening, TaskPool
from gimbalmq.telemetry.running import began, ended

__all__ = ["PushConsumer"]

_T = TypeVar("_T")


class PushConsumer(PushSubscriber[Membership], Lifetime):
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
        alarm = self._new_alarm(self._pool.stack_of)
        if alarm is not None:
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

    def probe(self) -> Probe:
        """Whether the consumer is ready, and what speaks against it; never raises.

        Does not wait: that the loop lives shows in the fact that it answers.
        """
        if self._membership.state != "running":
            return Probe(False, False, (f"the consumer is {self._membership.state}",))
        try:
            return self._membership.ask(self._judged)
        except StateError as error:
            return Probe(False, False, (str(error),))

    def from_thread(self, question: Callable[[], _T], timeout_s: float = 2.0) -> _T:
        """Ask this consumer from a thread that is not its loop's: `from_thread(consumer.stats)`.

        Raises:
            StateError: it is not running.
            TimeoutError: its loop was busy for all that time.
        """
        return self._membership.ask_there(question, timeout_s)

    async def stop(self, drain_s: float = 10.0) -> None:
        """Let running listeners finish, store the offsets, leave the group; safe to call again.

        Args:
            drain_s: How long to wait for running listeners; those that take longer are
                cancelled, and their messages delivered again, to the next owner of their queue.
        """
        if await self._membership.stop(drain_s):
            ended(self)
            try:
                await self._end_tasks()
            finally:
                await self._membership.close()

    async def _end_tasks(self) -> None:
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

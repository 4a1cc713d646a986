"""A member of a consumer group that gets its messages handed to a listener."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from pathlib import Path
from types import FrameType, TracebackType
from typing import Generic, Self, TypeVar, Unpack, cast, overload

import msgspec

from gimbalmq.client.access import Access, client_access
from gimbalmq.client.consumer_trace import ConsumerTrace
from gimbalmq.client.events import EventLog, event_message, event_place, event_settings
from gimbalmq.client.hooks import AfterHook, BeforeHook, with_hooks
from gimbalmq.client.membership import MemberLife, Membership, RebalanceCallback
from gimbalmq.client.options import (
    PushTuning,
    Start,
    between,
    check_options,
    instance_settings,
    offset_folder,
    positive,
    subscription,
)
from gimbalmq.client.options import (
    start_from as read_start,
)
from gimbalmq.client.push_options import check_modes, key_function, machine_options
from gimbalmq.client.sender import Sender
from gimbalmq.client.shared import SharedInstance, wire_client_id
from gimbalmq.client.stats import ConsumerStats, Probe, consumer_stats, probe_of
from gimbalmq.core.allocation import Strategy, strategy_named
from gimbalmq.core.consumer.effects import RebalanceReport
from gimbalmq.core.consumer.events import Consumed, Paused, Resumed
from gimbalmq.core.consumer.machine import ConsumerMachine
from gimbalmq.core.consumer.settings import ConsumerSettings
from gimbalmq.errors import StateError
from gimbalmq.model.queue import MessageQueue
from gimbalmq.runtime.alarms import HungListener, HungListenerAlarm
from gimbalmq.runtime.consumer_host import ConsumerHost, PullSettings
from gimbalmq.runtime.coroutines import (
    CoroutineListener,
    CoroutineThread,
    is_coroutine_listener,
)
from gimbalmq.runtime.instance import ClientInstance, InstanceSettings
from gimbalmq.runtime.listening import Listener, ListenerSettings, Listening
from gimbalmq.runtime.offsets import BrokerOffsets, LocalOffsets, OffsetKeeper
from gimbalmq.runtime.workers import WorkerPool
from gimbalmq.telemetry.running import began, ended
from gimbalmq.wire.names import check_group, check_topic, retry_topic
from gimbalmq.wire.subscription import parse_tags
from gimbalmq.wire.trace import TRACE_TOPIC

__all__ = ["PushConsumer", "PushSubscriber"]

_ListenerT = TypeVar("_ListenerT", bound=Listener)
_LifeT = TypeVar("_LifeT", bound=MemberLife)


class PushSubscriber(Generic[_LifeT]):
    """A push consumer without the waiting: options, subscriptions, questions while it runs."""

    def __init__(
        self,
        group: str,
        *,
        nameserver: str | None = None,
        allocation: str | Strategy = "AVG",
        lease: bool = False,
        ordered: bool = False,
        auto_commit: bool = True,
        broadcasting: bool = False,
        start_from: Start = "last",
        client_id: str | None = None,
        batch_size: int = 1,
        workers: int = 20,
        rebalance_interval_s: float = 20.0,
        pull_idle_limit_s: float = 120.0,
        **tuning: Unpack[PushTuning],
    ) -> None:
        check_options(tuning, PushTuning.__annotations__)
        access = client_access(nameserver, tuning)
        self._names = access.namespace
        self.group = check_group(group)
        wire_group = check_group(self._names.wire(group))
        self._strategy = strategy_named(allocation) if isinstance(allocation, str) else allocation
        self._start = read_start(start_from)
        self.client_id = wire_client_id(client_id, self._strategy.name)
        self._workers = between("workers", workers, 1, 1000)
        attempts = tuning.get("max_reconsume_times", -1)
        self._settings = ConsumerSettings(
            group=wire_group,
            client_id=self.client_id,
            ordered=ordered,
            lease=lease,
            broadcasting=broadcasting,
            rebalance_interval_s=positive("rebalance_interval_s", rebalance_interval_s),
            pull_idle_limit_s=positive("pull_idle_limit_s", pull_idle_limit_s),
            ordered_reconsume_max=None if attempts < 0 else attempts,
            **machine_options(tuning),
        )
        self._pulls = PullSettings(
            pull_batch_size=between("pull_batch_size", tuning.get("pull_batch_size", 32), 1, 1024),
            max_reconsume_times=16 if attempts < 0 else attempts,
            namespace=self._names.name,
        )
        self._listener_settings = ListenerSettings(
            batch_size=between("batch_size", batch_size, 1, 1024),
            auto_commit=auto_commit,
            suspend_current_queue_s=self._settings.suspend_current_queue_s,
        )
        check_modes(self._settings, auto_commit=auto_commit)
        self._key_of = key_function(
            tuning.get("parallel_by"), batch_size=batch_size, auto_commit=auto_commit
        )
        hung_s = tuning.get("hung_listener_s", 60.0)
        self._hung_listener_s = None if hung_s is None else positive("hung_listener_s", hung_s)
        self._trace_topic = (
            tuning.get("trace_topic", TRACE_TOPIC) if tuning.get("enable_trace") else None
        )
        self._before: list[BeforeHook] = []
        self._after: list[AfterHook] = []
        folder = tuning.get("local_offset_store_dir")
        self._offset_folder = offset_folder(folder, client_id, wire_group)
        self._expressions: dict[str, tuple[str, str | None]] = {}
        self._listeners: dict[str, Listener] = {}
        self._local: LocalOffsets | None = None
        self._alarm: HungListenerAlarm | None = None
        self._hung_callbacks: list[Callable[[HungListener], object]] = []
        self._membership = self._new_membership(access, instance_settings(tuning))
        self._events_topic = self._keep_events(tuning.get("events"))

    def _new_membership(self, access: Access, settings: InstanceSettings) -> _LifeT:
        raise NotImplementedError

    def _busy(self) -> int:
        """How many listeners are running."""
        raise NotImplementedError

    def _keep_events(self, events: str | Path | None) -> str | None:
        """Keep the history in a file, if that is asked for; returns the topic if that is."""
        place = None if events is None else event_place(events)
        if isinstance(place, Path):
            self.on_rebalance(EventLog(place, self.client_id))
            return None
        return place

    # ---- subscriptions -----------------------------------------------------------------------

    @overload
    def subscribe(
        self, topic: str, tags: str = "*", sql: str | None = None, *, listener: Listener
    ) -> Listener: ...
    @overload
    def subscribe(
        self, topic: str, tags: str = "*", sql: str | None = None, *, listener: None = None
    ) -> Callable[[_ListenerT], _ListenerT]: ...
    def subscribe(
        self,
        topic: str,
        tags: str = "*",
        sql: str | None = None,
        *,
        listener: Listener | None = None,
    ) -> Listener | Callable[[_ListenerT], _ListenerT]:
        """Consume a topic with a listener; a decorator, or with `listener=` a call.

        Args:
            topic: The topic.
            tags: `*`, or the wanted tags joined by `||`.
            sql: An SQL92 expression over properties instead of tags; brokers must enable it.
            listener: Gets each message, or a list of them when `batch_size` is above 1.

        Also possible while running. All members of a group must subscribe to the same.
        """
        if self._membership.state not in {"created", "running"}:
            raise StateError(
                f"cannot subscribe to '{topic}': the consumer is {self._membership.state}"
            )
        topic = check_topic(self._names.wire(topic))
        # Parsed here so that a wrong expression is the caller's error; the version comes later.
        subscription(topic, tags, sql, 0)

        def take(function: _ListenerT) -> _ListenerT:
            self._expressions[topic] = tags, sql
            self._listeners[topic] = function
            if self._membership.state == "running":
                self._membership.ask(
                    lambda host: host.subscribe(subscription(topic, tags, sql, host.now_ms()))
                )
            return function

        return take if listener is None else take(listener)

    def unsubscribe(self, topic: str) -> None:
        """Consume a topic no longer; running listeners finish, and its offsets are stored."""
        topic = self._names.wire(topic)
        self._expressions.pop(topic, None)
        if self._membership.state == "running":
            self._membership.ask(lambda host: host.unsubscribe(topic))
        else:
            self._listeners.pop(topic, None)

    def _listener_for(self, topic: str) -> Listener | None:
        """The listener of a topic, whichever way it is named."""
        return self._listeners.get(self._names.wire(topic))

    def before(self, hook: BeforeHook) -> BeforeHook:
        """Call something with what a listener is about to get; usable as a decorator.

        What it raises counts as raised by the listener, which is then not called. Add hooks
        before `start`.
        """
        self._before.append(hook)
        return hook

    def after(self, hook: AfterHook) -> AfterHook:
        """Call something when a listener is done: `hook(message, error, took_s)`; a decorator.

        `error` is what the listener raised, or None. Add hooks before `start`.
        """
        self._after.append(hook)
        return hook

    def on_rebalance(self, callback: RebalanceCallback) -> RebalanceCallback:
        """Be told after each change of this member's queues; usable as a decorator."""
        self._membership.on_rebalance(callback)
        return callback

    # ---- while running -----------------------------------------------------------------------

    def assignment(self) -> frozenset[MessageQueue]:
        """The queues that this member owns now, those of the group's retry topic included."""
        owned = self._membership.ask(lambda host: host.machine.assignment())
        return frozenset(self._names.user_queues(owned))

    def pause(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Stop pulling from some queues, or all; they stay assigned to this member.

        Without naming queues the whole member pauses: it also keeps the queues that it has,
        whoever joins or leaves, until it is resumed.
        """
        event = Paused(
            None if queues is None else frozenset(map(self._names.wire_queue, queues)),
            balancing=queues is None,
        )
        self._membership.ask(lambda host: host.dispatch(event))

    def resume(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Go on pulling from some queues, or all; all means to balance at once, too."""
        event = Resumed(None if queues is None else frozenset(map(self._names.wire_queue, queues)))
        self._membership.ask(lambda host: host.dispatch(event))

    def on_hung(
        self, callback: Callable[[HungListener], object]
    ) -> Callable[[HungListener], object]:
        """Be told when a listener has had a message for `hung_listener_s`; also a decorator."""
        self._hung_callbacks.append(callback)
        return callback

    def _hung(self, found: HungListener) -> None:
        user = msgspec.structs.replace(found, queue=self._names.user_queue(found.queue))
        for callback in self._hung_callbacks:
            self._membership.notify(callback, user)

    def stats(self) -> ConsumerStats:
        """Numbers of this moment: what was consumed, what waits, where each queue stands."""

        def take(host: ConsumerHost) -> ConsumerStats:
            assert isinstance(host.machine, ConsumerMachine)
            return consumer_stats(
                host,
                host.machine,
                self._names,
                alarm=self._alarm,
                workers=self._workers,
                busy=self._busy(),
                now=self._membership.instance.driver.now().at_s,
            )

        return self._membership.ask(take)

    # ---- for those who start it ----------------------------------------------------------------

    def _check_startable(self) -> None:
        self._membership.check_new()
        if not self._listeners:
            raise StateError(
                f"consumer of group '{self.group}' subscribes to nothing: call subscribe first"
            )

    def _new_host(self, instance: ClientInstance, now_ms: int) -> ConsumerHost:
        subscriptions = {
            topic: subscription(topic, tags, sql, now_ms)
            for topic, (tags, sql) in self._expressions.items()
        }
        offsets: OffsetKeeper
        if self._settings.broadcasting:
            path = self._offset_folder / "offsets.json"
            offsets = self._local = LocalOffsets(instance, path, self._start)
        else:
            own_retry = retry_topic(self._settings.group)
            subscriptions[own_retry] = parse_tags(own_retry, "*", now_ms)
            offsets = BrokerOffsets(instance, self._settings.group, self._start)
        return ConsumerHost(
            instance,
            ConsumerMachine(self._settings, self._strategy, subscriptions, key_of=self._key_of),
            subscriptions,
            offsets=offsets,
            start=self._start,
            pulls=self._pulls,
            announced=self._membership.announce,
            stopped=self._membership.ended,
        )


class PushConsumer(PushSubscriber[Membership]):
    """Consumes topics together with the other members of its group, Java members included.

    A listener that returns has consumed its message; one that raises gets it again later, at
    first after 10 s, then after longer and longer pauses, and after 16 attempts the message goes
    to the dead letters. `RetryLater` and `DeadLetter` say so on purpose. Messages are delivered
    at least once: a listener may see one again after a crash or a change of members.

        consumer = PushConsumer("billing", nameserver="127.0.0.1:9876")

        @consumer.subscribe("orders", tags="paid || refunded")
        def bill(message):
            print(message.queue, message.queue_offset, message.body)

        consumer.run()                # Ctrl-C drains, commits, leaves the group

    Args:
        group: The consumer group.
        nameserver: `host:port`, several separated by `;`; None reads `NAMESRV_ADDR`.
        allocation: How the group shares its queues; every member needs the same. A name, or
            what `gimbalmq.balance.strategy` makes.
        lease: Own a queue only with its lock, so that a clean hand-over delivers nothing twice.
            All members must be ours, and all must set it.
        ordered: Consume each queue one message after the other, each by one member at a time. A
            listener that raises is called again with the same message after a pause.
        auto_commit: False lets listeners of an ordered group return `Commit` or `Rollback`.
        broadcasting: Every member gets every message; offsets are kept in a local file, and what
            a listener raises on is not delivered again.
        start_from: Where to start in a queue that the group has not read yet: `"last"` (its end),
            `"first"` (its beginning) or an aware datetime.
        client_id: A name for this member, unique in the group; None makes one.
        batch_size: Up to how many messages a listener gets at once; with 1, the default, it gets
            a message, otherwise a list.
        workers: Threads that run listeners.
        rebalance_interval_s, pull_idle_limit_s, persist_consumer_offset_interval_s,
        poll_name_server_interval_s, heartbeat_broker_interval_s: Timers, with Java's defaults.
        pull_batch_size, pull_threshold_for_queue, pull_threshold_size_for_queue (MiB),
        consume_concurrently_max_span, max_reconsume_times: As in Java (-1: 16 attempts; in ordered
            groups, for ever).
        suspend_current_queue_time_s: Pause of an ordered queue after a failure.
        lock_renew_s, lock_trust_s: How often queue locks are renewed, and for how long one counts.
        take_over_grace_s, take_over_foreign_grace_s: How long a member must be gone before its
            locks are taken over; in groups with foreign members only when the second is given.
        access_key, secret_key, tls, address_map, namespace, namesrv_domain: How the cluster is
            reached; see `AccessOptions`.
        local_offset_store_dir: Where a broadcasting member keeps its offsets.
        release_drain_s: How long running listeners may go on when a queue moves away.
        parallel_by: `"key"` consumes the keys of a queue in parallel and the messages of one key
            (their sharding key, else their first key) one after the other. In an ordered group
            a failure then pauses its key only, and several workers share a queue.
        pull_threshold_for_topic, pull_threshold_size_for_topic (MiB): Instead of the limits for a
            queue, ones to divide by the number of held queues (-1: off).
        consume_timeout_s: A message of a concurrent group that a listener has had for this long
            is sent back and delivered again (None: never).
        hung_listener_s: A listener that has had a message for this long is reported with its stack
            (None: never); see `on_hung`.
        enable_trace, trace_topic: Write message traces as Java's clients do.
        use_heartbeat_v2: Leave subscriptions out of heartbeats to brokers that remember them.
        events: Where to keep the history of rebalances, which `gimbalmq group history` shows: a
            file (a Path, or a text with a dot or a slash), or else the name of a topic.

    A listener may be a coroutine function: it runs on an event loop of the consumer's own, up to
    `workers` of them at a time.
    """

    def _new_membership(self, access: Access, settings: InstanceSettings) -> Membership:
        self._pool: WorkerPool | None = None
        self._coroutines = CoroutineThread(self.group)
        self._trace: ConsumerTrace | None = None
        #: By topic: the listener, and what is called in its place.
        self._calls: dict[str, tuple[Listener, Listener]] = {}
        return Membership(self.group, self.client_id, access, settings)

    def _busy(self) -> int:
        return 0 if self._pool is None else len(self._pool.running())

    # ---- life --------------------------------------------------------------------------------

    def start(self) -> Self:
        """Join the group and start to consume.

        Raises:
            TransportError: no name server can be reached.
            StateError: started twice, or nothing is subscribed.
        """
        self._check_startable()
        try:
            self._membership.start(self._build)
        except BaseException:
            self._end_threads()
            raise
        began(self)
        return self

    def _build(self, shared: SharedInstance, now_ms: int) -> ConsumerHost:
        host = self._new_host(shared.instance, now_ms)

        def finished(done: Consumed) -> None:
            # A listener may outlive the consumer; then nobody is left to take its result.
            with contextlib.suppress(StateError):
                shared.post(lambda: host.finished(done))

        if self._trace_topic is not None:
            self._trace = ConsumerTrace(shared, self._settings.group, self._trace_topic)
        if self._events_topic is not None:
            self._tell_topic(shared, self._events_topic)
        listening = Listening(self._call_for, self._listener_settings)
        self._pool = WorkerPool(
            self.group, listening, finished, workers=self._workers, soon=shared.post
        )
        host.attach(self._pool, listening, self._workers)
        if self._hung_listener_s is not None:
            alarm = self._alarm = HungListenerAlarm(
                self.group,
                self._hung_listener_s,
                raised=self._hung,
                coroutine_stack=self._coroutines.stack_of,
            )
            shared.post(lambda: host.watch(alarm))
        self._pool.start()
        return host

    def _tell_topic(self, shared: SharedInstance, topic: str) -> None:
        settings = event_settings(self.group, self._names.name)
        sender = Sender(shared, settings)

        def tell(report: RebalanceReport) -> None:
            message = event_message(report, self.client_id, topic)
            sender.send(message, None, None, settings.timeout_s)

        self.on_rebalance(tell)

    def _call_for(self, topic: str) -> Listener | None:
        """What to call for a topic: its listener, with what surrounds it."""
        listener = self._listener_for(topic)
        if listener is None:
            return None
        known = self._calls.get(topic)
        if known is None or known[0] is not listener:
            known = self._calls[topic] = listener, self._surrounded(listener)
        return known[1]

    def _surrounded(self, listener: Listener) -> Listener:
        if is_coroutine_listener(listener):
            listener = self._coroutines.blocking(cast("CoroutineListener", listener))
        if self._trace is not None:
            listener = self._trace.around(listener)
        return with_hooks(listener, tuple(self._before), tuple(self._after))

    def probe(self, timeout_s: float = 2.0) -> Probe:
        """Whether the consumer lives and is ready, and what speaks against it; never raises.

        For probes of containers: `live` is False when only a restart helps, `ready` is False
        while it does not take part in its group.

        Args:
            timeout_s: After this long without an answer of the client's own thread it is dead.
        """
        if self._membership.state != "running":
            return Probe(False, False, (f"the consumer is {self._membership.state}",))
        answer: Future[Probe] = Future()

        def judge(host: ConsumerHost) -> None:
            assert isinstance(host.machine, ConsumerMachine)
            answer.set_result(
                probe_of(
                    host.machine,
                    registered=host.registered,
                    alarm=self._alarm,
                    workers=self._workers,
                )
            )

        try:
            self._membership.tell(judge)
            return answer.result(timeout_s)
        except StateError as error:
            return Probe(False, False, (str(error),))
        except TimeoutError:
            why = f"the client's own thread has not answered for {timeout_s:g} s"
            return Probe(False, False, (why,))

    def stop(self, drain_s: float = 10.0) -> None:
        """Let running listeners finish, store the offsets, leave the group; safe to call again.

        Args:
            drain_s: How long to wait for running listeners; messages of those that take longer
                are delivered again, to the next owner of their queue.
        """
        if self._membership.stop(drain_s):
            ended(self)
            self._end_threads()
            self._membership.close()

    def _end_threads(self) -> None:
        if self._pool is not None:
            self._pool.stop()
            self._coroutines.stop()
            self._pool.join(1.0)
        if self._trace is not None:
            self._trace.stop(3.0)
        if self._local is not None:
            self._local.close()

    def run(self) -> None:
        """Start, consume until SIGINT or SIGTERM, then stop; call it on the main thread."""
        ended = threading.Event()

        def end(_number: int, _frame: FrameType | None) -> None:
            ended.set()

        before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            self.start()
            ended.wait()
        finally:
            self.stop()
            for number, handler in before.items():
                signal.signal(number, handler)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

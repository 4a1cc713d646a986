"""A member of a consumer group that gets its messages handed to a listener."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from types import FrameType, TracebackType
from typing import Literal, Self, TypeVar, overload

from gimbalmq.client.shared import SharedInstance, share, wire_client_id
from gimbalmq.core.allocation import Strategy, strategy_named
from gimbalmq.core.consumer.effects import RebalanceReport
from gimbalmq.core.consumer.events import Consumed, Paused, Resumed, Started, StopRequested
from gimbalmq.core.consumer.machine import ConsumerMachine
from gimbalmq.core.consumer.settings import ConsumerSettings
from gimbalmq.core.flow_control import FlowLimits
from gimbalmq.errors import ConfigurationError, GimbalError, StateError
from gimbalmq.flows.offset import StartFrom, StartPolicy
from gimbalmq.model.queue import MessageQueue
from gimbalmq.runtime.consumer_host import ConsumerHost, PullSettings
from gimbalmq.runtime.instance import InstanceSettings
from gimbalmq.runtime.listening import Listener, ListenerSettings, Listening
from gimbalmq.runtime.offsets import BrokerOffsets, LocalOffsets, OffsetKeeper
from gimbalmq.runtime.workers import WorkerPool
from gimbalmq.transport.address import local_ip, parse_nameservers
from gimbalmq.wire.names import check_group, check_topic, retry_topic
from gimbalmq.wire.subscription import SubscriptionData, parse_tags, sql_subscription

__all__ = ["PushConsumer"]

_log = logging.getLogger("gimbalmq.consumer")
_ListenerT = TypeVar("_ListenerT", bound=Listener)


class PushConsumer:
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
        local_offset_store_dir: Where a broadcasting member keeps its offsets.
        release_drain_s: How long running listeners may go on when a queue moves away.
    """

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
        start_from: Literal["last", "first"] | datetime = "last",
        client_id: str | None = None,
        batch_size: int = 1,
        workers: int = 20,
        rebalance_interval_s: float = 20.0,
        pull_idle_limit_s: float = 120.0,
        persist_consumer_offset_interval_s: float = 5.0,
        poll_name_server_interval_s: float = 30.0,
        heartbeat_broker_interval_s: float = 30.0,
        pull_batch_size: int = 32,
        pull_threshold_for_queue: int = 1000,
        pull_threshold_size_for_queue: int = 100,
        consume_concurrently_max_span: int = 2000,
        max_reconsume_times: int = -1,
        suspend_current_queue_time_s: float = 1.0,
        lock_renew_s: float = 1.0,
        lock_trust_s: float = 3.0,
        take_over_grace_s: float = 4.0,
        take_over_foreign_grace_s: float | None = None,
        local_offset_store_dir: str | Path | None = None,
        release_drain_s: float = 10.0,
    ) -> None:
        self.group = check_group(group)
        self._nameservers = parse_nameservers(nameserver)
        self._strategy = strategy_named(allocation) if isinstance(allocation, str) else allocation
        self._start = _start_from(start_from)
        self.client_id = wire_client_id(client_id, self._strategy.name)
        self._workers = _between("workers", workers, 1, 1000)
        self._settings = ConsumerSettings(
            group=self.group,
            client_id=self.client_id,
            rebalance_interval_s=_positive("rebalance_interval_s", rebalance_interval_s),
            pull_idle_limit_s=_positive("pull_idle_limit_s", pull_idle_limit_s),
            persist_consumer_offset_interval_s=_positive(
                "persist_consumer_offset_interval_s", persist_consumer_offset_interval_s
            ),
            release_drain_s=release_drain_s,
            ordered=ordered,
            lease=lease,
            broadcasting=broadcasting,
            lock_renew_s=_positive("lock_renew_s", lock_renew_s),
            lock_trust_s=_positive("lock_trust_s", lock_trust_s),
            take_over_grace_s=_positive("take_over_grace_s", take_over_grace_s),
            take_over_foreign_grace_s=take_over_foreign_grace_s,
            suspend_current_queue_s=_positive(
                "suspend_current_queue_time_s", suspend_current_queue_time_s
            ),
            ordered_reconsume_max=None if max_reconsume_times < 0 else max_reconsume_times,
            limits=FlowLimits(
                _between("pull_threshold_for_queue", pull_threshold_for_queue, 1, 65535),
                _between("pull_threshold_size_for_queue", pull_threshold_size_for_queue, 1, 1024),
                _between("consume_concurrently_max_span", consume_concurrently_max_span, 1, 65535),
            ),
        )
        self._pulls = PullSettings(
            pull_batch_size=_between("pull_batch_size", pull_batch_size, 1, 1024),
            max_reconsume_times=16 if max_reconsume_times < 0 else max_reconsume_times,
        )
        self._listener_settings = ListenerSettings(
            batch_size=_between("batch_size", batch_size, 1, 1024),
            auto_commit=auto_commit,
            suspend_current_queue_s=suspend_current_queue_time_s,
        )
        _check_modes(self._settings, auto_commit=auto_commit)
        self._offset_folder = _offset_folder(local_offset_store_dir, client_id, self.group)
        self._instance_settings = InstanceSettings(
            poll_name_server_interval_s=_positive(
                "poll_name_server_interval_s", poll_name_server_interval_s
            ),
            heartbeat_broker_interval_s=_positive(
                "heartbeat_broker_interval_s", heartbeat_broker_interval_s
            ),
        )
        self._expressions: dict[str, tuple[str, str | None]] = {}
        self._listeners: dict[str, Listener] = {}
        self._rebalance_callbacks: list[Callable[[RebalanceReport], object]] = []
        self._state: Literal["created", "running", "stopping", "stopped", "failed to start"]
        self._state = "created"
        self._stopped = threading.Event()
        self._shared: SharedInstance | None = None
        self._host: ConsumerHost | None = None
        self._pool: WorkerPool | None = None
        self._notifier: ThreadPoolExecutor | None = None
        self._local: LocalOffsets | None = None

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
        if self._state != "created":
            raise StateError(
                f"subscribe to '{topic}' before start(): the consumer is {self._state}"
            )
        check_topic(topic)
        # Parsed here so that a wrong expression is the caller's error; the version comes later.
        _subscription(topic, tags, sql, 0)

        def take(function: _ListenerT) -> _ListenerT:
            self._expressions[topic] = tags, sql
            self._listeners[topic] = function
            if self._shared is not None and self._host is not None:
                shared, host = self._shared, self._host
                version_ms = shared.run(lambda: shared.instance.driver.now().wall_ms)
                subscription = _subscription(topic, tags, sql, version_ms)
                shared.run(lambda: host.subscribe(subscription))
            return function

        return take if listener is None else take(listener)

    def unsubscribe(self, topic: str) -> None:
        """Consume a topic no longer; running listeners finish, and its offsets are stored."""
        self._expressions.pop(topic, None)
        if self._state == "running":
            shared, host = self._running()
            shared.run(lambda: host.unsubscribe(topic))
        else:
            self._listeners.pop(topic, None)

    def on_rebalance(
        self, callback: Callable[[RebalanceReport], object]
    ) -> Callable[[RebalanceReport], object]:
        """Be told after each change of this member's queues; usable as a decorator."""
        self._rebalance_callbacks.append(callback)
        return callback

    # ---- life --------------------------------------------------------------------------------

    def start(self) -> Self:
        """Join the group and start to consume.

        Raises:
            TransportError: no name server can be reached.
            StateError: started twice, or nothing is subscribed.
        """
        if self._state != "created":
            raise StateError(f"consumer of group '{self.group}' is {self._state}: make a new one")
        if not self._listeners:
            raise StateError(
                f"consumer of group '{self.group}' subscribes to nothing: call subscribe first"
            )
        self._state = "failed to start"
        shared = share(self.client_id, self._nameservers, self._instance_settings)
        try:
            self._join(shared)
        except BaseException:
            shared.release()
            raise
        self._shared = shared
        self._state = "running"
        return self

    def _join(self, shared: SharedInstance) -> None:
        version_ms = shared.run(lambda: shared.instance.driver.now().wall_ms)
        subscriptions = {
            topic: _subscription(topic, tags, sql, version_ms)
            for topic, (tags, sql) in self._expressions.items()
        }
        if not self._settings.broadcasting:
            own_retry = retry_topic(self.group)
            subscriptions[own_retry] = parse_tags(own_retry, "*", version_ms)
        offsets: OffsetKeeper
        if self._settings.broadcasting:
            offsets = self._local = LocalOffsets(
                shared.instance, self._offset_folder / "offsets.json", self._start
            )
        else:
            offsets = BrokerOffsets(shared.instance, self.group, self._start)
        machine = ConsumerMachine(self._settings, self._strategy, subscriptions)
        host = ConsumerHost(
            shared.instance,
            machine,
            subscriptions,
            offsets=offsets,
            start=self._start,
            pulls=self._pulls,
            announced=self._announce,
            stopped=self._stopped.set,
        )

        def finished(done: Consumed) -> None:
            shared.post(lambda: host.finished(done))

        listening = Listening(self._listeners.get, self._listener_settings)
        self._pool = WorkerPool(self.group, listening, finished, workers=self._workers)
        host.attach(self._pool, listening, self._workers)
        self._host = host
        if self._rebalance_callbacks:
            self._notifier = ThreadPoolExecutor(1, f"gimbalmq-{self.group}-rebalance")
        self._pool.start()
        joined: Future[None] = Future()

        def done(error: GimbalError | None) -> None:
            if error is not None:
                joined.set_exception(error)
            else:
                host.dispatch(Started())
                joined.set_result(None)

        shared.post(lambda: shared.instance.join(host, done))
        try:
            joined.result()
        except BaseException:
            self._pool.stop()
            raise

    def stop(self, drain_s: float = 10.0) -> None:
        """Let running listeners finish, store the offsets, leave the group; safe to call again.

        Args:
            drain_s: How long to wait for running listeners; messages of those that take longer
                are delivered again, to the next owner of their queue.
        """
        shared, host, pool = self._shared, self._host, self._pool
        if self._state != "running" or shared is None or host is None or pool is None:
            return
        self._state = "stopping"
        shared.post(lambda: host.dispatch(StopRequested(drain_s)))
        # The rest takes a few round trips; the bound is for brokers that do not answer.
        if not self._stopped.wait(drain_s + 15.0):
            _log.warning("group %s: not everything was stored before the stop", self.group)
        pool.stop()
        pool.join(1.0)
        if self._notifier is not None:
            self._notifier.shutdown()
        if self._local is not None:
            self._local.close()
        shared.release()
        self._state = "stopped"

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

    # ---- while running -----------------------------------------------------------------------

    def assignment(self) -> frozenset[MessageQueue]:
        """The queues that this member owns now, those of the group's retry topic included."""
        shared, host = self._running()
        return shared.run(host.machine.assignment)

    def pause(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Stop pulling from some queues, or all; they stay assigned to this member."""
        shared, host = self._running()
        event = Paused(None if queues is None else frozenset(queues))
        shared.run(lambda: host.dispatch(event))

    def resume(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Go on pulling from some queues, or all."""
        shared, host = self._running()
        event = Resumed(None if queues is None else frozenset(queues))
        shared.run(lambda: host.dispatch(event))

    def _running(self) -> tuple[SharedInstance, ConsumerHost]:
        if self._state != "running" or self._shared is None or self._host is None:
            raise StateError(f"consumer of group '{self.group}' is {self._state}, not running")
        return self._shared, self._host

    def _announce(self, report: RebalanceReport) -> None:
        if self._notifier is not None:
            for callback in self._rebalance_callbacks:
                self._notifier.submit(_call_back, callback, report)


def _call_back(callback: Callable[[RebalanceReport], object], report: RebalanceReport) -> None:
    try:
        callback(report)
    except Exception:  # noqa: BLE001 - user code, on a thread of its own
        _log.exception("rebalance callback of group %s failed", report.group)


def _subscription(topic: str, tags: str, sql: str | None, version_ms: int) -> SubscriptionData:
    if sql is None:
        return parse_tags(topic, tags, version_ms)
    if tags != "*":
        raise ConfigurationError(f"topic '{topic}': filter by tags or by sql, not by both")
    return sql_subscription(topic, sql, version_ms)


def _start_from(start_from: str | datetime) -> StartFrom:
    if start_from == "last":
        return StartFrom(StartPolicy.LAST)
    if start_from == "first":
        return StartFrom(StartPolicy.FIRST)
    if isinstance(start_from, datetime) and start_from.tzinfo is not None:
        return StartFrom(StartPolicy.TIMESTAMP, int(start_from.timestamp() * 1000))
    raise ConfigurationError(
        f"start_from is {start_from!r}: give 'last', 'first', or a datetime with a time zone"
    )


def _check_modes(settings: ConsumerSettings, *, auto_commit: bool) -> None:
    if settings.lease and settings.broadcasting:
        raise ConfigurationError("lease=True has no meaning when broadcasting: queues never move")
    if not auto_commit and not settings.ordered:
        raise ConfigurationError("auto_commit=False is for ordered=True: give both, or neither")
    if settings.lock_trust_s <= settings.lock_renew_s:
        raise ConfigurationError(
            f"lock_trust_s ({settings.lock_trust_s:g}) must be longer than lock_renew_s "
            f"({settings.lock_renew_s:g}), or queues stop between renewals"
        )
    if settings.take_over_grace_s <= settings.lock_trust_s:
        raise ConfigurationError(
            f"take_over_grace_s ({settings.take_over_grace_s:g}) must be longer than lock_trust_s "
            f"({settings.lock_trust_s:g}), or a queue may be consumed by two members"
        )


def _offset_folder(base: str | Path | None, client_id: str | None, group: str) -> Path:
    """Java's place for the offsets of a broadcasting member."""
    root = Path.home() / ".rocketmq_offsets" if base is None else Path(base)
    return root / (client_id or f"{local_ip()}@DEFAULT") / group


def _between(name: str, value: int, lowest: int, highest: int) -> int:
    if not lowest <= value <= highest:
        raise ConfigurationError(f"{name} is {value}: give {lowest} to {highest}")
    return value


def _positive(name: str, value: float) -> float:
    if value <= 0:
        raise ConfigurationError(f"{name} is {value}: give seconds above 0")
    return value

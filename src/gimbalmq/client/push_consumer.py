"""A member of a consumer group that gets its messages handed to a listener."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterable
from types import FrameType, TracebackType
from typing import Any, Self, TypeVar, Unpack, overload

from gimbalmq.client.membership import Membership, RebalanceCallback
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
from gimbalmq.client.shared import SharedInstance, wire_client_id
from gimbalmq.core.allocation import Strategy, strategy_named
from gimbalmq.core.consumer.events import Consumed, Paused, Resumed
from gimbalmq.core.consumer.machine import ConsumerMachine
from gimbalmq.core.consumer.settings import ConsumerSettings
from gimbalmq.core.flow_control import FlowLimits
from gimbalmq.errors import ConfigurationError, StateError
from gimbalmq.model.queue import MessageQueue
from gimbalmq.runtime.consumer_host import ConsumerHost, PullSettings
from gimbalmq.runtime.listening import Listener, ListenerSettings, Listening
from gimbalmq.runtime.offsets import BrokerOffsets, LocalOffsets, OffsetKeeper
from gimbalmq.runtime.workers import WorkerPool
from gimbalmq.transport.address import parse_nameservers
from gimbalmq.wire.names import check_group, check_topic, retry_topic
from gimbalmq.wire.subscription import parse_tags

__all__ = ["PushConsumer"]

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
        start_from: Start = "last",
        client_id: str | None = None,
        batch_size: int = 1,
        workers: int = 20,
        rebalance_interval_s: float = 20.0,
        pull_idle_limit_s: float = 120.0,
        **tuning: Unpack[PushTuning],
    ) -> None:
        check_options(tuning, PushTuning.__annotations__)
        self.group = check_group(group)
        self._strategy = strategy_named(allocation) if isinstance(allocation, str) else allocation
        self._start = read_start(start_from)
        self.client_id = wire_client_id(client_id, self._strategy.name)
        self._workers = between("workers", workers, 1, 1000)
        attempts = tuning.get("max_reconsume_times", -1)
        self._settings = ConsumerSettings(
            group=self.group,
            client_id=self.client_id,
            ordered=ordered,
            lease=lease,
            broadcasting=broadcasting,
            rebalance_interval_s=positive("rebalance_interval_s", rebalance_interval_s),
            pull_idle_limit_s=positive("pull_idle_limit_s", pull_idle_limit_s),
            ordered_reconsume_max=None if attempts < 0 else attempts,
            **_timers(tuning),
        )
        self._pulls = PullSettings(
            pull_batch_size=between("pull_batch_size", tuning.get("pull_batch_size", 32), 1, 1024),
            max_reconsume_times=16 if attempts < 0 else attempts,
        )
        self._listener_settings = ListenerSettings(
            batch_size=between("batch_size", batch_size, 1, 1024),
            auto_commit=auto_commit,
            suspend_current_queue_s=self._settings.suspend_current_queue_s,
        )
        _check_modes(self._settings, auto_commit=auto_commit)
        folder = tuning.get("local_offset_store_dir")
        self._offset_folder = offset_folder(folder, client_id, self.group)
        self._expressions: dict[str, tuple[str, str | None]] = {}
        self._listeners: dict[str, Listener] = {}
        self._membership = Membership(
            self.group, self.client_id, parse_nameservers(nameserver), instance_settings(tuning)
        )
        self._pool: WorkerPool | None = None
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
        if self._membership.state not in {"created", "running"}:
            raise StateError(
                f"cannot subscribe to '{topic}': the consumer is {self._membership.state}"
            )
        check_topic(topic)
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
        self._expressions.pop(topic, None)
        if self._membership.state == "running":
            self._membership.ask(lambda host: host.unsubscribe(topic))
        else:
            self._listeners.pop(topic, None)

    def on_rebalance(self, callback: RebalanceCallback) -> RebalanceCallback:
        """Be told after each change of this member's queues; usable as a decorator."""
        self._membership.on_rebalance(callback)
        return callback

    # ---- life --------------------------------------------------------------------------------

    def start(self) -> Self:
        """Join the group and start to consume.

        Raises:
            TransportError: no name server can be reached.
            StateError: started twice, or nothing is subscribed.
        """
        self._membership.check_new()
        if not self._listeners:
            raise StateError(
                f"consumer of group '{self.group}' subscribes to nothing: call subscribe first"
            )
        try:
            self._membership.start(self._build)
        except BaseException:
            self._end_threads()
            raise
        return self

    def _build(self, shared: SharedInstance, now_ms: int) -> ConsumerHost:
        subscriptions = {
            topic: subscription(topic, tags, sql, now_ms)
            for topic, (tags, sql) in self._expressions.items()
        }
        offsets: OffsetKeeper
        if self._settings.broadcasting:
            path = self._offset_folder / "offsets.json"
            offsets = self._local = LocalOffsets(shared.instance, path, self._start)
        else:
            own_retry = retry_topic(self.group)
            subscriptions[own_retry] = parse_tags(own_retry, "*", now_ms)
            offsets = BrokerOffsets(shared.instance, self.group, self._start)
        host = ConsumerHost(
            shared.instance,
            ConsumerMachine(self._settings, self._strategy, subscriptions),
            subscriptions,
            offsets=offsets,
            start=self._start,
            pulls=self._pulls,
            announced=self._membership.announce,
            stopped=self._membership.ended,
        )

        def finished(done: Consumed) -> None:
            # A listener may outlive the consumer; then nobody is left to take its result.
            with contextlib.suppress(StateError):
                shared.post(lambda: host.finished(done))

        listening = Listening(self._listeners.get, self._listener_settings)
        self._pool = WorkerPool(self.group, listening, finished, workers=self._workers)
        host.attach(self._pool, listening, self._workers)
        self._pool.start()
        return host

    def stop(self, drain_s: float = 10.0) -> None:
        """Let running listeners finish, store the offsets, leave the group; safe to call again.

        Args:
            drain_s: How long to wait for running listeners; messages of those that take longer
                are delivered again, to the next owner of their queue.
        """
        if self._membership.stop(drain_s):
            self._end_threads()
            self._membership.close()

    def _end_threads(self) -> None:
        if self._pool is not None:
            self._pool.stop()
            self._pool.join(1.0)
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

    # ---- while running -----------------------------------------------------------------------

    def assignment(self) -> frozenset[MessageQueue]:
        """The queues that this member owns now, those of the group's retry topic included."""
        return self._membership.ask(lambda host: host.machine.assignment())

    def pause(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Stop pulling from some queues, or all; they stay assigned to this member."""
        event = Paused(None if queues is None else frozenset(queues))
        self._membership.ask(lambda host: host.dispatch(event))

    def resume(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Go on pulling from some queues, or all."""
        event = Resumed(None if queues is None else frozenset(queues))
        self._membership.ask(lambda host: host.dispatch(event))


def _timers(tuning: PushTuning) -> dict[str, Any]:
    """Those of the options that the machine takes, by its names for them."""
    times: dict[str, Any] = {
        name: positive(name, tuning[name])
        for name in ("persist_consumer_offset_interval_s", "lock_renew_s", "lock_trust_s",
                     "take_over_grace_s")
        if name in tuning
    }  # fmt: skip
    for name in ("take_over_foreign_grace_s", "release_drain_s"):
        if name in tuning:
            times[name] = tuning[name]
    if "suspend_current_queue_time_s" in tuning:
        pause_s = tuning["suspend_current_queue_time_s"]
        times["suspend_current_queue_s"] = positive("suspend_current_queue_time_s", pause_s)
    bounds = {
        "pull_threshold_for_queue": 65535,
        "pull_threshold_size_for_queue": 1024,
        "consume_concurrently_max_span": 65535,
    }
    given: dict[str, Any] = dict(tuning)
    limits = {
        name: between(name, given[name], 1, highest)
        for name, highest in bounds.items()
        if name in given
    }
    return {**times, "limits": FlowLimits(**limits)}


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

"""What a push consumer decides without waiting, on threads or on an event loop.

Reads the options, keeps topics and their listeners, answers questions about the running member.
Who starts and stops it, and what runs the listeners, is up to `PushConsumer` of either kind.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar, Unpack, overload

import msgspec

from gimbalmq.client.callbacks import check_callback
from gimbalmq.client.events import EventLog, event_place
from gimbalmq.client.group_consumer import FetchingConsumer
from gimbalmq.client.hooks import AfterHook, BeforeHook
from gimbalmq.client.idempotency import check_patience
from gimbalmq.client.membership import MemberLife
from gimbalmq.client.option_kinds import options_checked
from gimbalmq.client.options import (
    PushTuning,
    Start,
    between,
    checked_access,
    instance_settings,
    offset_folder,
    positive,
)
from gimbalmq.client.options import (
    start_from as read_start,
)
from gimbalmq.client.push_options import (
    check_modes,
    hung_listener,
    key_function,
    machine_options,
    patience_s,
    pull_options,
    rejoin_grace,
    trace_place,
)
from gimbalmq.client.stats import Crew
from gimbalmq.core.allocation import Strategy
from gimbalmq.core.consumer.events import Paused
from gimbalmq.core.consumer.machine import ConsumerMachine
from gimbalmq.core.consumer.settings import ConsumerSettings
from gimbalmq.errors import StateError
from gimbalmq.model.queue import MessageQueue
from gimbalmq.runtime.alarms import (
    HungListener,
    HungListenerAlarm,
    ListenerAlarm,
    OutlivedLockAlarm,
)
from gimbalmq.runtime.consumer_host import ConsumerHost
from gimbalmq.runtime.instance import ClientInstance
from gimbalmq.runtime.listening import Listener, ListenerSettings
from gimbalmq.runtime.offsets import BrokerOffsets, LocalOffsets, OffsetKeeper
from gimbalmq.runtime.weights_watch import WeightsWatch
from gimbalmq.wire.names import retry_topic
from gimbalmq.wire.subscription import parse_tags

__all__ = ["PushSubscriber"]

_ListenerT = TypeVar("_ListenerT", bound=Listener)
_LifeT = TypeVar("_LifeT", bound=MemberLife)


class PushSubscriber(FetchingConsumer[_LifeT]):
    """A push consumer without the waiting: options, subscriptions, questions while it runs."""

    @options_checked(PushTuning)
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
        super().__init__(
            group,
            checked_access(nameserver, tuning, PushTuning),
            instance_settings(tuning),
            allocation=allocation,
            client_id=client_id,
            rejoin_grace_s=rejoin_grace(tuning),
            locking=(lease or ordered) and not broadcasting,
        )
        self._start = read_start(start_from)
        self._workers = between("workers", workers, 1, 1000)
        self._settings = ConsumerSettings(
            group=self._wire_group,
            client_id=self.client_id,
            ordered=ordered,
            lease=lease,
            broadcasting=broadcasting,
            rebalance_interval_s=positive("rebalance_interval_s", rebalance_interval_s),
            pull_idle_limit_s=positive("pull_idle_limit_s", pull_idle_limit_s),
            **machine_options(tuning),
        )
        self._pulls = pull_options(tuning, self._names.name)
        self._listener_settings = ListenerSettings(
            batch_size=between("batch_size", batch_size, 1, 1024),
            auto_commit=auto_commit,
            suspend_current_queue_s=self._settings.suspend_current_queue_s,
        )
        check_modes(self._settings, auto_commit=auto_commit)
        self._patience_s = patience_s(self._settings, self._pulls.max_reconsume_times)
        self._key_of = key_function(
            tuning.get("parallel_by"), batch_size=batch_size, auto_commit=auto_commit
        )
        self._hung_listener_s = hung_listener(tuning)
        self._trace_topic = trace_place(tuning)
        self._before: list[BeforeHook] = []
        self._after: list[AfterHook] = []
        folder = tuning.get("local_offset_store_dir")
        self._offset_folder = offset_folder(folder, client_id, self._wire_group)
        self._listeners: dict[str, Listener] = {}
        #: By topic: the listener, and what is called in its place.
        self._calls: dict[str, tuple[Listener, Listener]] = {}
        self._local: LocalOffsets | None = None
        self._alarm: HungListenerAlarm | None = None
        self._lock_alarm: OutlivedLockAlarm | None = None
        self._hung_callbacks: list[Callable[[HungListener], object]] = []
        self._events_topic = self._keep_events(tuning.get("events"))

    @abstractmethod
    def _busy(self) -> int:
        """How many listeners are running."""

    @abstractmethod
    def _surrounded(self, listener: Listener) -> Listener:
        """What is called in place of a listener: itself, with hooks and traces around it."""

    @property
    def _gets(self) -> str:
        """What listeners get."""
        if self._listener_settings.batch_size == 1:
            return "one message, as batch_size is 1"
        return "a list of messages, as batch_size is above 1"

    def _keep_events(self, events: str | Path | None) -> str | None:
        """Keep the history in a file, if that is asked for; returns the topic if that is."""
        place = None if events is None else event_place(events)
        if isinstance(place, Path):
            log = EventLog(place, self.client_id)
            self.on_rebalance(log)
            self.on_moved(log)
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

            @consumer.subscribe("orders", tags="paid || refunded")
            def bill(message):
                print(message.keys, message.body)

            consumer.subscribe("refunds", listener=bill)

        Args:
            topic: The topic.
            tags: `*`, or the wanted tags joined by `||`.
            sql: An SQL92 expression over properties instead of tags; brokers must enable it.
            listener: Gets each message, or a list of them when `batch_size` is above 1.

        Also possible while running. All members of a group must subscribe to the same.

        Raises:
            ConfigurationError: the listener cannot be called with a message; it is `idempotent`
                and its messages would be given up while a claim may stand; the expression cannot be read; or, while running, a broker
                refuses it, which at other times `start` says.
            StateError: the consumer has ended; or it runs on a loop, and brokers have not read
                the SQL expression yet: see `check_sql`.
        """
        if self._membership.state not in {"created", "running"}:
            raise self._membership.refusal(f": it cannot subscribe to '{topic}'")
        wire_topic = self._wire_topic(topic, tags, sql)

        def take(function: _ListenerT) -> _ListenerT:
            check_callback("listener", function, self._gets)
            check_patience(function, self._patience_s)
            self._vet(wire_topic, tags, sql)
            self._listeners[wire_topic] = function
            self._read_topic(wire_topic, tags, sql)
            return function

        return take if listener is None else take(listener)

    def unsubscribe(self, topic: str) -> None:
        """Consume a topic no longer.

            consumer.unsubscribe("orders")

        Running listeners finish, and its offsets are stored.
        """
        wire_topic = self._names.wire(topic)
        self._drop_topic(wire_topic)
        if self._membership.state != "running":  # else it may still be needed
            self._listeners.pop(wire_topic, None)

    def before(self, hook: BeforeHook) -> BeforeHook:
        """Call something with what a listener is about to get; usable as a decorator.

        What it raises counts as raised by the listener, which is then not called.

        Raises:
            StateError: it is not before `start`, so that some messages would come without it.
        """
        self._check_hookable()
        check_callback("hook", hook, self._gets)
        self._before.append(hook)
        return hook

    def after(self, hook: AfterHook) -> AfterHook:
        """Call something when a listener is done: `hook(message, error, took_s)`; a decorator.

        `error` is what the listener raised, or None; a coroutine that is cancelled, because it
        did not end in time while the consumer stopped, has raised `asyncio.CancelledError`.

        Raises:
            StateError: it is not before `start`, so that some messages would come without it.
        """
        self._check_hookable()
        check_callback("hook", hook, self._gets, "the error or None", "the seconds that it took")
        self._after.append(hook)
        return hook

    def _check_hookable(self) -> None:
        if self._membership.state != "created":
            raise self._membership.refusal(": add hooks before the start")

    # ---- while running -----------------------------------------------------------------------

    def pause(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Stop pulling from some queues, or all; they stay assigned to this member.

            consumer.pause(queue for queue in consumer.assignment() if queue.topic == "orders")

        Without naming queues the whole member pauses: it also keeps the queues that it has,
        whoever joins or leaves, until it is resumed.
        """
        event = Paused(
            None if queues is None else frozenset(map(self._names.wire_queue, queues)),
            balancing=queues is None,
        )
        self._membership.ask(lambda host: host.dispatch(event))

    def on_hung(
        self, callback: Callable[[HungListener], object]
    ) -> Callable[[HungListener], object]:
        """Be told when a listener has had a message for `hung_listener_s`; also a decorator."""
        check_callback("callback", callback, "a HungListener")
        self._hung_callbacks.append(callback)
        return callback

    def _hung(self, found: HungListener) -> None:
        user = msgspec.structs.replace(found, queue=self._names.user_queue(found.queue))
        for callback in self._hung_callbacks:
            self._membership.notify(callback, user)

    def _crew(self) -> Crew:
        return Crew(self._workers, self._busy(), self._alarm, self._lock_alarm)

    # ---- for those who start it ----------------------------------------------------------------

    def _check_startable(self) -> None:
        self._membership.check_new()
        if not self._listeners:
            raise StateError(
                f"consumer of group '{self.group}' subscribes to nothing: call subscribe first"
            )

    def _new_host(self, instance: ClientInstance, now_ms: int) -> ConsumerHost:
        subscriptions = self._subscriptions(now_ms)
        offsets: OffsetKeeper
        if self._settings.broadcasting:
            path = self._offset_folder / "offsets.json"
            offsets = self._local = LocalOffsets(
                instance, path, self._start, timeout_s=self._settings.offset_timeout_s
            )
        else:
            own_retry = retry_topic(self._wire_group)
            subscriptions[own_retry] = parse_tags(own_retry, "*", now_ms)
            offsets = BrokerOffsets(
                instance,
                self._wire_group,
                self._start,
                timeout_s=self._settings.offset_timeout_s,
            )
        return ConsumerHost(
            instance,
            ConsumerMachine(self._settings, self._strategy, subscriptions, key_of=self._key_of),
            subscriptions,
            offsets=offsets,
            start=self._start,
            pulls=self._pulls,
            announced=self._membership.announce,
            stopped=self._membership.ended,
            weights=self._watch_weights(instance),
        )

    def _watch_weights(
        self, instance: ClientInstance
    ) -> Callable[[ConsumerHost], WeightsWatch] | None:
        """Whoever reads published weights, if the strategy uses them."""
        topic: str | None = getattr(self._strategy, "weights_topic", None)
        if topic is None:
            return None
        return lambda host: WeightsWatch(
            instance,
            host.group,
            topic,
            names=self._names,
            every_s=self._settings.weights_interval_s,
            read=host.dispatch,
            topics=host.topics,
        )

    def _new_alarms(self, coroutine_stack: Callable[[int], str | None]) -> list[ListenerAlarm]:
        """Whoever looks for listeners that hang or outlive their locks, if somebody is to."""
        alarms: list[ListenerAlarm] = []
        settings = self._settings
        if self._hung_listener_s is not None:
            self._alarm = HungListenerAlarm(
                self.group,
                self._hung_listener_s,
                raised=self._hung,
                coroutine_stack=coroutine_stack,
            )
            alarms.append(self._alarm)
        if settings.locking:
            self._lock_alarm = OutlivedLockAlarm(
                self.group,
                look_every_s=settings.lock_renew_s,
                spare_s=settings.take_over_grace_s - settings.lock_trust_s,
                coroutine_stack=coroutine_stack,
            )
            alarms.append(self._lock_alarm)
        return alarms

    def _call_for(self, topic: str) -> Listener | None:
        """What to call for a topic, whichever way it is named: its listener, surrounded."""
        listener = self._listeners.get(self._names.wire(topic))
        if listener is None:
            return None
        known = self._calls.get(topic)
        if known is None or known[0] is not listener:
            known = self._calls[topic] = listener, self._surrounded(listener)
        return known[1]

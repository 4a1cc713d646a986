"""A consumer that polls: as a member of a group, or over queues that the user assigns."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Literal, Self, TypeVar, Unpack

import msgspec

from gimbalmq.client.access import Access
from gimbalmq.client.group_consumer import FetchingConsumer
from gimbalmq.client.lifetime import Lifetime
from gimbalmq.client.membership import MemberLife, Membership
from gimbalmq.client.options import (
    LitePullTuning,
    Start,
    checked_access,
    instance_settings,
    pull_settings,
    settings_of,
)
from gimbalmq.client.options import start_from as read_start
from gimbalmq.client.shared import SharedInstance
from gimbalmq.client.watched import Watched
from gimbalmq.core.allocation import Strategy
from gimbalmq.core.consumer.events import Assigned, Consumed, Paused, SeekRequested
from gimbalmq.core.consumer.machine import ConsumerMachine
from gimbalmq.core.consumer.settings import ConsumerSettings
from gimbalmq.core.flow_control import FlowLimits
from gimbalmq.errors import ConfigurationError, OffsetError, StateError
from gimbalmq.flows.effects import Flow
from gimbalmq.flows.offset import max_offset, min_offset, offset_at, store_offset, stored_offset
from gimbalmq.flows.route import fetch_route
from gimbalmq.model.queue import MessageQueue, sorted_queues
from gimbalmq.runtime.consumer_host import ConsumerHost
from gimbalmq.runtime.instance import ClientInstance, InstanceSettings
from gimbalmq.runtime.offsets import BrokerOffsets
from gimbalmq.runtime.polling import PollQueue
from gimbalmq.telemetry.running import began, ended
from gimbalmq.wire.received import ReceivedMessage

__all__ = ["LitePullConsumer", "LitePullReader"]

_LifeT = TypeVar("_LifeT", bound=MemberLife)


class LitePullReader(FetchingConsumer[_LifeT]):
    """A polling consumer without the waiting: options, what to read, and the flows that ask."""

    def __init__(
        self,
        group: str,
        *,
        nameserver: str | None = None,
        allocation: str | Strategy = "AVG",
        start_from: Start = "last",
        client_id: str | None = None,
        auto_commit: bool = True,
        auto_commit_interval_s: float = 5.0,
        rebalance_interval_s: float = 20.0,
        poll_name_server_interval_s: float = 30.0,
        heartbeat_broker_interval_s: float = 30.0,
        pull_batch_size: int = 10,
        pull_threshold_for_all: int = 10_000,
        pull_threshold_for_queue: int = 1000,
        pull_threshold_size_for_queue: int = 100,
        consume_max_span: int = 2000,
        pulls_ahead: int = 64,
        broker_suspend_max_time_s: float = 20.0,
        **tuning: Unpack[LitePullTuning],
    ) -> None:
        given = {
            "auto_commit_interval_s": auto_commit_interval_s,
            "rebalance_interval_s": rebalance_interval_s,
            "poll_name_server_interval_s": poll_name_server_interval_s,
            "heartbeat_broker_interval_s": heartbeat_broker_interval_s,
            "pull_batch_size": pull_batch_size,
            "pull_threshold_for_all": pull_threshold_for_all,
            "pull_threshold_for_queue": pull_threshold_for_queue,
            "pull_threshold_size_for_queue": pull_threshold_size_for_queue,
            "consume_max_span": consume_max_span,
            "pulls_ahead": pulls_ahead,
            "broker_suspend_max_time_s": broker_suspend_max_time_s,
            **tuning,
        }
        super().__init__(
            group,
            checked_access(nameserver, tuning, LitePullTuning),
            instance_settings(given),
            allocation=allocation,
            client_id=client_id,
        )
        self._start = read_start(start_from)
        self._auto_commit = auto_commit
        self._settings = ConsumerSettings(
            group=self._wire_group,
            client_id=self.client_id,
            pull_idle_limit_s=None,
            limits=FlowLimits(**settings_of(FlowLimits, given)),
            **settings_of(ConsumerSettings, given),
        )
        self._pulls = pull_settings(
            given, consume_type="CONSUME_ACTIVELY", namespace=self._names.name
        )
        self._mode: Literal["", "subscribe", "assign"] = ""
        self._assigned: frozenset[MessageQueue] = frozenset()
        self._started = False

    # ---- what to read ------------------------------------------------------------------------

    def _choose_topic(self, topic: str, tags: str, sql: str | None) -> str:
        """Decide for topics and against queues; returns the topic as brokers name it."""
        self._choose("subscribe")
        return self._wire_topic(topic, tags, sql)

    def _take_queues(self, queues: Iterable[MessageQueue]) -> None:
        """Take an assignment in."""
        self._choose("assign")
        self._assigned = frozenset(map(self._names.wire_queue, queues))
        if self._membership.state == "running":
            self._assign_now()
            return
        for queue in self._assigned:
            self._expressions.setdefault(queue.topic, ("*", None))

    @property
    def _to_start(self) -> bool:
        """Whether it was started already, and only now knows what to read."""
        return self._started and self._membership.state != "running"

    def _check_startable(self) -> None:
        """Note that it is to run, now or as soon as it knows what to read."""
        self._membership.check_new()
        if self._started:
            raise StateError(
                f"consumer of group '{self.group}' was started already: subscribe or assign"
            )
        self._started = True

    def _give_up(self) -> None:
        """End it if it was started and never knew what to read."""
        if self._started and self._membership.state == "created":
            self._membership.state = "stopped"

    def unsubscribe(self, topic: str) -> None:
        """Read a topic no longer."""
        self._drop_topic(self._names.wire(topic))

    def _choose(self, mode: Literal["subscribe", "assign"]) -> None:
        if self._mode not in {"", mode}:
            raise StateError(
                f"consumer of group '{self.group}' uses {self._mode}; subscribe and assign are "
                "mutually exclusive: make two consumers"
            )
        self._mode = mode

    def _assign_now(self) -> None:
        queues = self._assigned
        for topic in {queue.topic for queue in queues} - self._expressions.keys():
            self._read_topic(topic)
        self._membership.ask(lambda host: host.dispatch(Assigned(queues)))

    # ---- while running -----------------------------------------------------------------------

    def pause(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Stop pulling from some assigned queues, or all; they stay paused until `resume`.

            consumer.pause(consumer.assignment())

        Raises:
            StateError: one of them is not assigned to this consumer.
        """
        if queues is None:
            self._membership.ask(lambda host: host.dispatch(Paused(None)))
            return
        wanted = frozenset(map(self._names.wire_queue, queues))

        def pause(host: ConsumerHost) -> frozenset[MessageQueue]:
            foreign = wanted - self._assigned - host.machine.assignment()
            if not foreign:
                host.dispatch(Paused(wanted))
            return foreign

        foreign = self._membership.ask(pause)
        if foreign:
            names = ", ".join(queue.path for queue in sorted(foreign))
            raise StateError(f"{names}: not assigned to this consumer, so it cannot be paused")

    def _check_poll(self, timeout_s: float) -> None:
        if timeout_s < 0:
            raise ConfigurationError(f"timeout_s is {timeout_s}: give 0 or more seconds")
        if self._started and not self._mode:
            raise StateError(f"consumer of group '{self.group}': subscribe or assign first")
        _ = self._membership.instance  # says so when the consumer is not running

    def _new_host(self, instance: ClientInstance, now_ms: int) -> ConsumerHost:
        subscriptions = self._subscriptions(now_ms)
        settings = msgspec.structs.replace(self._settings, manual=self._mode == "assign")
        return ConsumerHost(
            instance,
            ConsumerMachine(settings, self._strategy, subscriptions),
            subscriptions,
            offsets=BrokerOffsets(
                instance, self._wire_group, self._start, timeout_s=settings.offset_timeout_s
            ),
            start=self._start,
            pulls=self._pulls,
            announced=self._membership.announce,
            stopped=self._membership.ended,
        )

    # ---- questions, as flows -----------------------------------------------------------------

    @property
    def _offset_timeout_s(self) -> float:
        return self._settings.offset_timeout_s

    def _commit_flow(self) -> Flow[dict[MessageQueue, int]]:
        offsets = self._membership.ask(_progress)
        for queue, offset in offsets.items():
            address = yield from self._master(queue)
            yield from store_offset(
                address, self._wire_group, queue, offset, self._offset_timeout_s
            )
        return {self._names.user_queue(queue): offset for queue, offset in offsets.items()}

    def _committed_flow(self, queue: MessageQueue) -> Flow[int | None]:
        queue = self._names.wire_queue(queue)
        address = yield from self._master(queue)
        return (yield from stored_offset(address, self._wire_group, queue, self._offset_timeout_s))

    def _seek_flow(self, queue: MessageQueue, offset: int) -> Flow[None]:
        queue = self._names.wire_queue(queue)
        address = yield from self._master(queue)
        lowest = yield from min_offset(address, queue, self._offset_timeout_s)
        highest = yield from max_offset(address, queue, self._offset_timeout_s)
        if not lowest <= offset <= highest:
            raise OffsetError(
                f"{queue.path} stores the offsets {lowest} to {highest}: {offset} is outside"
            )
        if self._names.user_queue(queue) not in self.assignment():
            raise StateError(f"{queue.path} is not assigned to this consumer: seek only those")
        self._membership.ask(lambda host: host.dispatch(SeekRequested(queue, offset)))

    def _offset_at_flow(self, queue: MessageQueue, timestamp_ms: int) -> Flow[int]:
        queue = self._names.wire_queue(queue)
        address = yield from self._master(queue)
        return (yield from offset_at(address, queue, timestamp_ms, self._offset_timeout_s))

    def _queues_flow(self, topic: str) -> Flow[tuple[MessageQueue, ...]]:
        instance = self._membership.instance
        timeout_s = instance.settings.mq_client_api_timeout_s
        route = yield from fetch_route(instance.nameservers, self._names.wire(topic), timeout_s)
        return self._names.user_queues(sorted_queues(route.subscribe_queues()))

    def _master(self, queue: MessageQueue) -> Flow[str]:
        """Where a queue's offsets are kept."""
        instance = self._membership.instance
        known = self._membership.ask(lambda _host: instance.routes.master(queue))
        if known is None:
            timeout_s = instance.settings.mq_client_api_timeout_s
            route = yield from fetch_route(instance.nameservers, queue.topic, timeout_s)
            brokers = route.broker(queue.broker)
            known = None if brokers is None else brokers.master
        if known is None:
            raise OffsetError(
                f"broker '{queue.broker}' of {queue.path} has no master in the route: its offsets "
                "can be asked for and stored when it is back"
            )
        return known


class LitePullConsumer(LitePullReader[Membership], Watched, Lifetime):
    """Reads messages when asked to, while pulling ahead in the background.

    Either `subscribe`, to share a topic with the group's other members, or `assign` queues by
    hand; not both. What a poll returned counts as consumed when the next poll is made, or on
    `commit`; so after a crash, an error or a stop the last messages come again, and none is lost.

        with LitePullConsumer("reports", nameserver="127.0.0.1:9876") as consumer:
            consumer.subscribe("orders")
            for message in consumer.poll(timeout_s=5.0):
                print(message.queue, message.queue_offset)

    Args:
        group: The consumer group.
        nameserver: `host:port`, several separated by `;`; None reads `NAMESRV_ADDR`.
        allocation: How the group shares its queues; every member needs the same.
        start_from: Where to start in a queue that the group has not read yet.
        client_id: A name for this member, unique in the group; None makes one.
        auto_commit: False leaves committing to `commit()`.
        rebalance_interval_s, poll_name_server_interval_s, heartbeat_broker_interval_s: As in Java.
        auto_commit_interval_s: How often offsets are stored.
        pull_batch_size, pull_threshold_for_queue, pull_threshold_size_for_queue (MiB),
        consume_max_span: As in Java.
        pull_threshold_for_all: How many messages may wait to be polled, of all queues together.
        pulls_ahead: As for `PushConsumer`.
        broker_suspend_max_time_s, consumer_timeout_when_suspend_s: How long a broker may hold a
            pull while there is nothing new, and how long it is waited for.
        pull_time_delay_when_exception_s, pull_time_delay_when_flow_control_s,
        mq_client_api_timeout_s, offset_timeout_s, rebalance_min_interval_s, rebalance_retry_s,
        use_heartbeat_v2: As for `PushConsumer`.
        access_key, secret_key, tls, address_map, namespace, namesrv_domain: How the cluster is
            reached; see `AccessOptions`.
    """

    def _new_membership(self, access: Access, timers: InstanceSettings) -> Membership:
        self._polls: PollQueue | None = None
        return Membership(self.group, self.client_id, access, timers)

    # ---- what to read ------------------------------------------------------------------------

    def subscribe(self, topic: str, tags: str = "*", sql: str | None = None) -> None:
        """Share a topic with the other members of the group.

            consumer.subscribe("orders", tags="paid || refunded")

        Before `start` or after; all members have to subscribe to the same.
        """
        wire_topic = self._choose_topic(topic, tags, sql)
        self._vet(wire_topic, tags, sql)
        self._read_topic(wire_topic, tags, sql)
        if self._to_start:
            self._start_now()

    def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Read exactly these queues, whoever else reads them.

            consumer.assign([MessageQueue("orders", "broker-a", 0)])

        Replaces an earlier assignment.
        """
        self._take_queues(queues)
        if self._to_start:
            self._start_now()

    # ---- life --------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start to read ahead; `subscribe` and `assign` may come before or after."""
        self._check_startable()
        if self._mode:
            self._start_now()
        return self

    def _start_now(self) -> None:
        # Only now is it known whether this consumer takes part in rebalancing.
        self._membership.start(self._build)
        began(self)
        if self._mode == "assign":
            self._assign_now()

    def _build(self, shared: SharedInstance, now_ms: int) -> ConsumerHost:
        host = self._new_host(shared.instance, now_ms)

        def finished(done: Consumed) -> None:
            with contextlib.suppress(StateError):
                shared.post(lambda: host.finished(done))

        self._polls = PollQueue(finished, self._pulls.pull_batch_size)
        host.attach(self._polls)
        return host

    def stop(self) -> None:
        """Store what was consumed and leave the group; safe to call again.

        What the last poll returned comes again, to whoever reads the queue next, unless `commit`
        was called: the consumer may be stopping because of an error on the way through it.
        """
        self._give_up()
        self._membership.stop(0.0, self._end_polls)

    def _end_polls(self) -> None:
        ended(self)
        if self._polls is not None:
            self._polls.close()

    # ---- reading -----------------------------------------------------------------------------

    def poll(self, timeout_s: float = 5.0) -> list[ReceivedMessage]:
        """The next messages, from one queue; an empty list when none came in time.

            for message in consumer.poll(timeout_s=1.0):
                print(message.queue, message.queue_offset)

        With `auto_commit`, everything that earlier polls returned counts as consumed from now on.
        """
        self._check_poll(timeout_s)
        assert self._polls is not None
        if self._auto_commit:
            self._polls.settle()
        return self._polls.poll(timeout_s)

    def commit(self) -> dict[MessageQueue, int]:
        """Store the offsets of everything that was polled, and wait.

            stored = consumer.commit()

        Returns what was stored, by queue.
        """
        shared = self._membership.shared
        assert self._polls is not None
        self._polls.settle()
        return shared.inline(self._commit_flow())

    def committed(self, queue: MessageQueue) -> int | None:
        """The group's stored offset of a queue, or None."""
        return self._membership.shared.inline(self._committed_flow(queue))

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on reading an assigned queue at another offset.

            consumer.seek(queue, 0)

        Raises:
            OffsetError: the offset is outside of what the broker stores.
        """
        self._membership.shared.inline(self._seek_flow(queue, offset))

    def offset_at(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The first offset stored at or after a time."""
        return self._membership.shared.inline(self._offset_at_flow(queue, timestamp_ms))

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """All queues of a topic."""
        return self._membership.shared.inline(self._queues_flow(topic))


def _progress(host: ConsumerHost) -> dict[MessageQueue, int]:
    return {
        queue: held.process.commit_offset
        for queue, held in host.machine.held.items()
        if held.owned and held.process is not None
    }

"""What a polling consumer decides without waiting, on threads or on an event loop.

Reads the options, keeps what is to be read (topics shared with a group, or queues assigned by hand,
never both), and asks brokers for offsets. Who starts and stops it, and what waits for messages, is
up to `LitePullConsumer` of either kind.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeVar, Unpack

import msgspec

from gimbalmq.client.group_consumer import FetchingConsumer
from gimbalmq.client.membership import MemberLife
from gimbalmq.client.option_kinds import options_checked
from gimbalmq.client.options import (
    LitePullTuning,
    Start,
    checked_access,
    instance_settings,
    pull_settings,
    settings_of,
)
from gimbalmq.client.options import start_from as read_start
from gimbalmq.core.allocation import Strategy
from gimbalmq.core.consumer.events import Assigned, Paused, SeekRequested
from gimbalmq.core.consumer.machine import ConsumerMachine
from gimbalmq.core.consumer.settings import ConsumerSettings
from gimbalmq.core.flow_control import FlowLimits
from gimbalmq.errors import ConfigurationError, OffsetError, StateError
from gimbalmq.flows.effects import Flow
from gimbalmq.flows.offset import max_offset, min_offset, offset_at, store_offset, stored_offset
from gimbalmq.flows.route import fetch_route
from gimbalmq.model.queue import MessageQueue, sorted_queues
from gimbalmq.runtime.consumer_host import ConsumerHost
from gimbalmq.runtime.instance import ClientInstance
from gimbalmq.runtime.offsets import BrokerOffsets

__all__ = ["LitePullReader"]

_LifeT = TypeVar("_LifeT", bound=MemberLife)


class LitePullReader(FetchingConsumer[_LifeT]):
    """A polling consumer without the waiting: options, what to read, and the flows that ask."""

    @options_checked(LitePullTuning)
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


def _progress(host: ConsumerHost) -> dict[MessageQueue, int]:
    return {
        queue: held.process.commit_offset
        for queue, held in host.machine.held.items()
        if held.owned and held.process is not None
    }

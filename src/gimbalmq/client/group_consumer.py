"""What consumers of every kind have in common: who they are in their group, and what they read.

Reads the options that all of them take and keeps their subscriptions. How messages reach the user,
and who waits for what, on a thread or on an event loop, is the business of the kinds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Generic, TypeVar

from gimbalmq.client.access import Access
from gimbalmq.client.callbacks import check_callback
from gimbalmq.client.membership import MemberLife, RebalanceCallback, State
from gimbalmq.client.options import check_strategy, subscription
from gimbalmq.client.shared import wire_client_id
from gimbalmq.client.stats import ConsumerStats, Crew, Probe, consumer_stats, probe_of
from gimbalmq.core.allocation import Strategy, strategy_named
from gimbalmq.core.consumer.events import Resumed
from gimbalmq.core.consumer.machine import ConsumerMachine
from gimbalmq.errors import TopicNotFoundError
from gimbalmq.flows.effects import Flow
from gimbalmq.flows.group import check_subscriptions
from gimbalmq.flows.route import fetch_route
from gimbalmq.model.queue import MessageQueue
from gimbalmq.runtime.consumer_host import ConsumerHost
from gimbalmq.runtime.instance import InstanceSettings
from gimbalmq.wire.names import check_group, check_topic
from gimbalmq.wire.subscription import SubscriptionData

__all__ = ["FetchingConsumer", "GroupConsumer"]

_LifeT = TypeVar("_LifeT", bound=MemberLife)


class GroupConsumer(ABC, Generic[_LifeT]):
    """A consumer as its group knows it, without the waiting."""

    def __init__(
        self,
        group: str,
        access: Access,
        timers: InstanceSettings,
        *,
        allocation: str | Strategy,
        client_id: str | None,
        rejoin_grace_s: float | None = None,
        locking: bool = False,
    ) -> None:
        self._names = access.namespace
        self.group = check_group(group)
        self._wire_group = check_group(self._names.wire(group))
        self._strategy = strategy_named(allocation) if isinstance(allocation, str) else allocation
        check_strategy(self._strategy, locking=locking)
        self.client_id = wire_client_id(
            client_id, self._strategy.name, rejoin_grace_s=rejoin_grace_s
        )
        #: By topic, as brokers name it: the tags, and the SQL expression instead of them.
        self._expressions: dict[str, tuple[str, str | None]] = {}
        #: Topics with SQL expressions that their brokers have read and agree to.
        self._agreed: set[tuple[str, str]] = set()
        self._membership = self._new_membership(access, timers)

    @property
    def state(self) -> State:
        """Where it is in its life: `"created"`, `"running"`, `"stopped"`, `"failed to start"`.

        On the way: `"starting"` and `"stopping"`.
        """
        return self._membership.state

    @property
    def start_error(self) -> BaseException | None:
        """What made the start fail; None if nothing did."""
        return self._membership.start_error

    @abstractmethod
    def _new_membership(self, access: Access, timers: InstanceSettings) -> _LifeT:
        """Set up what starting needs; returns the life that is to be started."""

    def on_rebalance(self, callback: RebalanceCallback) -> RebalanceCallback:
        """Be told after each change of this member's queues; usable as a decorator.

            @consumer.on_rebalance
            def moved(report):
                print(report.trigger, report.acquired, report.revoked)

        Whatever led to it: a pass, a stop, a lost lock, an offset that was moved. It gets a
        `RebalanceReport`, as soon as the change is decided. What a callback raises is logged and
        changes nothing.
        """
        check_callback("callback", callback, "a RebalanceReport")
        self._membership.on_rebalance(callback)
        return callback

    # ---- what to read ------------------------------------------------------------------------

    def _wire_topic(self, topic: str, tags: str, sql: str | None) -> str:
        """The topic as brokers name it, if that and what is wanted of it can be understood.

        Read here, so that a wrong expression is the caller's error; its version comes later.
        """
        wire_topic = check_topic(self._names.wire(topic))
        subscription(wire_topic, tags, sql, 0)
        return wire_topic

    def _vet(self, wire_topic: str, tags: str, sql: str | None) -> None:
        """Have brokers read an SQL expression that a running consumer is to use."""
        if sql is None or (wire_topic, sql) in self._agreed:
            return
        if self._membership.state == "running":
            self._membership.vet(self._vetting(wire_topic, tags, sql))

    def _check_sql_flow(self, topic: str, sql: str) -> Flow[None]:
        wire_topic = self._wire_topic(topic, "*", sql)
        yield from self._vetting(wire_topic, "*", sql)
        self._agreed.add((wire_topic, sql))

    def _vetting(self, wire_topic: str, tags: str, sql: str) -> Flow[None]:
        """What a start asks about every SQL expression, for one more of them.

        Raises:
            ConfigurationError: a broker refuses it.
        """
        instance = self._membership.instance
        timeout_s = instance.settings.mq_client_api_timeout_s
        try:
            route = yield from fetch_route(instance.nameservers, wire_topic, timeout_s)
        except TopicNotFoundError:
            return  # the topic is waited for, as at a start
        brokers = [(one.name, one.any_address) for one in route.brokers]
        places = sorted((name, address) for name, address in brokers if address is not None)
        wanted = subscription(wire_topic, tags, sql, 0)
        yield from check_subscriptions(
            {wire_topic: places}, self.client_id, self._wire_group, (wanted,), timeout_s
        )

    def _read_topic(self, wire_topic: str, tags: str = "*", sql: str | None = None) -> None:
        """Read a topic from the start on, or from now on."""
        self._expressions[wire_topic] = tags, sql
        if self._membership.state == "running":
            self._membership.ask(
                lambda host: host.subscribe(subscription(wire_topic, tags, sql, host.now_ms()))
            )

    def _drop_topic(self, wire_topic: str) -> None:
        """Read a topic no longer."""
        self._expressions.pop(wire_topic, None)
        if self._membership.state == "running":
            self._membership.ask(lambda host: host.unsubscribe(wire_topic))

    def _subscriptions(self, now_ms: int) -> dict[str, SubscriptionData]:
        """What brokers are told of the topics, by topic."""
        return {
            topic: subscription(topic, tags, sql, now_ms)
            for topic, (tags, sql) in self._expressions.items()
        }


class FetchingConsumer(GroupConsumer[_LifeT]):
    """A consumer that pulls from the queues it has, before anybody asks for their messages."""

    def on_moved(self, callback: RebalanceCallback) -> RebalanceCallback:
        """Be told when all queues of a change have come and gone; usable as a decorator.

        It gets the report of the change once more, with how long each queue paused (`done`).
        """
        check_callback("callback", callback, "a RebalanceReport")
        self._membership.on_moved(callback)
        return callback

    def _crew(self) -> Crew:
        """Those who run listeners, if anybody does."""
        return Crew()

    def stats(self) -> ConsumerStats:
        """Numbers of this moment: what was consumed, what waits, where each queue stands.

            stats = consumer.stats()
            print(stats.consumed, stats.cached, stats.lag)

        Raises `StateError` while the consumer does not run.
        """

        def take(host: ConsumerHost) -> ConsumerStats:
            assert isinstance(host.machine, ConsumerMachine)
            now = self._membership.instance.driver.now().at_s
            return consumer_stats(host, host.machine, self._names, crew=self._crew(), now=now)

        return self._membership.ask(take)

    def _judged(self, host: ConsumerHost) -> Probe:
        """What a probe of the running consumer finds."""
        assert isinstance(host.machine, ConsumerMachine)
        return probe_of(host.machine, self._crew(), registered=host.registered)

    def assignment(self) -> frozenset[MessageQueue]:
        """The queues that this member owns now.

            for queue in sorted(consumer.assignment()):
                print(queue.path)

        Those of a retry topic that it reads are among them.
        """
        owned = self._membership.ask(lambda host: host.machine.assignment())
        return frozenset(self._names.user_queues(owned))

    def resume(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Go on pulling from some queues, or all.

            consumer.pause()
            consumer.resume()

        All means to balance at once, too.
        """
        event = Resumed(None if queues is None else frozenset(map(self._names.wire_queue, queues)))
        self._membership.ask(lambda host: host.dispatch(event))

"""The classic pull consumer: the user pulls and keeps offsets, the group shares the queues."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Self, TypeVar, Unpack

from gimbalmq.client.access import Access
from gimbalmq.client.callbacks import check_callback
from gimbalmq.client.group_consumer import GroupConsumer
from gimbalmq.client.lifetime import Lifetime
from gimbalmq.client.membership import MemberLife, Membership
from gimbalmq.client.option_kinds import options_checked
from gimbalmq.client.options import (
    ConsumerTuning,
    between,
    checked_access,
    instance_settings,
    positive,
    settings_of,
)
from gimbalmq.client.pull_schedule import PullSchedule, PullTask, Schedule
from gimbalmq.client.shared import InstanceHolder
from gimbalmq.client.stats import Crew, Probe, probe_of
from gimbalmq.client.watched import Watched
from gimbalmq.core.allocation import Strategy
from gimbalmq.core.consumer.effects import RebalanceReport
from gimbalmq.core.consumer.passive import PassiveMachine
from gimbalmq.core.consumer.settings import ConsumerSettings
from gimbalmq.errors import ConfigurationError, OffsetError, StateError
from gimbalmq.flows.effects import Flow
from gimbalmq.flows.offset import (
    StartFrom,
    max_offset,
    min_offset,
    offset_at,
    store_offset,
    stored_offset,
)
from gimbalmq.flows.pull import pull
from gimbalmq.flows.route import fetch_route
from gimbalmq.model.queue import MessageQueue, sorted_queues
from gimbalmq.model.route import TopicRoute
from gimbalmq.runtime.consumer_host import ConsumerHost, PullSettings
from gimbalmq.runtime.instance import InstanceSettings
from gimbalmq.runtime.offsets import BrokerOffsets
from gimbalmq.wire.received import PullResult
from gimbalmq.wire.subscription import parse_tags

__all__ = ["PullConsumer", "PullReader", "QueuesChanged"]

_LifeT = TypeVar("_LifeT", bound=MemberLife)

#: Gets the topic, and the queues of it that are now this member's.
QueuesChanged = Callable[[str, frozenset[MessageQueue]], object]


class PullReader(GroupConsumer[_LifeT]):
    """A classic pull consumer without the waiting: options, shares, and the flows that read."""

    @options_checked(ConsumerTuning)
    def __init__(
        self,
        group: str,
        *,
        nameserver: str | None = None,
        allocation: str | Strategy = "AVG",
        client_id: str | None = None,
        rebalance_interval_s: float = 20.0,
        poll_name_server_interval_s: float = 30.0,
        heartbeat_broker_interval_s: float = 30.0,
        pull_thread_nums: int = 20,
        consumer_pull_timeout_s: float = 10.0,
        **tuning: Unpack[ConsumerTuning],
    ) -> None:
        given = {
            "rebalance_interval_s": rebalance_interval_s,
            "poll_name_server_interval_s": poll_name_server_interval_s,
            "heartbeat_broker_interval_s": heartbeat_broker_interval_s,
            **tuning,
        }
        super().__init__(
            group,
            checked_access(nameserver, tuning, ConsumerTuning),
            instance_settings(given),
            allocation=allocation,
            client_id=client_id,
        )
        self._settings = ConsumerSettings(
            group=self._wire_group,
            client_id=self.client_id,
            pull_idle_limit_s=None,
            **settings_of(ConsumerSettings, given),
        )
        self._pull_timeout_s = positive("consumer_pull_timeout_s", consumer_pull_timeout_s)
        self._threads = between("pull_thread_nums", pull_thread_nums, 1, 1000)
        self._schedule: Schedule | None = None
        self._scheduled: dict[str, PullTask] = {}
        self._routes: dict[str, TopicRoute] = {}

    @abstractmethod
    def _new_schedule(self) -> Schedule:
        """Whoever runs tasks, made with the first of them."""

    def _new_host(self, shared: InstanceHolder, now_ms: int) -> ConsumerHost:
        subscriptions = self._subscriptions(now_ms)
        host = ConsumerHost(
            shared.instance,
            PassiveMachine(self._settings, self._strategy, subscriptions),
            subscriptions,
            offsets=BrokerOffsets(shared.instance, self._wire_group, StartFrom()),
            start=StartFrom(),
            pulls=PullSettings(consume_type="CONSUME_ACTIVELY", namespace=self._names.name),
            announced=self._membership.announce,
            stopped=self._membership.ended,
        )
        host.started()
        return host

    def _judged(self, host: ConsumerHost) -> Probe:
        """What a probe of the running consumer finds."""
        assert isinstance(host.machine, PassiveMachine)
        return probe_of(host.machine, Crew(), registered=host.registered)

    # ---- sharing -----------------------------------------------------------------------------

    def assignment(self, topic: str) -> frozenset[MessageQueue]:
        """This member's share of a topic; asking makes the topic part of the balancing.

            for queue in sorted(consumer.assignment("orders")):
                print(queue.path)

        Right after the first question the share may still be empty: `on_queues_changed` tells.
        """
        self._take_part(topic)
        owned = self._membership.ask(lambda host: host.machine.assignment())
        named = self._names.user_queues(owned)
        return frozenset(queue for queue in named if queue.topic == topic)

    def on_queues_changed(self, topic: str, callback: QueuesChanged) -> None:
        """Be told when this member's share of a topic changes.

            consumer.on_queues_changed("orders", lambda topic, queues: print(topic, len(queues)))

        The callback gets the topic, and all queues of it that are now this member's.
        """
        check_callback("callback", callback, "the topic", "its queues")

        def changed(report: RebalanceReport) -> None:
            if report.topic == topic:
                callback(topic, frozenset(report.mine))

        self._membership.on_rebalance(changed)
        self._take_part(topic)

    def schedule(self, topic: str, task: PullTask) -> None:
        """Have a task run for each queue of a topic that is this member's, while it is.

            def audit(queue):
                result = consumer.pull(queue, consumer.committed(queue) or 0)
                consumer.commit(queue, result.next_offset)
                return 0.0 if result.messages else 5.0

            consumer.schedule("orders", audit)

        Args:
            topic: The topic; it becomes part of the balancing.
            task: Gets a queue, and returns the seconds until it runs for the queue again (None:
                0.2 s). One that raises runs again after 1 s. Tasks of different queues run side
                by side, up to `pull_thread_nums`; those of one queue never do.
        """
        if topic in self._scheduled:
            raise StateError(f"topic '{topic}' has a task already: let that one do both")
        check_callback("task", task, "a queue")
        self._scheduled[topic] = task
        self.on_queues_changed(topic, lambda topic, _queues: self._look(topic))
        if self._membership.state == "running":
            self._look(topic)

    def _look(self, topic: str) -> None:
        if self._schedule is None:
            self._schedule = self._new_schedule()
        self._schedule.update(topic, self._scheduled[topic], lambda: self.assignment(topic))

    def subscribe(self, topic: str, tags: str = "*", sql: str | None = None) -> None:
        """Make a topic part of the balancing, and tell the brokers what is read of it.

        Only needed where the group's other members filter: all must ask for the same.
        """
        wire_topic = self._wire_topic(topic, tags, sql)
        self._vet(wire_topic, tags, sql)
        self._read_topic(wire_topic, tags, sql)

    def _take_part(self, topic: str) -> None:
        if self._names.wire(topic) not in self._expressions:
            self.subscribe(topic)

    # ---- reading, as flows -------------------------------------------------------------------

    @property
    def _offset_timeout_s(self) -> float:
        return self._settings.offset_timeout_s

    def _queues_flow(self, topic: str) -> Flow[tuple[MessageQueue, ...]]:
        route = yield from self._route(self._names.wire(topic), fresh=True)
        return self._names.user_queues(sorted_queues(route.subscribe_queues()))

    def _pull_flow(
        self, queue: MessageQueue, offset: int, max_messages: int, tags: str, wait_s: float
    ) -> Flow[PullResult]:
        if wait_s < 0:
            raise ConfigurationError(f"wait_s is {wait_s}: give 0 or more seconds")
        between("max_messages", max_messages, 1, 1024)
        queue = self._names.wire_queue(queue)
        result = yield from pull(
            (yield from self._address(queue)),
            self._wire_group,
            queue,
            offset,
            subscription=parse_tags(queue.topic, tags, 0),
            max_messages=max_messages,
            wait_s=wait_s,
            timeout_s=self._pull_timeout_s,
        )
        for message in result.messages:
            message.namespace = self._names.name
        return result

    def _committed_flow(self, queue: MessageQueue) -> Flow[int | None]:
        queue = self._names.wire_queue(queue)
        address = yield from self._address(queue, master=True)
        return (yield from stored_offset(address, self._wire_group, queue, self._offset_timeout_s))

    def _commit_flow(self, queue: MessageQueue, offset: int) -> Flow[None]:
        if offset < 0:
            raise ConfigurationError(f"offset {offset} of {queue.path} is below 0")
        queue = self._names.wire_queue(queue)
        address = yield from self._address(queue, master=True)
        yield from store_offset(address, self._wire_group, queue, offset, self._offset_timeout_s)

    def _bounds_flow(self, queue: MessageQueue) -> Flow[tuple[int, int]]:
        queue = self._names.wire_queue(queue)
        address = yield from self._address(queue)
        lowest = yield from min_offset(address, queue, self._offset_timeout_s)
        return lowest, (yield from max_offset(address, queue, self._offset_timeout_s))

    def _offset_at_flow(self, queue: MessageQueue, timestamp_ms: int) -> Flow[int]:
        queue = self._names.wire_queue(queue)
        address = yield from self._address(queue)
        return (yield from offset_at(address, queue, timestamp_ms, self._offset_timeout_s))

    def _address(self, queue: MessageQueue, *, master: bool = False) -> Flow[str]:
        """Where a queue can be read, or where its group's offset is kept: at the master only."""
        for fresh in (False, True):
            route = yield from self._route(queue.topic, fresh=fresh)
            brokers = route.broker(queue.broker)
            if brokers is not None:
                address = brokers.master if master else brokers.any_address
                if address is not None:
                    return address
        what = "has no master in the route" if master else "is not in the route"
        raise OffsetError(f"broker '{queue.broker}' of {queue.path} {what}")

    def _route(self, topic: str, *, fresh: bool) -> Flow[TopicRoute]:
        known = None if fresh else self._routes.get(topic)
        if known is None:
            instance = self._membership.instance
            timeout_s = instance.settings.mq_client_api_timeout_s
            known = yield from fetch_route(instance.nameservers, topic, timeout_s)
            self._routes[topic] = known
        return known


class PullConsumer(PullReader[Membership], Watched, Lifetime):
    """Pulls from any queue at any offset; its group shares out the topics it asks about.

    Nothing is pulled, committed or retried by itself.

        with PullConsumer("audit", nameserver="127.0.0.1:9876") as consumer:
            for queue in consumer.assignment("orders"):
                result = consumer.pull(queue, consumer.committed(queue) or 0)
                consumer.commit(queue, result.next_offset)

    Args:
        group: The consumer group.
        nameserver: `host:port`, several separated by `;`; None reads `NAMESRV_ADDR`.
        allocation: How the group shares its queues; every member needs the same.
        client_id: A name for this member, unique in the group; None makes one.
        rebalance_interval_s, poll_name_server_interval_s, heartbeat_broker_interval_s: As in Java.
        pull_thread_nums: How many tasks of `schedule` run at once.
        consumer_pull_timeout_s: How long an answer to `pull` may take, beyond its `wait_s`.
        mq_client_api_timeout_s, offset_timeout_s, rebalance_min_interval_s, rebalance_retry_s,
        use_heartbeat_v2: As for `PushConsumer`.
        access_key, secret_key, tls, address_map, namespace, namesrv_domain: How the cluster is
            reached; see `AccessOptions`.
    """

    def _new_membership(self, access: Access, timers: InstanceSettings) -> Membership:
        return Membership(self.group, self.client_id, access, timers)

    def _new_schedule(self) -> PullSchedule:
        shared = self._membership.shared
        driver = shared.instance.driver

        def later(delay_s: float, action: Callable[[], None]) -> None:
            def start_timer() -> None:
                driver.call_later(delay_s, action)

            shared.post(start_timer)

        return PullSchedule(self.group, self._threads, later)

    # ---- life --------------------------------------------------------------------------------

    def start(self) -> Self:
        """Connect; the group is joined with the first topic that is asked about."""
        self._membership.start(self._new_host)
        return self

    def stop(self) -> None:
        """Let running tasks finish and leave the group; safe to call again."""
        if isinstance(self._schedule, PullSchedule):
            self._schedule.stop()
        self._membership.stop(0.0, lambda: None)

    def check_sql(self, topic: str, sql: str) -> None:
        """Have the brokers of a topic read an SQL expression, while running.

            consumer.check_sql("orders", "amount > 100")

        Raises:
            ConfigurationError: one of them refuses it.
        """
        self._membership.shared.inline(self._check_sql_flow(topic, sql))

    # ---- reading -----------------------------------------------------------------------------

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """All queues of a topic.

            for queue in consumer.queues("orders"):
                print(queue.path, consumer.bounds(queue))

        Any of them can be pulled from, those of other members, too.
        """
        return self._membership.shared.inline(self._queues_flow(topic))

    def pull(
        self,
        queue: MessageQueue,
        offset: int,
        max_messages: int = 32,
        tags: str = "*",
        wait_s: float = 0.0,
    ) -> PullResult:
        """Messages from an offset on, at most 32 at a time from a stock broker.

            result = consumer.pull(queue, 0, max_messages=8)
            for message in result.messages:
                print(message.queue_offset, message.body)

        Args:
            queue: Any queue, not only those assigned to this member.
            offset: The first offset wanted.
            max_messages: At most this many.
            tags: `*`, or the wanted tags joined by `||`.
            wait_s: How long the broker may hold the request when there is nothing new.
        """
        flow = self._pull_flow(queue, offset, max_messages, tags, wait_s)
        return self._membership.shared.inline(flow)

    def committed(self, queue: MessageQueue) -> int | None:
        """The group's stored offset of a queue, or None.

            first = consumer.committed(queue) or 0

        It is the next offset to read.
        """
        return self._membership.shared.inline(self._committed_flow(queue))

    def commit(self, queue: MessageQueue, offset: int) -> None:
        """Store the group's offset of a queue, and wait for it.

            result = consumer.pull(queue, 0)
            consumer.commit(queue, result.next_offset)

        The offset is the next one to read.
        """
        self._membership.shared.inline(self._commit_flow(queue, offset))

    def bounds(self, queue: MessageQueue) -> tuple[int, int]:
        """The first offset that is still stored, and one past the last."""
        return self._membership.shared.inline(self._bounds_flow(queue))

    def offset_at(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The first offset stored at or after a time."""
        return self._membership.shared.inline(self._offset_at_flow(queue, timestamp_ms))

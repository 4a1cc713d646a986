"""The classic pull consumer: the user pulls and keeps offsets, the group shares the queues."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Self

from gimbalmq.client.membership import Membership
from gimbalmq.client.options import between, positive
from gimbalmq.client.shared import SharedInstance, wire_client_id
from gimbalmq.core.allocation import Strategy, strategy_named
from gimbalmq.core.consumer.effects import RebalanceReport
from gimbalmq.core.consumer.passive import PassiveMachine
from gimbalmq.core.consumer.settings import ConsumerSettings
from gimbalmq.errors import ConfigurationError, OffsetError
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
from gimbalmq.transport.address import parse_nameservers
from gimbalmq.wire.names import check_group, check_topic
from gimbalmq.wire.record import PullResult
from gimbalmq.wire.subscription import parse_tags

__all__ = ["PullConsumer", "QueuesChanged"]

#: Gets the topic, and the queues of it that are now this member's.
QueuesChanged = Callable[[str, frozenset[MessageQueue]], object]


class PullConsumer:
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
    """

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
    ) -> None:
        self.group = check_group(group)
        self._strategy = strategy_named(allocation) if isinstance(allocation, str) else allocation
        self.client_id = wire_client_id(client_id, self._strategy.name)
        self._settings = ConsumerSettings(
            group=self.group,
            client_id=self.client_id,
            rebalance_interval_s=positive("rebalance_interval_s", rebalance_interval_s),
            pull_idle_limit_s=None,
        )
        self._membership = Membership(
            self.group,
            self.client_id,
            parse_nameservers(nameserver),
            InstanceSettings(
                poll_name_server_interval_s=positive(
                    "poll_name_server_interval_s", poll_name_server_interval_s
                ),
                heartbeat_broker_interval_s=positive(
                    "heartbeat_broker_interval_s", heartbeat_broker_interval_s
                ),
            ),
        )
        self._topics: set[str] = set()
        self._routes: dict[str, TopicRoute] = {}

    # ---- life --------------------------------------------------------------------------------

    def start(self) -> Self:
        """Connect; the group is joined with the first topic that is asked about."""
        self._membership.start(self._build)
        return self

    def _build(self, shared: SharedInstance, now_ms: int) -> ConsumerHost:
        subscriptions = {topic: parse_tags(topic, "*", now_ms) for topic in self._topics}
        host = ConsumerHost(
            shared.instance,
            PassiveMachine(self._settings, self._strategy, subscriptions),
            subscriptions,
            offsets=BrokerOffsets(shared.instance, self.group, StartFrom()),
            start=StartFrom(),
            pulls=PullSettings(consume_type="CONSUME_ACTIVELY"),
            announced=self._membership.announce,
            stopped=self._membership.ended,
        )
        host.started()
        return host

    def stop(self) -> None:
        """Leave the group; safe to call again."""
        if self._membership.stop(drain_s=0.0):
            self._membership.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    # ---- sharing -----------------------------------------------------------------------------

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """All queues of a topic."""
        return tuple(sorted_queues(self._route(topic, fresh=True).subscribe_queues()))

    def assignment(self, topic: str) -> frozenset[MessageQueue]:
        """This member's share of a topic; asking makes the topic part of the balancing.

        Right after the first question the share may still be empty: `on_queues_changed` tells.
        """
        self._take_part(topic)
        owned = self._membership.ask(lambda host: host.machine.assignment())
        return frozenset(queue for queue in owned if queue.topic == topic)

    def on_queues_changed(self, topic: str, callback: QueuesChanged) -> None:
        """Be told when this member's share of a topic changes."""

        def changed(report: RebalanceReport) -> None:
            if any(queue.topic == topic for queue in (*report.acquired, *report.revoked)):
                callback(topic, self.assignment(topic))

        self._membership.on_rebalance(changed)
        self._take_part(topic)

    def _take_part(self, topic: str) -> None:
        if topic in self._topics:
            return
        check_topic(topic)
        self._topics.add(topic)
        if self._membership.state == "running":
            self._membership.ask(lambda host: host.subscribe(parse_tags(topic, "*", host.now_ms())))

    # ---- reading -----------------------------------------------------------------------------

    def pull(
        self,
        queue: MessageQueue,
        offset: int,
        max_messages: int = 32,
        tags: str = "*",
        wait_s: float = 0.0,
    ) -> PullResult:
        """Messages from an offset on, at most 32 at a time from a stock broker.

        Args:
            queue: Any queue, not only those assigned to this member.
            offset: The first offset wanted.
            max_messages: At most this many.
            tags: `*`, or the wanted tags joined by `||`.
            wait_s: How long the broker may hold the request when there is nothing new.
        """
        if wait_s < 0:
            raise ConfigurationError(f"wait_s is {wait_s}: give 0 or more seconds")
        return self._membership.shared.inline(
            pull(
                self._address(queue),
                self.group,
                queue,
                offset,
                subscription=parse_tags(queue.topic, tags, 0),
                max_messages=between("max_messages", max_messages, 1, 1024),
                wait_s=wait_s,
            )
        )

    def committed(self, queue: MessageQueue) -> int | None:
        """The group's stored offset of a queue, or None."""
        address = self._address(queue)
        return self._membership.shared.inline(stored_offset(address, self.group, queue))

    def commit(self, queue: MessageQueue, offset: int) -> None:
        """Store the group's offset of a queue, the next one to read, and wait for it."""
        if offset < 0:
            raise ConfigurationError(f"offset {offset} of {queue.path} is below 0")
        address = self._address(queue)
        self._membership.shared.inline(store_offset(address, self.group, queue, offset))

    def bounds(self, queue: MessageQueue) -> tuple[int, int]:
        """The first offset that is still stored, and one past the last."""
        shared, address = self._membership.shared, self._address(queue)
        return shared.inline(min_offset(address, queue)), shared.inline(max_offset(address, queue))

    def offset_at(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The first offset stored at or after a time."""
        address = self._address(queue)
        return self._membership.shared.inline(offset_at(address, queue, timestamp_ms))

    def _address(self, queue: MessageQueue) -> str:
        for fresh in (False, True):
            brokers = self._route(queue.topic, fresh=fresh).broker(queue.broker)
            address = None if brokers is None else brokers.any_address
            if address is not None:
                return address
        raise OffsetError(f"broker '{queue.broker}' of {queue.path} is not in the route")

    def _route(self, topic: str, *, fresh: bool) -> TopicRoute:
        shared = self._membership.shared
        known = None if fresh else self._routes.get(topic)
        if known is None:
            known = shared.inline(fetch_route(shared.instance.nameservers, topic))
            self._routes[topic] = known
        return known

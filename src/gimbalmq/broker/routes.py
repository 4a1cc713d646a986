"""The name server's tables: brokers that are alive, and the queues of each topic on them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from gimbalmq.broker.effects import Channel
from gimbalmq.model.route import MASTER_ID, PERM_WRITE, BrokerSet, QueueData, TopicRoute
from gimbalmq.wire.bodies import ClusterInfo, DataVersion, TopicConfig

__all__ = ["LiveBroker", "RouteTable"]


class LiveBroker(msgspec.Struct, eq=False):
    """One broker process as it last registered."""

    cluster: str
    name: str
    address: str
    broker_id: int
    ha_address: str
    channel: Channel
    seen_ms: int
    life_ms: int
    version: DataVersion
    acting_master: bool = False


class _Queues(msgspec.Struct):
    """A topic on one broker set."""

    read_queues: int
    write_queues: int
    perm: int
    sys_flag: int = 0


class RouteTable:
    """Brokers by (cluster, address), and topics by name and broker set."""

    def __init__(self) -> None:
        self._brokers: dict[tuple[str, str], LiveBroker] = {}
        self._topics: dict[str, dict[str, _Queues]] = {}

    def register(self, broker: LiveBroker, topics: Mapping[str, TopicConfig]) -> LiveBroker | None:
        """Take a registration; returns the master of its broker set, if there is one.

        Topics count only from a master, and only when their data version is new.
        """
        key = broker.cluster, broker.address
        # A process that comes back with another id or name is no longer what it was; nor is the
        # one whose place (name and id) this broker takes.
        stale = [
            known
            for known in self._brokers.values()
            if known.name == broker.name
            and (known.broker_id == broker.broker_id) != (known.address == broker.address)
        ]
        before = self._brokers.get(key)
        if before is not None and before.name != broker.name:
            stale.append(before)
        for known in stale:
            self._brokers.pop((known.cluster, known.address), None)
            if before is known:
                before = None
        self._brokers[key] = broker
        if broker.broker_id == MASTER_ID and (before is None or before.version != broker.version):
            for topic in topics.values():
                self._topics.setdefault(topic.name, {})[broker.name] = _Queues(
                    topic.read_queues, topic.write_queues, topic.perm, topic.sys_flag
                )
        return self._member(broker.name, MASTER_ID)

    def remove(self, broker: LiveBroker) -> None:
        """Drop a broker; with the last of its set, its queues leave every topic."""
        key = broker.cluster, broker.address
        if self._brokers.get(key) is not broker:
            return
        del self._brokers[key]
        if any(known.name == broker.name for known in self._brokers.values()):
            return
        for topic, queues in list(self._topics.items()):
            queues.pop(broker.name, None)
            if not queues:
                del self._topics[topic]

    def find(self, cluster: str, address: str) -> LiveBroker | None:
        """The broker that registered with that address."""
        return self._brokers.get((cluster, address))

    def registered_on(self, channel: Channel) -> list[LiveBroker]:
        """The brokers that registered on a connection."""
        return [broker for broker in self._brokers.values() if broker.channel is channel]

    def silent(self, now_ms: int) -> list[LiveBroker]:
        """The brokers that have not registered for longer than they said they would."""
        return [
            broker for broker in self._brokers.values() if now_ms - broker.seen_ms > broker.life_ms
        ]

    def broker_set(self, cluster: str, name: str) -> BrokerSet:
        """The processes that share a name; without addresses when none is alive."""
        members = [broker for broker in self._brokers.values() if broker.name == name]
        return BrokerSet(
            name,
            members[0].cluster if members else cluster,
            {broker.broker_id: broker.address for broker in members},
        )

    def route(self, topic: str, order_conf: str) -> TopicRoute | None:
        """Where a topic lives; None when no broker with that topic is alive."""
        queues = self._topics.get(topic)
        if not queues:
            return None
        return TopicRoute(
            topic,
            tuple(self.broker_set("", name) for name in queues),
            tuple(
                QueueData(name, one.read_queues, one.write_queues, one.perm)
                for name, one in queues.items()
            ),
            order_conf,
        )

    def cluster(self) -> ClusterInfo:
        """All brokers, and their names by cluster."""
        names = dict.fromkeys(broker.name for broker in self._brokers.values())
        clusters: dict[str, dict[str, None]] = {}
        for broker in self._brokers.values():
            clusters.setdefault(broker.cluster, {})[broker.name] = None
        return ClusterInfo(
            {name: self.broker_set("", name) for name in names},
            {cluster: tuple(members) for cluster, members in clusters.items()},
        )

    def topics(self) -> list[str]:
        """Every topic that has a route."""
        return list(self._topics)

    def topics_of_cluster(self, cluster: str) -> list[str]:
        """The topics on any broker of a cluster."""
        names = {broker.name for broker in self._brokers.values() if broker.cluster == cluster}
        return [topic for topic, queues in self._topics.items() if names & queues.keys()]

    def topics_with_flag(self, wanted: int, unwanted: int) -> list[str]:
        """The topics whose flag has the wanted bit and not the unwanted one."""
        return [
            topic
            for topic, queues in self._topics.items()
            if any(one.sys_flag & wanted and not one.sys_flag & unwanted for one in queues.values())
        ]

    def delete_topic(self, topic: str, cluster: str = "") -> None:
        """Drop the route of a topic, on one cluster or everywhere."""
        if not cluster:
            self._topics.pop(topic, None)
            return
        queues = self._topics.get(topic, {})
        for broker in self._brokers.values():
            if broker.cluster == cluster:
                queues.pop(broker.name, None)
        if not queues:
            self._topics.pop(topic, None)

    def add_topic(self, topic: str, queues: Iterable[QueueData]) -> None:
        """Give a topic a route on brokers that are known."""
        names = {broker.name for broker in self._brokers.values()}
        for data in queues:
            if data.broker in names:
                self._topics.setdefault(topic, {})[data.broker] = _Queues(
                    data.read_queues, data.write_queues, data.perm
                )

    def set_writable(self, name: str, *, writable: bool) -> int:
        """Let clients send to a broker, or not, by what routes say; returns how many topics."""
        found = [queues[name] for queues in self._topics.values() if name in queues]
        for one in found:
            one.perm = one.perm | PERM_WRITE if writable else one.perm & ~PERM_WRITE
        return len(found)

    def _member(self, name: str, broker_id: int) -> LiveBroker | None:
        for broker in self._brokers.values():
            if broker.name == name and broker.broker_id == broker_id:
                return broker
        return None

"""Asking a whole cluster, and making and removing topics.

Decides which servers an administrative question goes to: brokers in the order of their names, the
master of each. A server that cannot be asked is an error, never an answer with a hole in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from gimbalmq.errors import ConfigurationError, TopicNotFoundError, TransportError
from gimbalmq.flows.effects import Flow, checked_call, now, sleep
from gimbalmq.flows.route import NameServers, ask_nameservers, fetch_route
from gimbalmq.model.route import BrokerSet, TopicRoute
from gimbalmq.wire.bodies import (
    ClusterInfo,
    TopicStats,
    decode_cluster,
    decode_topic_list,
    decode_topic_stats,
)
from gimbalmq.wire.codes import RequestCode
from gimbalmq.wire.command import Command
from gimbalmq.wire.names import (
    DLQ_PREFIX,
    RETRY_PREFIX,
    TEMPLATE_TOPIC,
    check_topic,
    is_system_topic,
    reply_topic,
)

__all__ = [
    "broker_address",
    "create_topic",
    "delete_topic",
    "fetch_cluster",
    "fetch_topic_stats",
    "list_topics",
    "master_addresses",
]

#: Name space of the name servers' table that lists the queues of strictly ordered topics.
_ORDER_CONFIG: Final = "ORDER_TOPIC_CONFIG"
_ROUTE_POLL_S: Final = 0.05
#: How long a name server may take to hear of a new topic; brokers tell it at once.
_ROUTE_LIMIT_S: Final = 30.0


# ---- the cluster -----------------------------------------------------------------------------


def fetch_cluster(nameservers: NameServers, timeout_s: float) -> Flow[ClusterInfo]:
    """Every broker set that is registered now."""
    answer = yield from ask_nameservers(
        nameservers, lambda: Command(RequestCode.GET_BROKER_CLUSTER_INFO), timeout_s
    )
    return decode_cluster(answer.body)


def broker_address(brokers: BrokerSet) -> str:
    """Where to ask a broker set: the master, or the first slave while there is none.

    Raises:
        TransportError: no process of the set is alive.
    """
    address = brokers.any_address
    if address is None:
        raise TransportError(
            f"broker '{brokers.name}' is registered but has no living process: restart it"
        )
    return address


def master_addresses(
    info: ClusterInfo, names: Iterable[str] | None = None
) -> tuple[tuple[str, str], ...]:
    """Name and master address of the named brokers, or of all; for changes, which slaves refuse.

    Raises:
        ConfigurationError: there is no such broker, or the cluster has none at all.
        TransportError: a broker has no master at the moment.
    """
    chosen = sorted(info.brokers) if names is None else list(dict.fromkeys(names))
    if not chosen:
        raise ConfigurationError(
            "the cluster has no broker: start one, or check the name server's address"
            if names is None
            else "brokers is empty: name one at least, or leave it out for all"
        )
    result = []
    for name in chosen:
        brokers = info.brokers.get(name)
        if brokers is None:
            known = ", ".join(sorted(info.brokers)) or "none"
            raise ConfigurationError(f"there is no broker '{name}': the cluster has {known}")
        if brokers.master is None:
            raise TransportError(
                f"broker '{name}' has no master at the moment, and slaves cannot be changed: "
                "restart its master"
            )
        result.append((name, brokers.master))
    return tuple(result)


def _tell_nameservers(
    nameservers: NameServers, request: Callable[[], Command], timeout_s: float
) -> Flow[None]:
    """Tell every name server, because they do not tell each other."""
    for address in nameservers.addresses:
        yield from checked_call(address, request(), timeout_s)


# ---- topics ----------------------------------------------------------------------------------


def list_topics(
    nameservers: NameServers, timeout_s: float, *, internal: bool = False
) -> Flow[tuple[str, ...]]:
    """The topics of the cluster, sorted; with `internal` also those that RocketMQ made itself."""
    answer = yield from ask_nameservers(
        nameservers, lambda: Command(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER), timeout_s
    )
    topics = sorted(set(decode_topic_list(answer.body)))
    if internal:
        return tuple(topics)
    info = yield from fetch_cluster(nameservers, timeout_s)
    # Every broker registers its own name and its cluster's as topics.
    hidden = {*info.brokers, *info.clusters, *map(reply_topic, info.clusters)}
    return tuple(
        topic
        for topic in topics
        if topic not in hidden
        and not is_system_topic(topic)
        and not topic.startswith((RETRY_PREFIX, DLQ_PREFIX))
    )


def create_topic(
    nameservers: NameServers,
    topic: str,
    *,
    queues: int,
    brokers: Sequence[str] | None,
    perm: int,
    order: bool,
    timeout_s: float,
) -> Flow[TopicRoute]:
    """Make or change a topic and wait until the name server shows it; returns the route."""
    check_topic(topic)
    if is_system_topic(topic):
        raise ConfigurationError(f"topic '{topic}' belongs to RocketMQ itself: choose another name")
    # Brokers check neither and would make a topic that nobody can use.
    if not 1 <= queues <= 65536:
        raise ConfigurationError(f"queues is {queues}: give 1 to 65536 queues per broker")
    if perm not in {2, 4, 6}:
        raise ConfigurationError(
            f"perm is {perm}: give 6 (read and write), 4 (read only) or 2 (write only)"
        )
    info = yield from fetch_cluster(nameservers, timeout_s)
    chosen = master_addresses(info, brokers)
    for name, address in chosen:
        request = _create_request(name, topic, queues, perm, order=order)
        yield from checked_call(address, request, timeout_s)
    wanted = {(name, queues, queues, perm) for name, _ in chosen}
    route = yield from _await_route(nameservers, topic, wanted, timeout_s)
    if order:
        config = ";".join(f"{data.broker}:{data.write_queues}" for data in route.queues)
        yield from _tell_nameservers(nameservers, lambda: _put_order(topic, config), timeout_s)
    return route


def _create_request(broker: str, topic: str, queues: int, perm: int, *, order: bool) -> Command:
    return Command(
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        {
            "topic": topic,
            "defaultTopic": TEMPLATE_TOPIC,
            "readQueueNums": str(queues),
            "writeQueueNums": str(queues),
            "perm": str(perm),
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": "true" if order else "false",
            "bname": broker,
        },
    )


def _put_order(topic: str, config: str) -> Command:
    fields = {"namespace": _ORDER_CONFIG, "key": topic, "value": config}
    return Command(RequestCode.PUT_KV_CONFIG, fields)


def _await_route(
    nameservers: NameServers,
    topic: str,
    wanted: set[tuple[str, int, int, int]],
    timeout_s: float,
) -> Flow[TopicRoute]:
    deadline_s = (yield from now()).at_s + _ROUTE_LIMIT_S
    while True:
        try:
            route = yield from fetch_route(nameservers, topic, timeout_s)
        except TopicNotFoundError:
            shown = set()
        else:
            shown = {
                (data.broker, data.read_queues, data.write_queues, data.perm)
                for data in route.queues
            }
            if wanted <= shown:
                return route
        if (yield from now()).at_s > deadline_s:
            missing = ", ".join(sorted({name for name, *_ in wanted - shown}))
            raise TransportError(
                f"the brokers have made topic '{topic}', but the name server does not show it on "
                f"{missing} after {_ROUTE_LIMIT_S:g} s: check that they can reach the name server"
            )
        yield from sleep(_ROUTE_POLL_S)


def delete_topic(nameservers: NameServers, topic: str, timeout_s: float) -> Flow[None]:
    """Remove a topic and its messages from every broker, and its route from every name server.

    Raises:
        TopicNotFoundError: there is no such topic.
    """
    if is_system_topic(topic):
        raise ConfigurationError(f"topic '{topic}' belongs to RocketMQ itself: leave it alone")
    yield from fetch_route(nameservers, topic, timeout_s)
    info = yield from fetch_cluster(nameservers, timeout_s)
    for name, address in master_addresses(info):
        request = Command(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic, "bname": name})
        yield from checked_call(address, request, timeout_s)
    # Brokers do not take the route back, nor the order that was kept for it.
    yield from _tell_nameservers(
        nameservers,
        lambda: Command(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": topic}),
        timeout_s,
    )
    order = {"namespace": _ORDER_CONFIG, "key": topic}
    yield from _tell_nameservers(
        nameservers, lambda: Command(RequestCode.DELETE_KV_CONFIG, dict(order)), timeout_s
    )


def fetch_topic_stats(route: TopicRoute, timeout_s: float) -> Flow[TopicStats]:
    """What every queue of the topic holds, from all its brokers."""
    stats = TopicStats({})
    for brokers in sorted(route.brokers, key=lambda one: one.name):
        fields = {"topic": route.topic, "bname": brokers.name}
        request = Command(RequestCode.GET_TOPIC_STATS_INFO, fields)
        answer = yield from checked_call(broker_address(brokers), request, timeout_s)
        part = decode_topic_stats(answer.body)
        stats = TopicStats(stats.queues | part.queues, stats.put_tps + part.put_tps)
    return stats

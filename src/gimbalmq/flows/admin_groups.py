"""Asking brokers about a group: which there are, who is in one, and who holds which queue.

A broker knows only the members that are connected to it, so every broker is asked and the answers
are put together. Which queues a member holds, only the member knows: a broker passes the question
on, to Java's members as well as to ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from gimbalmq.core.identity import capability
from gimbalmq.errors import BrokerError, GimbalError, TransportError
from gimbalmq.flows.admin import broker_address, fetch_cluster
from gimbalmq.flows.effects import Flow, broker_error, call, checked_call, together
from gimbalmq.flows.route import NameServers
from gimbalmq.model.queue import MessageQueue
from gimbalmq.wire.bodies import (
    ClientConnection,
    ClusterInfo,
    ConsumerConnection,
    ConsumeStats,
    RunningInfo,
    decode_consume_stats,
    decode_consumer_connection,
    decode_group_table,
    decode_running_info,
)
from gimbalmq.wire.codes import RequestCode, ResponseCode, version_name
from gimbalmq.wire.command import Command

__all__ = [
    "BrokerView",
    "GroupView",
    "Member",
    "fetch_assignments",
    "fetch_consume_stats",
    "fetch_running_info",
    "list_groups",
    "view_broker",
    "view_group",
]

#: Groups that every broker makes for itself.
_INTERNAL_GROUPS: Final = frozenset(
    {
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_OWNER",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_PULL",
        "CID_SYS_RMQ_TRANS",
        "DEFAULT_CONSUMER",
        "FILTERSRV_CONSUMER",
        "SCHEDULE_CONSUMER",
        "SELF_TEST_C_GROUP",
        "TOOLS_CONSUMER",
        "__MONITOR_CONSUMER",
    }
)
_INTERNAL_GROUP_PREFIX: Final = "CID_RMQ_SYS_"
#: A broker waits this long for the member that it passes a question on to.
_RELAY_LIMIT_S: Final = 11.0
#: A member that others can ask, too, is not waited for longer than this before they do.
_PATIENCE_S: Final = 3.0


class Member(msgspec.Struct, frozen=True):
    """A member of a group as its brokers see it.

    `version` is the release of its client, `strategy` what its client id says that it shares out
    queues with; None for a foreign member, whose id does not say.
    """

    client_id: str
    address: str
    language: str
    version: str
    strategy: str | None


class BrokerView(msgspec.Struct, frozen=True):
    """What one broker says about a group; `connection` is None when it knows no member of it."""

    broker: str
    address: str
    #: Number of the broker's release, as in frame headers.
    version: int
    connection: ConsumerConnection | None


class GroupView(msgspec.Struct, frozen=True):
    """What all brokers say about a group."""

    group: str
    brokers: tuple[BrokerView, ...]

    @property
    def members(self) -> tuple[Member, ...]:
        """Everyone who is connected to any broker, by client id.

        A client id that several clients share is there once for each, because brokers count it
        so, and queues are shared out by that count.
        """
        connections: dict[str, tuple[ClientConnection, ...]] = {}
        for view in self.brokers:
            listed = () if view.connection is None else view.connection.connections
            for client_id in {one.client_id for one in listed}:
                same = tuple(one for one in listed if one.client_id == client_id)
                # A client has one connection to each broker: the longest list is the whole list.
                if len(same) > len(connections.get(client_id, ())):
                    connections[client_id] = same
        return tuple(
            _member(one) for client_id in sorted(connections) for one in connections[client_id]
        )

    @property
    def client_ids(self) -> tuple[str, ...]:
        """The client ids of the members, each once."""
        return tuple(dict.fromkeys(one.client_id for one in self.members))

    @property
    def topics(self) -> frozenset[str]:
        """What the members subscribe to, the group's retry topic included."""
        return frozenset(
            topic
            for view in self.brokers
            if view.connection is not None
            for topic in view.connection.subscriptions
        )

    @property
    def broadcasting(self) -> bool:
        """Whether every member reads every queue, so that nothing is shared out."""
        return any(
            view.connection is not None and view.connection.message_model == "BROADCASTING"
            for view in self.brokers
        )


def _member(connection: ClientConnection) -> Member:
    promised = capability(connection.client_id)
    return Member(
        connection.client_id,
        connection.address,
        connection.language,
        version_name(connection.version),
        None if promised is None else promised.strategy,
    )


def _every_broker(info: ClusterInfo) -> list[tuple[str, str]]:
    return [(name, broker_address(info.brokers[name])) for name in sorted(info.brokers)]


def list_groups(
    nameservers: NameServers, timeout_s: float, *, internal: bool = False
) -> Flow[tuple[str, ...]]:
    """The consumer groups that brokers know, sorted; with `internal` also RocketMQ's own."""
    info = yield from fetch_cluster(nameservers, timeout_s)
    groups: set[str] = set()
    for name, address in _every_broker(info):
        request = Command(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, {"bname": name})
        answer = yield from checked_call(address, request, timeout_s)
        groups.update(decode_group_table(answer.body).groups)
    return tuple(
        group
        for group in sorted(groups)
        if internal or not (group in _INTERNAL_GROUPS or group.startswith(_INTERNAL_GROUP_PREFIX))
    )


def view_group(nameservers: NameServers, group: str, timeout_s: float) -> Flow[GroupView]:
    """Ask every broker who is in the group; nobody is an answer, too."""
    info = yield from fetch_cluster(nameservers, timeout_s)
    views = []
    for name, address in _every_broker(info):
        view = yield from view_broker(name, address, group, timeout_s)
        views.append(view)
    return GroupView(group, tuple(views))


def view_broker(broker: str, address: str, group: str, timeout_s: float) -> Flow[BrokerView]:
    """Ask one broker who is in the group."""
    fields = {"consumerGroup": group, "bname": broker}
    request = Command(RequestCode.GET_CONSUMER_CONNECTION_LIST, fields)
    answer = yield from call(address, request, timeout_s)
    connection = None
    if answer.code == ResponseCode.SUCCESS:
        connection = decode_consumer_connection(answer.body)
    elif answer.code != ResponseCode.CONSUMER_NOT_ONLINE:
        raise broker_error(address, request, answer)
    return BrokerView(broker, address, answer.version, connection)


def fetch_assignments(
    nameservers: NameServers, group: str, timeout_s: float
) -> Flow[dict[str, frozenset[MessageQueue]]]:
    """Ask each member, through a broker, which queues it holds now.

    A member that has left in the meantime is left out.

    Raises:
        BrokerError, TransportError: a member is there and did not answer.
    """
    view = yield from view_group(nameservers, group, timeout_s)
    told = yield from together(
        fetch_running_info(view, client_id, timeout_s) for client_id in view.client_ids
    )
    held: dict[str, frozenset[MessageQueue]] = {}
    silent: dict[str, GimbalError] = {}
    for client_id, info in zip(view.client_ids, told, strict=True):
        if isinstance(info, GimbalError):
            silent[client_id] = info
            continue
        pulled = {queue for queue, one in info.queues.items() if not one.dropped}
        popped = {queue for queue, one in info.pop_queues.items() if not one.dropped}
        held[client_id] = frozenset(pulled | popped)
    if silent:
        later = yield from view_group(nameservers, group, timeout_s)
        for client_id in later.client_ids:
            if client_id in silent:
                raise silent[client_id]
    return held


def fetch_running_info(
    view: GroupView, client_id: str, timeout_s: float, *, more: Mapping[str, str] | None = None
) -> Flow[RunningInfo]:
    """Ask a member, through a broker that lists it, what it does; `more`: fields for our own.

    Where the first broker gets no answer from it soon, all others that list it are asked together,
    so that a silent member costs little more than one time limit, whatever the number of brokers.

    Raises:
        BrokerError, TransportError: it did not answer through any of them.
    """
    first, *others = [
        one
        for one in view.brokers
        if one.connection is not None
        and any(own.client_id == client_id for own in one.connection.connections)
    ]
    limit_s = max(timeout_s, _RELAY_LIMIT_S)

    def ask(broker: BrokerView, patience_s: float) -> Flow[RunningInfo]:
        fields = {
            "consumerGroup": view.group,
            "clientId": client_id,
            "jstackEnable": "false",
            "bname": broker.broker,
            **(more or {}),
        }
        request = Command(RequestCode.GET_CONSUMER_RUNNING_INFO, fields)
        answer = yield from checked_call(broker.address, request, patience_s)
        return decode_running_info(answer.body)

    if not others:
        return (yield from ask(first, limit_s))
    try:
        # Members take long over questions of ours only; those who get them have answered before.
        return (yield from ask(first, limit_s if more else _PATIENCE_S))
    except (BrokerError, TransportError):
        told = yield from together(ask(broker, limit_s) for broker in others)
    failure: GimbalError | None = None
    for info in told:
        if not isinstance(info, GimbalError):
            return info
        failure = info
    assert failure is not None
    raise failure


def fetch_consume_stats(
    nameservers: NameServers, group: str, timeout_s: float, *, topic: str | None = None
) -> Flow[ConsumeStats]:
    """How far the group is in every queue that it has read, from all brokers."""
    info = yield from fetch_cluster(nameservers, timeout_s)
    stats = ConsumeStats({})
    for name, address in _every_broker(info):
        fields = {"consumerGroup": group, "bname": name}
        if topic is not None:
            fields["topic"] = topic
        request = Command(RequestCode.GET_CONSUME_STATS, fields)
        answer = yield from checked_call(address, request, timeout_s)
        part = decode_consume_stats(answer.body)
        stats = ConsumeStats(stats.queues | part.queues, stats.consume_tps + part.consume_tps)
    return stats

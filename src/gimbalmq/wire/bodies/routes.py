"""Where topics and brokers are: route, cluster, members of a broker set."""

from __future__ import annotations

from typing import Any

import msgspec

from gimbalmq.model.route import BrokerSet, QueueData, TopicRoute
from gimbalmq.wire.bodies.shape import Document, convert, read_document, write_document

__all__ = [
    "ClusterInfo",
    "decode_broker_members",
    "decode_cluster",
    "decode_route",
    "encode_broker_members",
    "encode_cluster",
    "encode_route",
]


class _Broker(msgspec.Struct):
    brokerName: str = ""  # noqa: N815 - names on the wire, here and below
    cluster: str = ""
    brokerAddrs: dict[int, str] = msgspec.field(default_factory=dict)  # noqa: N815


class _Queues(msgspec.Struct):
    brokerName: str = ""  # noqa: N815
    perm: int = 0
    readQueueNums: int = 0  # noqa: N815
    writeQueueNums: int = 0  # noqa: N815


class _Route(msgspec.Struct):
    brokerDatas: list[_Broker] = msgspec.field(default_factory=list)  # noqa: N815
    queueDatas: list[_Queues] = msgspec.field(default_factory=list)  # noqa: N815
    orderTopicConf: str = ""  # noqa: N815


class ClusterInfo(msgspec.Struct, frozen=True):
    """Every broker set by name, and the names in each cluster."""

    brokers: dict[str, BrokerSet]
    clusters: dict[str, tuple[str, ...]]


class _Cluster(msgspec.Struct):
    brokerAddrTable: dict[str, _Broker] = msgspec.field(default_factory=dict)  # noqa: N815
    clusterAddrTable: dict[str, list[str]] = msgspec.field(default_factory=dict)  # noqa: N815


def _broker_set(broker: _Broker) -> BrokerSet:
    return BrokerSet(broker.brokerName, broker.cluster, broker.brokerAddrs)


def _broker_members(broker: BrokerSet) -> dict[str, Any]:
    return {
        "brokerAddrs": {str(number): address for number, address in broker.addresses.items()},
        "brokerName": broker.name,
        "cluster": broker.cluster,
        "enableActingMaster": False,
    }


def decode_route(topic: str, data: Document) -> TopicRoute:
    """Read the name server's answer for a topic."""
    what = f"route of topic '{topic}'"
    route = convert(read_document(data, what), _Route, what)
    return TopicRoute(
        topic,
        tuple(map(_broker_set, route.brokerDatas)),
        tuple(
            QueueData(one.brokerName, one.readQueueNums, one.writeQueueNums, one.perm)
            for one in route.queueDatas
        ),
        route.orderTopicConf,
    )


def encode_route(route: TopicRoute) -> bytes:
    """The name server's answer, with quoted keys, which Java reads as well as its own form."""
    return write_document(
        {
            "brokerDatas": [_broker_members(broker) for broker in route.brokers],
            "filterServerTable": {},
            "orderTopicConf": route.order_conf or None,
            "queueDatas": [
                {
                    "brokerName": data.broker,
                    "perm": data.perm,
                    "readQueueNums": data.read_queues,
                    "topicSysFlag": 0,
                    "writeQueueNums": data.write_queues,
                }
                for data in route.queues
            ],
        }
    )


def decode_cluster(data: Document) -> ClusterInfo:
    """Read the name server's list of brokers."""
    info = convert(read_document(data, "cluster info"), _Cluster, "cluster info")
    return ClusterInfo(
        {name: _broker_set(broker) for name, broker in info.brokerAddrTable.items()},
        {name: tuple(members) for name, members in info.clusterAddrTable.items()},
    )


def encode_cluster(info: ClusterInfo) -> bytes:
    """The name server's list of brokers."""
    return write_document(
        {
            "brokerAddrTable": {
                name: _broker_members(broker) for name, broker in info.brokers.items()
            },
            "clusterAddrTable": info.clusters,
        }
    )


def decode_broker_members(data: Document) -> BrokerSet:
    """Read the members of one broker set (901), bare or in its envelope."""
    what = "broker member group"
    document = read_document(data, what)
    return _broker_set(convert(document.get("brokerMemberGroup", document), _Broker, what))


def encode_broker_members(broker: BrokerSet) -> bytes:
    """The members of one broker set, in the envelope of the answer to 901."""
    members = _broker_members(broker)
    del members["enableActingMaster"]
    return write_document({"brokerMemberGroup": members})

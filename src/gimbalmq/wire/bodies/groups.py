"""Who is in a group and what they want: heartbeats, member lists, locks, connections."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from gimbalmq.model.java import hash_code
from gimbalmq.model.queue import MessageQueue
from gimbalmq.wire.bodies.shape import (
    Document,
    convert,
    java_names,
    queue_from,
    queue_members,
    read_document,
    write_document,
)
from gimbalmq.wire.subscription import SubscriptionData

__all__ = [
    "ClientConnection",
    "ConsumerConnection",
    "ConsumerData",
    "HeartbeatData",
    "LockBody",
    "decode_check_client",
    "decode_consumer_connection",
    "decode_consumer_list",
    "decode_heartbeat",
    "decode_lock",
    "decode_locked",
    "decode_producer_connection",
    "encode_check_client",
    "encode_consumer_connection",
    "encode_consumer_list",
    "encode_heartbeat",
    "encode_lock",
    "encode_locked",
    "encode_producer_connection",
    "heartbeat_fingerprint",
]


class ConsumerData(
    msgspec.Struct,
    frozen=True,
    rename=java_names(group="groupName", subscriptions="subscriptionDataSet"),
):
    """One consumer group in a heartbeat."""

    group: str = msgspec.field(default="")
    consume_type: str = "CONSUME_PASSIVELY"
    message_model: str = "CLUSTERING"
    consume_from_where: str = "CONSUME_FROM_LAST_OFFSET"
    subscriptions: tuple[SubscriptionData, ...] = ()
    unit_mode: bool = False


class _ProducerData(msgspec.Struct, frozen=True, rename=java_names()):
    group_name: str = ""


class HeartbeatData(msgspec.Struct, frozen=True):
    """A heartbeat: everything that one client is.

    `without_subscriptions` only after the broker has said that it understands it; others would
    take the group to have no subscriptions.
    """

    client_id: str
    consumers: tuple[ConsumerData, ...] = ()
    producers: tuple[str, ...] = ()
    fingerprint: int = 0
    without_subscriptions: bool = False


class _Heartbeat(msgspec.Struct, rename=java_names(client_id="clientID")):
    client_id: str = ""
    consumer_data_set: list[ConsumerData] = msgspec.field(default_factory=list)
    producer_data_set: list[_ProducerData] = msgspec.field(default_factory=list)
    heartbeat_fingerprint: int = 0
    without_sub: bool = False


class LockBody(msgspec.Struct, frozen=True):
    """A request to lock or unlock queues for a member of a group."""

    group: str
    client_id: str
    queues: tuple[MessageQueue, ...]
    only_this_broker: bool = False


class ClientConnection(msgspec.Struct, frozen=True, rename=java_names(address="clientAddr")):
    """One member as its broker sees it; `version` is a number of `codes.version_name`."""

    client_id: str = ""
    address: str = ""
    language: str = ""
    version: int = 0


class ConsumerConnection(
    msgspec.Struct,
    frozen=True,
    rename=java_names(connections="connectionSet", subscriptions="subscriptionTable"),
):
    """The members of a consumer group, and what the group is to its broker."""

    connections: tuple[ClientConnection, ...] = ()
    subscriptions: dict[str, SubscriptionData] = msgspec.field(default_factory=dict)
    consume_type: str = ""
    message_model: str = ""
    consume_from_where: str = ""


def encode_heartbeat(heartbeat: HeartbeatData) -> bytes:
    """The body of HEART_BEAT."""
    return write_document(
        _Heartbeat(
            heartbeat.client_id,
            list(heartbeat.consumers),
            [_ProducerData(group) for group in heartbeat.producers],
            heartbeat.fingerprint,
            heartbeat.without_subscriptions,
        )
    )


def decode_heartbeat(data: Document) -> HeartbeatData:
    """Read the body of HEART_BEAT."""
    read = convert(read_document(data, "heartbeat"), _Heartbeat, "heartbeat")
    return HeartbeatData(
        read.client_id,
        tuple(read.consumer_data_set),
        tuple(one.group_name for one in read.producer_data_set),
        read.heartbeat_fingerprint,
        read.without_sub,
    )


def heartbeat_fingerprint(data: Document) -> int:
    """The number by which a broker notices that a heartbeat's content has changed (5.1.3+).

    Java's hash of the heartbeat's text without what changes by itself: client id, subscription
    versions, and the two members of the protocol.
    """
    document = read_document(data, "heartbeat")
    blank = {"clientID": "", "heartbeatFingerprint": 0, "withoutSub": False}
    document = {"consumerDataSet": [], "producerDataSet": [], **document, **blank}
    for consumer in document["consumerDataSet"]:
        for subscription in consumer.get("subscriptionDataSet", ()):
            subscription["subVersion"] = 0
    return hash_code(write_document(document).decode())


def encode_consumer_list(members: Iterable[str]) -> bytes:
    """The client ids of a group's members."""
    return write_document({"consumerIdList": list(members)})


def decode_consumer_list(data: Document) -> tuple[str, ...]:
    """The client ids of a group's members; a member that gave no id is left out."""
    what = "consumer list"
    ids = convert(read_document(data, what).get("consumerIdList", []), list[str | None], what)
    return tuple(one for one in ids if one is not None)


def encode_lock(lock: LockBody) -> bytes:
    """The body of LOCK_BATCH_MQ and of UNLOCK_BATCH_MQ."""
    return write_document(
        {
            "clientId": lock.client_id,
            "consumerGroup": lock.group,
            "mqSet": [queue_members(queue) for queue in lock.queues],
            "onlyThisBroker": lock.only_this_broker,
        }
    )


def decode_lock(data: Document) -> LockBody:
    """Read the body of LOCK_BATCH_MQ or UNLOCK_BATCH_MQ; absent members are empty."""
    what = "lock request"
    read = read_document(data, what)
    return LockBody(
        convert(read.get("consumerGroup", ""), str, what),
        convert(read.get("clientId", ""), str, what),
        _queues(read.get("mqSet", []), what),
        convert(read.get("onlyThisBroker", False), bool, what),
    )


def encode_locked(queues: Iterable[MessageQueue]) -> bytes:
    """The queues that the caller of LOCK_BATCH_MQ now owns."""
    return write_document({"lockOKMQSet": [queue_members(queue) for queue in queues]})


def decode_locked(data: Document) -> frozenset[MessageQueue]:
    """The queues that the caller of LOCK_BATCH_MQ now owns."""
    return frozenset(
        _queues(read_document(data, "lock answer").get("lockOKMQSet", []), "lock answer")
    )


def _queues(value: Any, what: str) -> tuple[MessageQueue, ...]:
    return tuple(queue_from(one, what) for one in convert(value, list[Any], what))


def encode_consumer_connection(connection: ConsumerConnection) -> bytes:
    """The answer to GET_CONSUMER_CONNECTION_LIST."""
    return write_document(connection)


def decode_consumer_connection(data: Document) -> ConsumerConnection:
    """Read the answer to GET_CONSUMER_CONNECTION_LIST."""
    what = "consumer connection"
    return convert(read_document(data, what), ConsumerConnection, what)


def encode_producer_connection(connections: Iterable[ClientConnection]) -> bytes:
    """The answer to GET_PRODUCER_CONNECTION_LIST."""
    return write_document({"connectionSet": list(connections)})


def decode_producer_connection(data: Document) -> tuple[ClientConnection, ...]:
    """Read the answer to GET_PRODUCER_CONNECTION_LIST."""
    what = "producer connection"
    members = read_document(data, what).get("connectionSet", [])
    return convert(members, tuple[ClientConnection, ...], what)


def encode_check_client(client_id: str, group: str, subscription: SubscriptionData) -> bytes:
    """The body of CHECK_CLIENT_CONFIG, by which a broker checks an SQL expression."""
    return write_document(
        {
            "clientId": client_id,
            "group": group,
            "subscriptionData": subscription,
        }
    )


def decode_check_client(data: Document) -> SubscriptionData:
    """The subscription that CHECK_CLIENT_CONFIG asks about."""
    what = "client check"
    return convert(read_document(data, what).get("subscriptionData"), SubscriptionData, what)

"""Asks a RocketMQ server one question over a fresh connection: enough to see that it is ready."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping

import msgspec

from gimbalmq.errors import BrokerError, TransportError
from gimbalmq.wire.codes import RequestCode
from gimbalmq.wire.command import Command, encode_command
from gimbalmq.wire.connection import Connection

__all__ = ["ask", "create_topic", "lists_brokers", "write_queues"]

_CHUNK = 65536


class _QueueData(msgspec.Struct, frozen=True):
    brokerName: str  # noqa: N815 - name on the wire
    writeQueueNums: int  # noqa: N815 - name on the wire


class _Route(msgspec.Struct, frozen=True):
    queueDatas: list[_QueueData]  # noqa: N815 - name on the wire


def ask(
    address: str, code: int, fields: Mapping[str, str] | None = None, *, timeout_s: float = 5.0
) -> Command:
    """Send one request and return its answer, whatever its code.

    Raises TransportError when the server cannot be reached or does not answer in time.
    """
    host, _, port = address.rpartition(":")
    frame = encode_command(Command(code, dict(fields or {}), opaque=1))
    incoming = Connection()
    try:
        with socket.create_connection((host, int(port)), timeout=timeout_s) as connection:
            connection.sendall(frame)
            while data := connection.recv(_CHUNK):
                for command in incoming.receive(data):
                    if command.is_response:
                        return command
    except OSError as error:
        raise TransportError(f"{address} did not answer: {error}", address=address) from error
    raise TransportError(f"{address} closed the connection without an answer", address=address)


def lists_brokers(nameserver: str, addresses: Iterable[str]) -> bool:
    """Whether the name server knows all these brokers."""
    # Not parsed: the body is a dialect of JSON, and an address in quotes can be only that.
    body = bytes(ask(nameserver, RequestCode.GET_BROKER_CLUSTER_INFO).body)
    return all(f'"{address}"'.encode() in body for address in addresses)


def write_queues(nameserver: str, topic: str) -> dict[str, int]:
    """How many queues each broker offers for sending, by broker; empty for an unknown topic."""
    fields = {"topic": topic, "acceptStandardJsonOnly": "true"}
    answer = ask(nameserver, RequestCode.GET_ROUTEINFO_BY_TOPIC, fields)
    if answer.code:
        return {}
    route = msgspec.json.decode(answer.body, type=_Route)
    return {queues.brokerName: queues.writeQueueNums for queues in route.queueDatas}


def create_topic(
    broker: str,
    topic: str,
    *,
    queues: int,
    permission: int,
    order: bool,
    attributes: Mapping[str, str],
) -> None:
    """Make or change a topic on the broker at that address; BrokerError when it refuses."""
    fields = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": str(queues),
        "writeQueueNums": str(queues),
        "perm": str(permission),
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "true" if order else "false",
    }
    if attributes:
        fields["attributes"] = ",".join(f"+{key}={value}" for key, value in attributes.items())
    answer = ask(broker, RequestCode.UPDATE_AND_CREATE_TOPIC, fields, timeout_s=15.0)
    if answer.code:
        raise BrokerError(
            f"broker {broker} refused to make topic '{topic}': code {answer.code}, {answer.remark}",
            code=answer.code,
            address=broker,
            remark=answer.remark or "",
        )

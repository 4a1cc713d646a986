"""Asks a server one question over a fresh connection: enough to start a cluster and see it ready.

The same for RocketMQ's own servers and for ours. Knows no client: whatever those do wrong must not
keep a cluster from starting.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterable, Mapping

import msgspec

from gimbalmq.errors import BrokerError, EngineError, TransportError
from gimbalmq.wire.acl import Credentials, sign
from gimbalmq.wire.codes import RequestCode
from gimbalmq.wire.command import Command, encode_command
from gimbalmq.wire.connection import Connection

__all__ = ["ask", "create_topic", "lists_brokers", "wait_until", "write_queues"]

_CHUNK = 65536
_POLL_S = 0.02


class _QueueData(msgspec.Struct, frozen=True):
    brokerName: str  # noqa: N815 - name on the wire
    writeQueueNums: int  # noqa: N815 - name on the wire


class _Route(msgspec.Struct, frozen=True):
    queueDatas: list[_QueueData]  # noqa: N815 - name on the wire


def ask(
    address: str,
    code: int,
    fields: Mapping[str, str] | None = None,
    *,
    credentials: Credentials | None = None,
    timeout_s: float = 5.0,
) -> Command:
    """Send one request, signed when there are credentials, and return its answer, whatever its code.

    Raises TransportError when the server cannot be reached or does not answer in time.
    """
    host, _, port = address.rpartition(":")
    request = Command(code, dict(fields or {}), opaque=1)
    frame = encode_command(request if credentials is None else sign(request, credentials))
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
    credentials: Credentials | None = None,
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
    answer = ask(
        broker,
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        fields,
        credentials=credentials,
        timeout_s=15.0,
    )
    if answer.code:
        raise BrokerError(
            f"broker {broker} refused to make topic '{topic}': code {answer.code}, {answer.remark}",
            code=answer.code,
            address=broker,
            remark=answer.remark or "",
        )


def wait_until(
    condition: Callable[[], bool],
    timeout_s: float,
    complaint: Callable[[], str],
    *,
    check: Callable[[], None] = lambda: None,
) -> None:
    """Ask again and again until it is so; servers that do not answer yet are asked again.

    Raises:
        EngineError: it did not become so in time; `check` raises its own when a server is gone.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        with contextlib.suppress(TransportError):
            if condition():
                return
        check()
        if time.monotonic() > deadline:
            raise EngineError(f"{complaint()} after {timeout_s:g} s")
        time.sleep(_POLL_S)

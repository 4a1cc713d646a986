"""Asking name servers: one at a time, the next one when it cannot be reached."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from gimbalmq.errors import (
    BrokerError,
    CallTimeoutError,
    ProtocolError,
    TopicNotFoundError,
    TransportError,
    UnreachableError,
)
from gimbalmq.flows.effects import Flow, checked_call, now
from gimbalmq.model.route import QueueData, TopicRoute
from gimbalmq.wire.bodies import decode_route
from gimbalmq.wire.codes import RequestCode, ResponseCode
from gimbalmq.wire.command import Command
from gimbalmq.wire.headers import route_request
from gimbalmq.wire.names import TEMPLATE_TOPIC

__all__ = [
    "DEFAULT_TEMPLATE",
    "NameServers",
    "TopicTemplate",
    "ask_nameservers",
    "fetch_publish_route",
    "fetch_route",
]


class TopicTemplate(msgspec.Struct, frozen=True):
    """What brokers make an unknown topic from, and how many queues they are asked for."""

    topic: str = TEMPLATE_TOPIC
    queues: int = 4


DEFAULT_TEMPLATE: Final = TopicTemplate()
_ADVICE: Final = "; is one running, and reachable from here?"
_WRONG_SERVER: Final = (
    "; give the address of a name server (often port 9876), not that of a broker or proxy"
)
_SILENT: Final = "; is it well, and a name server (often port 9876), not a broker or proxy?"
#: What name servers of every release answer.
_ALWAYS_KNOWN: Final = frozenset(
    {
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        RequestCode.GET_BROKER_CLUSTER_INFO,
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
    }
)


class NameServers:
    """The name servers of a cluster; remembers which one answered last.

    They do not talk to each other, so any one will do, and staying with one that works keeps a
    client's view steady. `start` says which one is asked first; clients that each take another one
    share the work out.
    """

    __slots__ = ("_current", "addresses")

    def __init__(self, addresses: Sequence[str], start: int = 0) -> None:
        assert addresses
        self.addresses = tuple(addresses)
        self._current = start % len(self.addresses)

    def in_turn(self) -> tuple[str, ...]:
        """Every address, the one that worked last first."""
        return self.addresses[self._current :] + self.addresses[: self._current]

    def worked(self, address: str) -> None:
        """Start with this one from now on."""
        if address in self.addresses:  # the list may have changed while it was asked
            self._current = self.addresses.index(address)

    def replace(self, addresses: Sequence[str]) -> bool:
        """Use another list from now on, going on with the one that worked; whether it differs."""
        assert addresses
        fresh = tuple(addresses)
        if set(fresh) == set(self.addresses):
            return False  # an address server may give them in any order
        current = self.addresses[self._current]
        self.addresses = fresh
        # Clients that were spread over the old ones stay spread.
        self._current = fresh.index(current) if current in fresh else self._current % len(fresh)
        return True


def ask_nameservers(
    nameservers: NameServers, request: Callable[[], Command], timeout_s: float
) -> Flow[Command]:
    """Put one question to the first name server that can be reached, within the time in all.

    Each may take half of what those before it have left over, and the last one the rest.

    Raises:
        TransportError: none could; the text says why for each.
        BrokerError: the one that was reached refused.
    """
    failures: list[str] = []
    advice = _ADVICE
    left_s, servers = timeout_s, nameservers.in_turn()
    for address in servers:
        if address != servers[-1]:
            left_s /= 2
        try:
            answer = yield from _asked(address, request(), left_s)
        except UnreachableError as error:
            failures.append(error.reason)
        except CallTimeoutError as error:
            failures.append(str(error))
            advice = _SILENT
        except (TransportError, ProtocolError) as error:
            failures.append(str(error))
            advice = ""  # it was reached, and the error says what to do
        else:
            nameservers.worked(address)
            return answer
    raise TransportError(
        "no name server could be asked: " + "; ".join(failures) + advice,
        address=nameservers.addresses[0],
    )


def _asked(address: str, request: Command, timeout_s: float) -> Flow[Command]:
    try:
        return (yield from checked_call(address, request, timeout_s))
    except BrokerError as error:
        unknown = error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        if not unknown or request.code not in _ALWAYS_KNOWN:
            raise
        raise BrokerError(
            f"{error}{_WRONG_SERVER}", code=error.code or 0, address=address, remark=error.remark
        ) from None


def fetch_route(nameservers: NameServers, topic: str, timeout_s: float = 3.0) -> Flow[TopicRoute]:
    """The route of a topic.

    Raises:
        TopicNotFoundError: the name server knows no such topic.
    """
    try:
        answer = yield from ask_nameservers(nameservers, lambda: route_request(topic), timeout_s)
    except TopicNotFoundError as error:
        raise TopicNotFoundError(
            f"topic '{topic}' does not exist, says name server {error.address}: check its name "
            f"(gimbalmq topic list), or create it (gimbalmq topic create {topic} --queues 8)",
            code=error.code or 0,
            address=error.address,
            remark=error.remark,
        ) from None
    return decode_route(topic, answer.body)


def fetch_publish_route(
    nameservers: NameServers,
    topic: str,
    *,
    template: TopicTemplate = DEFAULT_TEMPLATE,
    timeout_s: float = 3.0,
) -> Flow[TopicRoute]:
    """The route to send to: the topic's own, or that of the template it will be made from.

    A broker that allows it creates an unknown topic with the first message, on that broker only,
    with at most as many queues as it is asked for.
    """
    deadline_s = (yield from now()).at_s + timeout_s
    try:
        return (yield from fetch_route(nameservers, topic, timeout_s))
    except TopicNotFoundError as unknown:
        try:
            left_s = deadline_s - (yield from now()).at_s
            model = yield from fetch_route(nameservers, template.topic, left_s)
        except TopicNotFoundError:
            raise TopicNotFoundError(
                f"topic '{topic}' does not exist and brokers do not create topics by themselves: "
                f"create it first (for example: gimbalmq topic create {topic} --queues 8)",
                code=unknown.code or 0,
                address=unknown.address,
                remark=unknown.remark,
            ) from None
    return TopicRoute(
        topic,
        model.brokers,
        tuple(_clamped(data, template.queues) for data in model.queues),
        from_template=True,
    )


def _clamped(data: QueueData, queues_max: int) -> QueueData:
    # Java clamps by the template's read queues, for both directions.
    queues = min(queues_max, data.read_queues)
    return QueueData(data.broker, queues, queues, data.perm)

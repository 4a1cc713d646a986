"""Asking brokers about a group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from gimbalmq.errors import BrokerError, ConfigurationError, ProtocolError, TransportError
from gimbalmq.flows.effects import Flow, checked_call
from gimbalmq.wire.absence import ABSENT_PROPERTY, decode_absent
from gimbalmq.wire.bodies import decode_consumer_list, decode_running_info, encode_check_client
from gimbalmq.wire.codes import RequestCode
from gimbalmq.wire.command import Command
from gimbalmq.wire.headers import consumer_list_request
from gimbalmq.wire.subscription import SubscriptionData

__all__ = ["ask_absent", "check_subscriptions", "list_everywhere", "list_members"]

#: A topic may be made later, so that this is no error of a start.
_NO_ROUTE: Final = (
    "no topic of the group has a route; look at their names (gimbalmq topic list), or create them"
)


def list_members(
    brokers: Sequence[tuple[str, str]], group: str, timeout_s: float
) -> Flow[tuple[str, ...]]:
    """The client ids of a group, from the first broker (name, address) that answers.

    Raises:
        TransportError: none answered; the text says why for each.
    """
    failures: list[str] = []
    for name, address in brokers:
        try:
            answer = yield from checked_call(address, consumer_list_request(name, group), timeout_s)
        except (TransportError, BrokerError) as error:
            failures.append(f"{name}: {error}")
        else:
            return decode_consumer_list(answer.body)
    raise TransportError(
        f"no broker lists the members of group '{group}': " + ("; ".join(failures) or _NO_ROUTE)
    )


def list_everywhere(
    brokers: Sequence[tuple[str, str]], group: str, timeout_s: float
) -> Flow[dict[str, frozenset[str]]]:
    """The client ids of a group as each broker (name, address) lists them, by address.

    Raises:
        TransportError: a broker did not answer, or none is known: nobody can say who is there.
    """
    lists: dict[str, frozenset[str]] = {}
    for broker in brokers:
        listed = yield from list_members([broker], group, timeout_s)
        lists[broker[1]] = frozenset(listed)
    if not lists:
        raise TransportError(f"no broker is known that could list the members of group '{group}'")
    return lists


def ask_absent(
    brokers: Sequence[tuple[str, str]], group: str, members: Iterable[str], timeout_s: float
) -> Flow[dict[str, float] | None]:
    """Who is gone from a group and for how many seconds, as the first member that knows says.

    Members are asked through the brokers (name, address). None when nobody knows or answers.
    """
    for client_id in members:
        for name, address in brokers:
            fields = {"consumerGroup": group, "clientId": client_id, "jstackEnable": "false"}
            request = Command(int(RequestCode.GET_CONSUMER_RUNNING_INFO), {**fields, "bname": name})
            try:
                answer = yield from checked_call(address, request, timeout_s)
                told = decode_running_info(answer.body).properties.get(ABSENT_PROPERTY)
                if told is not None:
                    return decode_absent(told)
            except (TransportError, BrokerError, ProtocolError):
                continue  # another broker or another member may do better
            break
    return None


def check_subscriptions(
    brokers: Mapping[str, Sequence[tuple[str, str]]],
    client_id: str,
    group: str,
    subscriptions: Iterable[SubscriptionData],
    timeout_s: float,
) -> Flow[None]:
    """Have each broker (name, address) of a topic read its SQL expression, before it is used.

    Raises:
        ConfigurationError: a broker refuses it; the text has the broker's words.
    """
    for subscription in subscriptions:
        for name, address in brokers.get(subscription.topic, ()):
            body = encode_check_client(client_id, group, subscription)
            request = Command(int(RequestCode.CHECK_CLIENT_CONFIG), {"bname": name}, body)
            try:
                yield from checked_call(address, request, timeout_s)
            except BrokerError as error:
                words = error.remark.splitlines()[0] if error.remark else f"code {error.code}"
                raise ConfigurationError(
                    f"topic '{subscription.topic}': broker {name} ({address}) refuses the SQL "
                    f"expression '{subscription.expression}': {words}. Correct the expression; "
                    "brokers filter by SQL only with enablePropertyFilter=true"
                ) from error

"""Asking brokers about a group."""

from __future__ import annotations

from collections.abc import Sequence

from gimbalmq.errors import BrokerError, TransportError
from gimbalmq.flows.effects import Flow, checked_call
from gimbalmq.wire.bodies import decode_consumer_list
from gimbalmq.wire.headers import consumer_list_request

__all__ = ["list_members"]


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
        f"no broker lists the members of group '{group}': "
        + ("; ".join(failures) or "no topic of the group has a route")
    )

"""A consumer as the client instance sees it: what it must tell, and what it is told.

Decides the vocabulary alone, so that the instance and what answers brokers for it need not know
how a consumer works.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from gimbalmq.flows.effects import Flow
from gimbalmq.model.route import TopicRoute
from gimbalmq.wire.bodies import ConsumerData
from gimbalmq.wire.command import Command

__all__ = ["GroupMember"]


class GroupMember(Protocol):
    """A consumer of the instance, as the instance sees it."""

    group: str

    def topics(self) -> Iterable[str]:
        """The topics whose routes it needs."""

    def registration(self) -> ConsumerData:
        """What the heartbeat says of it."""

    def preflight(self) -> Flow[None] | None:
        """What brokers must agree to before it joins; None when there is nothing to ask."""

    def on_route(self, route: TopicRoute) -> None:
        """The route of one of its topics is new or changed."""

    def on_notice(self) -> None:
        """A broker says that the group's members changed."""

    def on_reconnected(self) -> None:
        """A broker has this member's registration again."""

    def on_request(self, request: Command, reply: Callable[[Command], None]) -> bool:
        """A broker asks about this group; False when the request is not known."""

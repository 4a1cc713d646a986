"""Administration: topics, groups, offsets and stored messages of a cluster.

Every call asks the servers and waits for them on the calling thread; nothing runs in the
background and nothing is remembered but open connections.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from types import TracebackType
from typing import Literal, Self, TypeVar

from gimbalmq.client.options import Start, positive
from gimbalmq.client.options import start_from as read_start
from gimbalmq.client.tailing import Tail
from gimbalmq.errors import ConfigurationError, OffsetError
from gimbalmq.flows.admin import create_topic, delete_topic, fetch_topic_stats, list_topics
from gimbalmq.flows.admin_groups import (
    GroupView,
    Member,
    fetch_assignments,
    fetch_consume_stats,
    list_groups,
    view_group,
)
from gimbalmq.flows.admin_messages import find_by_id, find_by_key
from gimbalmq.flows.admin_offsets import (
    QueueOffsets,
    ResetTo,
    fetch_offsets,
    reset_offsets,
)
from gimbalmq.flows.effects import Flow
from gimbalmq.flows.route import NameServers, fetch_route
from gimbalmq.model.queue import MessageQueue
from gimbalmq.model.route import TopicRoute
from gimbalmq.runtime.inline import ConnectionPool, run_inline
from gimbalmq.transport.address import parse_nameservers
from gimbalmq.wire.bodies import ConsumeStats, TopicStats
from gimbalmq.wire.names import check_group
from gimbalmq.wire.record import ReceivedMessage
from gimbalmq.wire.subscription import parse_tags

__all__ = ["Admin", "GroupView", "Member", "QueueOffsets"]

_T = TypeVar("_T")


class Admin:
    """Looks at a cluster and changes it; a context manager, safe to use from several threads.

        with Admin("127.0.0.1:9876") as admin:
            admin.create_topic("orders", queues=8)
            for queue, offsets in admin.offsets("billing", "orders").items():
                print(queue.path, offsets.lag)

    A broker that is registered and cannot be asked is an error: an answer is whole or none.

    Args:
        nameserver: `host:port`, several separated by `;`; None reads `NAMESRV_ADDR`.
        timeout_s: For each request to a server.
    """

    def __init__(self, nameserver: str | None = None, *, timeout_s: float = 5.0) -> None:
        self._timeout_s = positive("timeout_s", timeout_s)
        self._nameservers = NameServers(parse_nameservers(nameserver))
        self._pool = ConnectionPool()

    def close(self) -> None:
        """Close all connections; safe to call again."""
        self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _run(self, flow: Flow[_T]) -> _T:
        return run_inline(flow, self._pool)

    # ---- topics ------------------------------------------------------------------------------

    def topics(self, *, internal: bool = False) -> tuple[str, ...]:
        """The topics, sorted; `internal` adds RocketMQ's own, retry and dead-letter topics."""
        return self._run(list_topics(self._nameservers, self._timeout_s, internal=internal))

    def create_topic(
        self,
        topic: str,
        queues: int = 8,
        brokers: Iterable[str] | None = None,
        perm: int = 6,
        order: bool = False,  # noqa: FBT001, FBT002 - the fifth of five, given by name
    ) -> TopicRoute:
        """Make a topic, or change an existing one, and wait until clients can see it.

        Args:
            topic: Its name.
            queues: How many queues on each broker.
            brokers: Names of the brokers that get it; None means all.
            perm: 6 for reading and writing, 4 for reading only, 2 for writing only.
            order: Keep the list of queues for producers when a broker is down, so that messages
                with equal sharding keys never move to another queue; name servers have to be
                configured for it (`orderMessageEnable`).
        """
        return self._run(
            create_topic(
                self._nameservers,
                topic,
                queues=queues,
                brokers=None if brokers is None else tuple(brokers),
                perm=perm,
                order=order,
                timeout_s=self._timeout_s,
            )
        )

    def delete_topic(self, topic: str) -> None:
        """Remove a topic with all its messages, everywhere.

        Raises:
            TopicNotFoundError: there is no such topic.
        """
        self._run(delete_topic(self._nameservers, topic, self._timeout_s))

    def route(self, topic: str) -> TopicRoute:
        """Where a topic lives: brokers, their addresses, and how many queues each has.

        Raises:
            TopicNotFoundError: there is no such topic.
        """
        return self._run(fetch_route(self._nameservers, topic, self._timeout_s))

    def topic_stats(self, topic: str) -> TopicStats:
        """What each queue of a topic holds, and when it last got a message."""
        return self._run(fetch_topic_stats(self.route(topic), self._timeout_s))

    # ---- groups ------------------------------------------------------------------------------

    def groups(self, *, internal: bool = False) -> tuple[str, ...]:
        """The consumer groups that brokers know, sorted; `internal` adds RocketMQ's own."""
        return self._run(list_groups(self._nameservers, self._timeout_s, internal=internal))

    def group(self, group: str) -> GroupView:
        """What every broker says about a group: members, subscriptions, kind."""
        check_group(group)
        return self._run(view_group(self._nameservers, group, self._timeout_s))

    def members(self, group: str) -> tuple[Member, ...]:
        """Who is in a group now, by client id, from all brokers; empty when nobody is.

        A client id that several clients share is listed once for each of them.
        """
        return self.group(group).members

    def assignments(self, group: str) -> dict[str, frozenset[MessageQueue]]:
        """Which queues each member holds, the group's retry queues included.

        Every member is asked, Java's too, so this shows what is, not what should be: while the
        group rebalances, a queue may have no owner, or two.

        Raises:
            BrokerError, TransportError: a member did not answer.
        """
        check_group(group)
        return self._run(fetch_assignments(self._nameservers, group, self._timeout_s))

    def consume_stats(self, group: str, topic: str | None = None) -> ConsumeStats:
        """How far a group is in the queues it knows, as brokers keep statistics of it.

        They show 0 where nothing is committed; `offsets` tells the two apart.
        """
        check_group(group)
        return self._run(
            fetch_consume_stats(self._nameservers, group, self._timeout_s, topic=topic)
        )

    def offsets(self, group: str, topic: str) -> dict[MessageQueue, QueueOffsets]:
        """What each queue of a topic stores, and how far the group has read it.

        Raises:
            TopicNotFoundError: there is no such topic.
        """
        check_group(group)
        return self._run(fetch_offsets(self._nameservers, group, topic, self._timeout_s))

    def reset(
        self,
        group: str,
        topic: str,
        to: datetime | Literal["earliest", "latest"] | Mapping[MessageQueue, int],
    ) -> dict[MessageQueue, int]:
        """Move a group to other messages of a topic; returns where each queue now stands.

        From 5.1 on brokers do it, with members running or not; running members follow with
        their next pull, which may take half a minute on a quiet queue. Brokers before 5.1 can
        move running members to a time only (`"earliest"` and `"latest"` are times, too).

        Args:
            group: The group.
            topic: The topic; the group stays where it is in others.
            to: The first message stored at or after an aware datetime, the beginning, the end,
                or the next offset of each queue that is to move.

        Raises:
            OffsetError: a wanted offset is not stored.
            StateError: members run that cannot be moved so; stop them first.
        """
        check_group(group)
        return self._run(
            reset_offsets(self._nameservers, group, topic, _reset_to(to), self._timeout_s)
        )

    # ---- messages ----------------------------------------------------------------------------

    def message(self, which: str | tuple[str, str], *, topic: str | None = None) -> ReceivedMessage:
        """One stored message.

        Args:
            which: A `message_id`, an `offset_message_id`, or (topic, key), which gives the newest
                message that has the key.
            topic: Where to look for a `message_id`; None looks in every topic, which is slow
                when there are many.

        Raises:
            OffsetError: there is no such message, or no longer.
        """
        if isinstance(which, str):
            return self._run(find_by_id(self._nameservers, which, self._timeout_s, topic=topic))
        where, key = which
        found = self.messages(where, key)
        if not found:
            raise OffsetError(f"topic '{where}' has no message with key '{key}'")
        return found[-1]

    def messages(self, topic: str, key: str) -> tuple[ReceivedMessage, ...]:
        """The messages of a topic that have a key, the oldest first, at most 32 per broker."""
        return self._run(find_by_key(self._nameservers, topic, key, self._timeout_s))

    def tail(
        self,
        topic: str,
        *,
        tags: str = "*",
        start_from: Start = "last",
        follow: bool = True,
        poll_interval_s: float = 0.2,
    ) -> Iterator[ReceivedMessage]:
        """Read a topic beside its consumers: no group is joined and no offset is stored.

        Within a queue messages come in order; queues are read in turn.

        Args:
            topic: The topic.
            tags: `*`, or the wanted tags joined by `||`.
            start_from: `"last"` (what comes from now on), `"first"` or an aware datetime.
            follow: Wait for more for ever; False ends with the last message stored by now.
            poll_interval_s: How long to wait when no queue has anything new.
        """
        start = read_start(start_from)
        positive("poll_interval_s", poll_interval_s)
        subscription = parse_tags(topic, tags, 0)
        tail = Tail(self._pool, lambda: self.route(topic), subscription, start)
        return tail.for_ever(poll_interval_s) if follow else tail.stored()


def _reset_to(to: object) -> ResetTo:
    if to == "earliest":
        return "earliest"
    if to == "latest":
        return "latest"
    if isinstance(to, datetime) and to.tzinfo is not None:
        return int(to.timestamp() * 1000)
    if isinstance(to, Mapping):
        return to
    raise ConfigurationError(
        f"cannot reset to {to!r}: give 'earliest', 'latest', a datetime with a time zone, or the "
        "next offset by queue"
    )

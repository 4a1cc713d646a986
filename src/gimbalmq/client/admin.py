"""Administration: topics, groups, offsets and stored messages of a cluster.

Every call asks the servers and waits for them on the calling thread; nothing runs in the
background and nothing is remembered but open connections.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Self, TypeVar, Unpack

from gimbalmq.client.access import AccessOptions
from gimbalmq.client.admin_questions import AdminQuestions, ResetWish
from gimbalmq.client.options import Start
from gimbalmq.core.diagnosis import Diagnosis, Finding, Limits
from gimbalmq.core.explanation import QueueExplanation
from gimbalmq.flows.admin_groups import GroupView, Member
from gimbalmq.flows.admin_offsets import QueueOffsets
from gimbalmq.flows.effects import Flow
from gimbalmq.flows.route import NameServers
from gimbalmq.model.queue import MessageQueue
from gimbalmq.model.route import TopicRoute
from gimbalmq.runtime.inline import ConnectionPool, run_inline
from gimbalmq.wire.bodies import ConsumeStats, TopicStats
from gimbalmq.wire.received import ReceivedMessage

__all__ = [
    "Admin",
    "Diagnosis",
    "Finding",
    "GroupView",
    "Member",
    "QueueExplanation",
    "QueueOffsets",
]

_T = TypeVar("_T")


class Admin(AdminQuestions):
    """Looks at a cluster and changes it; a context manager, safe to use from several threads.

        with Admin("127.0.0.1:9876") as admin:
            admin.create_topic("orders", queues=8)
            for queue, offsets in admin.offsets("billing", "orders").items():
                print(queue.path, offsets.lag)

    A broker that is registered and cannot be asked is an error: an answer is whole or none.

    Args:
        nameserver: `host:port`, several separated by `;`; None reads `NAMESRV_ADDR`.
        timeout_s: For each request to a server.
        access_key, secret_key, tls, address_map, namespace, namesrv_domain: How the cluster is
            reached; see `AccessOptions`. With a namespace, only what is in it is listed.
    """

    def __init__(
        self,
        nameserver: str | None = None,
        *,
        timeout_s: float = 5.0,
        **access: Unpack[AccessOptions],
    ) -> None:
        super().__init__(nameserver, timeout_s=timeout_s, **access)
        self._pool, self._pid = self._new_pool(), os.getpid()

    def _new_pool(self) -> ConnectionPool:
        reach = self._access.reach
        return ConnectionPool(connect_timeout_s=reach.connect_timeout_s, reach=reach)

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
        if self._pid != os.getpid():
            # A forked child: answers to both would come over the connections of its parent.
            self._pool, self._pid = self._new_pool(), os.getpid()
        return run_inline(flow, self._pool)

    def run(self, question: Callable[[NameServers, float], Flow[_T]]) -> _T:
        """Run a flow of one's own over these connections; it gets name servers and time limit."""
        return self._run(self._question(question))

    # ---- topics ------------------------------------------------------------------------------

    def topics(self, *, internal: bool = False) -> tuple[str, ...]:
        """The topics, sorted.

            print(admin.topics())

        `internal` adds RocketMQ's own, retry and dead-letter topics.
        """
        return self._run(self._topics(internal=internal))

    def create_topic(
        self,
        topic: str,
        queues: int = 8,
        brokers: Iterable[str] | None = None,
        perm: int = 6,
        order: bool = False,  # noqa: FBT001, FBT002 - the fifth of five, given by name
    ) -> TopicRoute:
        """Make a topic, or change an existing one, and wait until clients can see it.

            admin.create_topic("orders", queues=8)

        Args:
            topic: Its name.
            queues: How many queues on each broker.
            brokers: Names of the brokers that get it; None means all.
            perm: 6 for reading and writing, 4 for reading only, 2 for writing only.
            order: Keep the list of queues for producers when a broker is down, so that messages
                with equal sharding keys never move to another queue; name servers have to be
                configured for it (`orderMessageEnable`).
        """
        return self._run(self._create_topic(topic, queues, brokers, perm, order=order))

    def delete_topic(self, topic: str) -> None:
        """Remove a topic with all its messages, everywhere.

        Raises:
            TopicNotFoundError: there is no such topic.
        """
        self._run(self._delete_topic(topic))

    def route(self, topic: str) -> TopicRoute:
        """Where a topic lives: brokers, their addresses, and how many queues each has.

            route = admin.route("orders")
            print([broker.name for broker in route.brokers])

        Raises:
            TopicNotFoundError: there is no such topic.
        """
        return self._run(self._route(topic))

    def topic_stats(self, topic: str) -> TopicStats:
        """What each queue of a topic holds, and when it last got a message."""
        return self._run(self._topic_stats(topic))

    # ---- groups ------------------------------------------------------------------------------

    def groups(self, *, internal: bool = False) -> tuple[str, ...]:
        """The consumer groups that brokers know, sorted.

            print(admin.groups())

        `internal` adds RocketMQ's own.
        """
        return self._run(self._groups(internal=internal))

    def group(self, group: str) -> GroupView:
        """What every broker says about a group: members, subscriptions, kind.

        Subscriptions are shown as brokers know them, with their namespace.
        """
        return self._run(self._group(group))

    def members(self, group: str) -> tuple[Member, ...]:
        """Who is in a group now, by client id, from all brokers; empty when nobody is.

            for member in admin.members("billing"):
                print(member.client_id)

        A client id that several clients share is listed once for each of them.
        """
        return self.group(group).members

    def assignments(self, group: str) -> dict[str, frozenset[MessageQueue]]:
        """Which queues each member holds, the group's retry queues included.

            for client_id, queues in admin.assignments("billing").items():
                print(client_id, len(queues))

        Every member is asked, Java's too, so this shows what is, not what should be: while the
        group rebalances, a queue may have no owner, or two.

        Raises:
            BrokerError, TransportError: a member did not answer.
        """
        return self._run(self._assignments(group))

    def diagnose(
        self,
        group: str,
        *,
        interval_s: float = 6.0,
        probe_locks: bool = True,
        limits: Limits | None = None,
    ) -> Diagnosis:
        """Look for faults of a group: in two looks, by asking every broker and every member.

        Brokers and members that do not answer are findings, not errors.

        Args:
            group: The group.
            interval_s: Time between the looks. Offsets that do not move in it are called stuck;
                members commit every 5 s.
            probe_locks: In ordered groups, try the locks that no member holds, and give them
                back at once: it is the only way to see a lock that a dead member has left.
            limits: From where on something counts as a fault.
        """
        flow = self._diagnose(group, interval_s=interval_s, probe_locks=probe_locks, limits=limits)
        return self._run(flow)

    def explain(
        self,
        group: str,
        queue: MessageQueue,
        *,
        without: Iterable[str] = (),
        strategy: str | None = None,
    ) -> QueueExplanation:
        """Say why a queue of a running group is where it is, and what if members left.

        Every member is asked what it holds, and one of ours for the reason, because only members
        know which absent ones they still count (`rejoin_grace_s`), which published weights they
        have read, and what their zones are. What differs from the rule, and what cannot be known,
        is part of the answer. `gimbalmq.balance.explain` computes the same for groups that do not
        run.

        Args:
            group: The group.
            queue: One of a topic that it subscribes to.
            without: Members that might leave, absent ones included: client ids, or the names given
                to them.
            strategy: Say what this strategy would give instead.

        Raises:
            StateError: nobody shares the queue out: the group has no member, broadcasts, or does
                not read the topic; or nobody would be left.
            AllocationError: there is no such queue, or `strategy` cannot be used.
        """
        return self._run(self._explain(group, queue, without=without, strategy=strategy))

    def consume_stats(self, group: str, topic: str | None = None) -> ConsumeStats:
        """How far a group is in the queues it knows, as brokers keep statistics of it.

        They show 0 where nothing is committed; `offsets` tells the two apart.
        """
        return self._run(self._consume_stats(group, topic))

    def offsets(self, group: str, topic: str) -> dict[MessageQueue, QueueOffsets]:
        """What each queue of a topic stores, and how far the group has read it.

            offsets = admin.offsets("billing", "orders")
            print(sum(queue.lag or 0 for queue in offsets.values()))

        Raises:
            TopicNotFoundError: there is no such topic.
        """
        return self._run(self._offsets(group, topic))

    def reset(
        self,
        group: str,
        topic: str,
        to: ResetWish,
        *,
        dry_run: bool = False,
    ) -> dict[MessageQueue, int]:
        """Move a group to other messages of a topic; returns where each queue now stands.

            admin.reset("billing", "orders", "earliest", dry_run=True)

        From 5.1 on brokers do it, with members running or not; running members follow with
        their next pull, which may take half a minute on a quiet queue. Brokers before 5.1 can
        move running members to a time only (`"earliest"` and `"latest"` are times, too).

        Args:
            group: The group.
            topic: The topic; the group stays where it is in others.
            to: The first message stored at or after an aware datetime, the beginning, the end,
                or the next offset of each queue that is to move.
            dry_run: Only say where each queue would stand.

        Raises:
            OffsetError: a wanted offset is not stored.
            StateError: members run that cannot be moved so; stop them first.
        """
        return self._run(self._reset(group, topic, to, dry_run=dry_run))

    # ---- messages ----------------------------------------------------------------------------

    def message(self, which: str | tuple[str, str], *, topic: str | None = None) -> ReceivedMessage:
        """One stored message.

            print(admin.message(("orders", "42")).body)

        Args:
            which: A `message_id`, an `offset_message_id`, or (topic, key), which gives the newest
                message that has the key.
            topic: Where to look for a `message_id`; None looks in every topic, which is slow
                when there are many.

        Raises:
            OffsetError: there is no such message, or no longer.
        """
        return self._run(self._message(which, topic))

    def messages(self, topic: str, key: str) -> tuple[ReceivedMessage, ...]:
        """The messages of a topic that have a key, the oldest first, at most 32 per broker."""
        return self._run(self._messages(topic, key))

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
        tail = self._tail(topic, tags, start_from, poll_interval_s)
        self._run(tail.open())
        if follow:
            return map(self._shown, tail.for_ever(self._run, poll_interval_s))
        return map(self._shown, tail.stored(self._run))

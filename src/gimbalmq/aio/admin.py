"""Administration for asyncio: topics, groups, offsets and stored messages of a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from types import TracebackType
from typing import Self, TypeVar

from gimbalmq.client.admin_questions import AdminQuestions, ResetWish
from gimbalmq.client.options import Start
from gimbalmq.core.diagnosis import Diagnosis, Limits
from gimbalmq.core.explanation import QueueExplanation
from gimbalmq.errors import GimbalError, StateError
from gimbalmq.flows.admin_groups import GroupView, Member
from gimbalmq.flows.admin_offsets import QueueOffsets
from gimbalmq.flows.effects import Flow
from gimbalmq.flows.route import NameServers
from gimbalmq.model.queue import MessageQueue
from gimbalmq.model.route import TopicRoute
from gimbalmq.runtime.aio import AioDriver
from gimbalmq.wire.bodies import ConsumeStats, TopicStats
from gimbalmq.wire.command import Command
from gimbalmq.wire.received import ReceivedMessage

__all__ = ["Admin"]

_T = TypeVar("_T")


class _Nobody:
    """Stands where an instance would: an administrator registers with no broker."""

    def on_connected(self, address: str) -> None:
        pass

    def on_disconnected(self, address: str, error: GimbalError) -> None:
        pass

    def on_request(self, address: str, request: Command) -> Command | None:
        pass


class Admin(AdminQuestions):
    """Looks at a cluster and changes it; an async context manager.

        async with Admin("127.0.0.1:9876") as admin:
            await admin.create_topic("orders", queues=8)
            offsets = await admin.offsets("billing", "orders")

    The options, questions and answers are those of `gimbalmq.Admin`, which says more about each.
    It belongs to the loop it is first used on.
    """

    _driver: AioDriver | None = None

    async def close(self) -> None:
        """Close all connections; safe to call again."""
        driver, self._driver = self._driver, None
        if driver is not None:
            await driver.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def _run(self, flow: Flow[_T]) -> _T:
        if self._driver is None:
            reach = self._access.reach
            self._driver = AioDriver(
                _Nobody(), connect_timeout_s=reach.connect_timeout_s, reach=reach
            )
        elif self._driver.loop is not asyncio.get_running_loop():
            raise StateError(
                "this Admin belongs to the event loop it was first used on: close it there, and "
                "make one for each loop"
            )
        if self._access.source.changes:  # an address server may have to be asked, which waits
            await asyncio.to_thread(self._servers.get)
        return await self._driver.run(flow)

    async def run(self, question: Callable[[NameServers, float], Flow[_T]]) -> _T:
        """Run a flow of one's own over these connections; it gets name servers and time limit."""
        return await self._run(self._question(question))

    # ---- topics ------------------------------------------------------------------------------

    async def topics(self, *, internal: bool = False) -> tuple[str, ...]:
        """The topics, sorted.

            print(await admin.topics())

        `internal` adds RocketMQ's own, retry and dead-letter topics.
        """
        return await self._run(self._topics(internal=internal))

    async def create_topic(
        self,
        topic: str,
        queues: int = 8,
        brokers: Iterable[str] | None = None,
        perm: int = 6,
        order: bool = False,  # noqa: FBT001, FBT002 - the fifth of five, given by name
    ) -> TopicRoute:
        """Make a topic, or change an existing one, and wait until clients can see it.

            await admin.create_topic("orders", queues=8)

        The arguments are those of `gimbalmq.Admin.create_topic`.
        """
        return await self._run(self._create_topic(topic, queues, brokers, perm, order=order))

    async def delete_topic(self, topic: str) -> None:
        """Remove a topic with all its messages, everywhere."""
        await self._run(self._delete_topic(topic))

    async def route(self, topic: str) -> TopicRoute:
        """Where a topic lives: brokers, their addresses, and how many queues each has.

            route = await admin.route("orders")
            print([broker.name for broker in route.brokers])

        Raises `TopicNotFoundError` when there is no such topic.
        """
        return await self._run(self._route(topic))

    async def topic_stats(self, topic: str) -> TopicStats:
        """What each queue of a topic holds, and when it last got a message."""
        return await self._run(self._topic_stats(topic))

    # ---- groups ------------------------------------------------------------------------------

    async def groups(self, *, internal: bool = False) -> tuple[str, ...]:
        """The consumer groups that brokers know, sorted.

            print(await admin.groups())

        `internal` adds RocketMQ's own.
        """
        return await self._run(self._groups(internal=internal))

    async def group(self, group: str) -> GroupView:
        """What every broker says about a group: members, subscriptions, kind."""
        return await self._run(self._group(group))

    async def members(self, group: str) -> tuple[Member, ...]:
        """Who is in a group now, by client id, from all brokers; empty when nobody is.

            for member in await admin.members("billing"):
                print(member.client_id)

        A client id that several clients share is listed once for each of them.
        """
        return (await self.group(group)).members

    async def assignments(self, group: str) -> dict[str, frozenset[MessageQueue]]:
        """Which queues each member holds, by asking every member.

            for client_id, queues in (await admin.assignments("billing")).items():
                print(client_id, len(queues))

        While the group rebalances, a queue may have no owner, or two.
        """
        return await self._run(self._assignments(group))

    async def diagnose(
        self,
        group: str,
        *,
        interval_s: float = 6.0,
        probe_locks: bool = True,
        limits: Limits | None = None,
    ) -> Diagnosis:
        """Look for faults of a group: in two looks, by asking every broker and every member."""
        flow = self._diagnose(group, interval_s=interval_s, probe_locks=probe_locks, limits=limits)
        return await self._run(flow)

    async def explain(
        self,
        group: str,
        queue: MessageQueue,
        *,
        without: Iterable[str] = (),
        strategy: str | None = None,
    ) -> QueueExplanation:
        """Say why a queue of a running group is where it is, and what if members left."""
        return await self._run(self._explain(group, queue, without=without, strategy=strategy))

    async def consume_stats(self, group: str, topic: str | None = None) -> ConsumeStats:
        """How far a group is in the queues it knows, as brokers keep statistics of it."""
        return await self._run(self._consume_stats(group, topic))

    async def offsets(self, group: str, topic: str) -> dict[MessageQueue, QueueOffsets]:
        """What each queue of a topic stores, and how far the group has read it.

            offsets = await admin.offsets("billing", "orders")
            print(sum(queue.lag or 0 for queue in offsets.values()))

        Raises `TopicNotFoundError` when there is no such topic.
        """
        return await self._run(self._offsets(group, topic))

    async def reset(
        self, group: str, topic: str, to: ResetWish, *, dry_run: bool = False
    ) -> dict[MessageQueue, int]:
        """Move a group to other messages of a topic; returns where each queue now stands.

            await admin.reset("billing", "orders", "earliest", dry_run=True)

        With `dry_run`, only where each would stand.
        """
        return await self._run(self._reset(group, topic, to, dry_run=dry_run))

    # ---- messages ----------------------------------------------------------------------------

    async def message(
        self, which: str | tuple[str, str], *, topic: str | None = None
    ) -> ReceivedMessage:
        """One stored message: by either of its ids, or by (topic, key).

            print((await admin.message(("orders", "42"))).body)

        Raises `OffsetError` when there is no such message, or no longer.
        """
        return await self._run(self._message(which, topic))

    async def messages(self, topic: str, key: str) -> tuple[ReceivedMessage, ...]:
        """The messages of a topic that have a key, the oldest first, at most 32 per broker."""
        return await self._run(self._messages(topic, key))

    async def tail(
        self,
        topic: str,
        *,
        tags: str = "*",
        start_from: Start = "last",
        follow: bool = True,
        poll_interval_s: float = 0.2,
    ) -> AsyncIterator[ReceivedMessage]:
        """Read a topic beside its consumers: no group is joined and no offset is stored.

        async for message in admin.tail("orders", start_from="first", follow=False):
            print(message.queue, message.body)
        """
        tail = self._tail(topic, tags, start_from, poll_interval_s)
        await self._run(tail.open())
        while True:
            flow = tail.next_round(poll_interval_s) if follow else tail.up_to_end()
            messages = await self._run(flow)
            for message in messages:
                yield self._shown(message)
            if not (messages or follow):
                return

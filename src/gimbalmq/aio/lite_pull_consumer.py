"""A consumer that polls, for asyncio: as a member of a group, or over assigned queues."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Self

from gimbalmq.aio.lifetime import Lifetime
from gimbalmq.aio.membership import Membership
from gimbalmq.aio.polling import LoopPollQueue
from gimbalmq.aio.shared import LoopInstance
from gimbalmq.aio.watched import Watched
from gimbalmq.client.access import Access
from gimbalmq.client.lite_pull_reader import LitePullReader
from gimbalmq.core.consumer.events import Consumed
from gimbalmq.errors import StateError
from gimbalmq.model.queue import MessageQueue
from gimbalmq.runtime.consumer_host import ConsumerHost
from gimbalmq.runtime.instance import InstanceSettings
from gimbalmq.telemetry.running import began, ended
from gimbalmq.wire.received import ReceivedMessage

__all__ = ["LitePullConsumer"]


class LitePullConsumer(LitePullReader[Membership], Watched, Lifetime):
    """Reads messages when asked to, while pulling ahead on the loop.

        async with LitePullConsumer("reports", nameserver="127.0.0.1:9876") as consumer:
            await consumer.subscribe("orders")
            for message in await consumer.poll(timeout_s=5.0):
                print(message.queue, message.queue_offset)

    The options and their meaning are those of `gimbalmq.LitePullConsumer`. `unsubscribe`,
    `on_rebalance`, `on_moved`, `assignment`, `pause`, `resume`, `stats` and `probe` do not wait and
    are plain methods.
    """

    def _new_membership(self, access: Access, timers: InstanceSettings) -> Membership:
        self._polls: LoopPollQueue | None = None
        return Membership(self.group, self.client_id, access, timers)

    # ---- what to read ------------------------------------------------------------------------

    async def subscribe(self, topic: str, tags: str = "*", sql: str | None = None) -> None:
        """Share a topic with the other members of the group.

            await consumer.subscribe("orders", tags="paid || refunded")

        Before `start` or after; all members have to subscribe to the same.
        """
        wire_topic = self._choose_topic(topic, tags, sql)
        if sql is not None and self._membership.state == "running":
            await self._membership.shared.run(self._vetting(wire_topic, tags, sql))
        self._read_topic(wire_topic, tags, sql)
        if self._to_start:
            await self._start_now()

    async def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Read exactly these queues, whoever else reads them.

            await consumer.assign([MessageQueue("orders", "broker-a", 0)])

        Replaces an earlier assignment.
        """
        self._take_queues(queues)
        if self._to_start:
            await self._start_now()

    # ---- life --------------------------------------------------------------------------------

    async def start(self) -> Self:
        """Start to read ahead; `subscribe` and `assign` may come before or after."""
        self._check_startable()
        if self._mode:
            await self._start_now()
        return self

    async def _start_now(self) -> None:
        # Only now is it known whether this consumer takes part in rebalancing.
        await self._membership.start(self._build)
        began(self)
        if self._mode == "assign":
            self._assign_now()

    def _build(self, shared: LoopInstance, now_ms: int) -> ConsumerHost:
        host = self._new_host(shared.instance, now_ms)

        def finished(done: Consumed) -> None:
            # At once: what follows, a commit or a stop, must find it accounted for.
            with contextlib.suppress(StateError):
                host.finished(done)

        self._polls = LoopPollQueue(
            finished, self._pulls.pull_batch_size, None if self._auto_commit else host.dispatch
        )
        host.attach(self._polls)
        return host

    async def stop(self) -> None:
        """Store what was consumed and leave the group; safe to call again.

        What the last poll returned comes again, to whoever reads the queue next, unless `commit`
        was called: the consumer may be stopping because of an error on the way through it.
        """
        self._give_up()
        await self._membership.stop(0.0, self._end_polls)

    async def _end_polls(self) -> None:
        ended(self)
        if self._polls is not None:
            self._polls.close()

    # ---- reading -----------------------------------------------------------------------------

    async def poll(self, timeout_s: float = 5.0) -> list[ReceivedMessage]:
        """The next messages, from one queue; an empty list when none came in time.

            for message in await consumer.poll(timeout_s=1.0):
                print(message.queue, message.queue_offset)

        With `auto_commit`, everything that earlier polls returned counts as consumed from now on.
        A poll that is cancelled has taken nothing.
        """
        self._check_poll(timeout_s)
        assert self._polls is not None
        if self._auto_commit:
            self._polls.settle()
        return await self._polls.poll_async(timeout_s)

    async def commit(self) -> dict[MessageQueue, int]:
        """Store the offsets of everything that was polled, and wait.

            stored = await consumer.commit()

        Returns what was stored, by queue.
        """
        shared = self._membership.shared
        assert self._polls is not None
        self._polls.settle()
        return await shared.run(self._commit_flow())

    async def committed(self, queue: MessageQueue) -> int | None:
        """The group's stored offset of a queue, or None."""
        return await self._membership.shared.run(self._committed_flow(queue))

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on reading an assigned queue at another offset.

            await consumer.seek(queue, 0)

        Raises:
            OffsetError: the offset is outside of what the broker stores.
        """
        await self._membership.shared.run(self._seek_flow(queue, offset))

    async def offset_at(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The first offset stored at or after a time."""
        return await self._membership.shared.run(self._offset_at_flow(queue, timestamp_ms))

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """All queues of a topic."""
        return await self._membership.shared.run(self._queues_flow(topic))

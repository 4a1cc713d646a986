"""The classic pull consumer for asyncio."""

from __future__ import annotations

from typing import Self

from gimbalmq.aio.lifetime import Lifetime
from gimbalmq.aio.membership import Membership
from gimbalmq.aio.pull_schedule import LoopSchedule
from gimbalmq.aio.watched import Watched
from gimbalmq.client.access import Access
from gimbalmq.client.pull_consumer import PullReader
from gimbalmq.model.queue import MessageQueue
from gimbalmq.runtime.instance import InstanceSettings
from gimbalmq.wire.received import PullResult

__all__ = ["PullConsumer"]


class PullConsumer(PullReader[Membership], Watched, Lifetime):
    """Pulls from any queue at any offset; its group shares out the topics it asks about.

        async with PullConsumer("audit", nameserver="127.0.0.1:9876") as consumer:
            for queue in consumer.assignment("orders"):
                result = await consumer.pull(queue, await consumer.committed(queue) or 0)
                await consumer.commit(queue, result.next_offset)

    The options are those of `gimbalmq.PullConsumer`. `subscribe`, `assignment`, `schedule` and
    `on_queues_changed` do not wait and are plain methods; tasks may be coroutine functions.
    """

    def _new_membership(self, access: Access, timers: InstanceSettings) -> Membership:
        return Membership(self.group, self.client_id, access, timers)

    def _new_schedule(self) -> LoopSchedule:
        return LoopSchedule(self._threads)

    async def start(self) -> Self:
        """Connect; the group is joined with the first topic that is asked about."""
        await self._membership.start(self._new_host)
        return self

    async def stop(self) -> None:
        """Let running tasks finish and leave the group; safe to call again."""
        if isinstance(self._schedule, LoopSchedule):
            await self._schedule.stop()
        await self._membership.stop(0.0, self._end_nothing)

    async def _end_nothing(self) -> None:
        """There is nothing that ends with the membership."""

    async def check_sql(self, topic: str, sql: str) -> None:
        """Have the brokers of a topic read an SQL expression, while running.

            await consumer.check_sql("orders", "amount > 100")
            consumer.subscribe("orders", sql="amount > 100", listener=bill)

        Before a running consumer subscribes to it, because `subscribe` does not wait.

        Raises:
            ConfigurationError: one of them refuses it.
        """
        await self._membership.shared.run(self._check_sql_flow(topic, sql))

    # ---- reading -----------------------------------------------------------------------------

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """All queues of a topic.

            for queue in await consumer.queues("orders"):
                print(queue.path, await consumer.bounds(queue))

        Any of them can be pulled from, those of other members, too.
        """
        return await self._membership.shared.run(self._queues_flow(topic))

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        max_messages: int = 32,
        tags: str = "*",
        wait_s: float = 0.0,
    ) -> PullResult:
        """Messages from an offset on, at most 32 at a time from a stock broker.

            result = await consumer.pull(queue, 0, max_messages=8)
            for message in result.messages:
                print(message.queue_offset, message.body)

        Args:
            queue: Any queue, not only those assigned to this member.
            offset: The first offset wanted.
            max_messages: At most this many.
            tags: `*`, or the wanted tags joined by `||`.
            wait_s: How long the broker may hold the request when there is nothing new.
        """
        flow = self._pull_flow(queue, offset, max_messages, tags, wait_s)
        return await self._membership.shared.run(flow)

    async def committed(self, queue: MessageQueue) -> int | None:
        """The group's stored offset of a queue, or None.

            first = (await consumer.committed(queue)) or 0

        It is the next offset to read.
        """
        return await self._membership.shared.run(self._committed_flow(queue))

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        """Store the group's offset of a queue, and wait for it.

            result = await consumer.pull(queue, 0)
            await consumer.commit(queue, result.next_offset)

        The offset is the next one to read.
        """
        await self._membership.shared.run(self._commit_flow(queue, offset))

    async def bounds(self, queue: MessageQueue) -> tuple[int, int]:
        """The first offset that is still stored, and one past the last."""
        return await self._membership.shared.run(self._bounds_flow(queue))

    async def offset_at(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The first offset stored at or after a time."""
        return await self._membership.shared.run(self._offset_at_flow(queue, timestamp_ms))

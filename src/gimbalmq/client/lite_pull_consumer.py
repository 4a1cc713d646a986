"""A consumer that polls: as a member of a group, or over queues that the user assigns.

Decides when it starts, stops and waits, on threads; all else is `LitePullReader`'s.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Self

from gimbalmq.client.access import Access
from gimbalmq.client.lifetime import Lifetime
from gimbalmq.client.lite_pull_reader import LitePullReader
from gimbalmq.client.membership import Membership
from gimbalmq.client.shared import SharedInstance
from gimbalmq.client.watched import Watched
from gimbalmq.core.consumer.events import Consumed, Polled
from gimbalmq.errors import StateError
from gimbalmq.model.queue import MessageQueue
from gimbalmq.runtime.consumer_host import ConsumerHost
from gimbalmq.runtime.instance import InstanceSettings
from gimbalmq.runtime.polling import PollQueue
from gimbalmq.telemetry.running import began, ended
from gimbalmq.wire.received import ReceivedMessage

__all__ = ["LitePullConsumer"]


class LitePullConsumer(LitePullReader[Membership], Watched, Lifetime):
    """Reads messages when asked to, while pulling ahead in the background.

    Either `subscribe`, to share a topic with the group's other members, or `assign` queues by
    hand; not both. What a poll returned counts as consumed when the next poll is made, or on
    `commit`; so after a crash, an error or a stop the last messages come again, and none is lost.

        with LitePullConsumer("reports", nameserver="127.0.0.1:9876") as consumer:
            consumer.subscribe("orders")
            for message in consumer.poll(timeout_s=5.0):
                print(message.queue, message.queue_offset)

    Args:
        group: The consumer group.
        nameserver: `host:port`, several separated by `;`; None reads `NAMESRV_ADDR`.
        allocation: How the group shares its queues; every member needs the same.
        start_from: Where to start in a queue that the group has not read yet.
        client_id: A name for this member, unique in the group; None makes one.
        auto_commit: False leaves committing to `commit()`.
        rebalance_interval_s, poll_name_server_interval_s, heartbeat_broker_interval_s: As in Java.
        auto_commit_interval_s: How often offsets are stored.
        pull_batch_size, pull_threshold_for_queue, pull_threshold_size_for_queue (MiB),
        consume_max_span: As in Java.
        pull_threshold_for_all: How many messages may wait to be polled, of all queues together.
        pulls_ahead: As for `PushConsumer`.
        broker_suspend_max_time_s, consumer_timeout_when_suspend_s: How long a broker may hold a
            pull while there is nothing new, and how long it is waited for.
        pull_time_delay_when_exception_s, pull_time_delay_when_flow_control_s,
        mq_client_api_timeout_s, offset_timeout_s, rebalance_min_interval_s, rebalance_retry_s,
        use_heartbeat_v2: As for `PushConsumer`.
        access_key, secret_key, tls, address_map, namespace, namesrv_domain: How the cluster is
            reached; see `AccessOptions`.
    """

    def _new_membership(self, access: Access, timers: InstanceSettings) -> Membership:
        self._polls: PollQueue | None = None
        return Membership(self.group, self.client_id, access, timers)

    # ---- what to read ------------------------------------------------------------------------

    def subscribe(self, topic: str, tags: str = "*", sql: str | None = None) -> None:
        """Share a topic with the other members of the group.

            consumer.subscribe("orders", tags="paid || refunded")

        Before `start` or after; all members have to subscribe to the same.
        """
        wire_topic = self._choose_topic(topic, tags, sql)
        self._vet(wire_topic, tags, sql)
        self._read_topic(wire_topic, tags, sql)
        if self._to_start:
            self._start_now()

    def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Read exactly these queues, whoever else reads them.

            consumer.assign([MessageQueue("orders", "broker-a", 0)])

        Replaces an earlier assignment.
        """
        self._take_queues(queues)
        if self._to_start:
            self._start_now()

    # ---- life --------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start to read ahead; `subscribe` and `assign` may come before or after."""
        self._check_startable()
        if self._mode:
            self._start_now()
        return self

    def _start_now(self) -> None:
        # Only now is it known whether this consumer takes part in rebalancing.
        self._membership.start(self._build)
        began(self)
        if self._mode == "assign":
            self._assign_now()

    def _build(self, shared: SharedInstance, now_ms: int) -> ConsumerHost:
        host = self._new_host(shared.instance, now_ms)

        def finished(done: Consumed) -> None:
            with contextlib.suppress(StateError):
                shared.post(lambda: host.finished(done))

        def polled(news: Polled) -> None:
            with contextlib.suppress(StateError):
                shared.post(lambda: host.dispatch(news))

        # Where a poll settles what the one before returned, that is soon enough.
        self._polls = PollQueue(
            finished, self._pulls.pull_batch_size, None if self._auto_commit else polled
        )
        host.attach(self._polls)
        return host

    def stop(self) -> None:
        """Store what was consumed and leave the group; safe to call again.

        What the last poll returned comes again, to whoever reads the queue next, unless `commit`
        was called: the consumer may be stopping because of an error on the way through it.
        """
        self._give_up()
        self._membership.stop(0.0, self._end_polls)

    def _end_polls(self) -> None:
        ended(self)
        if self._polls is not None:
            self._polls.close()

    # ---- reading -----------------------------------------------------------------------------

    def poll(self, timeout_s: float = 5.0) -> list[ReceivedMessage]:
        """The next messages, from one queue; an empty list when none came in time.

            for message in consumer.poll(timeout_s=1.0):
                print(message.queue, message.queue_offset)

        With `auto_commit`, everything that earlier polls returned counts as consumed from now on.
        """
        self._check_poll(timeout_s)
        assert self._polls is not None
        if self._auto_commit:
            self._polls.settle()
        return self._polls.poll(timeout_s)

    def commit(self) -> dict[MessageQueue, int]:
        """Store the offsets of everything that was polled, and wait.

            stored = consumer.commit()

        Returns what was stored, by queue.
        """
        shared = self._membership.shared
        assert self._polls is not None
        self._polls.settle()
        return shared.inline(self._commit_flow())

    def committed(self, queue: MessageQueue) -> int | None:
        """The group's stored offset of a queue, or None."""
        return self._membership.shared.inline(self._committed_flow(queue))

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on reading an assigned queue at another offset.

            consumer.seek(queue, 0)

        Raises:
            OffsetError: the offset is outside of what the broker stores.
        """
        self._membership.shared.inline(self._seek_flow(queue, offset))

    def offset_at(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The first offset stored at or after a time."""
        return self._membership.shared.inline(self._offset_at_flow(queue, timestamp_ms))

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """All queues of a topic."""
        return self._membership.shared.inline(self._queues_flow(topic))

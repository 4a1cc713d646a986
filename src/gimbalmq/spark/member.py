"""The driver of a stream as a member of its consumer group: which queues are its own now.

Heartbeats, member lists and strategies are those of the client (`PullConsumer`); nothing is
pulled here. As every member does, it also takes its share of the group's retry topic, through
which messages come back that other members failed to process.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final

from gimbalmq.client.access import reach_options
from gimbalmq.client.pull_consumer import PullConsumer
from gimbalmq.model.queue import MessageQueue
from gimbalmq.spark.stream_options import StreamOptions

__all__ = ["GroupMember"]

#: How long the first share may take; a member may also get none.
_FIRST_SHARE_S: Final = 5.0
_POLL_S: Final = 0.02


class GroupMember:
    """One member of a group, from the first question to `leave`."""

    def __init__(self, options: StreamOptions, *, rebalance_interval_s: float = 20.0) -> None:
        read = options.read
        assert read.group is not None, "a member has a group"
        self._options = read
        self._consumer = PullConsumer(
            read.group,
            nameserver=";".join(read.nameservers),
            allocation=options.allocation,
            rebalance_interval_s=rebalance_interval_s,
            **reach_options(read.reach),
        )
        self._topics: set[str] = set()
        self._running = False

    @property
    def client_id(self) -> str:
        """Its name in the group."""
        return self._consumer.client_id

    def cover(self, topics: Iterable[str]) -> None:
        """Take part in sharing out these topics; joins the group with the first ones."""
        for topic in sorted(set(topics) - self._topics):
            self._topics.add(topic)
            subscription = self._options.subscription(topic)
            if subscription.is_sql:
                self._consumer.subscribe(topic, sql=subscription.expression)
            else:
                self._consumer.subscribe(topic, subscription.expression)
        if not self._running and self._topics:
            self._consumer.start()
            self._running = True
            self._await_first_share()

    def _await_first_share(self) -> None:
        deadline_s = time.monotonic() + _FIRST_SHARE_S
        while not self.held() and time.monotonic() < deadline_s:
            time.sleep(_POLL_S)

    def held(self) -> frozenset[MessageQueue]:
        """The queues that are this member's to read."""
        if not self._running:
            return frozenset()
        return frozenset().union(*map(self._consumer.assignment, self._topics))

    def leave(self) -> None:
        """Leave the group, so that others take over at once; safe to call again."""
        if self._running:
            self._running = False
            self._consumer.stop()

"""Reading a topic beside its consumers: no group is joined and no offset is stored."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final

from gimbalmq.flows.admin_offsets import queue_address
from gimbalmq.flows.effects import Flow
from gimbalmq.flows.offset import StartFrom, max_offset, starting_offset
from gimbalmq.flows.pull import pull
from gimbalmq.model.queue import MessageQueue, sorted_queues
from gimbalmq.model.route import TopicRoute
from gimbalmq.runtime.inline import ConnectionPool, run_inline
from gimbalmq.wire.record import PullResult, ReceivedMessage
from gimbalmq.wire.subscription import SubscriptionData

__all__ = ["Tail"]

#: The group that brokers keep for tools: it may read everything and has no offsets to spoil.
_TOOLS_GROUP: Final = "TOOLS_CONSUMER"
_ROUTE_INTERVAL_S: Final = 10.0


class Tail:
    """Where a reader is in each queue of a topic."""

    def __init__(
        self,
        pool: ConnectionPool,
        find_route: Callable[[], TopicRoute],
        subscription: SubscriptionData,
        start: StartFrom,
    ) -> None:
        self._pool = pool
        self._find_route = find_route
        self._subscription = subscription
        self._route = find_route()
        self._route_at_s = time.monotonic()
        self._places: dict[MessageQueue, int] = {}
        self._ends: dict[MessageQueue, int] = {}
        for queue in sorted_queues(self._route.subscribe_queues()):
            self._places[queue] = self._ask(queue, lambda at, one: starting_offset(at, one, start))
            self._ends[queue] = self._ask(queue, max_offset)

    def _ask(self, queue: MessageQueue, question: Callable[[str, MessageQueue], Flow[int]]) -> int:
        return run_inline(question(queue_address(self._route, queue), queue), self._pool)

    def stored(self) -> Iterator[ReceivedMessage]:
        """What is stored from the start up to where each queue ended when this was made."""
        for queue, end in self._ends.items():
            while (place := self._places[queue]) < end:
                result = self._pull(queue)
                yield from (one for one in result.messages if one.queue_offset < end)
                if result.next_offset == place:
                    break  # the broker has nothing there after all: its messages have expired

    def for_ever(self, poll_interval_s: float) -> Iterator[ReceivedMessage]:
        """What is stored from the start, and what comes."""
        while True:
            before = dict(self._places)
            for queue in before:
                yield from self._pull(queue).messages
            if self._places == before:
                time.sleep(poll_interval_s)
            if time.monotonic() - self._route_at_s > _ROUTE_INTERVAL_S:
                self._look_for_queues()

    def _pull(self, queue: MessageQueue) -> PullResult:
        flow = pull(
            queue_address(self._route, queue),
            _TOOLS_GROUP,
            queue,
            self._places[queue],
            subscription=self._subscription,
        )
        result = run_inline(flow, self._pool)
        self._places[queue] = result.next_offset
        return result

    def _look_for_queues(self) -> None:
        self._route, self._route_at_s = self._find_route(), time.monotonic()
        # What the topic got since then is new altogether, and read from its beginning.
        for queue in sorted_queues(self._route.subscribe_queues() - self._places.keys()):
            self._places[queue] = 0

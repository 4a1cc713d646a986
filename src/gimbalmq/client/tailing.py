"""Reading a topic beside its consumers: no group is joined and no offset is stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Protocol, TypeVar

from gimbalmq.flows.admin_offsets import queue_address
from gimbalmq.flows.effects import Flow, now, sleep
from gimbalmq.flows.offset import StartFrom, max_offset, starting_offset
from gimbalmq.flows.pull import pull
from gimbalmq.model.queue import MessageQueue, sorted_queues
from gimbalmq.model.route import TopicRoute
from gimbalmq.wire.received import PullResult, ReceivedMessage
from gimbalmq.wire.subscription import SubscriptionData

__all__ = ["RunFlow", "Tail"]

_T = TypeVar("_T")

#: The group that brokers keep for tools: it may read everything and has no offsets to spoil.
_TOOLS_GROUP: Final = "TOOLS_CONSUMER"
_ROUTE_INTERVAL_S: Final = 10.0


class RunFlow(Protocol):
    """Runs a flow and waits for its result."""

    def __call__(self, flow: Flow[_T], /) -> _T:
        """Its result."""


class Tail:
    """Where a reader is in each queue of a topic; begins with `open`."""

    def __init__(
        self,
        find_route: Callable[[], Flow[TopicRoute]],
        subscription: SubscriptionData,
        start: StartFrom,
    ) -> None:
        self._find_route = find_route
        self._subscription = subscription
        self._start = start
        self._route: TopicRoute | None = None
        self._route_at_s = 0.0
        self._places: dict[MessageQueue, int] = {}
        self._ends: dict[MessageQueue, int] = {}

    # ---- flows -------------------------------------------------------------------------------

    def open(self) -> Flow[None]:
        """Find the queues, and where to start and to end in each."""
        route = yield from self._new_route()
        for queue in sorted_queues(route.subscribe_queues()):
            address = queue_address(route, queue)
            self._places[queue] = yield from starting_offset(address, queue, self._start)
            self._ends[queue] = yield from max_offset(address, queue)

    def up_to_end(self) -> Flow[list[ReceivedMessage]]:
        """The next messages up to where each queue ended when it was opened; none: that is all."""
        for queue, end in tuple(self._ends.items()):
            while (place := self._places[queue]) < end:
                result = yield from self._pull(queue)
                if result.next_offset == place:
                    break  # the broker has nothing there after all: its messages have expired
                messages = [one for one in result.messages if one.queue_offset < end]
                if messages:
                    return messages
            del self._ends[queue]
        return []

    def next_round(self, poll_interval_s: float) -> Flow[list[ReceivedMessage]]:
        """One pull from every queue; waits when none had anything new."""
        if (yield from now()).at_s - self._route_at_s > _ROUTE_INTERVAL_S:
            route = yield from self._new_route()
            # What the topic got since then is new altogether, and read from its beginning.
            for queue in sorted_queues(route.subscribe_queues() - self._places.keys()):
                self._places[queue] = 0
        before = dict(self._places)
        messages: list[ReceivedMessage] = []
        for queue in before:
            messages += (yield from self._pull(queue)).messages
        if self._places == before:
            yield from sleep(poll_interval_s)
        return messages

    def _new_route(self) -> Flow[TopicRoute]:
        self._route = yield from self._find_route()
        self._route_at_s = (yield from now()).at_s
        return self._route

    def _pull(self, queue: MessageQueue) -> Flow[PullResult]:
        assert self._route is not None
        result = yield from pull(
            queue_address(self._route, queue),
            _TOOLS_GROUP,
            queue,
            self._places[queue],
            subscription=self._subscription,
        )
        self._places[queue] = result.next_offset
        return result

    # ---- for callers who wait ----------------------------------------------------------------

    def stored(self, run: RunFlow) -> Iterator[ReceivedMessage]:
        """What is stored from the start up to where each queue ended when this was opened."""
        while messages := run(self.up_to_end()):
            yield from messages

    def for_ever(self, run: RunFlow, poll_interval_s: float) -> Iterator[ReceivedMessage]:
        """What is stored from the start, and what comes."""
        while True:
            yield from run(self.next_round(poll_interval_s))

"""Looks for a new group's retry topic until every broker has its part in it.

Brokers make the topic with the first heartbeat, and tell the name servers each at its own time;
the next regular poll would come half a minute later. Decides when to ask again and when to leave
it. What follows from a route that is found is the instance's business.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from gimbalmq.runtime.driver import Timer
from gimbalmq.runtime.instance import ClientInstance
from gimbalmq.wire.names import retry_topic

__all__ = ["RetryRouteWatch"]

#: How often, and first after how long; some brokers may never make the topic, so this ends.
_LOOKS: Final = 6
_PAUSE_S: Final = 0.1


class RetryRouteWatch:
    """The retry topic of one group; `topics` are those that are subscribed to, as they are now."""

    def __init__(self, instance: ClientInstance, group: str, topics: Collection[str]) -> None:
        self._instance = instance
        self._topic = retry_topic(group)
        self._topics = topics
        self._timer: Timer | None = None

    def begin(self) -> None:
        """Look now and then, until it is complete or nobody waits for it any more."""
        self._look(0)

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self, looks: int) -> None:
        if self._topic not in self._topics or looks == _LOOKS or self._complete():
            return
        if looks:
            self._instance.refresh_route(self._topic)
        self._timer = self._instance.driver.call_later(
            _PAUSE_S * 2.0**looks, lambda: self._look(looks + 1)
        )

    def _complete(self) -> bool:
        """Whether it is on every broker that has another topic of the group."""
        routes = self._instance.routes
        known = routes.route(self._topic)
        have = frozenset[str]() if known is None else {one.name for one in known.brokers}
        read = [routes.route(one) for one in self._topics]
        return all(one.name in have for route in read if route is not None for one in route.brokers)

"""What a client knows about topics and brokers: the latest route of each topic.

A table of values only: `flows.route` asks name servers, and whoever owns the table (the client
instance) decides when. An answer "topic does not exist" never wipes a route that was known, as
in Java: a restarting name server must not stop consumers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gimbalmq.model.queue import MessageQueue
from gimbalmq.model.route import MASTER_ID, BrokerSet, TopicRoute

__all__ = ["RouteTable"]


class RouteTable:
    """Routes by topic, with the broker sets that they name."""

    __slots__ = ("_places", "_routes")

    def __init__(self) -> None:
        self._routes: dict[str, TopicRoute] = {}
        #: Where to pull, as worked out from the routes: every pull asks, and they rarely change.
        self._places: dict[tuple[MessageQueue, int], tuple[str, bool] | None] = {}

    def learn(self, route: TopicRoute) -> bool:
        """Keep a route; True when it differs from the one known before."""
        changed = self._routes.get(route.topic) != route
        self._routes[route.topic] = route
        self._places.clear()
        return changed

    def forget(self, topic: str) -> None:
        """Drop a topic that is no longer used."""
        self._routes.pop(topic, None)
        self._places.clear()

    def route(self, topic: str) -> TopicRoute | None:
        """The latest route, or None while the topic is unknown."""
        return self._routes.get(topic)

    def __iter__(self) -> Iterator[TopicRoute]:
        return iter(self._routes.values())

    def broker(self, name: str, *, topic: str | None = None) -> BrokerSet | None:
        """The broker set of that name, looked for in the topic's route first."""
        own = self._routes.get(topic) if topic is not None else None
        if own is not None and (found := own.broker(name)) is not None:
            return found
        return next(
            (found for route in self._routes.values() if (found := route.broker(name)) is not None),
            None,
        )

    def master(self, queue: MessageQueue) -> str | None:
        """Address that locks, commits and sends for this queue go to."""
        brokers = self.broker(queue.broker, topic=queue.topic)
        return None if brokers is None else brokers.master

    def pull_place(self, queue: MessageQueue, broker_id: int) -> tuple[str, bool] | None:
        """Where to pull: the advised process of the broker set, else the next, else any.

        Returns its address and whether it is the master; None when no process is known.
        """
        key = queue, broker_id
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = self._find_place(queue, broker_id)
        return place

    def _find_place(self, queue: MessageQueue, broker_id: int) -> tuple[str, bool] | None:
        brokers = self.broker(queue.broker, topic=queue.topic)
        if brokers is None or not brokers.addresses:
            return None
        addresses = brokers.addresses
        if broker_id in addresses:
            return addresses[broker_id], broker_id == MASTER_ID
        chosen = broker_id
        if chosen != MASTER_ID:
            chosen += 1
        if chosen not in addresses:
            chosen = min(addresses)
        return addresses[chosen], chosen == MASTER_ID

    def any_addresses(self, topics: Iterable[str]) -> list[tuple[str, str]]:
        """An address of each broker set (name, address) of some topics, sorted by name.

        Each broker knows the members of a group from its own connections, so two that ask
        different brokers may see different lists; all of ours ask in this order.
        """
        named = {
            brokers.name: address
            for topic in topics
            if (route := self._routes.get(topic)) is not None
            for brokers in route.brokers
            if (address := brokers.any_address) is not None
        }
        return sorted(named.items())

    def addresses(self) -> dict[str, tuple[str, int]]:
        """Every known address with its broker set's name and the broker id."""
        return {
            address: (brokers.name, broker_id)
            for route in self._routes.values()
            for brokers in route.brokers
            for broker_id, address in brokers.addresses.items()
        }

"""What a producer needs of a topic's route: the queues, in order, and where each broker is.

Made once per route and then only read, because every send looks at it.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from gimbalmq.model.queue import MessageQueue
from gimbalmq.model.route import TopicRoute

__all__ = ["PublishInfo"]


class PublishInfo(msgspec.Struct, frozen=True):
    """The publish list of one topic.

    >>> from gimbalmq.model.route import BrokerSet, QueueData
    >>> brokers = BrokerSet("a", "c", {0: "127.0.0.1:1"}), BrokerSet("b", "c", {1: "127.0.0.1:2"})
    >>> data = QueueData("a", 8, 2, 6), QueueData("b", 8, 2, 6)
    >>> info = PublishInfo.of(TopicRoute("t", brokers, data))
    >>> [queue.path for queue in info.queues], info.masters  # b has lost its master
    (['t/a/0', 't/a/1'], {'a': '127.0.0.1:1'})
    """

    route: TopicRoute
    queues: tuple[MessageQueue, ...]
    #: Address of the master by broker name. An order configuration may name brokers that are not
    #: here.
    masters: dict[str, str]
    #: How many of the queues each broker has.
    write_queues: dict[str, int]

    @classmethod
    def of(cls, route: TopicRoute) -> PublishInfo:
        """The publish list of a route; it is empty when no broker can be written to."""
        queues = route.publish_queues()
        masters = {one.name: one.master for one in route.brokers if one.master is not None}
        return cls(route, queues, masters, dict(Counter(queue.broker for queue in queues)))

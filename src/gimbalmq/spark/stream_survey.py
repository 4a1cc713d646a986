"""Asks the cluster, between two batches, what there is to read: queues, their bounds, who is away.

Flows, run on the driver. What the answers mean for the offsets is decided in `stream_offsets`.

A queue of the checkpoint that is not in its topic's route has one of two reasons. Its broker is not
registered: an outage or a retirement, nobody can tell, so the queue is `away` and its offset is
kept. Its broker is registered and does not give the queue to readers: the topic was deleted or
made smaller, and the queue is `gone`. A broker that is registered and does not answer is away,
too; the others are read meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec

from gimbalmq.errors import BrokerError, GimbalError, TopicNotFoundError, TransportError
from gimbalmq.flows.admin import fetch_cluster, fetch_topic_stats
from gimbalmq.flows.effects import Flow, call
from gimbalmq.flows.offset import max_offset
from gimbalmq.flows.route import NameServers, fetch_route
from gimbalmq.model.queue import MessageQueue
from gimbalmq.model.route import BrokerSet, TopicRoute
from gimbalmq.spark.options import ReadOptions
from gimbalmq.spark.stream_offsets import Bounds, Survey
from gimbalmq.spark.topic_lookup import find_topics, unreachable
from gimbalmq.wire.bodies import QueueRange
from gimbalmq.wire.codes import PullFlag, ResponseCode
from gimbalmq.wire.headers import parse_pull_response, pull_request

__all__ = ["Layout", "find_layout", "sample_record_bytes", "take_survey"]

_TIMEOUT_S = 3.0
#: How many messages an estimate of their size looks at.
_SAMPLE_MESSAGES = 32


class Layout(msgspec.Struct, frozen=True):
    """Where the topics are; `registered` are the brokers that the name server lists.

    Brokers are asked for only when a queue of the checkpoint is not in the routes.
    """

    routes: dict[str, TopicRoute]
    registered: dict[str, BrokerSet] = {}

    @property
    def queues(self) -> frozenset[MessageQueue]:
        """Every queue that can be read."""
        return frozenset(
            queue for route in self.routes.values() for queue in route.subscribe_queues()
        )

    def broker(self, queue: MessageQueue) -> BrokerSet | None:
        """The broker set of a queue, if any process of it is registered."""
        route = self.routes.get(queue.topic)
        found = None if route is None else route.broker(queue.broker)
        return found if found is not None and found.addresses else None


def find_layout(
    nameservers: NameServers, options: ReadOptions, known: Collection[MessageQueue]
) -> Flow[Layout]:
    """The routes of all topics that are read now, and of those in the checkpoint.

    Raises:
        TransportError: no name server answers.
    """
    topics = {queue.topic for queue in known}
    topics.update((yield from find_topics(nameservers, options)))
    if options.retry_topic is not None:
        topics.add(options.retry_topic)
    try:
        return (yield from _find_routes(nameservers, sorted(topics), known))
    except TransportError as error:
        raise unreachable(error, options) from error


def _find_routes(
    nameservers: NameServers, topics: Iterable[str], known: Collection[MessageQueue]
) -> Flow[Layout]:
    routes = {}
    for topic in topics:
        try:
            routes[topic] = yield from fetch_route(nameservers, topic, _TIMEOUT_S)
        except TopicNotFoundError:
            continue
    layout = Layout(routes)
    if frozenset(known) <= layout.queues:
        return layout
    info = yield from fetch_cluster(nameservers, _TIMEOUT_S)
    return Layout(routes, info.brokers)


def take_survey(
    layout: Layout,
    known: Collection[MessageQueue],
    held: Collection[MessageQueue] | None = None,
) -> Flow[tuple[Survey, dict[str, GimbalError]]]:
    """Look at the queues of a layout, and at those of the checkpoint that are not in it.

    `held` are the queues that a member may read; None means all. Also gives what each broker
    that failed said, by broker.
    """
    wanted = layout.queues if held is None else layout.queues & frozenset(held)
    bounds: dict[MessageQueue, Bounds] = {}
    failures: dict[str, GimbalError] = {}
    for topic in sorted({queue.topic for queue in wanted}):
        for broker in sorted({queue.broker for queue in wanted if queue.topic == topic}):
            if broker in failures:
                continue  # one time-out is enough
            brokers = layout.broker(MessageQueue(topic, broker, 0))
            try:
                found = yield from _fetch_bounds(layout.routes[topic], brokers, broker)
            except (BrokerError, TransportError) as error:
                # A broker that has just lost the topic is told apart with the next routes.
                if not error.retryable and not isinstance(error, TopicNotFoundError):
                    raise
                failures[broker] = error
                continue
            bounds.update((queue, found[queue]) for queue in wanted & found.keys())
    ours = frozenset(known) if held is None else frozenset(known) & _still_ours(known, layout, held)
    missing = ours - bounds.keys()
    gone = yield from _find_gone(layout, missing, failures)
    return Survey(bounds, missing - gone.keys(), gone), failures


def _still_ours(
    known: Iterable[MessageQueue], layout: Layout, held: Collection[MessageQueue]
) -> frozenset[MessageQueue]:
    """What a member keeps of its map: what it holds, and what nobody can hold at the moment."""
    return frozenset(queue for queue in known if queue in held or layout.broker(queue) is None)


def _fetch_bounds(
    route: TopicRoute, brokers: BrokerSet | None, broker: str
) -> Flow[dict[MessageQueue, Bounds]]:
    """The bounds of all queues of a topic on one broker, with one request."""
    if brokers is None:
        raise TransportError(f"no process of broker '{broker}' is registered")
    address = brokers.any_address
    assert address is not None, "the layout knows only brokers with a process"
    there = TopicRoute(route.topic, (brokers,), ())
    stats = yield from fetch_topic_stats(there, _TIMEOUT_S)
    behind = address != brokers.master
    return {queue: _bounds(one, address, behind) for queue, one in stats.queues.items()}


def _bounds(found: QueueRange, address: str, behind: bool) -> Bounds:  # noqa: FBT001 - private
    # Brokers say -1 for a queue that never had a message.
    minimum = max(found.min_offset, 0)
    return Bounds(minimum, max(found.max_offset, minimum), address, behind)


def _find_gone(
    layout: Layout, missing: Iterable[MessageQueue], failures: Mapping[str, GimbalError]
) -> Flow[dict[MessageQueue, int | None]]:
    gone: dict[MessageQueue, int | None] = {}
    for queue in sorted(missing):
        registered = layout.registered.get(queue.broker)
        address = None if registered is None else registered.any_address
        if address is None or queue in layout.queues or queue.broker in failures:
            continue
        route = layout.routes.get(queue.topic)
        if route is None or all(one.broker != queue.broker for one in route.queues):
            gone[queue] = None  # with the topic went the knowledge of its end
            continue
        try:
            gone[queue] = yield from max_offset(address, queue)
        except (BrokerError, TransportError):
            continue  # it stays with those that are away, until the broker answers
    return gone


def sample_record_bytes(
    queue: MessageQueue, address: str, offset: int, options: ReadOptions
) -> Flow[float | None]:
    """How much a record of a queue takes in the broker's store, by the next few; None if unknown."""
    request = pull_request(
        group=options.pull_group,
        queue=queue,
        offset=offset,
        sys_flag=int(PullFlag.SUBSCRIPTION),
        max_messages=_SAMPLE_MESSAGES,
        expression="*",
    )
    try:
        answer = yield from call(address, request, _TIMEOUT_S)
    except TransportError:
        return None
    if answer.code != ResponseCode.SUCCESS:
        return None
    records = parse_pull_response(answer).next_offset - offset
    return len(answer.body) / records if records > 0 else None

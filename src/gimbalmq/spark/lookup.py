"""Asks brokers what a read is to cover: queues and offsets of the topics of `topic_lookup`.

Flows, run on the driver when a read is planned. What the answers mean is decided in `positions`;
what goes wrong is told in the words of the options.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

import msgspec

from gimbalmq.errors import (
    BrokerError,
    ConfigurationError,
    OffsetError,
    TransportError,
)
from gimbalmq.flows.effects import Flow, broker_error, call, checked_call
from gimbalmq.flows.offset import max_offset, min_offset, offset_at, stored_offset
from gimbalmq.flows.route import NameServers
from gimbalmq.model.queue import MessageQueue
from gimbalmq.model.route import TopicRoute
from gimbalmq.spark.options import ReadOptions
from gimbalmq.spark.planning import ReadRange
from gimbalmq.spark.positions import (
    LATEST,
    AtTime,
    Committed,
    Loss,
    Position,
    QueueFacts,
    check_queues,
    resolve_range,
)
from gimbalmq.spark.pulling import PULL_CODES, Advance, Gone, judge
from gimbalmq.spark.topic_lookup import find_route, find_topics, patiently
from gimbalmq.wire.bodies import encode_check_client
from gimbalmq.wire.codes import PullFlag, RequestCode
from gimbalmq.wire.command import Command
from gimbalmq.wire.headers import parse_pull_response, pull_request
from gimbalmq.wire.record import decode_records

__all__ = [
    "Coverage",
    "broker_address",
    "data_loss",
    "find_coverage",
    "find_entry",
    "find_places",
]

_TIMEOUT_S: Final = 5.0


class Coverage(msgspec.Struct, frozen=True):
    """What a read covers, one range for each queue, and what it cannot cover."""

    ranges: tuple[ReadRange, ...]
    losses: tuple[Loss, ...]


def find_coverage(options: ReadOptions) -> Flow[Coverage]:
    """Resolve topics, queues, start and end against the cluster.

    Raises:
        OffsetError: offsets that were asked for are gone and `failOnDataLoss` is true.
        ConfigurationError: an option names what is not there.
        TransportError: a broker does not answer, or no name server.
    """
    places = yield from find_places(options)
    ranges: list[ReadRange] = []
    losses: list[Loss] = []
    for queue in sorted(places):
        address = places[queue]
        try:
            facts = yield from patiently(partial(_fetch_facts, queue, address, options))
        except TransportError as error:
            raise TransportError(
                f"cannot plan the read of {queue.path}: broker '{queue.broker}' is registered and "
                f"does not answer ({error}): start it again",
                address=address,
            ) from error
        resolved = resolve_range(queue, options.start, options.end, facts)
        losses += resolved.losses
        ranges.append(ReadRange(queue, address, resolved.offset_from, resolved.offset_until))
    if losses and options.fail_on_data_loss:
        raise data_loss(losses)
    return Coverage(tuple(ranges), tuple(losses))


def find_places(options: ReadOptions) -> Flow[dict[MessageQueue, str]]:
    """Every queue to read and where it is, after all checks that need the cluster.

    Raises:
        TopicNotFoundError, ConfigurationError: an option names what is not there.
    """
    nameservers = NameServers(options.nameservers)
    topics = yield from find_topics(nameservers, options)
    places: dict[MessageQueue, str] = {}
    for topic in topics:
        route = yield from find_route(nameservers, topic, options)
        places |= _queue_places(route)
    check_queues("startingOffsets", options.start, places)
    check_queues("endingOffsets", options.end, places)
    if options.sql is not None:
        yield from _check_sql(places, options)
    return places


def find_entry(queue: MessageQueue, address: str, options: ReadOptions) -> Flow[int]:
    """Where a member starts in a queue that comes to it: where the group is.

    In a queue that the group never read, where the options say.
    """
    group = options.group
    assert group is not None, "a member has a group"
    committed = yield from patiently(lambda: stored_offset(address, group, queue))
    if committed is not None:
        return committed
    facts = yield from patiently(partial(_fetch_facts, queue, address, options))
    return resolve_range(queue, options.start, LATEST, facts).offset_from


def data_loss(losses: Sequence[Loss]) -> OffsetError:
    """The error for offsets that were wanted and are gone, when the read is to fail then."""
    more = f" (and {len(losses) - 1} more queues)" if len(losses) > 1 else ""
    return OffsetError(
        f"{losses[0].sentence}{more}. Start at an offset that exists, or set "
        "option 'failOnDataLoss' to false to read what is there"
    )


def broker_address(route: TopicRoute, broker: str) -> str:
    """Where to read from a broker set: its master, else a slave.

    Raises:
        TransportError: no process of the set is alive.
    """
    brokers = route.broker(broker)
    address = None if brokers is None else brokers.any_address
    if address is None:
        raise TransportError(
            f"broker '{broker}' has queues of topic '{route.topic}', but the name server knows no "
            "running process of it: start it, or delete its queues"
        )
    return address


def _queue_places(route: TopicRoute) -> dict[MessageQueue, str]:
    return {queue: broker_address(route, queue.broker) for queue in route.subscribe_queues()}


def _check_sql(places: dict[MessageQueue, str], options: ReadOptions) -> Flow[None]:
    """Have each broker read the expression: a pull with a bad one returns everything unfiltered."""
    for broker, (address, topic) in sorted(_one_queue_each(places.items())):
        body = encode_check_client(
            "gimbalmq-spark", options.pull_group, options.subscription(topic)
        )
        request = Command(int(RequestCode.CHECK_CLIENT_CONFIG), {"bname": broker}, body)
        try:
            yield from checked_call(address, request, _TIMEOUT_S)
        except BrokerError as error:
            reason = error.remark.splitlines()[0] if error.remark else f"code {error.code}"
            raise ConfigurationError(
                f"option 'sql' is refused by {broker} ({address}): {reason}. Correct the "
                "expression; brokers filter by SQL only with enablePropertyFilter=true"
            ) from error


def _one_queue_each(
    places: Iterable[tuple[MessageQueue, str]],
) -> Iterable[tuple[str, tuple[str, str]]]:
    return {queue.broker: (address, queue.topic) for queue, address in places}.items()


def _fetch_facts(queue: MessageQueue, address: str, options: ReadOptions) -> Flow[QueueFacts]:
    minimum = yield from min_offset(address, queue)
    # The end is asked for last, so that it is never below anything that was found before it.
    committed = None
    if options.group is not None and _needs_committed(options):
        committed = yield from stored_offset(address, options.group, queue)
    at_start = yield from _offset_at(options.start, queue, address, minimum, options)
    at_end = yield from _offset_at(options.end, queue, address, minimum, options)
    maximum = yield from max_offset(address, queue)
    # Brokers say -1 or 0 for queues that never had a message.
    minimum = max(minimum, 0)
    return QueueFacts(minimum, max(maximum, minimum), committed, at_start, at_end)


def _needs_committed(options: ReadOptions) -> bool:
    return isinstance(options.start, Committed) or isinstance(options.end, Committed)


def _offset_at(
    position: Position, queue: MessageQueue, address: str, minimum: int, options: ReadOptions
) -> Flow[int | None]:
    """The first offset whose message was stored at the position's time or later.

    Releases differ in what they search for: the first message not before the time, or the one
    closest to it. A search for one millisecond earlier is never behind the wanted message in any
    of them, and the few messages from there on tell the rest.
    """
    if not isinstance(position, AtTime):
        return None
    moment_ms = position.timestamp_ms
    offset = max((yield from offset_at(address, queue, moment_ms - 1)), minimum, 0)
    while True:
        request = pull_request(
            group=options.pull_group,
            queue=queue,
            offset=offset,
            sys_flag=PullFlag.SUBSCRIPTION,
            expression="*",
        )
        answer = yield from call(address, request, _TIMEOUT_S)
        if answer.code not in PULL_CODES:
            raise broker_error(address, request, answer)
        verdict = judge(offset, answer.code, parse_pull_response(answer), filtered=False)
        match verdict:
            case Advance(following):
                for message in decode_records(answer.body, queue.broker):
                    if message.queue_offset >= offset and message.store_timestamp_ms >= moment_ms:
                        return message.queue_offset
                offset = following
            case Gone(found) if found > offset:
                offset = found
            case Gone():
                return offset  # the end of the queue: every message is older
            case _:
                raise BrokerError(
                    f"{queue.broker} ({address}) does not serve offset {offset} of {queue.path}, "
                    "which it has",
                    code=answer.code,
                    address=address,
                )

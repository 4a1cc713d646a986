"""How far a group is, and moving it.

Decides how a group is moved on each release. From 5.1 on the broker does it, whether members run
or not. An older broker can only ask running members to move, to a time; for a group without
members its stored offsets are overwritten.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from gimbalmq.errors import ConfigurationError, OffsetError, StateError, TransportError
from gimbalmq.flows.admin import broker_address, fetch_topic_stats
from gimbalmq.flows.admin_groups import BrokerView, view_group
from gimbalmq.flows.effects import Flow, broker_error, call, checked_call
from gimbalmq.flows.offset import max_offset, min_offset, offset_at, store_offset
from gimbalmq.flows.route import NameServers, fetch_route
from gimbalmq.model.queue import MessageQueue, sorted_queues
from gimbalmq.model.route import TopicRoute
from gimbalmq.wire.bodies import decode_consumer_offsets, decode_reset_offsets
from gimbalmq.wire.codes import RequestCode, ResponseCode, version_ordinal
from gimbalmq.wire.command import Command
from gimbalmq.wire.headers import parse_offset, query_offset_request

__all__ = [
    "QueueOffsets",
    "ResetTo",
    "fetch_offsets",
    "plan_reset",
    "queue_address",
    "reset_offsets",
]

#: The beginning, the end, a store time in milliseconds since the epoch, or the offsets themselves.
ResetTo = Literal["earliest", "latest"] | int | Mapping[MessageQueue, int]

_TELLS_ABSENCE_FROM: Final = version_ordinal("5.0.0")
_MOVES_GROUPS_FROM: Final = version_ordinal("5.1.0")


class QueueOffsets(msgspec.Struct, frozen=True):
    """What a queue stores and how far a group has read it.

    `minimum` is the first offset that is stored, `maximum` one past the last, `committed` the next
    one that the group reads; None when the group has not committed any.

    >>> QueueOffsets(0, 12, 10).lag, QueueOffsets(0, 12, None).lag
    (2, None)
    """

    minimum: int
    maximum: int
    committed: int | None

    @property
    def lag(self) -> int | None:
        """How many messages the group has not finished; None when nothing is committed."""
        return None if self.committed is None else self.maximum - self.committed


def queue_address(route: TopicRoute, queue: MessageQueue) -> str:
    """Where to ask about a queue.

    Raises:
        TransportError: its broker is not alive.
    """
    brokers = route.broker(queue.broker)
    if brokers is None:
        raise TransportError(
            f"broker '{queue.broker}' of {queue.path} is not registered at the moment: restart it"
        )
    return broker_address(brokers)


# ---- reading ---------------------------------------------------------------------------------


def fetch_offsets(
    nameservers: NameServers, group: str, topic: str, timeout_s: float
) -> Flow[dict[MessageQueue, QueueOffsets]]:
    """Bounds and committed offset of every readable queue of a topic."""
    route = yield from fetch_route(nameservers, topic, timeout_s)
    bounds = yield from _bounds(route, timeout_s)
    committed = yield from _committed(route, group, list(bounds), timeout_s)
    return {
        queue: QueueOffsets(minimum, maximum, committed[queue])
        for queue, (minimum, maximum) in bounds.items()
    }


def _bounds(route: TopicRoute, timeout_s: float) -> Flow[dict[MessageQueue, tuple[int, int]]]:
    stats = yield from fetch_topic_stats(route, timeout_s)
    bounds = {}
    for queue in sorted_queues(route.subscribe_queues()):
        held = stats.queues.get(queue)
        if held is None:
            # The statistics leave out queues that are readable but no longer writable.
            address = queue_address(route, queue)
            minimum = yield from min_offset(address, queue)
            maximum = yield from max_offset(address, queue)
            bounds[queue] = minimum, maximum
        else:
            bounds[queue] = held.min_offset, held.max_offset
    return bounds


def _committed(
    route: TopicRoute, group: str, queues: list[MessageQueue], timeout_s: float
) -> Flow[dict[MessageQueue, int | None]]:
    committed: dict[MessageQueue, int | None] = {}
    tables: dict[str, dict[int, int]] = {}
    for queue in queues:
        address = queue_address(route, queue)
        request = query_offset_request(group, queue, zero_if_absent=False)
        answer = yield from call(address, request, timeout_s)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            committed[queue] = None
            continue
        if answer.code != ResponseCode.SUCCESS:
            raise broker_error(address, request, answer)
        offset = parse_offset(answer)
        if offset == 0 and answer.version < _TELLS_ABSENCE_FROM:
            # 4.x says 0 for "none", too; only the whole table tells the two apart.
            if queue.broker not in tables:
                tables[queue.broker] = yield from _stored_table(
                    address, queue.broker, group, route.topic, timeout_s
                )
            committed[queue] = tables[queue.broker].get(queue.queue_id)
        else:
            # Brokers store whatever they are told; a negative one means none.
            committed[queue] = None if offset < 0 else offset
    return committed


def _stored_table(
    address: str, broker: str, group: str, topic: str, timeout_s: float
) -> Flow[dict[int, int]]:
    request = Command(RequestCode.GET_ALL_CONSUMER_OFFSET, {"bname": broker})
    answer = yield from checked_call(address, request, timeout_s)
    return decode_consumer_offsets(answer.body).get((topic, group), {})


# ---- moving ----------------------------------------------------------------------------------


def reset_offsets(
    nameservers: NameServers, group: str, topic: str, to: ResetTo, timeout_s: float
) -> Flow[dict[MessageQueue, int]]:
    """Move a group to other offsets of a topic; returns where each queue now stands.

    Raises:
        OffsetError: a wanted offset is not stored, or a broker did not move the group there.
        StateError: members run, and their broker is too old to move them to given offsets.
    """
    route = yield from fetch_route(nameservers, topic, timeout_s)
    view = yield from view_group(nameservers, group, timeout_s)
    brokers = {one.broker: one for one in view.brokers}
    targets = yield from _targets(route, to, timeout_s)
    # Before the first change: a group that is moved on some brokers only helps nobody.
    for queue in targets:
        queue_address(route, queue)
        _check_movable(brokers.get(queue.broker), queue, group, to)
    moved: dict[MessageQueue, int] = {}
    for name in dict.fromkeys(queue.broker for queue in targets):
        part = {queue: offset for queue, offset in targets.items() if queue.broker == name}
        broker = brokers[name]
        if broker.version >= _MOVES_GROUPS_FROM:
            yield from _move_by_broker(broker, group, part, timeout_s)
        elif broker.connection is None:
            for queue, offset in part.items():
                yield from store_offset(broker.address, group, queue, offset)
        else:
            part = yield from _move_by_members(broker, group, topic, to, timeout_s)
        moved |= part
    return moved


def plan_reset(
    nameservers: NameServers, topic: str, to: ResetTo, timeout_s: float
) -> Flow[dict[MessageQueue, int]]:
    """Where each queue would stand after a reset; nothing is changed."""
    route = yield from fetch_route(nameservers, topic, timeout_s)
    targets = yield from _targets(route, to, timeout_s)
    return targets


def _targets(route: TopicRoute, to: ResetTo, timeout_s: float) -> Flow[dict[MessageQueue, int]]:
    bounds = yield from _bounds(route, timeout_s)
    if isinstance(to, Mapping):
        return _checked_targets(route.topic, to, bounds)
    targets = {}
    for queue, (minimum, maximum) in bounds.items():
        if to == "earliest":
            targets[queue] = minimum
        elif to == "latest":
            targets[queue] = maximum
        else:
            assert isinstance(to, int)
            found = yield from offset_at(queue_address(route, queue), queue, to)
            # A queue whose messages are all gone is searched in vain, and the answer is 0.
            targets[queue] = min(max(found, minimum), maximum)
    return targets


def _checked_targets(
    topic: str,
    wanted: Mapping[MessageQueue, int],
    bounds: Mapping[MessageQueue, tuple[int, int]],
) -> dict[MessageQueue, int]:
    if not wanted:
        raise ConfigurationError("the offsets to reset to are empty: name one queue at least")
    for queue, offset in wanted.items():
        if queue not in bounds:
            raise OffsetError(f"{queue.path} is no readable queue of topic '{topic}'")
        minimum, maximum = bounds[queue]
        if not minimum <= offset <= maximum:
            raise OffsetError(
                f"offset {offset} of {queue.path} is not stored: give {minimum} to {maximum}"
            )
    return {queue: wanted[queue] for queue in sorted_queues(wanted)}


def _check_movable(broker: BrokerView | None, queue: MessageQueue, group: str, to: ResetTo) -> None:
    if broker is None:
        raise TransportError(
            f"broker '{queue.broker}' of {queue.path} is not registered at the moment: restart it"
        )
    running = broker.connection is not None
    if running and isinstance(to, Mapping) and broker.version < _MOVES_GROUPS_FROM:
        raise StateError(
            f"group '{group}' has running members, and broker '{broker.broker}' is older than "
            "5.1: it can move them to a time, but not to given offsets; stop the members first"
        )


def _move_by_broker(
    broker: BrokerView, group: str, targets: Mapping[MessageQueue, int], timeout_s: float
) -> Flow[None]:
    for queue, offset in targets.items():
        request = _reset_request(
            broker.broker, group, queue.topic, -1, queue_id=queue.queue_id, offset=offset
        )
        answer = yield from checked_call(broker.address, request, timeout_s)
        reached = decode_reset_offsets(answer.body).get(queue)
        if reached != offset:
            raise OffsetError(
                f"broker '{broker.broker}' was to move group '{group}' to offset {offset} of "
                f"{queue.path}, and says {reached}: is useServerSideResetOffset switched off there?"
            )


def _move_by_members(
    broker: BrokerView, group: str, topic: str, to: ResetTo, timeout_s: float
) -> Flow[dict[MessageQueue, int]]:
    assert not isinstance(to, Mapping)  # refused before
    timestamp_ms = {"earliest": 0, "latest": -1}[to] if isinstance(to, str) else to
    request = _reset_request(broker.broker, group, topic, timestamp_ms)
    answer = yield from call(broker.address, request, timeout_s)
    if answer.code == ResponseCode.SYSTEM_ERROR:
        # Its own words are that the group does not exist, when one queue has no offset yet.
        raise StateError(
            f"broker '{broker.broker}' is older than 5.1 and moves running members only after "
            f"group '{group}' has committed an offset in every queue of '{topic}': wait for that, "
            f"or stop the members first (it says: {answer.remark})"
        )
    if answer.code != ResponseCode.SUCCESS:
        raise broker_error(broker.address, request, answer)
    return decode_reset_offsets(answer.body)


def _reset_request(
    broker: str,
    group: str,
    topic: str,
    timestamp_ms: int,
    *,
    queue_id: int = -1,
    offset: int = -1,
) -> Command:
    return Command(
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        {
            "topic": topic,
            "group": group,
            "timestamp": str(timestamp_ms),
            "isForce": "true",
            "queueId": str(queue_id),
            "offset": str(offset),
            "bname": broker,
        },
    )

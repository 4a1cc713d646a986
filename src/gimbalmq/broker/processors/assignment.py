"""Shares computed by the broker, for members that ask instead of computing (5.x).

Follows QueryAssignmentProcessor: the mode of a topic and group (pull or pop) is set by an admin
and kept; only AVG and AVG_BY_CIRCLE are known. The queues are those of the whole topic, on all
brokers, which only the name server knows: a question that needs a route waits for it.
"""

from __future__ import annotations

from typing import Final

import msgspec

from gimbalmq.broker.effects import Channel, Lookup, RefusalError, Send
from gimbalmq.broker.state import BrokerState, Handler
from gimbalmq.core.allocation import Snapshot, strategy_named
from gimbalmq.core.allocation.base import assign
from gimbalmq.model.java import sorted_as_java
from gimbalmq.model.queue import MessageQueue, sorted_queues
from gimbalmq.wire import bodies
from gimbalmq.wire.bodies.shape import write_document
from gimbalmq.wire.codes import RequestCode, ResponseCode
from gimbalmq.wire.command import Command, response_to
from gimbalmq.wire.names import RETRY_PREFIX

__all__ = ["Assignments"]

_DOCUMENT: Final = "messageRequestMode"
_STRATEGIES: Final = frozenset({"AVG", "AVG_BY_CIRCLE"})
#: Java's brokers refresh the routes that they use this often.
_ROUTE_LIFE_MS: Final = 30_000
_ROUTES_MAX: Final = 10_000
_WAITING_MAX: Final = 10_000
#: The default of `defaultPopShareQueueNum`.
_SHARE_ALL: Final = -1
_POP: Final = "POP"
_PULL: Final = "PULL"


class _Route(msgspec.Struct, frozen=True):
    queues: tuple[MessageQueue, ...]
    asked_ms: int


class Assignments:
    """Answers questions for shares, and keeps the mode of each topic and group."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        data = state.documents.load(_DOCUMENT)
        read = [] if data is None else msgspec.json.decode(data, type=list[bodies.RequestMode])
        self._modes = {(one.topic, one.group): one for one in read}
        self._routes: dict[str, _Route] = {}
        self._waiting: dict[str, list[tuple[Command, Channel]]] = {}

    @property
    def handlers(self) -> dict[int, Handler]:
        """What this processor answers."""
        return {
            RequestCode.QUERY_ASSIGNMENT: self._query,
            RequestCode.SET_MESSAGE_REQUEST_MODE: self._set_mode,
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: self._modes_body,
        }

    def routed(self, topic: str, queues: tuple[MessageQueue, ...], now_ms: int) -> None:
        """Take a route from the name server, and answer who waits for it."""
        if len(self._routes) >= _ROUTES_MAX:
            self._routes.clear()
        route = _Route(tuple(sorted_queues(queues)), now_ms)
        if route.queues:
            self._routes[topic] = route
        else:
            # Not remembered: the topic may be made the next moment.
            self._routes.pop(topic, None)
        for request, channel in self._waiting.pop(topic, []):
            self._state.effects.append(Send(channel, self._answer(request, route.queues)))

    def channel_closed(self, channel: Channel) -> None:
        """Drop the questions of a closed connection."""
        self._waiting = {
            topic: left
            for topic, asked in self._waiting.items()
            if (left := [one for one in asked if one[1] is not channel])
        }

    def _query(self, request: Command, channel: Channel, now_ms: int) -> Command | None:
        if not request.body:
            raise RefusalError(ResponseCode.SYSTEM_ERROR, "QUERY_ASSIGNMENT needs a body")
        topic = bodies.decode_assignment_query(request.body).topic
        route = self._routes.get(topic)
        if route is None or now_ms - route.asked_ms > _ROUTE_LIFE_MS:
            if topic not in self._waiting:
                if len(self._waiting) >= _WAITING_MAX:
                    raise RefusalError(
                        ResponseCode.SYSTEM_BUSY, "[OVERLOAD]too many open questions"
                    )
                self._state.effects.append(Lookup(topic))
            self._waiting.setdefault(topic, []).append((request, channel))
            return None
        return self._answer(request, route.queues)

    def _answer(self, request: Command, queues: tuple[MessageQueue, ...]) -> Command:
        query = bodies.decode_assignment_query(request.body)
        shares = self._shares(query, queues)
        return response_to(request, body=bodies.encode_assignments(shares))

    def _shares(
        self, query: bodies.AssignmentQuery, queues: tuple[MessageQueue, ...]
    ) -> list[bodies.Assignment] | None:
        group = self._state.consumers.group(query.group)
        if not queues or (group is None and query.message_model != "BROADCASTING"):
            return None
        if query.message_model == "BROADCASTING":
            return [bodies.Assignment(queue) for queue in queues]
        if query.strategy_name not in _STRATEGIES:
            return None
        assert group is not None
        members = sorted_as_java(group.client_ids)
        mode = self._mode(query.topic, query.group)
        if mode.mode == _POP:
            return _pop_shares(query, queues, members, mode.pop_share_queue_num)
        shares = _allocate(query, queues, members)
        return [bodies.Assignment(queue) for queue in shares.get(query.client_id, ())]

    def _mode(self, topic: str, group: str) -> bodies.RequestMode:
        default = bodies.RequestMode(topic, group, _PULL, _SHARE_ALL)
        if topic.startswith(RETRY_PREFIX):
            return default
        return self._modes.get((topic, group), default)

    def _set_mode(self, request: Command, channel: Channel, now_ms: int) -> Command:
        del channel, now_ms
        mode = bodies.decode_request_mode(request.body)
        if mode.topic.startswith(RETRY_PREFIX):
            raise RefusalError(
                ResponseCode.NO_PERMISSION,
                "retry topic is not allowed to set mode",
            )
        if mode.mode not in {_POP, _PULL}:
            raise RefusalError(
                ResponseCode.INVALID_PARAMETER, f"mode '{mode.mode}' is neither PULL nor POP"
            )
        self._modes[mode.topic, mode.group] = mode
        self._state.documents.save(_DOCUMENT, msgspec.json.encode(list(self._modes.values())))
        return response_to(request)

    def _modes_body(self, request: Command, channel: Channel, now_ms: int) -> Command:
        del channel, now_ms
        table: dict[str, dict[str, bodies.RequestMode]] = {}
        for mode in self._modes.values():
            table.setdefault(mode.topic, {})[mode.group] = mode
        return response_to(request, body=write_document({"messageRequestModeMap": table}))


def _allocate(
    query: bodies.AssignmentQuery, queues: tuple[MessageQueue, ...], members: list[str]
) -> dict[str, tuple[MessageQueue, ...]]:
    snapshot = Snapshot.of(query.group, queues, members)
    return assign(strategy_named(query.strategy_name), snapshot)


def _pop_shares(
    query: bodies.AssignmentQuery,
    queues: tuple[MessageQueue, ...],
    members: list[str],
    share: int,
) -> list[bodies.Assignment]:
    if query.client_id not in members:
        return []
    count = len(members)
    if share <= 0 or share >= count - 1:
        brokers = dict.fromkeys(queue.broker for queue in queues)
        chosen = [MessageQueue(query.topic, broker, -1) for broker in brokers]
    else:
        position = members.index(query.client_id)
        if count <= len(queues):
            shares = _allocate(query, queues, members)
            near = (members[(position + step) % count] for step in range(share + 1))
            chosen = [queue for member in near for queue in shares[member]]
        else:
            chosen = [queues[position % len(queues)]]
    return [bodies.Assignment(queue, _POP) for queue in dict.fromkeys(chosen)]

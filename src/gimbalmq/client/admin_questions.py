"""What an administrator asks a cluster, as flows, for the faces that run them.

Reads the options, adds and takes off the namespace, checks what is asked for. Runs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Literal, TypeAlias, TypeVar, Unpack

import msgspec

from gimbalmq.client.access import AccessOptions, CurrentNameServers
from gimbalmq.client.option_kinds import options_checked
from gimbalmq.client.options import Start, checked_access, positive
from gimbalmq.client.options import start_from as read_start
from gimbalmq.client.tailing import Tail
from gimbalmq.core.diagnosis import Diagnosis, Limits, diagnose
from gimbalmq.core.explanation import QueueExplanation
from gimbalmq.errors import ConfigurationError, OffsetError
from gimbalmq.flows.admin import create_topic, delete_topic, fetch_topic_stats, list_topics
from gimbalmq.flows.admin_explain import explain_queue
from gimbalmq.flows.admin_facts import collect_facts
from gimbalmq.flows.admin_groups import (
    GroupView,
    fetch_assignments,
    fetch_consume_stats,
    list_groups,
    view_group,
)
from gimbalmq.flows.admin_messages import find_by_id, find_by_key
from gimbalmq.flows.admin_offsets import (
    QueueOffsets,
    ResetTo,
    fetch_offsets,
    plan_reset,
    reset_offsets,
)
from gimbalmq.flows.effects import Flow
from gimbalmq.flows.route import NameServers, fetch_route
from gimbalmq.model.queue import MessageQueue, parse_queue
from gimbalmq.model.route import TopicRoute
from gimbalmq.wire.bodies import ConsumeStats, TopicStats
from gimbalmq.wire.names import check_group, is_stored_topic, is_system_name
from gimbalmq.wire.received import ReceivedMessage
from gimbalmq.wire.subscription import parse_tags

__all__ = ["AdminQuestions", "ResetWish"]

_T = TypeVar("_T")

#: Where a user wants a group to go on.
ResetWish: TypeAlias = datetime | Literal["earliest", "latest"] | Mapping[MessageQueue, int]


class AdminQuestions:
    """The options of an administrator, and one flow for each question."""

    @options_checked(AccessOptions)
    def __init__(
        self,
        nameserver: str | None = None,
        *,
        timeout_s: float = 5.0,
        **access: Unpack[AccessOptions],
    ) -> None:
        self._access = checked_access(nameserver, access)
        self._timeout_s = positive("timeout_s", timeout_s)
        #: How names of topics and groups are read: those in this namespace, or all.
        self.namespace = self._access.namespace
        self._servers = CurrentNameServers(self._access.source)

    @property
    def _nameservers(self) -> NameServers:
        return self._servers.get()

    def _question(self, question: Callable[[NameServers, float], Flow[_T]]) -> Flow[_T]:
        return (yield from question(self._nameservers, self._timeout_s))

    # ---- topics ------------------------------------------------------------------------------

    def _topics(self, *, internal: bool) -> Flow[tuple[str, ...]]:
        flow = list_topics(self._nameservers, self._timeout_s, internal=internal)
        return self._listed((yield from flow), internal=internal)

    def _listed(self, names: Iterable[str], *, internal: bool) -> tuple[str, ...]:
        """Those in the namespace, and RocketMQ's own, as the user knows them."""
        known = self.namespace
        return tuple(
            known.user(name)
            for name in names
            if known.has(name) or (internal and is_system_name(name))
        )

    def _create_topic(
        self, topic: str, queues: int, brokers: Iterable[str] | None, perm: int, *, order: bool
    ) -> Flow[TopicRoute]:
        route = yield from create_topic(
            self._nameservers,
            self.namespace.wire(topic),
            queues=queues,
            brokers=None if brokers is None else tuple(brokers),
            perm=perm,
            order=order,
            timeout_s=self._timeout_s,
        )
        return self._named(route)

    def _named(self, route: TopicRoute) -> TopicRoute:
        return msgspec.structs.replace(route, topic=self.namespace.user(route.topic))

    def _delete_topic(self, topic: str) -> Flow[None]:
        yield from delete_topic(self._nameservers, self.namespace.wire(topic), self._timeout_s)

    def _route(self, topic: str) -> Flow[TopicRoute]:
        return self._named((yield from self._wire_route(topic)))

    def _wire_route(self, topic: str) -> Flow[TopicRoute]:
        if not is_stored_topic(topic):
            raise ConfigurationError(
                f"'{topic}' is no topic name: check it with gimbalmq topic list"
            )
        wire_topic = self.namespace.wire(topic)
        return (yield from fetch_route(self._nameservers, wire_topic, self._timeout_s))

    def _topic_stats(self, topic: str) -> Flow[TopicStats]:
        route = yield from self._wire_route(topic)
        stats = yield from fetch_topic_stats(route, self._timeout_s)
        return msgspec.structs.replace(stats, queues=self._by_queue(stats.queues))

    def _by_queue(self, values: Mapping[MessageQueue, _T]) -> dict[MessageQueue, _T]:
        return {self.namespace.user_queue(queue): value for queue, value in values.items()}

    # ---- groups ------------------------------------------------------------------------------

    def _wire_group(self, group: str) -> str:
        return check_group(self.namespace.wire(group))

    def _groups(self, *, internal: bool) -> Flow[tuple[str, ...]]:
        flow = list_groups(self._nameservers, self._timeout_s, internal=internal)
        return self._listed((yield from flow), internal=internal)

    def _group(self, group: str) -> Flow[GroupView]:
        wire_group = self._wire_group(group)
        view = yield from view_group(self._nameservers, wire_group, self._timeout_s)
        return msgspec.structs.replace(view, group=group)

    def _assignments(self, group: str) -> Flow[dict[str, frozenset[MessageQueue]]]:
        wire_group = self._wire_group(group)
        held = yield from fetch_assignments(self._nameservers, wire_group, self._timeout_s)
        return {
            member: frozenset(self.namespace.user_queues(queues)) for member, queues in held.items()
        }

    def _diagnose(
        self, group: str, *, interval_s: float, probe_locks: bool, limits: Limits | None
    ) -> Flow[Diagnosis]:
        facts = yield from collect_facts(
            self._nameservers,
            self._wire_group(group),
            self._timeout_s,
            interval_s=positive("interval_s", interval_s),
            probe_locks=probe_locks,
        )
        return diagnose(facts, limits)

    def _explain(
        self, group: str, queue: MessageQueue, *, without: Iterable[str], strategy: str | None
    ) -> Flow[QueueExplanation]:
        wire_queue = self.namespace.wire_queue(queue)
        found = yield from explain_queue(
            self._nameservers,
            self._wire_group(group),
            wire_queue,
            self._timeout_s,
            without=tuple(without),
            strategy=strategy,
        )
        return found if wire_queue == queue else self._in_user_names(found, queue.topic)

    def _in_user_names(self, found: QueueExplanation, topic: str) -> QueueExplanation:
        """As the user knows topics: without the namespace."""
        wire_topic = self.namespace.wire(topic)

        def named(text: str) -> str:
            return text.replace(f"{wire_topic}/", f"{topic}/").replace(
                f"'{wire_topic}'", f"'{topic}'"
            )

        later = found.without
        if later is not None:
            moves = tuple(
                msgspec.structs.replace(
                    one, queue=self.namespace.user_queue(parse_queue(one.queue)).path
                )
                for one in later.moves
            )
            later = msgspec.structs.replace(later, sentence=named(later.sentence), moves=moves)
        return msgspec.structs.replace(
            found,
            queue=named(found.queue),
            sentence=named(found.sentence),
            differences=tuple(map(named, found.differences)),
            unknown=tuple(map(named, found.unknown)),
            without=later,
        )

    def _consume_stats(self, group: str, topic: str | None) -> Flow[ConsumeStats]:
        wire_topic = None if topic is None else self.namespace.wire(topic)
        stats = yield from fetch_consume_stats(
            self._nameservers, self._wire_group(group), self._timeout_s, topic=wire_topic
        )
        return msgspec.structs.replace(stats, queues=self._by_queue(stats.queues))

    def _offsets(self, group: str, topic: str) -> Flow[dict[MessageQueue, QueueOffsets]]:
        found = yield from fetch_offsets(
            self._nameservers, self._wire_group(group), self.namespace.wire(topic), self._timeout_s
        )
        return self._by_queue(found)

    def _reset(
        self, group: str, topic: str, to: ResetWish, *, dry_run: bool
    ) -> Flow[dict[MessageQueue, int]]:
        if isinstance(to, Mapping):
            to = {self.namespace.wire_queue(queue): offset for queue, offset in to.items()}
        target, wire_topic = _reset_to(to), self.namespace.wire(topic)
        wire_group = self._wire_group(group)
        if dry_run:
            flow = plan_reset(self._nameservers, wire_topic, target, self._timeout_s)
        else:
            flow = reset_offsets(self._nameservers, wire_group, wire_topic, target, self._timeout_s)
        return self._by_queue((yield from flow))

    # ---- messages ----------------------------------------------------------------------------

    def _message(self, which: str | tuple[str, str], topic: str | None) -> Flow[ReceivedMessage]:
        if isinstance(which, str):
            wire_topic = None if topic is None else self.namespace.wire(topic)
            flow = find_by_id(self._nameservers, which, self._timeout_s, topic=wire_topic)
            return self._shown((yield from flow))
        where, key = which
        found = yield from self._messages(where, key)
        if not found:
            raise OffsetError(f"topic '{where}' has no message with key '{key}'")
        return found[-1]

    def _messages(self, topic: str, key: str) -> Flow[tuple[ReceivedMessage, ...]]:
        wire_topic = self.namespace.wire(topic)
        found = yield from find_by_key(self._nameservers, wire_topic, key, self._timeout_s)
        return tuple(map(self._shown, found))

    def _shown(self, message: ReceivedMessage) -> ReceivedMessage:
        message.namespace = self.namespace.name
        return message

    def _tail(self, topic: str, tags: str, start_from: Start, poll_interval_s: float) -> Tail:
        positive("poll_interval_s", poll_interval_s)
        subscription = parse_tags(self.namespace.wire(topic), tags, 0)
        return Tail(lambda: self._wire_route(topic), subscription, read_start(start_from))


def _reset_to(to: object) -> ResetTo:
    if to == "earliest":
        return "earliest"
    if to == "latest":
        return "latest"
    if isinstance(to, datetime) and to.tzinfo is not None:
        return int(to.timestamp() * 1000)
    if isinstance(to, Mapping):
        return to
    raise ConfigurationError(
        f"cannot reset to {to!r}: give 'earliest', 'latest', a datetime with a time zone, or the "
        "next offset by queue"
    )

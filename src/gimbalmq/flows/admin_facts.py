"""Collecting what a diagnosis needs: two looks at a group, its brokers and its locks.

Decides whom to ask and what to do about silence: a broker or a member that does not answer is a
fact, not an error. Judges nothing.
"""

from __future__ import annotations

from typing import Final

from gimbalmq.core.group_facts import (
    BrokerFacts,
    GroupFacts,
    GroupSample,
    HoldFacts,
    MemberFacts,
    QueueFacts,
    is_retry,
)
from gimbalmq.errors import BrokerError, GimbalError, TopicNotFoundError, TransportError
from gimbalmq.flows.admin import broker_address, fetch_cluster
from gimbalmq.flows.admin_groups import (
    GroupView,
    fetch_consume_stats,
    fetch_running_info,
    view_broker,
)
from gimbalmq.flows.admin_offsets import fetch_offsets, queue_address
from gimbalmq.flows.effects import Flow, checked_call, now, sleep, together
from gimbalmq.flows.lock import lock, unlock
from gimbalmq.flows.route import NameServers, fetch_route
from gimbalmq.model.queue import MessageQueue, sorted_queues
from gimbalmq.model.route import BrokerSet
from gimbalmq.wire.bodies import RunningInfo, decode_kv_table
from gimbalmq.wire.codes import RequestCode
from gimbalmq.wire.command import Command
from gimbalmq.wire.sharing import SHARING_PROPERTY, decode_sharing

__all__ = ["as_told", "ask_members", "collect_facts", "look_at_group"]

#: The name under which a lock is tried, and given back at once.
_PROBE_ID: Final = "gimbalmq-doctor"


def collect_facts(
    nameservers: NameServers,
    group: str,
    timeout_s: float,
    *,
    interval_s: float,
    probe_locks: bool,
) -> Flow[GroupFacts]:
    """Look at the group twice, `interval_s` apart.

    Args:
        nameservers: Where to ask for the brokers.
        group: The group.
        timeout_s: For each request.
        interval_s: Between the looks; offsets must move in it, and Java commits every 5 s.
        probe_locks: In an ordered group, try to lock the queues that nobody has locked, and give
            them back at once. Brokers have no question that would tell who holds a lock.
    """
    _, first = yield from _sample(nameservers, group, timeout_s)
    yield from sleep(interval_s)
    view, second = yield from _sample(nameservers, group, timeout_s)
    facts = GroupFacts(group, first, second, interval_s, view.broadcasting)
    if not (probe_locks and facts.ordered) or facts.broadcasting:
        return facts
    free = _unlocked(first) & _unlocked(second)
    refused = yield from _probe(nameservers, group, sorted_queues(free), timeout_s)
    return GroupFacts(group, first, second, interval_s, view.broadcasting, tuple(refused))


def _sample(
    nameservers: NameServers, group: str, timeout_s: float
) -> Flow[tuple[GroupView, GroupSample]]:
    view, brokers = yield from look_at_group(nameservers, group, timeout_s)
    members = yield from ask_members(view, timeout_s)
    offsets: dict[MessageQueue, QueueFacts] = {}
    topics = view.topics
    if not members and not any(one.failure for one in brokers):
        # Nobody says what the group reads; its offsets do.
        stats = yield from fetch_consume_stats(nameservers, group, timeout_s)
        topics = frozenset(queue.topic for queue in stats.queues)
    for topic in sorted(topics):
        try:
            found = yield from fetch_offsets(nameservers, group, topic, timeout_s)
        except (TopicNotFoundError, TransportError):
            continue  # not made yet, or its broker is a finding of its own
        offsets |= {
            queue: QueueFacts(one.minimum, one.maximum, one.committed)
            for queue, one in found.items()
        }
    return view, GroupSample(members, offsets, brokers)


# ---- brokers ---------------------------------------------------------------------------------


def look_at_group(
    nameservers: NameServers, group: str, timeout_s: float
) -> Flow[tuple[GroupView, tuple[BrokerFacts, ...]]]:
    """What every broker says about the group, and how it did; those that fail are not in the view."""
    info = yield from fetch_cluster(nameservers, timeout_s)
    views, facts = [], []
    for name in sorted(info.brokers):
        started_s = (yield from now()).at_s
        try:
            address = broker_address(info.brokers[name])
            view = yield from view_broker(name, address, group, timeout_s)
            took_s = (yield from now()).at_s - started_s
            facts.append((yield from _broker(info.brokers[name], address, took_s, timeout_s)))
            views.append(view)
        except (BrokerError, TransportError) as error:
            facts.append(BrokerFacts(name, failure=str(error)))
    return GroupView(group, tuple(views)), tuple(facts)


def _broker(
    brokers: BrokerSet, address: str, answer_s: float, timeout_s: float
) -> Flow[BrokerFacts]:
    request = Command(RequestCode.GET_BROKER_RUNTIME_INFO, {"bname": brokers.name})
    answer = yield from checked_call(address, request, timeout_s)
    table = decode_kv_table(answer.body)
    waiting_ms = max(
        _number(table.get(f"{pool}ThreadPoolQueueHeadWaitTimeMills")) for pool in ("send", "pull")
    )
    return BrokerFacts(
        brokers.name,
        answer_s=answer_s,
        has_master=brokers.master is not None,
        behind_bytes=_number(table.get("dispatchBehindBytes")),
        waiting_s=waiting_ms / 1000,
    )


def _number(text: str | None) -> int:
    return int(text) if text is not None and text.isascii() and text.isdigit() else 0


# ---- members ---------------------------------------------------------------------------------


def ask_members(view: GroupView, timeout_s: float) -> Flow[tuple[MemberFacts, ...]]:
    """Ask all members at once, by client id: the silent ones are waited for together."""
    asked = (_ask_member(view, client_id, timeout_s) for client_id in view.client_ids)
    facts: list[MemberFacts] = []
    for one in (yield from together(asked)):
        if isinstance(one, GimbalError):
            raise one
        facts.append(one)
    return tuple(facts)


def _ask_member(view: GroupView, client_id: str, timeout_s: float) -> Flow[MemberFacts]:
    """What brokers say of a member, and what it says itself; silence is a fact, too."""
    listed = {
        one.broker: [own for own in one.connection.connections if own.client_id == client_id]
        for one in view.brokers
        if one.connection is not None
    }
    known = next(one for one in view.members if one.client_id == client_id)
    facts = MemberFacts(
        client_id,
        known.language,
        known.version,
        max(map(len, listed.values())),
        frozenset(broker for broker, own in listed.items() if own),
    )
    try:
        info = yield from fetch_running_info(view, client_id, timeout_s)
    except (BrokerError, TransportError):
        return facts
    return as_told(facts, info)


def as_told(facts: MemberFacts, info: RunningInfo) -> MemberFacts:
    """The member with what it says about itself."""
    held = {
        queue: HoldFacts(
            # Java says -1 before the first commit.
            one.commit_offset if one.commit_offset >= 0 else None,
            locked=one.locked,
            releasing=one.dropped,
            cached=one.cached_count,
        )
        for queue, one in info.queues.items()
    }
    held |= {
        queue: HoldFacts(popped=True) for queue, one in info.pop_queues.items() if not one.dropped
    }
    sharing = info.properties.get(SHARING_PROPERTY)
    return MemberFacts(
        facts.client_id,
        facts.language,
        facts.version,
        facts.connections,
        facts.listed_by,
        held,
        {
            one.topic: one.expression if not one.is_sql else f"SQL: {one.expression}"
            for one in info.subscriptions
        },
        info.properties.get("PROP_CONSUMEORDERLY", "").lower() == "true",
        None if sharing is None else decode_sharing(sharing),
    )


# ---- locks -----------------------------------------------------------------------------------


def _unlocked(sample: GroupSample) -> set[MessageQueue]:
    if any(member.held is None for member in sample.members):
        return set()  # who did not answer may have locked them
    locked = {queue for member in sample.members for queue, hold in member.owns() if hold.locked}
    return {queue for queue in sample.offsets if queue not in locked and not is_retry(queue)}


def _probe(
    nameservers: NameServers, group: str, queues: list[MessageQueue], timeout_s: float
) -> Flow[list[MessageQueue]]:
    """Those of the queues whose lock somebody holds."""
    refused = []
    for queue in queues:
        try:
            route = yield from fetch_route(nameservers, queue.topic, timeout_s)
            address = queue_address(route, queue)
            granted = yield from lock(address, group, _PROBE_ID, [queue])
            if granted:
                yield from unlock(address, group, _PROBE_ID, [queue])
            else:
                refused.append(queue)
        except (BrokerError, TransportError):
            continue  # its broker is a finding of its own
    return refused

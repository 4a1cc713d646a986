"""Asking a running group why a queue is where it is.

Every member is asked what it holds and by what it shares out, and one of ours, best the one that
holds the queue, for the reason: only members know which absent ones they still count, which weights
they have read and what their zones are. Where no member can say, the answer is computed from what
brokers list, as far as that is possible, and says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from gimbalmq import balance
from gimbalmq.core.allocation import Strategy
from gimbalmq.core.consumer.ground import Ground
from gimbalmq.core.explanation import ExplainFacts, QueueExplanation, explain_facts, quoted
from gimbalmq.core.group_facts import MemberFacts, is_retry
from gimbalmq.core.identity import (
    FALLBACK_STRATEGY,
    agreed_strategy,
    allocation_members,
    capability,
    stem_of,
)
from gimbalmq.errors import (
    AllocationError,
    BrokerError,
    ConfigurationError,
    StateError,
    TopicNotFoundError,
    TransportError,
)
from gimbalmq.flows.admin_facts import as_told, ask_members
from gimbalmq.flows.admin_groups import GroupView, fetch_running_info, view_group
from gimbalmq.flows.effects import Flow
from gimbalmq.flows.route import NameServers, fetch_route
from gimbalmq.model.queue import MessageQueue
from gimbalmq.model.sharing import MemberAnswer
from gimbalmq.wire.sharing import (
    ANSWER_PROPERTY,
    QUEUE_FIELD,
    WITHOUT_FIELD,
    decode_answer,
    encode_without,
)

__all__ = ["explain_queue"]

#: Java's strategies that need no options, so that what members hold can be compared with them.
_COMPARABLE: Final = ("AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH")


def explain_queue(
    nameservers: NameServers,
    group: str,
    queue: MessageQueue,
    timeout_s: float,
    *,
    without: Sequence[str] = (),
    strategy: str | None = None,
) -> Flow[QueueExplanation]:
    """Say why a queue is where it is; see `Admin.explain`."""
    view = yield from view_group(nameservers, group, timeout_s)
    _check_shared(view, queue)
    queues = yield from _queues(nameservers, view, queue, timeout_s)
    members = yield from ask_members(view, timeout_s)
    if _popped(members, queue):
        return _by_pop(queue, members, without)
    ids = tuple(one.client_id for one in view.members)
    leaving = _leaving(ids, members, without, queue)
    if strategy is None:
        asked = yield from _ask_one(view, members, queue, leaving, timeout_s)
        if asked is not None:
            teller, answer = asked
            # What it has said last belongs to its answer.
            now = [teller if one.client_id == teller.client_id else one for one in members]
            return explain_facts(
                ExplainFacts(group, queue, ids, tuple(now), answer, teller.client_id)
            )
    facts = _computed(group, queue, queues, ids, members, leaving, strategy)
    return explain_facts(facts)


def _check_shared(view: GroupView, queue: MessageQueue) -> None:
    """Refuse what nobody shares out."""
    if not view.members:
        raise StateError(f"group '{view.group}' has no member now, so nobody owns {queue.path}")
    if view.broadcasting:
        raise StateError(
            f"group '{view.group}' broadcasts: every member reads every queue, {queue.path} too"
        )
    if queue.topic not in view.topics:
        subscribed = ", ".join(sorted(view.topics)) or "nothing"
        raise StateError(
            f"group '{view.group}' does not subscribe to topic '{queue.topic}', so nobody owns "
            f"{queue.path}; it subscribes to {subscribed}"
        )


def _queues(
    nameservers: NameServers, view: GroupView, asked: MessageQueue, timeout_s: float
) -> Flow[dict[str, frozenset[MessageQueue]]]:
    """The queues of each topic; one that does not exist is an error only when it was asked for."""
    found: dict[str, frozenset[MessageQueue]] = {}
    for topic in sorted(view.topics):
        try:
            route = yield from fetch_route(nameservers, topic, timeout_s)
        except TopicNotFoundError:
            if topic == asked.topic:
                raise
            continue
        found[topic] = frozenset(route.subscribe_queues())
    if asked not in found[asked.topic]:
        raise AllocationError(
            f"queue {asked.path} is not one of the {len(found[asked.topic])} queues of topic "
            f"'{asked.topic}'; check broker and queue id"
        )
    return found


def _leaving(
    ids: Sequence[str], members: Sequence[MemberFacts], names: Sequence[str], queue: MessageQueue
) -> tuple[str, ...]:
    """The client ids that are meant, which may be given without the part that we append."""
    absent = [one for member in members if member.sharing for one in member.sharing.waits]
    known = tuple(dict.fromkeys((*ids, *absent)))
    chosen = []
    for name in names:
        found = [one for one in known if name in {one, stem_of(one)}]
        if not found:
            raise ConfigurationError(
                f"'{name}' is no member of the group: it has {', '.join(sorted(known))}"
            )
        chosen += found
    if chosen and set(ids) <= set(chosen):
        raise StateError(f"without {', '.join(chosen)} nobody is left to own {queue.path}")
    return tuple(dict.fromkeys(chosen))


# ---- asked ---------------------------------------------------------------------------------------


def _ask_one(
    view: GroupView,
    members: Sequence[MemberFacts],
    queue: MessageQueue,
    leaving: tuple[str, ...],
    timeout_s: float,
) -> Flow[tuple[MemberFacts, MemberAnswer] | None]:
    """The first of our members that explains the queue; None when there is none."""
    able = [one for one in members if one.sharing is not None and not one.sharing.manual]
    # The one that holds it knows best; of the others, those that have shared out already.
    able.sort(
        key=lambda one: (queue not in (one.held or {}), not (one.sharing and one.sharing.listed))
    )
    more = {QUEUE_FIELD: queue.path}
    if leaving:
        more[WITHOUT_FIELD] = encode_without(leaving)
    trouble: tuple[MemberFacts, MemberAnswer] | None = None
    for member in able:
        try:
            info = yield from fetch_running_info(view, member.client_id, timeout_s, more=more)
        except (BrokerError, TransportError):
            continue
        text = info.properties.get(ANSWER_PROPERTY)
        if text is None:
            continue
        told = as_told(member, info), decode_answer(text)
        if told[1].reason is not None:
            return told
        trouble = trouble or told
    return trouble


# ---- computed ------------------------------------------------------------------------------------


def _computed(
    group: str,
    queue: MessageQueue,
    queues: Mapping[str, frozenset[MessageQueue]],
    ids: tuple[str, ...],
    members: tuple[MemberFacts, ...],
    leaving: tuple[str, ...],
    strategy: str | None,
) -> ExplainFacts:
    if all(one.sharing is not None and one.sharing.manual for one in members) and not strategy:
        answer = MemberAnswer(trouble="no rule shares the queues out, users chose them (assign)")
        return ExplainFacts(group, queue, ids, members, answer)
    waits = next((one.sharing.waits for one in members if one.sharing is not None), {})
    told = next((one for one in map(capability, ids) if one is not None), None)
    promised = FALLBACK_STRATEGY if told is None else told.strategy
    name, remark, what_if = strategy or promised, "", strategy is not None
    if strategy is not None:
        uses = agreed_strategy(ids, promised).strategy
        if told is not None and strategy != uses:
            remark = f"That is what {strategy} would give; the members use {uses}."
    try:
        wanted = _wanted(ids, name, forced=what_if)
    except AllocationError as error:
        if what_if:
            raise
        trouble = f"the members use {name}, none of them answered, and from outside {error}"
        answer = MemberAnswer(trouble=trouble)
        return ExplainFacts(group, queue, ids, members, answer)
    listed = allocation_members(ids)
    ground = Ground(group, "", wanted, queues, listed, waits, forced=what_if)
    if strategy is None:
        fitting, remark = _fitting(ground, members)
        ground = Ground(group, "", fitting, queues, listed, waits, forced=fitting is not wanted)
    answer = ground.answer(queue, leaving)
    return ExplainFacts(group, queue, ids, members, answer, remark=remark, what_if=what_if)


def _wanted(ids: Sequence[str], name: str, *, forced: bool) -> Strategy:
    """The strategy, or what the group falls back to where only members could make it."""
    try:
        return balance.strategy(name)
    except AllocationError:
        agreed = agreed_strategy(ids, name).strategy
        if forced or agreed == name:
            raise
        return balance.strategy(agreed)


def _fitting(ground: Ground, members: Sequence[MemberFacts]) -> tuple[Strategy, str]:
    """The strategy that gives what members hold, and how that is known."""
    first, _ = ground.strategy()
    silent = [one.client_id for one in members if one.held is None]
    if silent:
        return ground.wanted, (
            f"No member said by what it shares out: {first.name} is taken for it, which cannot be "
            f"checked, because {quoted(silent)} did not answer."
        )
    held = {queue: one.client_id for one in members for queue, _ in one.owns()}
    for name in dict.fromkeys((first.name, *_COMPARABLE)):
        chosen = first if name == first.name else balance.strategy(name)
        tried = Ground(
            ground.group, "", chosen, ground.queues, ground.listed, ground.waits, forced=True
        )
        if _alike(tried, held):
            remark = f"The members do not say by what they share out; they hold what {name} gives."
            return ground.wanted if chosen is first else chosen, remark
    return ground.wanted, (
        f"The members do not say by what they share out, and they do not hold what {first.name} "
        "gives: they use another strategy (--strategy names it), or are moving queues now."
    )


def _alike(ground: Ground, held: Mapping[MessageQueue, str]) -> bool:
    should = {queue: owner for queue, owner in ground.owners().items() if not is_retry(queue)}
    return should == {queue: owner for queue, owner in held.items() if not is_retry(queue)}


# ---- popped --------------------------------------------------------------------------------------


def _popped(members: Sequence[MemberFacts], queue: MessageQueue) -> tuple[str, ...]:
    """Who gets the queue's messages one at a time from the broker; -1 stands for every queue."""
    return tuple(
        one.client_id
        for one in members
        if any(
            hold.popped
            and (held.topic, held.broker) == (queue.topic, queue.broker)
            and held.queue_id in {-1, queue.queue_id}
            for held, hold in (one.held or {}).items()
        )
    )


def _by_pop(
    queue: MessageQueue, members: Sequence[MemberFacts], without: Sequence[str]
) -> QueueExplanation:
    if without:
        raise StateError(
            f"the broker hands out the messages of {queue.path} one at a time (POP), so no queue "
            "moves when a member leaves"
        )
    takers = _popped(members, queue)
    return QueueExplanation(
        queue=queue.path,
        owner=None,
        rule="POP",
        data={"members": list(takers)},
        sentence=(
            f"{queue.path} has no owner: its broker hands out the messages one at a time (POP), to "
            f"{quoted(takers)}."
        ),
    )

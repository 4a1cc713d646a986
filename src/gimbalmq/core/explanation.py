"""Why a queue of a running group is where it is, from what its members say.

The rule and its numbers come from a member, which has all inputs: absent members that are still
counted, published weights, zones. What members hold is put beside it. Where the two differ, or
where something cannot be known from outside, the words say so. Nothing is asked here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from gimbalmq.core.consumer.ground import members_digest
from gimbalmq.core.group_facts import MemberFacts
from gimbalmq.core.identity import allocation_members
from gimbalmq.model.queue import MessageQueue
from gimbalmq.model.sharing import MemberAnswer, Reason, Sharing, WithoutMembers

__all__ = ["ExplainFacts", "QueueExplanation", "UsedWeights", "explain_facts", "quoted"]

_DOCTOR = "`gimbalmq group doctor` tells more if that lasts"


class UsedWeights(msgspec.Struct, frozen=True):
    """Published weights: the topic they are read from, the version, and the queue's weight.

    `version` is None when none is published for the queue's topic.
    """

    topic: str
    version: int | None
    weight: float


class QueueExplanation(msgspec.Struct, frozen=True):
    """Why a queue is where it is.

    queue: Its path.
    owner: To whom the rule gives it; None: to nobody, or the rule is not known.
    rule: The strategy; None when it cannot be known.
    data: The numbers that the rule was applied to.
    sentence: All of it in words.
    holders: Who has it now, by their own words.
    told_by: The member that explained it; None when it was computed from outside.
    absent: Members that are gone, are counted all the same, and for how many seconds more.
    weights: The published weights that were used; None when there are none.
    fallback: Why the group does not use the strategy that it was given; "" when it does.
    differences: What is not as the rule says.
    unknown: What could not be found out.
    without: What would be if members left.
    """

    queue: str
    owner: str | None
    rule: str | None
    data: dict[str, Any]
    sentence: str
    holders: tuple[str, ...] = ()
    told_by: str | None = None
    absent: dict[str, float] = msgspec.field(default_factory=dict)
    weights: UsedWeights | None = None
    fallback: str = ""
    differences: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    without: WithoutMembers | None = None


class ExplainFacts(msgspec.Struct, frozen=True):
    """What was found out about a queue.

    listed: Client ids as brokers list them, those with two connections twice.
    told_by: The member that was asked for `answer`; None when it was computed from outside.
    remark: How the rule is known when no member said it.
    what_if: The rule was chosen by the one who asks, so what members hold says nothing about it.
    """

    group: str
    queue: MessageQueue
    listed: tuple[str, ...]
    members: tuple[MemberFacts, ...]
    answer: MemberAnswer
    told_by: str | None = None
    remark: str = ""
    what_if: bool = False

    @property
    def sharing(self) -> Sharing | None:
        """By what the member that answered shares out."""
        return next((one.sharing for one in self.members if one.client_id == self.told_by), None)


def explain_facts(facts: ExplainFacts) -> QueueExplanation:
    """Put what was found out into words."""
    reason = facts.answer.reason
    sharing = facts.sharing
    used = None if sharing is None or facts.what_if else sharing
    holders = _holders(facts)
    weights = _weights(facts, reason, used)
    differences = () if facts.what_if else tuple(_differences(facts, reason, holders))
    unknown = () if facts.what_if else tuple(_unknown(facts, holders))
    told = [
        _first(facts, reason, holders),
        facts.remark,
        *_grounds(facts, reason, used, weights),
        *differences,
        *unknown,
    ]
    return QueueExplanation(
        queue=facts.queue.path,
        owner=None if reason is None else reason.owner,
        rule=None if reason is None else reason.rule,
        data={} if reason is None else reason.data,
        sentence=" ".join(filter(None, told)),
        holders=holders,
        told_by=facts.told_by,
        absent={} if sharing is None else dict(sharing.waits),
        weights=weights,
        fallback="" if used is None else used.reason,
        differences=differences,
        unknown=unknown,
        without=facts.answer.without,
    )


def _first(facts: ExplainFacts, reason: Reason | None, holders: tuple[str, ...]) -> str:
    if reason is not None:
        return reason.sentence
    path = facts.queue.path
    held = f"{path} is held by {quoted(holders)}" if holders else f"no member says it has {path}"
    return f"{held}; why cannot be said: {facts.answer.trouble}."


# ---- what the rule was applied to ----------------------------------------------------------------


def _weights(
    facts: ExplainFacts, reason: Reason | None, used: Sharing | None
) -> UsedWeights | None:
    if reason is None or used is None or used.weights_topic is None or used.reason:
        return None
    data = reason.data.get("inner", reason.data)
    version = used.versions.get(facts.queue.topic)
    return UsedWeights(used.weights_topic, version, float(data.get("weight", 1.0)))


def _grounds(
    facts: ExplainFacts, reason: Reason | None, used: Sharing | None, weights: UsedWeights | None
) -> Iterator[str]:
    if used is None:
        return
    if used.reason:
        yield f"The group does not use {used.wanted}: {used.reason}."
    if weights is not None and weights.version is not None:
        yield (
            f"The weights are those of version {weights.version}, published in topic "
            f"'{weights.topic}'."
        )
    elif weights is not None:
        yield (
            f"Topic '{weights.topic}' has no weights for topic '{facts.queue.topic}', so each of "
            "its queues weighs 1."
        )
    if used.no_waiting:
        yield f"There is no grace time for members that are gone now: {used.no_waiting}."
    owner = None if reason is None else reason.owner
    for member, left_s in used.waits.items():
        if member == owner:
            yield (
                f"'{member}' is absent: its queues are kept for it for another {left_s:.1f} s "
                "(rejoin_grace_s), and nobody consumes this one meanwhile."
            )
        else:
            yield (
                f"'{member}' is absent and counted as if it were there for another {left_s:.1f} s "
                "(rejoin_grace_s)."
            )


# ---- what is so and should not be ----------------------------------------------------------------


def _holders(facts: ExplainFacts) -> tuple[str, ...]:
    return tuple(
        one.client_id
        for one in facts.members
        if any(queue == facts.queue for queue, _ in one.owns())
    )


def _differences(
    facts: ExplainFacts, reason: Reason | None, holders: tuple[str, ...]
) -> Iterator[str]:
    if len(holders) > 1:
        yield f"{quoted(holders)} hold it at the same time now; {_DOCTOR}."
    elif reason is not None and holders and holders[0] != reason.owner:
        yield (
            f"But '{holders[0]}' holds it now: the group is moving queues, or its members do not "
            f"share out alike; {_DOCTOR}."
        )
    letting_go = [
        one.client_id
        for one in facts.members
        if (hold := (one.held or {}).get(facts.queue)) is not None and hold.releasing
    ]
    if letting_go:
        yield f"{quoted(letting_go)} has lost it and not let go of it yet."
    elif reason is not None and not holders and _could_hold(facts, reason.owner):
        yield (
            f"But '{reason.owner}' does not hold it now: it has not seen the last change yet, or "
            f"waits for the queue's lock; {_DOCTOR}."
        )
    for member in facts.members:
        if member.sharing is not None:
            yield from _otherwise(facts, member.client_id, member.sharing)


def _could_hold(facts: ExplainFacts, owner: str | None) -> bool:
    found = next((one for one in facts.members if one.client_id == owner), None)
    if found is None or found.held is None:
        return False  # absent, or silent: that is said elsewhere
    return found.sharing is None or not found.sharing.passive


def _otherwise(facts: ExplainFacts, member: str, says: Sharing) -> Iterator[str]:
    """In what a member differs from the one that answered, or from what brokers say."""
    if says.manual:
        yield f"The queues of '{member}' were chosen by its user, so no rule gives it any."
        return
    if says.paused:
        yield f"'{member}' is paused and keeps what it has until it is resumed."
    if not says.listed:
        yield f"'{member}' has not seen a list of the members yet."
        return
    if says.listed != members_digest(allocation_members(facts.listed)):
        yield (
            f"'{member}' shares out by another list of members than brokers have now: it has not "
            "noticed a change yet."
        )
    main = facts.sharing
    if main is None or member == facts.told_by:
        return
    if says.strategy != main.strategy:
        yield (
            f"'{member}' shares out by {says.strategy} and '{facts.told_by}' by {main.strategy}, "
            "so their shares do not fit together: give all members the same strategy."
        )
    if says.listed == main.listed and says.waits.keys() != main.waits.keys():
        yield f"'{member}' counts {quoted(says.waits) or 'nobody'} among the absent."
    mine, other = (one.versions.get(facts.queue.topic) for one in (main, says))
    if mine != other and says.weights_topic is not None:
        told = "no published weights" if other is None else f"version {other} of the weights"
        yield f"'{member}' uses {told}, '{facts.told_by}' {mine or 'none'}."


def _unknown(facts: ExplainFacts, holders: tuple[str, ...]) -> Iterator[str]:
    silent = [one.client_id for one in facts.members if one.held is None]
    if silent and not holders:
        yield f"{quoted(silent)} did not answer, so whether it holds the queue is not known."
    elif silent:
        yield f"{quoted(silent)} did not answer, so whether it holds the queue, too, is not known."
    owner = None if facts.answer.reason is None else facts.answer.reason.owner
    for one in facts.members:
        if one.client_id == owner and one.sharing is not None and one.sharing.passive:
            yield f"The user of '{owner}' pulls, so whether it is read is not known."


def quoted(names: Iterable[str]) -> str:
    """Names in a sentence.

    >>> quoted(["ann", "bob", "cid"])
    "'ann', 'bob' and 'cid'"
    """
    marked = [f"'{name}'" for name in names]
    return " and ".join(filter(None, [", ".join(marked[:-1]), *marked[-1:]]))

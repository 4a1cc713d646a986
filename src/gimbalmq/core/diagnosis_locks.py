"""Rules about queue locks: whether all members take them, and for how long they count."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gimbalmq.core.findings import Finding, Limits, Rule, counted, finding
from gimbalmq.core.group_facts import GroupFacts, MemberFacts

__all__ = ["LOCK_RULES"]


def _locks(member: MemberFacts) -> bool | None:
    """Whether it consumes a queue only with its lock; None when it did not answer."""
    if member.held is None:
        return None
    return member.ordered or (member.sharing is not None and member.sharing.locks is not None)


def _mixed(facts: GroupFacts, _limits: Limits) -> Iterator[Finding]:
    members = () if facts.broadcasting else facts.second.members
    careless = [one.client_id for one in members if _locks(one) is False]
    if careless and any(_locks(one) for one in members):
        yield finding(
            "MIXED_LOCKING",
            "error",
            f"{counted(len(careless), 'member')} consume queues without their locks, so the locks "
            "of the others do not keep a queue from being consumed by two at a time",
            "set lease=True on all members, which must all be GimbalMQ's, or ordered=True (an "
            "orderly listener in Java), or neither",
            members=careless,
        )


def _unsafe_times(facts: GroupFacts, _limits: Limits) -> Iterator[Finding]:
    known = [
        (one.client_id, one.sharing.locks)
        for one in facts.second.members
        if one.sharing is not None and one.sharing.locks is not None
    ]
    if not known:
        return
    trusting, longest = max(known, key=lambda one: one[1].trust_s)
    hasty, shortest = min(known, key=lambda one: one[1].grace_s)
    if longest.trust_s >= shortest.grace_s:
        yield finding(
            "UNSAFE_LOCK_TIMES",
            "error",
            f"a member trusts its locks for {longest.trust_s:g} s without contact, and another "
            f"takes locks over {shortest.grace_s:g} s after a member is gone: then both may "
            "consume a queue",
            "give all members the same lock_trust_s and the same, longer take_over_grace_s",
            members=(trusting, hasty),
        )


#: In the order in which findings of equal severity are told.
LOCK_RULES: Final[tuple[Rule, ...]] = (_mixed, _unsafe_times)

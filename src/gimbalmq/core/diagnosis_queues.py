"""Rules about who has which queue: nobody, two, too many, not let go, locked by the dead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from gimbalmq.core.findings import Finding, Limits, Rule, counted, finding
from gimbalmq.core.group_facts import GroupFacts, GroupSample, is_retry
from gimbalmq.core.identity import capability
from gimbalmq.model.queue import MessageQueue

__all__ = ["QUEUE_RULES", "doubled_queues", "unowned_queues"]


# ---- who has what ----------------------------------------------------------------------------


def unowned_queues(facts: GroupFacts) -> list[MessageQueue]:
    """Queues that no member had in either look, though all of them answered."""
    if facts.broadcasting or not facts.second.members:
        return []
    samples = (facts.first, facts.second)
    if any(member.held is None for sample in samples for member in sample.members):
        return []  # who did not answer may have it
    taken = {queue for sample in samples for queue in sample.owners()}
    popped = {_place(queue) for queue in _popped(facts.second)}
    return [
        queue
        for queue, one in facts.second.offsets.items()
        if queue not in taken
        and queue in facts.first.offsets
        and _place(queue) not in popped
        # Members find a new retry topic with their next look at the routes: that is no fault
        # before a message waits in it.
        and not (is_retry(queue) and one.maximum == (one.committed or 0))
    ]


def _place(queue: MessageQueue) -> tuple[str, str]:
    return queue.topic, queue.broker


def _popped(sample: GroupSample) -> Iterator[MessageQueue]:
    for member in sample.members:
        yield from (queue for queue, hold in (member.held or {}).items() if hold.popped)


def doubled_queues(facts: GroupFacts) -> dict[MessageQueue, tuple[str, ...]]:
    """Queues that had several owners in both looks, and who has them now."""
    if facts.broadcasting:
        return {}
    before = facts.first.owners()
    return {
        queue: ids
        for queue, ids in facts.second.owners().items()
        if len(ids) > 1 and len(before.get(queue, ())) > 1
    }


def _unowned(facts: GroupFacts, _limits: Limits) -> Iterator[Finding]:
    locked = set(facts.locked_by_unknown)
    queues = [queue for queue in unowned_queues(facts) if queue not in locked]
    if queues:
        yield finding(
            "QUEUE_UNOWNED",
            "error",
            f"no member holds {counted(len(queues), 'queue')}: messages in them wait",
            f"{_kept(facts)}look at the other findings for the cause (ids, strategies, "
            "subscriptions); without one, restart the member that `gimbalmq group explain` names "
            "as the owner",
            queues=queues,
        )


def _kept(facts: GroupFacts) -> str:
    """What is to be said of members that are gone and whose queues may wait for them."""
    members = facts.second.members
    waits = {
        absent: left_s
        for member in members
        if member.sharing is not None
        for absent, left_s in member.sharing.waits.items()
    }
    if waits:
        who = ", ".join(f"'{absent}'" for absent in sorted(waits))
        left_s = max(waits.values())
        return f"{who} is absent, and its queues wait for it, {left_s:.1f} s more at most; else "
    promised = (capability(one.client_id) for one in members)
    grace_s = max((one.rejoin_grace_s or 0.0 for one in promised if one is not None), default=0.0)
    if not grace_s:
        return ""
    return f"if a member restarts, they wait {grace_s:g} s for it (rejoin_grace_s); else "


def _doubled(facts: GroupFacts, _limits: Limits) -> Iterator[Finding]:
    doubled = doubled_queues(facts)
    if doubled:
        yield finding(
            "QUEUE_DOUBLY_OWNED",
            "error",
            f"{counted(len(doubled), 'queue')} have more than one owner: their messages are "
            "delivered more than once",
            "look at the other findings for the cause (ids, strategies, subscriptions, brokers "
            "that list different members)",
            queues=list(doubled),
            members=list({one for ids in doubled.values() for one in ids}),
        )


def _skew(facts: GroupFacts, limits: Limits) -> Iterator[Finding]:
    if facts.broadcasting or not facts.second.members:
        return
    shares = _shares(facts.second)
    before = _shares(facts.first)
    mean = sum(shares.values()) / len(shares)
    heavy = {
        one: count
        for one, count in shares.items()
        if count > limits.skew_factor * mean
        and count >= mean + 2
        and before.get(one, 0) > limits.skew_factor * mean
    }
    if heavy:
        told = ", ".join(f"{one}: {count}" for one, count in sorted(heavy.items()))
        yield finding(
            "SKEW",
            "warning",
            f"shares are uneven: {told} where {mean:.1f} is the mean",
            "many topics with few queues each fall to the first members: CROSS_TOPIC shares them "
            "out together; see `gimbalmq balance simulate --group`",
            members=list(heavy),
        )


def _shares(sample: GroupSample) -> Counter[str]:
    shares = Counter({one.client_id: 0 for one in sample.members})
    for member in sample.members:
        shares[member.client_id] += sum(not is_retry(queue) for queue, _ in member.owns())
    return shares


def _slow_release(facts: GroupFacts, _limits: Limits) -> Iterator[Finding]:
    before = _releasing(facts.first)
    slow = _releasing(facts.second) & before
    if slow:
        yield finding(
            "HANDOVER_LONG",
            "warning",
            f"{counted(len(slow), 'queue')} were given to another member and not let go for "
            f"{facts.interval_s:g} s and more: a listener is still running",
            "make listeners quicker, or lower release_drain_s; a queue that is consumed in order "
            "waits for its listener",
            queues=[queue for queue, _ in slow],
            members=[one for _, one in slow],
        )


def _releasing(sample: GroupSample) -> set[tuple[MessageQueue, str]]:
    return {
        (queue, member.client_id)
        for member in sample.members
        for queue, hold in (member.held or {}).items()
        if hold.releasing
    }


def _dead_locks(facts: GroupFacts, _limits: Limits) -> Iterator[Finding]:
    if facts.locked_by_unknown:
        yield finding(
            "LOCK_HELD_BY_DEAD",
            "error",
            f"{counted(len(facts.locked_by_unknown), 'queue')} are locked by a client that is not "
            "in the group any more: nobody can consume them until the lock expires, 60 s after "
            "its last renewal",
            "wait a minute; `gimbalmq group guard` releases such locks within seconds",
            queues=facts.locked_by_unknown,
        )


#: In the order in which findings of equal severity are told.
QUEUE_RULES: Final[tuple[Rule, ...]] = (_doubled, _unowned, _dead_locks, _slow_release, _skew)

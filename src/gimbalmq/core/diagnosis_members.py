"""Rules about the members of a group: who is there, and whether they agree on how to share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from gimbalmq.core.allocation import Snapshot, assign, strategy_named
from gimbalmq.core.diagnosis_queues import doubled_queues, unowned_queues
from gimbalmq.core.findings import Finding, Limits, Rule, counted, finding
from gimbalmq.core.group_facts import GroupFacts, MemberFacts, is_retry
from gimbalmq.core.identity import (
    FALLBACK_STRATEGY,
    agreed_strategy,
    allocation_members,
    capability,
    is_java_strategy,
)

__all__ = ["MEMBER_RULES"]


# ---- who is there ----------------------------------------------------------------------------


def _nobody(facts: GroupFacts, _limits: Limits) -> Iterator[Finding]:
    if not facts.second.members:
        waiting = sum(
            one.maximum - (one.minimum if one.committed is None else one.committed)
            for one in facts.second.offsets.values()
        )
        yield finding(
            "NO_MEMBERS",
            "error" if waiting else "warning",
            f"group '{facts.group}' has no member, and {counted(waiting, 'message')} wait",
            "start a consumer of the group, or check that it reaches the same name servers",
        )


def _silent(facts: GroupFacts, _limits: Limits) -> Iterator[Finding]:
    silent = _in_both(facts, lambda member: member.held is None)
    if silent:
        yield finding(
            "MEMBER_SILENT",
            "error",
            f"{counted(len(silent), 'member')} did not say what they hold: hung, stopped, or cut "
            "off from a broker that still lists them",
            "look at the process (thread dump, memory, SIGSTOP); restart it if it does not come "
            "back: brokers drop a silent member only after two minutes",
            members=silent,
        )


def _duplicates(facts: GroupFacts, _limits: Limits) -> Iterator[Finding]:
    twice = _in_both(facts, lambda member: member.connections > 1)
    if twice:
        yield finding(
            "DUPLICATE_ID",
            "error",
            "several clients use the same id: they compute the same share, read it twice, and "
            "leave the queues of the other position to nobody",
            "give each client its own id: client_id= in Python, setInstanceName in Java (equal "
            "addresses and process ids in containers are the usual cause)",
            members=twice,
        )


def _partly_listed(facts: GroupFacts, _limits: Limits) -> Iterator[Finding]:
    brokers = {queue.broker for queue in facts.own_queues}
    asked = {one.name for one in facts.second.brokers if not one.failure}
    wanted = brokers & asked if facts.second.brokers else brokers
    partly = _in_both(facts, lambda member: bool(wanted - member.listed_by))
    if partly and len(wanted) > 1:
        yield finding(
            "MEMBER_PARTLY_LISTED",
            "error",
            "some brokers do not list these members, so members that ask different brokers share "
            "out the queues differently",
            "check the network between these members and every broker of the group's topics",
            members=partly,
        )


def _too_many(facts: GroupFacts, _limits: Limits) -> Iterator[Finding]:
    queues = facts.own_queues
    members = facts.second.members
    if facts.broadcasting or not queues or len(members) <= len(queues):
        return
    idle = [
        one.client_id
        for one in members
        if one.held is not None and not any(not is_retry(queue) for queue in one.held)
    ]
    yield finding(
        "IDLE_MEMBERS",
        "warning",
        f"{len(members)} members share {counted(len(queues), 'queue')}: "
        f"{counted(len(members) - len(queues), 'member')} cannot have one",
        "add queues (gimbalmq topic create --queues), or run fewer members",
        members=idle,
    )


def _in_both(facts: GroupFacts, ill: Callable[[MemberFacts], bool]) -> list[str]:
    before = {one.client_id for one in facts.first.members if ill(one)}
    return [one.client_id for one in facts.second.members if ill(one) and one.client_id in before]


# ---- do they agree ---------------------------------------------------------------------------


def _subscriptions(facts: GroupFacts, _limits: Limits) -> Iterator[Finding]:
    told: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for member in facts.second.members:
        if member.subscriptions is not None:
            wanted = sorted(
                (topic, expression)
                for topic, expression in member.subscriptions.items()
                if not topic.startswith("%")
            )
            told.setdefault(tuple(wanted), []).append(member.client_id)
    if len(told) < 2:
        return
    ways = "; ".join(
        f"{', '.join(sorted(ids))}: "
        + (", ".join(f"{topic} [{text}]" for topic, text in wanted) or "nothing")
        for wanted, ids in sorted(told.items(), key=lambda item: (-len(item[1]), item[0]))
    )
    most = max(len(ids) for ids in told.values())
    odd = [one for ids in told.values() if len(ids) < most for one in ids]
    yield finding(
        "UNEQUAL_SUBSCRIPTIONS",
        "error",
        f"members subscribe to different things, so queues are given to members that do not read "
        f"them, and brokers filter by whichever heartbeat came last ({ways})",
        "give all members the same topics and expressions, or put them into different groups",
        members=odd or [one for ids in told.values() for one in ids],
    )


def _strategies(facts: GroupFacts, _limits: Limits) -> Iterator[Finding]:
    ids = [one.client_id for one in facts.second.members]
    tokens = {one: found for one in ids if (found := capability(one)) is not None}
    versions = {one.version for one in tokens.values()}
    wanted = {one.strategy for one in tokens.values()}
    used = {name: agreed_strategy(ids, name).strategy for name in wanted}
    if len(wanted) > 1 or len(versions) > 1:
        broken = len(set(used.values())) > 1
        listed = ", ".join(sorted(wanted))
        yield finding(
            "MIXED_STRATEGIES",
            "error" if broken else "warning",
            f"members are set to different strategies ({listed})"
            + (
                ", and share out queues differently"
                if broken
                else f"; all of them use {FALLBACK_STRATEGY} until they agree"
            ),
            "set the same allocation on all members; to change it while they run, see "
            "docs/how-to/change-strategy.md",
            members=list(tokens),
        )
        return
    foreign = [one for one in ids if one not in tokens]
    graces = {one.rejoin_grace_s for one in tokens.values()} | ({None} if foreign else set())
    if len(graces) > 1:
        told = ", ".join(
            "none" if one is None else f"{one:g}" for one in sorted(graces, key=lambda g: g or 0.0)
        )
        yield finding(
            "MIXED_STRATEGIES",
            "warning",
            f"members have different rejoin_grace_s ({told}): nobody waits for members that are "
            "gone until all have the same",
            "set the same rejoin_grace_s on all members, or on none",
            members=list(tokens),
        )
    if foreign and any(not is_java_strategy(name) for name in wanted):
        yield finding(
            "MIXED_STRATEGIES",
            "warning",
            f"{counted(len(foreign), 'member')} cannot use {wanted.pop()}, so the whole group uses "
            f"{FALLBACK_STRATEGY}",
            "use one of Java's strategies, or replace the members that are not GimbalMQ's",
            members=foreign,
        )
        return
    yield from _guessed_strategies(facts, foreign)


#: What a Java member may be set to without options that only it knows.
_GUESSES: Final = ("AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH")


def _guessed_strategies(facts: GroupFacts, foreign: list[str]) -> Iterator[Finding]:
    """Foreign ids do not say their strategy, but shares that do not fit together tell."""
    ill = set(unowned_queues(facts)) | set(doubled_queues(facts))
    if not foreign or not any(not is_retry(queue) for queue in ill):
        return
    fitting: dict[str, set[str]] = {}
    for topic in sorted({queue.topic for queue in ill if not is_retry(queue)}):
        queues = [queue for queue in facts.own_queues if queue.topic == topic]
        ids = allocation_members(one.client_id for one in facts.second.members)
        snapshot = Snapshot.of(facts.group, queues, ids)
        shares = {name: assign(strategy_named(name), snapshot) for name in _GUESSES}
        for member in facts.second.members:
            held = {queue for queue, _ in member.owns() if queue.topic == topic}
            fit = {name for name in _GUESSES if set(shares[name][member.client_id]) == held}
            fitting[member.client_id] = fitting.get(member.client_id, set(_GUESSES)) & fit
    if all(fitting.values()) and not set.intersection(*fitting.values()):
        told = "; ".join(f"{one}: {' or '.join(sorted(fit))}" for one, fit in fitting.items())
        yield finding(
            "MIXED_STRATEGIES",
            "error",
            f"by what they hold, members share out queues by different strategies ({told})",
            "set the same allocation strategy on all members "
            "(setAllocateMessageQueueStrategy in Java, allocation= in Python)",
            members=list(fitting),
        )


def _versions(facts: GroupFacts, _limits: Limits) -> Iterator[Finding]:
    by_language: dict[str, set[str]] = {}
    for member in facts.second.members:
        by_language.setdefault(member.language, set()).add(member.version)
    for language, versions in sorted(by_language.items()):
        if len(versions) > 1:
            yield finding(
                "MIXED_VERSIONS",
                "warning",
                f"{language} members run different releases ({', '.join(sorted(versions))})",
                "finish the upgrade: older Java members notice changes up to 30 s later, and "
                "releases differ in how they share out and lock queues",
                members=[one.client_id for one in facts.second.members if one.language == language],
            )


#: In the order in which findings of equal severity are told.
MEMBER_RULES: Final[tuple[Rule, ...]] = (
    _nobody,
    _duplicates,
    _partly_listed,
    _silent,
    _strategies,
    _subscriptions,
    _versions,
    _too_many,
)

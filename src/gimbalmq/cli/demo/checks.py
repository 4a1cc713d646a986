"""Whether the demo showed what it promises: pure judgements of what was seen."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from gimbalmq.cli.demo.board import STRATEGY, View
from gimbalmq.cli.demo.changes import owners
from gimbalmq.cli.demo.reports import Predicted
from gimbalmq.model.queue import MessageQueue

__all__ = [
    "Check",
    "check_all_consumed",
    "check_archive",
    "check_better",
    "check_members_listed",
    "check_offsets",
    "check_one_owner",
    "check_prediction",
    "check_profile",
    "check_settled",
    "check_shares",
]

#: Both sides of a prediction are rounded to three digits.
_EXACT: Final = 0.0015


class Check(msgspec.Struct, frozen=True):
    """A promise, whether it was kept, and the figures."""

    name: str
    passed: bool
    sentence: str


def check_settled(view: View, *, limit_s: float) -> Check:
    """After each change of members, all agreed on who owns what."""
    late = [outcome.change for outcome in view.outcomes if outcome.settled_s is None]
    if late:
        listed = ", ".join(f"{change.member} ({change.kind})" for change in late)
        return Check("members agree", False, f"not settled within {limit_s:g} s: {listed}")
    if not view.outcomes:
        return Check("members agree", False, "no member ever joined")
    slowest = max(outcome.settled_s or 0.0 for outcome in view.outcomes)
    return Check(
        "members agree",
        True,
        f"after each of {len(view.outcomes)} changes of members, within {slowest:.2f} s",
    )


def check_all_consumed(view: View) -> Check:
    """Every acknowledged message was consumed."""
    traffic = view.traffic
    figures = f"{traffic.sent:,} messages acknowledged, {traffic.consumed:,} consumed"
    if not traffic.sent:
        return Check("nothing lost", False, "not one message was acknowledged")
    if traffic.lost:
        return Check("nothing lost", False, f"{figures}: {traffic.lost:,} never came")
    if traffic.unacknowledged > traffic.unanswered:
        unexplained = traffic.unacknowledged - traffic.unanswered
        return Check("nothing lost", False, f"{figures}: {unexplained:,} that nobody sent")
    if traffic.unanswered:
        figures += f" ({traffic.unacknowledged:,} of them from {traffic.unanswered:,} sends without answer)"
    again = (
        f"{traffic.duplicates:,} delivered twice (at least once)"
        if traffic.duplicates
        else "none delivered twice"
    )
    return Check("nothing lost", True, f"{figures}, {again}")


def check_one_owner(view: View) -> Check:
    """Every queue has exactly one owner."""
    held = owners({member.name: member.queues for member in view.members}, view.queues)
    wrong = [
        f"{queue.path} has {' and '.join(names) or 'none'}"
        for queue, names in held.items()
        if len(names) != 1
    ]
    if wrong:
        return Check("one owner per queue", False, "; ".join(wrong))
    return Check("one owner per queue", True, f"{len(held)} queues, each with exactly one owner")


def check_shares(view: View, target: Mapping[MessageQueue, str]) -> Check:
    """Members of both languages hold what the strategy, a pure function, gives them."""
    held = owners({member.name: member.queues for member in view.members}, view.queues)
    wrong = [
        f"{queue.path} belongs to {name} and is with {' and '.join(held[queue]) or 'nobody'}"
        for queue, name in target.items()
        if held[queue] != (name,)
    ]
    if wrong or not target:
        return Check(f"shares are {STRATEGY}'s", False, "; ".join(wrong) or "no member is left")
    sizes = ", ".join(
        f"{member.name} {len(member.queues)}" for member in view.members if member.fate == "member"
    )
    return Check(f"shares are {STRATEGY}'s", True, f"computed and held agree: {sizes}")


def check_members_listed(view: View, listed: Mapping[str, Collection[str]]) -> Check:
    """Each broker (by name) lists the client ids of exactly the members that are left."""
    expected = {member.client_id for member in view.members if member.fate == "member"}
    wrong = [broker for broker, ids in listed.items() if set(ids) != expected]
    if wrong or not listed:
        told = "; ".join(f"{broker} lists {', '.join(sorted(listed[broker]))}" for broker in wrong)
        return Check("brokers know the members", False, told or "no broker was asked")
    return Check(
        "brokers know the members", True, f"{len(listed)} brokers list {len(expected)} members"
    )


def check_offsets(view: View) -> Check:
    """The group has acknowledged every queue to its end."""
    behind = {queue.path: one.lag for queue, one in view.offsets.items() if one.lag}
    if behind or len(view.offsets) != len(view.queues):
        told = ", ".join(f"{path} by {lag:,}" for path, lag in behind.items())
        return Check("offsets stored", False, f"behind: {told or 'not every queue is known'}")
    return Check("offsets stored", True, "lag 0 in every queue, as the brokers have it")


def check_archive(
    rows: Mapping[str, int],
    different: Mapping[str, int],
    sent: Mapping[MessageQueue, int],
    unanswered: int,
) -> Check:
    """The files of Spark's stream hold every acknowledged message, and each only once.

    Rows, and different messages, by path of the queue.
    """
    name = "Spark has each message once"
    twice = [
        f"{path}: {rows[path]:,} rows of {different.get(path, 0):,} messages"
        for path in sorted(rows)
        if rows[path] != different.get(path, 0)
    ]
    wrong = _miscounted(rows, sent, unanswered) + twice
    if wrong:
        return Check(name, False, "; ".join(wrong))
    return Check(name, True, f"{sum(rows.values()):,} rows in the files, each queue as sent")


def check_profile(
    loads: Mapping[str, int], sent: Mapping[MessageQueue, int], unanswered: int
) -> Check:
    """The load profile, a second read of the topic, has the counts of the producer."""
    wrong = _miscounted(loads, sent, unanswered)
    if wrong:
        return Check("the profile is true", False, "; ".join(wrong))
    busiest = max(loads, key=lambda path: (loads[path], path))
    share = loads[busiest] / sum(loads.values())
    return Check("the profile is true", True, f"{busiest} alone carries {share:.0%} of the load")


def check_prediction(view: View, loads: Mapping[str, int], spread: Iterable[Predicted]) -> Check:
    """What the profile predicts for the group's own strategy is what the members carry."""
    from gimbalmq.spark.pipelines.spread import skew

    name = "the prediction holds"
    members = [member for member in view.members if member.fate == "member"]
    carried = [sum(loads.get(q.path, 0) for q in member.queues) for member in members]
    predicted = _busiest(spread, STRATEGY, len(members))
    if not members or predicted is None:
        return Check(name, False, f"{STRATEGY} with {len(members)} members is not predicted")
    figures = (
        f"{STRATEGY} with {len(members)} members: the busiest carries {skew(carried):.2f} "
        f"averages, {predicted:.2f} were predicted"
    )
    return Check(name, abs(skew(carried) - predicted) < _EXACT, figures)


def check_better(spread: Sequence[Predicted], *, members: int, better: str) -> Check:
    """`better` would share the measured load more evenly than the group's own strategy."""
    now, then = _busiest(spread, STRATEGY, members), _busiest(spread, better, members)
    name = "a better allocation exists"
    if now is None or then is None:
        return Check(name, False, f"{STRATEGY} or {better} with {members} members is not predicted")
    figures = f"with {members} members the busiest carries {now:.2f} averages under {STRATEGY}"
    return Check(name, then < now, f"{figures}, {then:.2f} under {better}")


def _busiest(spread: Iterable[Predicted], strategy: str, members: int) -> float | None:
    for row in spread:
        if (row.strategy, row.members) == (strategy, members):
            return row.busiest
    return None


def _miscounted(
    rows: Mapping[str, int], sent: Mapping[MessageQueue, int], unanswered: int
) -> list[str]:
    """Queues, by path, whose rows are not what was acknowledged there.

    Sends that nobody answered may have been stored: that many rows more are right, too.
    """
    expected = {queue.path: count for queue, count in sent.items() if count}
    wrong = [
        f"{path}: {rows.get(path, 0):,} rows, {expected.get(path, 0):,} acknowledged"
        for path in sorted({*rows, *expected})
        if not 0 <= rows.get(path, 0) - expected.get(path, 0) <= unanswered
    ]
    total, acknowledged = sum(rows.values()), sum(expected.values())
    if total - acknowledged > unanswered:
        wrong.append(f"{total:,} rows in all, {acknowledged:,} acknowledged")
    return wrong

"""What a change of members did to the queues: who got which, and how long that took.

Pure: everything is computed from what members said they hold, and when. A member that is gone
holds nothing from that moment on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Literal

import msgspec

from gimbalmq.model.queue import MessageQueue, sorted_queues

__all__ = ["Change", "Delivery", "Holding", "Kind", "Move", "Outcome", "judge_change", "owners"]

Kind = Literal["join", "kill", "leave"]


class Holding(msgspec.Struct, frozen=True):
    """From `at` on, until it says otherwise, a member holds these queues and no others."""

    at: float
    member: str
    queues: frozenset[MessageQueue]


class Delivery(msgspec.Struct, frozen=True):
    """A member got a message of a queue."""

    at: float
    member: str
    queue: MessageQueue


class Change(msgspec.Struct, frozen=True):
    """A member joins, is killed or leaves."""

    kind: Kind
    member: str
    began_at: float


class Move(msgspec.Struct, frozen=True):
    """A queue changed hands; None: it had no owner, or has none."""

    queue: MessageQueue
    before: str | None
    after: str | None


class Outcome(msgspec.Struct, frozen=True):
    """What a change did. Seconds count from its begin; None: not yet, or never.

    `unowned_s` is the longest that a moved queue was without an owner, `doubled_s` the longest
    that one had two. `settled_s` is when every member held its final share, `delivered_s` when
    every moved queue had delivered a message to its new owner. `trigger` is what made the
    members look.
    """

    change: Change
    moves: tuple[Move, ...]
    unowned_s: float
    doubled_s: float
    settled_s: float | None
    delivered_s: float | None
    trigger: str | None = None


def owners(
    holdings: Mapping[str, Collection[MessageQueue]], queues: Iterable[MessageQueue]
) -> dict[MessageQueue, tuple[str, ...]]:
    """Who holds each queue.

    >>> a, b = MessageQueue("orders", "a", 0), MessageQueue("orders", "a", 1)
    >>> [*owners({"python-1": [a], "java-1": [a]}, [a, b]).values()]
    [('java-1', 'python-1'), ()]
    """
    return {
        queue: tuple(sorted(member for member, held in holdings.items() if queue in held))
        for queue in queues
    }


def judge_change(
    change: Change,
    *,
    holdings: Iterable[Holding],
    deliveries: Iterable[Delivery],
    target: Mapping[MessageQueue, str],
    until: float,
    trigger: str | None = None,
) -> Outcome:
    """Compare what was held before a change and after it with `target`, each queue's new owner.

    Only what was said up to `until` counts.
    """
    queues = sorted_queues(target)
    states = list(_states(holdings, queues, change.began_at, until))
    before = {queue: _only(held) for queue, held in states[0][1].items()}
    moves = tuple(
        Move(queue, before[queue], target[queue])
        for queue in queues
        if before[queue] != target[queue]
    )
    moved = [move.queue for move in moves]
    spans = [
        (end - start, state) for (start, state), (end, _) in pairwise([*states[1:], (until, {})])
    ]
    settled_at = _settled_at(states[1:], {queue: (target[queue],) for queue in queues})
    delivered_at = _delivered_at(change.began_at, deliveries, {q: target[q] for q in moved})
    return Outcome(
        change,
        moves,
        unowned_s=max((_time_with(spans, queue, 0) for queue in moved), default=0.0),
        doubled_s=max((_time_with(spans, queue, 2) for queue in moved), default=0.0),
        settled_s=_since(change.began_at, settled_at),
        delivered_s=_since(change.began_at, delivered_at),
        trigger=trigger,
    )


_Owners = Mapping[MessageQueue, tuple[str, ...]]


def _states(
    holdings: Iterable[Holding], queues: list[MessageQueue], began_at: float, until: float
) -> Iterator[tuple[float, _Owners]]:
    """Who held what just before the begin, at the begin, and after each report since."""
    held: dict[str, frozenset[MessageQueue]] = {}
    reports = sorted((one for one in holdings if one.at <= until), key=lambda one: one.at)
    earlier = [one for one in reports if one.at < began_at]
    for report in earlier:
        held[report.member] = report.queues
    yield began_at, owners(held, queues)
    yield began_at, owners(held, queues)
    for report in reports[len(earlier) :]:
        held[report.member] = report.queues
        yield report.at, owners(held, queues)


def _settled_at(states: list[tuple[float, _Owners]], wanted: _Owners) -> float | None:
    """Since when everybody holds what is wanted; a state that did not last does not count."""
    since: float | None = None
    for at, state in states:
        if state != wanted:
            since = None
        elif since is None:
            since = at
    return since


def _delivered_at(
    began_at: float, deliveries: Iterable[Delivery], wanted: Mapping[MessageQueue, str]
) -> float | None:
    first: dict[MessageQueue, float] = {}
    for delivery in deliveries:
        if delivery.at >= began_at and wanted.get(delivery.queue) == delivery.member:
            first[delivery.queue] = min(delivery.at, first.get(delivery.queue, delivery.at))
    return max(first.values(), default=began_at) if len(first) == len(wanted) else None


def _time_with(spans: list[tuple[float, _Owners]], queue: MessageQueue, number: int) -> float:
    """How long a queue had no owner (0), or more than one (2)."""
    return sum(seconds for seconds, state in spans if min(len(state[queue]), 2) == number)


def _only(names: tuple[str, ...]) -> str | None:
    return names[0] if len(names) == 1 else None


def _since(began_at: float, at: float | None) -> float | None:
    return None if at is None else at - began_at

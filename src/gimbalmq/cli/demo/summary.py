"""The result of a demo as one document: what `--json` prints, what the closing table shows."""

from __future__ import annotations

from typing import Any

import msgspec

from gimbalmq.cli.demo.board import Fate, Traffic, View
from gimbalmq.cli.demo.changes import Kind, Outcome
from gimbalmq.cli.demo.checks import Check
from gimbalmq.cli.demo.reports import Predicted
from gimbalmq.model.queue import sorted_queues

__all__ = [
    "ChangeSummary",
    "MemberSummary",
    "SparkSummary",
    "Summary",
    "summarise_changes",
    "summarise_members",
    "summarise_traffic",
]


class MemberSummary(msgspec.Struct, frozen=True):
    """A member, what became of it, and the queues that it holds at the end."""

    name: str
    language: str
    client_id: str
    fate: Fate
    received: int
    queues: tuple[str, ...]


class ChangeSummary(msgspec.Struct, frozen=True):
    """A change of members: which queues moved, why, and how long it took (see `Outcome`)."""

    kind: Kind
    member: str
    moves: tuple[dict[str, str | None], ...]
    why: str | None
    unowned_s: float
    doubled_s: float
    settled_s: float | None
    delivered_s: float | None


class SparkSummary(msgspec.Struct, frozen=True):
    """What Spark's stream put into files, and its load profile; or why there is none.

    `loads` are messages by queue, `skew` is the busiest queue in averages, and `spread` says how
    much the busiest member of a group would carry, in averages, under each strategy.
    """

    version: str | None = None
    rows: int | None = None
    by_queue: dict[str, int] = {}
    loads: dict[str, int] = {}
    skew: float | None = None
    spread: tuple[Predicted, ...] = ()
    seconds: float | None = None
    skipped: str | None = None


class Summary(msgspec.Struct, frozen=True):
    """All of it."""

    passed: bool
    engine: str
    version: str | None
    nameserver: str
    topic: str
    group: str
    brokers: int
    queues: int
    seconds: float
    messages: dict[str, int]
    members: tuple[MemberSummary, ...]
    changes: tuple[ChangeSummary, ...]
    spark: SparkSummary
    checks: tuple[Check, ...]

    def failed(self) -> list[Check]:
        """The promises that were not kept."""
        return [check for check in self.checks if not check.passed]


def summarise_traffic(traffic: Traffic) -> dict[str, int]:
    """Counts of messages by name."""
    counts: dict[str, Any] = msgspec.structs.asdict(traffic)
    return counts | {
        "duplicates": traffic.duplicates,
        "unacknowledged": traffic.unacknowledged,
    }


def summarise_members(view: View) -> tuple[MemberSummary, ...]:
    """The members in the order in which they joined."""
    return tuple(
        MemberSummary(
            one.name,
            one.language,
            one.client_id,
            one.fate,
            one.received,
            tuple(queue.path for queue in sorted_queues(one.queues)),
        )
        for one in view.members
    )


def summarise_changes(view: View) -> tuple[ChangeSummary, ...]:
    """The changes in the order in which they came."""
    return tuple(_summarise(outcome) for outcome in view.outcomes)


def _summarise(outcome: Outcome) -> ChangeSummary:
    moves = tuple(
        {"queue": move.queue.path, "before": move.before, "after": move.after}
        for move in outcome.moves
    )
    return ChangeSummary(
        kind=outcome.change.kind,
        member=outcome.change.member,
        moves=moves,
        why=outcome.trigger,
        unowned_s=round(outcome.unowned_s, 3),
        doubled_s=round(outcome.doubled_s, 3),
        settled_s=_rounded(outcome.settled_s),
        delivered_s=_rounded(outcome.delivered_s),
    )


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)

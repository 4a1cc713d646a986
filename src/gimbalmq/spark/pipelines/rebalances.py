"""What the events of a group's rebalances add up to: moves and pauses over time and by queue. Pure.

Members tell of their rebalances in a topic or a file (option `events` of consumers). Unlike looks
from outside they miss nothing in between; but members that keep no events, as those of Java, are
only seen by what others take from them or leave to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from gimbalmq.core.history import Move, RebalanceEvent, moves_of

__all__ = ["QueueMoves", "RebalancePeriod", "Rebalances", "summarize"]


class QueueMoves(msgspec.Struct, frozen=True):
    """How often a queue changed hands, and how long nobody had it then."""

    queue: str
    moves: int
    pause_s: float
    pause_s_max: float


class RebalancePeriod(msgspec.Struct, frozen=True):
    """A piece of time in which something moved."""

    at: str
    moves: int
    #: Queues that came with their member's start or were left by the dead: nobody gave them.
    taken: int
    pause_s: float
    pause_s_max: float


class Rebalances(msgspec.Struct, frozen=True):
    """All of it; a first share of queues that nobody had counts as no move."""

    events: int
    moves: int
    pause_s: float
    pause_s_max: float
    periods: tuple[RebalancePeriod, ...]
    queues: tuple[QueueMoves, ...]


def summarize(events: Sequence[RebalanceEvent], *, period_s: float) -> Rebalances:
    """Add up the events of one group; periods without a change are left out.

    >>> gave = RebalanceEvent(61_000, "g", "ann", "NOTICE", "AVG", 2, revoked=("t/a/0",))
    >>> took = RebalanceEvent(61_400, "g", "bob", "START", "AVG", 2, acquired=("t/a/0",))
    >>> found = summarize([gave, took], period_s=60)
    >>> found.moves, found.pause_s, found.periods[0].at
    (1, 0.4, '1970-01-01T00:01:00+00:00')
    """
    moves = [move for move in moves_of(events) if move.after is not None]
    given = [move for move in moves if move.before is not None]
    period_ms = round(period_s * 1000)
    by_period: dict[int, list[Move]] = {}
    for move in moves:
        by_period.setdefault(move.at_ms // period_ms * period_ms, []).append(move)
    by_queue: dict[str, list[Move]] = {}
    for move in given:
        by_queue.setdefault(move.queue, []).append(move)
    return Rebalances(
        sum(event.decides for event in events),
        len(given),
        *_pauses(given),
        periods=tuple(_period(at_ms, by_period[at_ms]) for at_ms in sorted(by_period)),
        queues=tuple(
            QueueMoves(queue, len(found), *_pauses(found))
            for queue, found in sorted(by_queue.items())
        ),
    )


def _period(at_ms: int, moves: Sequence[Move]) -> RebalancePeriod:
    given = [move for move in moves if move.before is not None]
    at = datetime.fromtimestamp(at_ms / 1000, UTC).isoformat()
    return RebalancePeriod(at, len(given), len(moves) - len(given), *_pauses(given))


def _pauses(moves: Sequence[Move]) -> tuple[float, float]:
    """The pauses together, and the longest."""
    known = [move.pause_s for move in moves if move.pause_s is not None]
    return round(sum(known), 3), max(known, default=0.0)

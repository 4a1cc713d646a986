"""The history of a group: what each member changed and why, and what that makes of the queues.

An event is what one member did in one rebalance, as a line of JSON: told when it is decided, and
once more, with the pauses alone, when all its queues have moved. Members write their events
independently, so only times order them. Decides the form of events and how moves and pauses
follow from them; must not know where they are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
from msgspec.structs import replace

from gimbalmq.core.consumer.effects import RebalanceReport
from gimbalmq.errors import ProtocolError

__all__ = [
    "Move",
    "QueueChange",
    "RebalanceEvent",
    "decode_event",
    "encode_event",
    "event_of",
    "moves_of",
]


class QueueChange(msgspec.Struct, frozen=True):
    """Why one queue comes to a member or goes, and how long it paused, once that is known."""

    queue: str
    acquired: bool
    reason: str
    pause_s: float | None = None


class RebalanceEvent(msgspec.Struct, frozen=True):
    """One rebalance of one member; queues are `topic/broker/queue`, times ms since the epoch.

    An event without `acquired` and `revoked` adds the pauses to an earlier one. Older events have
    no `moves`.
    """

    at_ms: int
    group: str
    client_id: str
    trigger: str
    strategy: str
    members: int
    acquired: tuple[str, ...] = ()
    revoked: tuple[str, ...] = ()
    kept: int = 0
    reasons: tuple[str, ...] = ()
    moves: tuple[QueueChange, ...] = ()

    @property
    def decides(self) -> bool:
        """Whether it tells of a change, and not only of how long one took."""
        return bool(self.acquired or self.revoked)


class Move(msgspec.Struct, frozen=True):
    """A queue that changed hands.

    `before` is None for a queue that nobody gave up: it is new, or its owner died. `after` is None
    while nobody has taken it. `pause_s` is the time between the two, None when one is unknown: from
    when it was given up until it was pulled again, or until that was decided if no more was told.
    """

    at_ms: int
    queue: str
    before: str | None
    after: str | None
    why: str
    pause_s: float | None


def event_of(report: RebalanceReport, client_id: str, at_ms: int) -> RebalanceEvent:
    """What a member's report says, as an event."""
    event = RebalanceEvent(
        at_ms,
        report.group,
        client_id,
        report.trigger.name,
        report.strategy,
        len(report.members),
        kept=report.kept,
        reasons=report.reasons,
    )
    if report.done:
        paused = (
            QueueChange(move.queue.path, move.acquired, move.reason, round(move.pause_s, 3))
            for move in report.done
        )
        return replace(event, moves=tuple(paused))
    came = frozenset(report.acquired)
    return replace(
        event,
        acquired=tuple(queue.path for queue in report.acquired),
        revoked=tuple(queue.path for queue in report.revoked),
        moves=tuple(QueueChange(queue.path, queue in came, why) for queue, why in report.moves),
    )


def encode_event(event: RebalanceEvent) -> bytes:
    """One line of JSON, without its end."""
    return msgspec.json.encode(event)


def decode_event(line: bytes) -> RebalanceEvent:
    """Read an event.

    Raises:
        ProtocolError: it is none.
    """
    try:
        return msgspec.json.decode(line, type=RebalanceEvent)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ProtocolError(
            f"not a rebalance event: {line[:80]!r} ({error}); is it another kind of file or topic?"
        ) from error


def moves_of(events: Iterable[RebalanceEvent]) -> Iterator[Move]:
    """The moves that events of one group tell of, in the order of time.

    >>> gave = RebalanceEvent(1000, "g", "ann", "NOTICE", "AVG", 2, revoked=("t/a/0",))
    >>> took = RebalanceEvent(1400, "g", "bob", "START", "AVG", 2, acquired=("t/a/0",))
    >>> [(one.before, one.after, one.pause_s) for one in moves_of([took, gave])]
    [('ann', 'bob', 0.4)]
    """
    given: dict[str, RebalanceEvent] = {}
    owners: dict[str, str] = {}
    moves: list[Move] = []
    #: Which move brought a queue to a member that has not pulled it yet, as far as it has told.
    coming: dict[tuple[str, str], int] = {}
    for event in sorted(events, key=_order):
        for queue in event.revoked:
            if owners.get(queue, event.client_id) != event.client_id:
                continue  # the new owner was quicker, and is known already
            owners.pop(queue, None)
            given[queue] = event
        for queue in event.acquired:
            move = _taken(event, queue, given.pop(queue, None), owners.get(queue))
            owners[queue] = event.client_id
            coming.pop((event.client_id, queue), None)
            if move.before != event.client_id:
                coming[event.client_id, queue] = len(moves)
                moves.append(move)
        for change in () if event.decides else event.moves:
            index = coming.pop((event.client_id, change.queue), None) if change.acquired else None
            if index is not None:
                moves[index] = _pulled(moves[index], change)
    yield from moves
    for queue, event in sorted(given.items()):
        yield Move(event.at_ms, queue, event.client_id, None, event.trigger, None)


def _order(event: RebalanceEvent) -> tuple[int, int]:
    """By time; at one moment a queue is given before it is taken, and pulled after that."""
    if not event.decides:
        return event.at_ms, 2
    return event.at_ms, 0 if event.revoked else 1


def _taken(
    event: RebalanceEvent, queue: str, giver: RebalanceEvent | None, owner: str | None
) -> Move:
    if giver is None:
        # Its owner died, or lets go only later.
        return Move(event.at_ms, queue, owner, event.client_id, event.trigger, None)
    pause_s = (event.at_ms - giver.at_ms) / 1000
    return Move(event.at_ms, queue, giver.client_id, event.client_id, event.trigger, pause_s)


def _pulled(move: Move, change: QueueChange) -> Move:
    if move.pause_s is None or change.pause_s is None:
        return move
    return replace(move, pause_s=round(move.pause_s + change.pause_s, 3))

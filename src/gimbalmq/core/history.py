"""The history of a group: what each member changed and why, and what that makes of the queues.

An event is what one member did in one rebalance, as a line of JSON. Members write their events
independently, so only times order them. Decides the form of events and how moves and pauses
follow from them; must not know where they are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from gimbalmq.core.consumer.effects import RebalanceReport
from gimbalmq.errors import ProtocolError

__all__ = ["Move", "RebalanceEvent", "decode_event", "encode_event", "event_of", "moves_of"]


class RebalanceEvent(msgspec.Struct, frozen=True):
    """One rebalance of one member; queues are `topic/broker/queue`, times ms since the epoch."""

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


class Move(msgspec.Struct, frozen=True):
    """A queue that changed hands.

    `before` is None for a queue that nobody gave up: it is new, or its owner died. `after` is None
    while nobody has taken it. `pause_s` is the time between the two, None when one is unknown.
    """

    at_ms: int
    queue: str
    before: str | None
    after: str | None
    why: str
    pause_s: float | None


def event_of(report: RebalanceReport, client_id: str, at_ms: int) -> RebalanceEvent:
    """What a member's report says, as an event."""
    return RebalanceEvent(
        at_ms,
        report.group,
        client_id,
        report.trigger.name,
        report.strategy,
        len(report.members),
        tuple(queue.path for queue in report.acquired),
        tuple(queue.path for queue in report.revoked),
        report.kept,
        report.reasons,
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
    given: dict[str, tuple[RebalanceEvent, str]] = {}
    owners: dict[str, str] = {}
    # At one moment a queue is given before it is taken.
    for event in sorted(events, key=lambda one: (one.at_ms, not one.revoked)):
        for queue in event.revoked:
            if owners.get(queue, event.client_id) != event.client_id:
                continue  # the new owner was quicker, and is known already
            owners.pop(queue, None)
            given[queue] = event, event.trigger
        for queue in event.acquired:
            giver = given.pop(queue, None)
            if giver is None:
                # Its owner died, or lets go only later.
                before, pause_s = owners.get(queue), None
            else:
                before = giver[0].client_id
                pause_s = (event.at_ms - giver[0].at_ms) / 1000
            owners[queue] = event.client_id
            if before != event.client_id:
                yield Move(event.at_ms, queue, before, event.client_id, event.trigger, pause_s)
    for queue, (event, trigger) in sorted(given.items()):
        yield Move(event.at_ms, queue, event.client_id, None, trigger, None)

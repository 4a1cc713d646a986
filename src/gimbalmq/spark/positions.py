"""Where a read starts and ends in each queue: what was asked for, and what that means now.

An offset is the next offset to read: `*_from` is inclusive, `*_until` exclusive. A position is an
intent ("earliest"); together with the facts of a queue it gives an offset. Everything here is
pure; `lookup` asks the brokers for the facts.

Loss policy: a position that names an exact offset (JSON or the group's committed one) promises
that nothing after it is skipped. When the queue no longer has it, or does not have it yet, that
is a `Loss`; the caller fails or goes on from the nearest offset and says so. `earliest`, `latest`
and times promise nothing of the kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

import msgspec

from gimbalmq.errors import ConfigurationError
from gimbalmq.model.queue import MessageQueue

__all__ = [
    "COMMITTED",
    "EARLIEST",
    "LATEST",
    "AtOffsets",
    "AtTime",
    "Committed",
    "Earliest",
    "Latest",
    "Loss",
    "Position",
    "QueueFacts",
    "ResolvedRange",
    "check_queues",
    "resolve_range",
]

#: How JSON offsets write the two ends of a queue.
_JSON_EARLIEST: Final = -2
_JSON_LATEST: Final = -1

#: More queues than this are not listed in an error text.
_LISTED_MAX: Final = 5


class Earliest(msgspec.Struct, frozen=True):
    """The first message that is still stored."""


class Latest(msgspec.Struct, frozen=True):
    """One past the last message."""


class Committed(msgspec.Struct, frozen=True):
    """Where the group is; the first message when it never committed anything."""


class AtTime(msgspec.Struct, frozen=True):
    """The first message stored at this time or later."""

    timestamp_ms: int


class AtOffsets(msgspec.Struct, frozen=True):
    """One offset per queue; -2 is the queue's earliest, -1 its latest."""

    offsets: dict[MessageQueue, int]


Position: TypeAlias = Earliest | Latest | Committed | AtTime | AtOffsets

EARLIEST: Final = Earliest()
LATEST: Final = Latest()
COMMITTED: Final = Committed()


class QueueFacts(msgspec.Struct, frozen=True):
    """What the broker says about a queue; the last three only when a position needs them."""

    minimum: int
    maximum: int
    committed: int | None = None
    at_start_time: int | None = None
    at_end_time: int | None = None


class Loss(msgspec.Struct, frozen=True):
    """An exact offset was wanted and the queue does not have it; `found` is the nearest it has.

    None: the queue itself is gone.
    """

    queue: MessageQueue
    wanted: int
    found: int | None

    @property
    def sentence(self) -> str:
        """What is wrong, for errors and logs.

        >>> Loss(MessageQueue("orders", "broker-a", 3), 5, 20).sentence
        'orders/broker-a/3: offset 5 was wanted, but the first one still stored is 20'
        """
        if self.found is None:
            state = "the queue is gone (its topic was deleted or got fewer queues)"
        elif self.found > self.wanted:
            state = f"the first one still stored is {self.found}"
        else:
            state = f"the queue ends at {self.found} (a topic that is made again starts over)"
        return f"{self.queue.path}: offset {self.wanted} was wanted, but {state}"


class ResolvedRange(msgspec.Struct, frozen=True):
    """Offsets to read from a queue, and what cannot be read of what was asked for."""

    offset_from: int
    offset_until: int
    losses: tuple[Loss, ...] = ()


def check_queues(option: str, position: Position, queues: Iterable[MessageQueue]) -> None:
    """Refuse JSON offsets that do not name exactly the queues that are read."""
    if not isinstance(position, AtOffsets):
        return
    there = set(queues)
    if unknown := position.offsets.keys() - there:
        absent = sorted({queue.broker for queue in unknown} - {queue.broker for queue in there})
        raise ConfigurationError(
            f"option '{option}' names {_listed(unknown)}, which the topics do not have: "
            f"they have {_listed(there)}"
            + (f". The name server knows no broker '{absent[0]}': is it down?" if absent else "")
        )
    if missing := there - position.offsets.keys():
        raise ConfigurationError(
            f"option '{option}' gives no offset for {_listed(missing)}: "
            "name every queue, with -2 for its earliest and -1 for its latest offset"
        )


def _listed(queues: Iterable[MessageQueue]) -> str:
    paths = [queue.path for queue in sorted(queues)]
    more = len(paths) - _LISTED_MAX
    return ", ".join(paths[:_LISTED_MAX]) + (f" and {more} more" if more > 0 else "")


def resolve_range(
    queue: MessageQueue, start: Position, end: Position, facts: QueueFacts
) -> ResolvedRange:
    """The offsets to read; never negative in length, never outside of what the queue has.

    >>> facts = QueueFacts(minimum=10, maximum=50)
    >>> resolve_range(MessageQueue("orders", "broker-a", 0), EARLIEST, LATEST, facts)
    ResolvedRange(offset_from=10, offset_until=50, losses=())
    """
    losses: list[Loss] = []
    wanted_from = _wanted(queue, start, facts, facts.at_start_time)
    wanted_until = _wanted(queue, end, facts, facts.at_end_time)
    offset_from = _clamped(wanted_from, facts)
    offset_until = _clamped(wanted_until, facts)
    if offset_from != wanted_from and _is_exact(start, queue):
        losses.append(Loss(queue, wanted_from, offset_from))
    # An end below the first message hides nothing that the start did not already promise.
    if offset_until < wanted_until and _is_exact(end, queue):
        losses.append(Loss(queue, wanted_until, offset_until))
    return ResolvedRange(offset_from, max(offset_from, offset_until), tuple(losses))


def _wanted(queue: MessageQueue, position: Position, facts: QueueFacts, at_time: int | None) -> int:
    match position:
        case Earliest():
            return facts.minimum
        case Latest():
            return facts.maximum
        case Committed():
            return facts.minimum if facts.committed is None else facts.committed
        case AtTime():
            assert at_time is not None, "the time was looked up"
            return at_time
        case AtOffsets(offsets):
            return _from_json(offsets, queue, facts)


def _from_json(offsets: Mapping[MessageQueue, int], queue: MessageQueue, facts: QueueFacts) -> int:
    match offsets[queue]:
        case -2:
            return facts.minimum
        case -1:
            return facts.maximum
        case offset:
            return offset


def _is_exact(position: Position, queue: MessageQueue) -> bool:
    match position:
        case Committed():
            return True
        case AtOffsets(offsets):
            return offsets[queue] not in {_JSON_EARLIEST, _JSON_LATEST}
        case _:
            return False


def _clamped(offset: int, facts: QueueFacts) -> int:
    return max(facts.minimum, min(offset, facts.maximum))

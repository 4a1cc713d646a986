"""The offsets in a stream's checkpoint, and how one batch follows from the last. Pure.

A checkpointed map holds the next offset of every queue, by `topic/broker/queueId`, keys sorted:
Spark compares texts to find out whether there is anything new. A queue enters the map
at the offset where it is to start, and is read from the following batch on; so the map alone says
what a batch holds, and a batch that is replayed is the same batch. Three things follow:

- The start of a new query is symbolic, `{"@": "latest"}`, until the first batch, which reads
  nothing, has put the offsets down.
- A queue that was made again after its topic was deleted is set back to its beginning: an offset that goes
  down is a new start, not a range.
- A queue that this query no longer holds leaves the map.

What waits is decided by `settle`; how much of it is read, by `limits`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from gimbalmq.errors import ConfigurationError
from gimbalmq.model.queue import MessageQueue, parse_queue
from gimbalmq.spark.positions import (
    AtOffsets,
    AtTime,
    Committed,
    Earliest,
    Latest,
    Loss,
    Position,
)

__all__ = [
    "Bounds",
    "Offsets",
    "Settled",
    "Span",
    "Survey",
    "is_symbolic",
    "read_offsets",
    "settle",
    "spans",
    "symbolic_start",
    "write_offsets",
]

#: By queue, the next offset to read.
Offsets: TypeAlias = dict[MessageQueue, int]

#: No queue has such a path.
_SYMBOL: Final = "@"


class Bounds(msgspec.Struct, frozen=True):
    """What a queue holds now, and where; `behind`: a slave answered, which may lack the newest."""

    minimum: int
    maximum: int
    address: str
    behind: bool = False


class Survey(msgspec.Struct, frozen=True):
    """What was found of the queues to read and of those in the map.

    `away` are queues of the map whose broker is missing or does not answer: an outage, for all
    that can be known. `gone` are queues of the map that a living broker no longer gives to
    readers, with their maximum if the broker still knows it.
    """

    bounds: dict[MessageQueue, Bounds]
    away: frozenset[MessageQueue] = frozenset()
    gone: dict[MessageQueue, int | None] = {}


class Settled(msgspec.Struct, frozen=True):
    """Where every queue stands before anything is read, what can be read, and what is lost."""

    offsets: Offsets
    #: By queue: how many records wait behind its offset.
    waiting: dict[MessageQueue, int]
    losses: tuple[Loss, ...] = ()


class Span(msgspec.Struct, frozen=True):
    """A part of a queue that a batch reads, as the checkpoint has it."""

    queue: MessageQueue
    offset_from: int
    offset_until: int


def symbolic_start(position: Position) -> dict[str, str]:
    """What stands for the offsets until the first batch has found them.

    >>> symbolic_start(Latest())
    {'@': 'latest'}
    """
    match position:
        case Earliest():
            text = "earliest"
        case Latest():
            text = "latest"
        case Committed():
            text = "committed"
        case AtTime(timestamp_ms):
            text = f"timestamp {timestamp_ms}"
        case AtOffsets():
            text = "offsets"
    return {_SYMBOL: text}


def is_symbolic(document: Mapping[str, Any]) -> bool:
    """Whether a checkpointed document is a symbolic start."""
    return _SYMBOL in document


def read_offsets(document: Mapping[str, Any]) -> Offsets:
    """The map of a checkpoint.

    Raises:
        ConfigurationError: it is none of this source's.
    """
    try:
        offsets = {parse_queue(path): offset for path, offset in document.items()}
    except ConfigurationError as error:
        raise _foreign(str(error)) from error
    for queue, offset in offsets.items():
        if not isinstance(offset, int) or isinstance(offset, bool) or offset < 0:
            raise _foreign(f"{queue.path} has the offset {offset!r}")
    return offsets


def _foreign(why: str) -> ConfigurationError:
    return ConfigurationError(
        f"option 'checkpointLocation' names a checkpoint that this source did not write ({why}): "
        "use a folder of its own for each query"
    )


def write_offsets(offsets: Mapping[MessageQueue, int]) -> dict[str, int]:
    """The map as it goes into the checkpoint: the same offsets are always the same text.

    >>> write_offsets({MessageQueue("orders", "b", 1): 7, MessageQueue("orders", "a", 0): 3})
    {'orders/a/0': 3, 'orders/b/1': 7}
    """
    return dict(sorted((queue.path, offset) for queue, offset in offsets.items()))


def settle(
    start: Mapping[MessageQueue, int],
    survey: Survey,
    *,
    entering: Mapping[MessageQueue, int] | None = None,
    target: Mapping[MessageQueue, int] | None = None,
) -> Settled:
    """Bring the offsets of the last batch together with what the queues hold now.

    `entering` has the start of queues that come to this query from others; a queue that is in
    neither map is new and starts at its first message. `target` ends the query: queues that are
    not in it are left out, messages behind it do not count.
    """
    offsets: Offsets = {}
    waiting: dict[MessageQueue, int] = {}
    losses: list[Loss] = []
    for queue, wanted in start.items():
        if queue in survey.away:
            offsets[queue] = wanted
        elif queue in survey.gone:
            known = survey.gone[queue]
            if known is None or known > wanted:
                losses.append(Loss(queue, wanted, None))
        elif queue in survey.bounds:
            bounds = survey.bounds[queue]
            offsets[queue] = found = _standing(wanted, bounds)
            if found != wanted:
                losses.append(Loss(queue, wanted, _nearest(wanted, bounds)))
            # An offset that goes down is a new start: what is behind it waits for the next batch.
            if found >= wanted:
                waiting[queue] = max(0, _end(queue, bounds.maximum, target) - found)
    newcomers = {
        queue: bounds
        for queue, bounds in survey.bounds.items()
        if queue not in start and (target is None or queue in target)
    }
    for queue, bounds in newcomers.items():
        offsets[queue] = (entering or {}).get(queue, bounds.minimum)
        if queue not in (entering or {}) and bounds.minimum > 0:
            losses.append(Loss(queue, 0, bounds.minimum))
    return Settled(offsets, waiting, tuple(losses))


def _standing(wanted: int, bounds: Bounds) -> int:
    """Where to go on: as wanted, or at the first message when that cannot be."""
    if wanted < bounds.minimum:
        return bounds.minimum
    if wanted > bounds.maximum and not bounds.behind:
        return bounds.minimum
    return wanted


def _nearest(wanted: int, bounds: Bounds) -> int:
    return bounds.minimum if wanted < bounds.minimum else bounds.maximum


def _end(queue: MessageQueue, maximum: int, target: Mapping[MessageQueue, int] | None) -> int:
    return maximum if target is None else min(maximum, target.get(queue, 0))


def spans(start: Mapping[MessageQueue, int], end: Mapping[MessageQueue, int]) -> Iterable[Span]:
    """What a batch between two checkpointed maps reads: nothing of a queue that only one has."""
    for queue in sorted(end):
        if queue in start and start[queue] < end[queue]:
            yield Span(queue, start[queue], end[queue])

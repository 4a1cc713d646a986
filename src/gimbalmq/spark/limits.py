"""How much of what waits goes into one micro-batch: every limit meets here, and nowhere else. Pure.

Three limits act together. The minimum decides whether there is a batch at all: while fewer records
wait, and the delay is not over, nothing is read. The maxima by records and by bytes decide how
large it is: bytes become records by what a record of each queue is estimated to take, and the
smaller number counts. That number is shared out in proportion to what waits in each queue, with
at least one record for each queue that waits, so that no queue is forgotten beside a hot one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import msgspec

from gimbalmq.model.queue import MessageQueue

__all__ = ["DELAY_MAX_S", "UNLIMITED", "Limits", "choose_records"]

#: What `maxTriggerDelay` is when it is not given.
DELAY_MAX_S: Final = 15 * 60.0


class Limits(msgspec.Struct, frozen=True):
    """The limits of a stream; None leaves one out."""

    records_max: int | None = None
    bytes_max: int | None = None
    records_min: int | None = None
    delay_max_s: float = DELAY_MAX_S


UNLIMITED: Final = Limits()


def choose_records(
    waiting: Mapping[MessageQueue, int],
    limits: Limits,
    *,
    record_bytes: Mapping[MessageQueue, float] | None = None,
    waited_s: float = math.inf,
    turn: int = 0,
) -> dict[MessageQueue, int]:
    """How many records of each queue the next batch reads; queues with none are left out.

    `record_bytes` estimates the size of a record in every queue that waits; only `bytes_max` needs
    it. `waited_s` is the time since the last batch. `turn` counts batches: when a limit
    is smaller than the number of queues, each batch starts with other queues.

    >>> first, second = (MessageQueue("orders", "broker-a", n) for n in (0, 1))
    >>> chosen = choose_records({first: 900, second: 100}, Limits(records_max=100))
    >>> chosen[first], chosen[second]
    (89, 11)
    >>> choose_records({first: 5}, Limits(records_min=10, delay_max_s=60), waited_s=3.0)
    {}
    """
    lagging = {queue: records for queue, records in sorted(waiting.items()) if records > 0}
    total = sum(lagging.values())
    if not total or not _is_due(total, limits, waited_s):
        return {}
    budget = total if limits.records_max is None else min(total, limits.records_max)
    if limits.bytes_max is not None:
        sizes = record_bytes or {}
        expected = sum(records * sizes[queue] for queue, records in lagging.items())
        if expected > limits.bytes_max:
            budget = min(budget, int(total * (limits.bytes_max / expected)))
    return _shared_out(lagging, max(budget, 1), turn)


def _is_due(total: int, limits: Limits, waited_s: float) -> bool:
    enough = limits.records_min is None or total >= limits.records_min
    return enough or waited_s >= limits.delay_max_s


def _shared_out(
    lagging: Mapping[MessageQueue, int], budget: int, turn: int
) -> dict[MessageQueue, int]:
    """Exactly `budget` records, or all: one for each queue first, the rest by what waits."""
    total, count = sum(lagging.values()), len(lagging)
    if budget >= total:
        return dict(lagging)
    if budget < count:
        queues = list(lagging)
        first = turn * budget % count
        return dict.fromkeys((queues[first:] + queues[:first])[:budget], 1)
    rest, beyond = budget - count, total - count
    shares, remainders = {}, []
    for queue, records in lagging.items():
        share, remainder = divmod(rest * (records - 1), beyond)
        shares[queue] = 1 + share
        remainders.append((-remainder, queue.sort_key, queue))
    missing = budget - sum(shares.values())
    for _, _, queue in sorted(remainders, key=lambda one: one[:2])[:missing]:
        shares[queue] += 1
    return shares

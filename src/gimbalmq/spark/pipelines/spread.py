"""How evenly each strategy would share out a measured load, for groups of several sizes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from gimbalmq import balance
from gimbalmq.core.measures import jain_index
from gimbalmq.errors import AllocationError
from gimbalmq.model.queue import MessageQueue

__all__ = ["Spread", "predict", "skew", "weights_of"]


class Spread(msgspec.Struct, frozen=True):
    """The load of the busiest member, in averages, and Jain's index of all loads."""

    strategy: str
    members: int
    busiest: float
    fairness: float


def weights_of(loads: Mapping[MessageQueue, float]) -> dict[str, float]:
    """Loads as weights by queue path: 1.0 is the average, and nothing is quite 0.

    >>> queues = [MessageQueue("t", "a", number) for number in range(2)]
    >>> weights_of(dict(zip(queues, (3, 1))))
    {'t/a/0': 1.5, 't/a/1': 0.5}
    """
    mean = sum(loads.values()) / max(len(loads), 1)
    if not mean:
        return {queue.path: 1.0 for queue in loads}
    return {queue.path: max(round(load / mean, 3), 0.001) for queue, load in loads.items()}


def skew(loads: Iterable[float]) -> float:
    """The largest load in averages; 1.0 when all are equal.

    >>> skew([3, 1])
    1.5
    """
    listed = list(loads)
    total = sum(listed)
    return round(max(listed) * len(listed) / total, 3) if total else 1.0


def predict(loads: Mapping[MessageQueue, float], sizes: Iterable[int]) -> list[Spread]:
    """The spread of every strategy that needs no configuration, and of WEIGHTED with these loads."""
    found = []
    for name in balance.strategy_names():
        options = {"weights": weights_of(loads)} if name == "WEIGHTED" else None
        for size in sizes:
            members = [f"member-{number:03}" for number in range(size)]
            try:
                shares = balance.allocate(name, queues=loads, members=members, options=options)
            except AllocationError:
                break  # it needs to be told rooms, zones or shares
            carried = [sum(loads[queue] for queue in share) for share in shares.values()]
            found.append(Spread(name, size, skew(carried), round(jain_index(carried), 4)))
    return found

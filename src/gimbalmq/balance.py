"""Sharing out queues: choose a strategy, compute, explain and measure an assignment.

The public face of allocation, and the same code that consumers run. Everything here is a pure
function of its arguments: no broker is asked.

>>> from gimbalmq import MessageQueue, balance
>>> queues = [MessageQueue("orders", "broker-a", number) for number in range(4)]
>>> shares = balance.allocate("AVG", queues=queues, members=["ann", "bob", "cid"])
>>> {member: [queue.queue_id for queue in share] for member, share in shares.items()}
{'ann': [0, 1], 'bob': [2], 'cid': [3]}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.metadata import entry_points
from typing import Any, Final

from gimbalmq.core import allocation
from gimbalmq.core.allocation.base import (
    Assignment,
    BuiltIn,
    Explanation,
    Snapshot,
    Strategy,
    register,
    unknown_strategy,
)
from gimbalmq.core.identity import NEARBY_PREFIX
from gimbalmq.core.measures import Measures, measure
from gimbalmq.errors import AllocationError
from gimbalmq.model.queue import MessageQueue

__all__ = [
    "Assignment",
    "Explanation",
    "Measures",
    "Snapshot",
    "Strategy",
    "allocate",
    "explain",
    "measure",
    "register",
    "strategy",
    "strategy_names",
]

#: Entry point group under which other packages offer strategies by name.
ENTRY_POINT_GROUP: Final = "gimbalmq.strategies"


def allocate(
    strategy: str | Strategy,
    *,
    queues: Iterable[MessageQueue],
    members: Iterable[str],
    group: str = "",
    options: Mapping[str, Any] | None = None,
) -> dict[str, tuple[MessageQueue, ...]]:
    """Share out the queues among the members, exactly as Java clients would.

    Queues and members are sorted first, so their order does not matter; several topics are shared
    out one after the other. Every member is a key of the result, in sorted order, also those with
    nothing. A client id that is listed twice has one share, the one of its first position; the
    queues of its second position belong to nobody (CONSISTENT_HASH: it has twice the weight).

    Args:
        strategy: A name, see `strategy_names`, or an object; `MACHINE_ROOM_NEARBY-AVG` names the
            nearby strategy together with its inner one.
        queues: The queues, each once.
        members: The client ids.
        group: The group's name, for error texts and strategies that look at it.
        options: What the strategy takes by name: `virtual_nodes` and `hash` (CONSISTENT_HASH),
            `rooms` (MACHINE_ROOM), `queues` by member (CONFIG), `inner`, `room_of_queue` and
            `room_of_member` (MACHINE_ROOM_NEARBY; more options go to the inner strategy),
            `weights` by queue path and `capacities` by client id (WEIGHTED; consumers with locks
            also take `weights="published"` and `weights_topic`), `zone_of_queue`,
            `zone_of_member`, `zones_version` and `inner` (ZONED; more go to the inner strategy).

    Raises:
        AllocationError: there is nothing to share out or nobody to share it, a client id is
            empty, the strategy or an option is unknown, or an option's value cannot be used. For
            CONFIG also when it names a member that is not in `members`; a consumer in a running
            group passes over such an entry, because that member may just not be started yet.

    >>> queues = [MessageQueue("orders", "broker-a", number) for number in range(4)]
    >>> shares = allocate("CONSISTENT_HASH", queues=queues, members=["c0", "c1"],
    ...                   options={"virtual_nodes": 50})
    >>> sum(len(share) for share in shares.values())
    4
    """
    chosen = _resolve(strategy, options)
    snapshot = Snapshot.of(group, queues, members)
    _check_names(chosen, snapshot)
    return allocation.assign(chosen, snapshot)


def explain(
    strategy: str | Strategy,
    *,
    queue: MessageQueue,
    queues: Iterable[MessageQueue],
    members: Iterable[str],
    group: str = "",
    options: Mapping[str, Any] | None = None,
) -> Explanation:
    """Say why a queue belongs to whom it belongs to; arguments and errors as for `allocate`.

    >>> queues = [MessageQueue("orders", "broker-a", number) for number in range(4)]
    >>> why = explain("AVG_BY_CIRCLE", queue=queues[3], queues=queues, members=["ann", "bob"])
    >>> why.owner
    'bob'
    >>> print(why.sentence)
    orders/broker-a/3 is queue 4 of 4 in sorted order and the group has 2 members; under \
AVG_BY_CIRCLE queues are dealt out in turn, and this one falls to turn 2 of round 2, so it \
belongs to member 2, 'bob'.
    """
    chosen = _resolve(strategy, options)
    snapshot = Snapshot.of(group, queues, members)
    _check_names(chosen, snapshot)
    return allocation.explain(chosen, snapshot, queue)


def strategy(name: str, **options: Any) -> Strategy:
    """Make a strategy for `allocation=` of a consumer when a name alone does not do.

    Strategies that other installed packages offer as entry points of the group
    `gimbalmq.strategies` are found by name, too.

    >>> strategy("CONSISTENT_HASH", virtual_nodes=50).name
    'CONSISTENT_HASH'
    >>> nearby = strategy("MACHINE_ROOM_NEARBY", inner="AVG",
    ...                   room_of_queue=lambda queue: queue.broker.partition("-")[0],
    ...                   room_of_member=lambda client_id: client_id.partition("-")[0])
    >>> nearby.name
    'MACHINE_ROOM_NEARBY-AVG'
    """
    return _strategy_from(name, options)


def strategy_names() -> tuple[str, ...]:
    """Every name that `allocate` and `strategy` know, Java's first.

    >>> strategy_names()[:3]
    ('AVG', 'AVG_BY_CIRCLE', 'CONFIG')
    """
    known = allocation.strategy_names()
    offered = {point.name for point in entry_points(group=ENTRY_POINT_GROUP)}
    return (*known, *sorted(offered.difference(known)))


def _resolve(given: str | Strategy, options: Mapping[str, Any] | None) -> Strategy:
    if isinstance(given, str):
        return _strategy_from(given, options or {})
    if options:
        raise AllocationError(
            f"strategy '{given.name}' is given as an object and has its options already: "
            "leave `options` out, or give the strategy by name"
        )
    return given


def _strategy_from(name: str, options: Mapping[str, Any]) -> Strategy:
    for one in (name, options.get("inner")):
        if isinstance(one, str):
            _make_known(one.rpartition(NEARBY_PREFIX)[2])
    return allocation.strategy_named(name, options)


def _make_known(name: str) -> None:
    """Register the strategy that an installed package offers, if the name is not known yet."""
    if name in allocation.strategy_names():
        return
    point = next(iter(entry_points(group=ENTRY_POINT_GROUP, name=name)), None)
    if point is None:
        raise unknown_strategy(name, strategy_names())
    try:
        offered = point.load()
    except (ImportError, AttributeError) as error:
        raise AllocationError(
            f"strategy '{name}' is offered as '{point.value}', which cannot be imported "
            f"({error}): repair or remove the package that offers it"
        ) from error
    if getattr(offered, "name", None) != name:
        raise AllocationError(
            f"the entry point '{name}' of group {ENTRY_POINT_GROUP} leads to '{point.value}', "
            f"whose name is {getattr(offered, 'name', None)!r}: the two must be the same"
        )
    register(offered)


def _check_names(chosen: Strategy, snapshot: Snapshot) -> None:
    # Without queues or members there is a more basic error to report first.
    snapshot.check()
    if isinstance(chosen, BuiltIn):
        chosen.check_names(snapshot.members)

"""Allocation strategies: who owns which queue, computed for the whole group at once.

One strategy per module; importing this package makes Java's six and our four known by name.
"""

from __future__ import annotations

from typing import Any

from gimbalmq.core.allocation.averagely import Averagely
from gimbalmq.core.allocation.base import (
    Assignment,
    Explanation,
    Shares,
    Snapshot,
    Strategy,
    add_built_in,
    assign,
    explain,
    register,
    strategy_named,
    strategy_names,
)
from gimbalmq.core.allocation.by_config import ByConfig
from gimbalmq.core.allocation.capped_hash import CappedHash
from gimbalmq.core.allocation.circle import AveragelyByCircle
from gimbalmq.core.allocation.consistent_hash import ConsistentHash
from gimbalmq.core.allocation.cross_topic import CrossTopic
from gimbalmq.core.allocation.machine_room import MachineRoom
from gimbalmq.core.allocation.nearby import Nearby, RoomOfMember, RoomOfQueue
from gimbalmq.core.allocation.weighted import Weighted
from gimbalmq.core.allocation.zoned import Zoned
from gimbalmq.core.allocation.zones import ZoneOfMember, ZoneOfQueue
from gimbalmq.errors import AllocationError

__all__ = [
    "Assignment",
    "Averagely",
    "AveragelyByCircle",
    "ByConfig",
    "CappedHash",
    "ConsistentHash",
    "CrossTopic",
    "Explanation",
    "MachineRoom",
    "Nearby",
    "Shares",
    "Snapshot",
    "Strategy",
    "Weighted",
    "Zoned",
    "assign",
    "explain",
    "register",
    "strategy_named",
    "strategy_names",
]


def _nearby(
    *,
    inner: str | Strategy,
    room_of_queue: RoomOfQueue,
    room_of_member: RoomOfMember,
    **inner_options: Any,
) -> Strategy:
    if isinstance(inner, str):
        return Nearby(strategy_named(inner, inner_options), room_of_queue, room_of_member)
    if not isinstance(inner, Strategy):
        raise AllocationError(
            f"strategy 'MACHINE_ROOM_NEARBY': option inner is {inner!r}; give the name of a "
            "strategy or a strategy"
        )
    if inner_options:
        raise AllocationError(
            f"strategy 'MACHINE_ROOM_NEARBY-{inner.name}': its inner strategy is given as an "
            f"object, so the options {', '.join(sorted(inner_options))} have no use; leave them "
            "out or give the inner strategy by name"
        )
    return Nearby(inner, room_of_queue, room_of_member)


def _zoned(
    *,
    zone_of_queue: ZoneOfQueue,
    zone_of_member: ZoneOfMember,
    inner: str | CappedHash = CappedHash.name,
    zones_version: str | None = None,
    **inner_options: Any,
) -> Strategy:
    made = strategy_named(inner, inner_options) if isinstance(inner, str) else inner
    if not isinstance(made, CappedHash):
        raise AllocationError(
            f"strategy 'ZONED': option inner is {inner!r}; give CAPPED_HASH, CROSS_TOPIC or "
            "WEIGHTED (MACHINE_ROOM_NEARBY takes any strategy)"
        )
    if made is inner and inner_options:
        raise AllocationError(
            f"strategy 'ZONED': its inner strategy {made.name} is given as an object, so the "
            f"options {', '.join(sorted(inner_options))} have no use; leave them out or give the "
            "inner strategy by name"
        )
    return Zoned(made, zone_of_queue, zone_of_member, zones_version)


add_built_in("AVG", Averagely)
add_built_in("AVG_BY_CIRCLE", AveragelyByCircle)
add_built_in("CONFIG", ByConfig)
add_built_in("MACHINE_ROOM", MachineRoom)
add_built_in("MACHINE_ROOM_NEARBY", _nearby)
add_built_in("CONSISTENT_HASH", ConsistentHash)
add_built_in("CAPPED_HASH", CappedHash)
add_built_in("CROSS_TOPIC", CrossTopic)
add_built_in("WEIGHTED", Weighted)
add_built_in("ZONED", _zoned)

"""ZONED: queues stay in their zone; those of a zone without members go to whoever has least.

Goals, in order: a queue whose zone has members stays in the zone; inside a zone the inner strategy
decides; queues of zones without members are shared out in one go, so that they level what the
members have from their own zones (MACHINE_ROOM_NEARBY shares them out zone by zone, and all
remainders fall to the first members). Cost and ties: those of the inner strategy. Order inside a
share: the member's own zone, then the spill-over.

Which zone a queue or a member is in is the user's knowledge: two functions of theirs say it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias, TypeVar

from gimbalmq.core.allocation.base import BuiltIn, Explanation
from gimbalmq.core.allocation.capped_hash import CappedHash
from gimbalmq.core.allocation.snapshot import Shares, Snapshot
from gimbalmq.errors import AllocationError
from gimbalmq.model.queue import MessageQueue

__all__ = ["ZoneOfMember", "ZoneOfQueue", "Zoned"]

ZoneOfQueue: TypeAlias = Callable[[MessageQueue], str]
ZoneOfMember: TypeAlias = Callable[[str], str]
_Thing = TypeVar("_Thing", MessageQueue, str)


class Zoned(BuiltIn):
    """CAPPED_HASH, or one of its refinements, zone by zone.

    The name is `ZONED` around CAPPED_HASH and `ZONED-<inner>` around another one, so that members
    whose inner strategies differ do not take each other for partners.
    """

    def __init__(
        self, inner: CappedHash, zone_of_queue: ZoneOfQueue, zone_of_member: ZoneOfMember
    ) -> None:
        plain = inner.name == CappedHash.name
        self.name = "ZONED" if plain else f"ZONED-{inner.name}"
        for option, function in (
            ("zone_of_queue", zone_of_queue),
            ("zone_of_member", zone_of_member),
        ):
            if not callable(function):
                raise AllocationError(
                    f"strategy '{self.name}': option {option} is {function!r}; "
                    "give a function that returns the name of the zone"
                )
        self.inner = inner
        self.zone_of_queue = zone_of_queue
        self.zone_of_member = zone_of_member
        self.cross_topic = inner.cross_topic

    def check_names(self, members: Iterable[str]) -> None:
        """Let the inner strategy check the names in its options."""
        self.inner.check_names(members)

    def shares(self, snapshot: Snapshot) -> Shares:
        """Zones with members first, then the spill-over."""
        near, spilled, _ = self._parts(snapshot)
        shares = self._near_shares(near)
        if spilled.queues:
            rest = self.inner.shares_beside(spilled, self._held(shares))
            for member, share in rest.items():
                shares[member] = shares.get(member, ()) + share
        return shares

    def explain(self, snapshot: Snapshot, queue: MessageQueue) -> Explanation:
        """Say who could have the queue, and what the inner strategy made of that."""
        snapshot.position(queue)
        near, spilled, members = self._parts(snapshot)
        zone = self._zone(queue, self.zone_of_queue, "queue")
        if zone in near:
            part = near[zone]
            inner = self.inner.explain(part, queue)
            who = f"which has members of its own ({len(members[zone])}), who share its queues"
        else:
            inner = self.inner.explain_beside(spilled, queue, self._held(self._near_shares(near)))
            who = "which has no member, so it goes to the members of other zones that have least"
        return Explanation(
            inner.owner,
            self.name,
            {"zone": zone, "in_zone": zone in near, "inner": inner.data},
            f"{queue.path} is in zone '{zone}', {who}. Inside: {inner.sentence}",
        )

    def _near_shares(self, near: dict[str, Snapshot]) -> Shares:
        shares: Shares = {}
        for part in near.values():
            shares.update(self.inner.shares(part))
        return shares

    def _held(self, shares: Shares) -> dict[str, int]:
        return {
            member: sum(self.inner.unit_of(queue) for queue in share)
            for member, share in shares.items()
        }

    def _parts(
        self, snapshot: Snapshot
    ) -> tuple[dict[str, Snapshot], Snapshot, dict[str, list[str]]]:
        """A snapshot for each zone that has both, one for the spill-over, and who is where."""
        members: dict[str, list[str]] = {}
        for member in dict.fromkeys(snapshot.members):
            members.setdefault(self._zone(member, self.zone_of_member, "member"), []).append(member)
        queues: dict[str, list[MessageQueue]] = {}
        spilled: list[MessageQueue] = []
        for queue in snapshot.queues:
            zone = self._zone(queue, self.zone_of_queue, "queue")
            (queues.setdefault(zone, []) if zone in members else spilled).append(queue)
        near = {
            zone: Snapshot(snapshot.group, tuple(listed), tuple(members[zone]))
            for zone, listed in queues.items()
        }
        return near, Snapshot(snapshot.group, tuple(spilled), snapshot.members), members

    def _zone(self, thing: _Thing, zone_of: Callable[[_Thing], object], kind: str) -> str:
        zone = zone_of(thing)
        if not isinstance(zone, str) or not zone:
            raise AllocationError(
                f"strategy '{self.name}': zone_of_{kind} returned {zone!r} for {kind} "
                f"'{getattr(thing, 'path', thing)}'; every {kind} must be in a zone with a name"
            )
        return zone

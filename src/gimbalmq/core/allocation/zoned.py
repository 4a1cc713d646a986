"""ZONED: queues stay in their zone; those of a zone without members go to whoever has least.

Goals, in order: a queue whose zone has members stays in the zone; inside a zone the inner strategy
decides; queues of zones without members are shared out in one go, so that they level what the
members have from their own zones (MACHINE_ROOM_NEARBY shares them out zone by zone, and all
remainders fall to the first members). Cost and ties: those of the inner strategy. Order inside a
share: the member's own zone, then the spill-over.

Which zone a queue or a member is in is the user's knowledge: two rules of theirs say it (`zones`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from typing import Self

from gimbalmq.core.allocation.base import BuiltIn, Explanation
from gimbalmq.core.allocation.capped_hash import CappedHash
from gimbalmq.core.allocation.snapshot import Shares, Snapshot
from gimbalmq.core.allocation.zones import ZoneOfMember, ZoneOfQueue, Zones
from gimbalmq.model.queue import MessageQueue

__all__ = ["Zoned"]


class Zoned(BuiltIn):
    """CAPPED_HASH, or one of its refinements, zone by zone.

    The name is `ZONED.<digest>` around CAPPED_HASH and `ZONED.<digest>-<inner>` around another one,
    so that members whose rules or inner strategies differ do not take each other for partners.
    Functions without a version have no digest: good for computing, refused by consumers.
    """

    def __init__(
        self,
        inner: CappedHash,
        zone_of_queue: ZoneOfQueue,
        zone_of_member: ZoneOfMember,
        zones_version: str | None = None,
    ) -> None:
        self.zones = Zones(zone_of_queue, zone_of_member, zones_version)
        outer = f"ZONED.{self.zones.digest}" if self.zones.digest else "ZONED"
        self.name = outer if inner.name == CappedHash.name else f"{outer}-{inner.name}"
        if self.zones.unnamed:
            self.incomparable = (
                f"{' and '.join(self.zones.unnamed)} without zones_version: whether two members "
                "have the same functions cannot be seen, and different ones give queues two "
                "owners. Give zones_version, a text that you change with the functions, or a "
                "mapping or 'prefix:TEXT' in their place"
            )
        self.inner = inner
        self.cross_topic = inner.cross_topic
        self.weights_topic = inner.weights_topic

    def with_weights(self, weights: Mapping[str, float]) -> Self:
        """The same strategy, its inner one with these published weights."""
        other = copy(self)
        other.inner = self.inner.with_weights(weights)
        return other

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
        zone = self.zones.of_queue(queue)
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
            members.setdefault(self.zones.of_member(member), []).append(member)
        queues: dict[str, list[MessageQueue]] = {}
        spilled: list[MessageQueue] = []
        for queue in snapshot.queues:
            zone = self.zones.of_queue(queue)
            (queues.setdefault(zone, []) if zone in members else spilled).append(queue)
        near = {
            zone: Snapshot(snapshot.group, tuple(listed), tuple(members[zone]))
            for zone, listed in queues.items()
        }
        return near, Snapshot(snapshot.group, tuple(spilled), snapshot.members), members

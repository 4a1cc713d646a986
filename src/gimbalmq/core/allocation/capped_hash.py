"""CAPPED_HASH: every queue goes to the member that suits it best and still has a seat.

Each pair of a queue and a member has a score, a hash of the two names and nothing else. Pairs are
served from the highest score down: a queue without owner takes the member of the pair if that one
has a seat left. Everyone has `queues div members` seats of its own; the `queues mod members` seats
that remain belong to whoever needs them first, one each.

Goals, in order: shares differ by at most one queue; few queues move when members or queues come
and go, because scores of the others stay as they are. Ties: of equal scores the queue that sorts
first, then the member that sorts first. A client id that is listed twice counts once: only groups
whose members are all ours use this strategy, and they allocate over the distinct ids.

Cost: one multiplication of a long number per proposal, which gives the scores of all members at
once; 1.2 proposals per queue at 10,000 x 1,000. Time grows with queues x members, in C.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from hashlib import blake2b
from heapq import heapify, heappop, heapreplace
from itertools import compress
from struct import Struct
from typing import Any, Final

import msgspec

from gimbalmq.core.allocation.base import BuiltIn, Explanation
from gimbalmq.core.allocation.snapshot import Shares, Snapshot
from gimbalmq.core.identity import stem_of
from gimbalmq.model.queue import MessageQueue

__all__ = ["CappedHash", "Scores", "Seats", "level_seats", "place"]

#: A product of two 64-bit numbers has 128 bits.
_LANE_BYTES: Final = 16
#: How many members a sentence names before it only counts them.
_NAMES_MAX: Final = 3


class Seats(msgspec.Struct, frozen=True):
    """How many queues each member may take: `own[m]`, and one of `extra` more if `shared[m]`."""

    own: Sequence[int]
    shared: Sequence[bool]
    extra: int


class Scores:
    """The scores of all members for one queue at a time.

    A score is the middle 64 bits of the product of two 64-bit hashes. The hashes of all members lie
    side by side in one long number, far enough apart that their products do not meet, so a single
    multiplication gives the scores of the whole group.
    """

    __slots__ = ("_lanes", "_size", "_unpack")

    def __init__(self, members: Iterable[str]) -> None:
        # By stem: a group that changes its strategy, and so its ids, keeps its scores.
        hashes = [_hash(stem_of(member)) for member in members]
        joined = b"".join(one.to_bytes(_LANE_BYTES, "little") for one in hashes)
        self._lanes = int.from_bytes(joined, "little")
        self._size = len(joined)
        self._unpack = Struct("<" + "4xQ4x" * len(hashes)).unpack

    def of(self, queue_hash: int) -> tuple[int, ...]:
        """One score per member, in the order of the members."""
        return self._unpack((self._lanes * queue_hash).to_bytes(self._size, "little"))


def _hash(text: str) -> int:
    # Odd, so that no product loses its low bits; surrogatepass, because any text is a Java id.
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little") | 1


def queue_hash(queue: MessageQueue) -> int:
    """The hash of a queue's name; neither topics nor brokers can contain the separator."""
    return _hash(f"{queue.topic}\0{queue.broker}\0{queue.queue_id}")


def level_seats(
    count: int, unit: int, loads: Sequence[int], capacities: Sequence[Fraction]
) -> Seats:
    """Seats for `count` queues of load `unit` that level `(load + unit) / capacity`.

    One seat after the other goes where that quotient is least. Members that tie for the last seats
    share them, so that scores decide who gets them.

    >>> level_seats(5, 1, [0, 0, 3], [Fraction(1)] * 3)
    Seats(own=[2, 2, 0], shared=[True, True, False], extra=1)
    """
    members = len(loads)
    alike = len(set(capacities)) == 1
    if alike and len(set(loads)) == 1:
        own, extra = divmod(count, members)
        return Seats([own] * members, [True] * members, extra)
    # Whole numbers compare many times faster than fractions.
    per_load: Sequence[Fraction | int] = (
        [1] * members if alike else [1 / capacity for capacity in capacities]
    )
    levels = [((loads[at] + unit) * per_load[at], at) for at in range(members)]
    heapify(levels)
    seats = [0] * members
    last: Fraction | int = 0
    for _ in range(count):
        last, at = levels[0]
        seats[at] += 1
        heapreplace(levels, ((loads[at] + (seats[at] + 1) * unit) * per_load[at], at))
    shared = [False] * members
    extra = 0
    for at in range(members):
        if seats[at] and (loads[at] + seats[at] * unit) * per_load[at] == last:
            seats[at] -= 1
            extra += 1
            shared[at] = True
        elif (loads[at] + (seats[at] + 1) * unit) * per_load[at] == last:
            shared[at] = True
    return Seats(seats, shared, extra)


def place(hashes: Sequence[int], scores: Scores, seats: Seats) -> list[int]:
    """The position of the owner of each queue; there must be exactly as many seats as queues.

    The heap holds each queue's best pair among members that had a seat when it was looked up. Seats
    never become free again, so whatever is at the top of the heap is the best pair of all.
    """
    taken = [0] * len(seats.own)
    extra = seats.extra
    free = bytearray(
        own > 0 or (shared and extra > 0)
        for own, shared in zip(seats.own, seats.shared, strict=True)
    )
    proposals = [_proposal(scores, one, at, free) for at, one in enumerate(hashes)]
    heapify(proposals)
    owners = [-1] * len(hashes)
    while proposals:
        _, at, member = proposals[0]
        if not free[member]:
            heapreplace(proposals, _proposal(scores, hashes[at], at, free))
            continue
        heappop(proposals)
        owners[at] = member
        taken[member] += 1
        if taken[member] > seats.own[member]:
            extra -= 1
            free[member] = False
            if not extra:
                _close_full(free, taken, seats)
        elif taken[member] == seats.own[member]:
            free[member] = seats.shared[member] and extra > 0
    return owners


def _proposal(scores: Scores, one: int, at: int, free: bytearray) -> tuple[int, int, int]:
    values = scores.of(one)
    best = max(compress(values, free))
    member = values.index(best)
    while not free[member]:  # two members with one stem have the same score
        member = values.index(best, member + 1)
    return -best, at, member


def _close_full(free: bytearray, taken: list[int], seats: Seats) -> None:
    for member, own in enumerate(seats.own):
        if taken[member] >= own:
            free[member] = False


class CappedHash(BuiltIn):
    """Score-first allocation with capped shares; base of the strategies that refine it."""

    name = "CAPPED_HASH"

    def shares(self, snapshot: Snapshot) -> Shares:
        """Serve all pairs from the highest score down."""
        return self.shares_beside(snapshot, {})

    def shares_beside(self, snapshot: Snapshot, held: Mapping[str, int]) -> Shares:
        """Share out when members have load from elsewhere already (`held`, in `unit_of`s)."""
        members = tuple(dict.fromkeys(snapshot.members))
        owners, _ = self._owners(snapshot.queues, members, held)
        gathered: dict[str, list[MessageQueue]] = {}
        for queue, owner in zip(snapshot.queues, owners, strict=True):
            gathered.setdefault(members[owner], []).append(queue)
        return {member: tuple(share) for member, share in gathered.items()}

    def explain(self, snapshot: Snapshot, queue: MessageQueue) -> Explanation:
        """Say which choice of the queue its owner is, and why the better ones did not get it."""
        return self.explain_beside(snapshot, queue, {})

    def explain_beside(
        self, snapshot: Snapshot, queue: MessageQueue, held: Mapping[str, int]
    ) -> Explanation:
        """As `explain`, for `shares_beside`."""
        at = snapshot.position(queue)
        members = tuple(dict.fromkeys(snapshot.members))
        owners, loads = self._owners(snapshot.queues, members, held)
        owner = owners[at]
        values = Scores(members).of(queue_hash(queue))
        # The same order in which `_proposal` looks: higher scores, then earlier members.
        ranked = sorted(range(len(members)), key=lambda one: (-values[one], one))
        better = [members[one] for one in ranked[: ranked.index(owner)]]
        data = {
            "queues": len(snapshot.queues),
            "members": len(members),
            "choice": len(better) + 1,
            "score": values[owner],
            "passed_over": better,
            "share": owners.count(owner),
            **self._facts(queue, members, owner, loads),
        }
        rank = f"choice {len(better) + 1} of {len(members)}"
        first = f"under {type(self).name} a hash ranks the members for each queue, and '{members[owner]}' "
        if better:
            why = (
                f"{first}is {rank}: {_names(better)} came before it, but had no seat left, because "
                "pairs with higher scores are served first"
            )
        else:
            why = f"{first}is {rank} and had a seat"
        return Explanation(
            members[owner],
            type(self).name,  # without the digest of a configuration
            data,
            f"{queue.path}: {why}; {self._words(data)}.",
        )

    # ---- what the refinements change -----------------------------------------------------------

    def unit_of(self, _queue: MessageQueue) -> int:
        """The load that a queue counts for."""
        return 1

    def capacity_of(self, _member: str) -> Fraction:
        """The part of the load that a member should have, relative to the others."""
        return Fraction(1)

    def _facts(
        self, _queue: MessageQueue, _members: Sequence[str], _owner: int, _loads: Sequence[int]
    ) -> dict[str, Any]:
        return {}

    def _words(self, data: Mapping[str, Any]) -> str:
        share, queues, members = data["share"], data["queues"], data["members"]
        return f"it has {share} of {queues} queues in a group of {members}"

    # ---- the rule --------------------------------------------------------------------------------

    def _owners(
        self, queues: Sequence[MessageQueue], members: Sequence[str], held: Mapping[str, int]
    ) -> tuple[list[int], list[int]]:
        """The owner of each queue and the load of each member, heaviest queues first."""
        classes: dict[int, list[int]] = {}
        for at, queue in enumerate(queues):
            classes.setdefault(self.unit_of(queue), []).append(at)
        scores = Scores(members)
        capacities = [self.capacity_of(member) for member in members]
        loads = [held.get(member, 0) for member in members]
        owners = [-1] * len(queues)
        for unit in sorted(classes, reverse=True):
            positions = classes[unit]
            hashes = [queue_hash(queues[at]) for at in positions]
            seats = level_seats(len(positions), unit, loads, capacities)
            for at, owner in zip(positions, place(hashes, scores, seats), strict=True):
                owners[at] = owner
                loads[owner] += unit
        return owners, loads


def _names(members: Sequence[str]) -> str:
    shown = ", ".join(f"'{member}'" for member in members[:_NAMES_MAX])
    more = len(members) - _NAMES_MAX
    return f"{shown} and {more} more" if more > 0 else shown

"""Sharing out the queues of a whole group at once, against one member after the other.

Java's clients compute one member's share at a time. A tool that wants to see the group has to do
that for every member; that is the anchor (`one-by-one`), written as Java computes it, sorting
once. Ours is `balance.allocate`, sorting included. Where the anchor would take minutes, a random
sample of the members is timed and scaled up, and the row says so. What the sampled members get is
compared with our result.
"""

from __future__ import annotations

import random
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from hashlib import md5
from typing import Any, Final, TypeAlias

from gimbalmq.balance import allocate
from gimbalmq.model.java import sorted_as_java
from gimbalmq.model.queue import MessageQueue, sorted_queues
from harness import Row, arguments, best_s, run, undisturbed

Queues: TypeAlias = Sequence[MessageQueue]
#: (member, sorted queues, sorted members, options) -> the member's share
OneMember: TypeAlias = Callable[[str, Queues, list[str], dict[str, Any]], Queues]

SIZES: Final = ((1_024, 64), (10_000, 1_000), (100_000, 10_000))
#: The largest size is for strategies that are linear.
LINEAR_ONLY_FROM: Final = 100_000
ROOMS: Final = 4
BROKERS: Final = 40


def averagely(member: str, queues: Queues, members: list[str], _: dict[str, Any]) -> Queues:
    if member not in members:
        return []
    index = members.index(member)
    extra = len(queues) % len(members)
    if len(queues) <= len(members):
        size = 1
    else:
        size = len(queues) // len(members) + (extra > 0 and index < extra)
    start = index * size if extra > 0 and index < extra else index * size + extra
    count = min(size, len(queues) - start)
    return [queues[start + at] for at in range(count)]


def circle(member: str, queues: Queues, members: list[str], _: dict[str, Any]) -> Queues:
    if member not in members:
        return []
    index = members.index(member)
    count = len(members)
    return [queues[at] for at in range(index, len(queues)) if at % count == index]


def by_config(member: str, queues: Queues, _: list[str], options: dict[str, Any]) -> Queues:
    present = set(queues)
    return [queue for queue in options["queues"][member] if queue in present]


def machine_room(
    member: str, queues: Queues, members: list[str], options: dict[str, Any]
) -> Queues:
    if member not in members:
        return []
    index = members.index(member)
    matching = []
    for queue in queues:
        parts = queue.broker.split("@")
        if len(parts) == 2 and parts[0] in options["rooms"]:
            matching.append(queue)
    size, extra = divmod(len(matching), len(members))
    share = matching[index * size : index * size + size]
    if index < extra:
        share.append(matching[len(members) * size + index])
    return share


def nearby(member: str, queues: Queues, members: list[str], options: dict[str, Any]) -> Queues:
    queue_rooms: dict[str, list[MessageQueue]] = {}
    for queue in queues:
        queue_rooms.setdefault(options["room_of_queue"](queue), []).append(queue)
    member_rooms: dict[str, list[str]] = {}
    for one in members:
        member_rooms.setdefault(options["room_of_member"](one), []).append(one)
    mine = options["room_of_member"](member)
    share: list[MessageQueue] = []
    if mine in queue_rooms:
        share += averagely(member, queue_rooms[mine], member_rooms[mine], {})
    for room in sorted(queue_rooms.keys() - member_rooms.keys()):
        share += averagely(member, queue_rooms[room], members, {})
    return share


def consistent_hash(member: str, queues: Queues, members: list[str], _: dict[str, Any]) -> Queues:
    if member not in members:
        return []
    ring = {ring_hash(f"{one}-{node}"): one for one in members for node in range(10)}
    places = sorted(ring)
    share = []
    for queue in queues:
        at = bisect_left(places, ring_hash(str(queue)))
        if ring[places[at if at < len(places) else 0]] == member:
            share.append(queue)
    return share


def ring_hash(text: str) -> int:
    return int.from_bytes(md5(text.encode()).digest()[:4])


#: name -> (anchor, whether it is linear)
STRATEGIES: Final[dict[str, tuple[OneMember, bool]]] = {
    "AVG": (averagely, True),
    "AVG_BY_CIRCLE": (circle, True),
    "CONFIG": (by_config, True),
    "MACHINE_ROOM": (machine_room, True),
    "MACHINE_ROOM_NEARBY-AVG": (nearby, True),
    "CONSISTENT_HASH": (consistent_hash, False),
}


def group(queue_count: int, member_count: int) -> tuple[list[MessageQueue], list[str]]:
    """Queues and members in the random order in which routes and heartbeats bring them."""
    chance = random.Random(queue_count)
    queues = [
        MessageQueue("orders", f"room{at % BROKERS % ROOMS}@broker-{at % BROKERS}", at // BROKERS)
        for at in range(queue_count)
    ]
    # One room has queues and no members, so that the nearby strategy has to share it out.
    members = [
        f"room{at % (ROOMS - 1)}@10.0.{at // 250}.{at % 250}@{4000 + at}#{chance.getrandbits(48)}"
        for at in range(member_count)
    ]
    chance.shuffle(queues)
    chance.shuffle(members)
    return queues, members


def options_of(name: str, queues: list[MessageQueue], members: list[str]) -> dict[str, Any]:
    match name:
        case "CONFIG":
            count = len(members)
            return {"queues": {one: queues[at::count] for at, one in enumerate(members)}}
        case "MACHINE_ROOM":
            return {"rooms": ["room0", "room1", "room2"]}
        case "MACHINE_ROOM_NEARBY-AVG":
            return {
                "room_of_queue": lambda queue: queue.broker.partition("@")[0],
                "room_of_member": lambda client_id: client_id.partition("@")[0],
            }
        case _:
            return {}


def compare(name: str, queue_count: int, member_count: int, budget_s: float) -> Row:
    queues, members = group(queue_count, member_count)
    options = options_of(name, queues, members)

    def ours() -> dict[str, tuple[MessageQueue, ...]]:
        return allocate(name, queues=queues, members=members, options=options)

    shares = ours()
    anchor_s, sampled = one_by_one_s(
        STRATEGIES[name][0], queues, members, options, shares, budget_s
    )
    whole = sampled == member_count
    return Row(
        case=f"allocate/{name}/{queue_count}x{member_count}",
        ours=best_s(ours, budget_s=budget_s),
        anchor=anchor_s,
        anchor_name="one-by-one",
        unit="seconds",
        note="" if whole else f"anchor: {sampled:,} of {member_count:,} members timed, scaled up",
    )


def one_by_one_s(
    share_of: OneMember,
    queues: list[MessageQueue],
    members: list[str],
    options: dict[str, Any],
    shares: dict[str, tuple[MessageQueue, ...]],
    budget_s: float,
) -> tuple[float, int]:
    """Seconds for all members, and how many of them were timed (members are in random order)."""
    ordered = sorted_queues(queues)
    ids = sorted_as_java(members)
    sorting_s = best_s(lambda: (sorted_queues(queues), sorted_as_java(members)), budget_s=0.2)
    spent_s = 0.0
    sampled = 0
    until = time.perf_counter() + budget_s
    with undisturbed():
        for member in members:
            if sampled >= 3 and time.perf_counter() > until:
                break
            started = time.perf_counter()
            share = share_of(member, ordered, ids, options)
            spent_s += time.perf_counter() - started
            sampled += 1
            if tuple(share) != shares[member]:
                raise SystemExit(f"{share_of.__name__}: '{member}' gets another share than from us")
    return sorting_s + spent_s * len(members) / sampled, sampled


def rows(only: str, budget_s: float) -> Iterator[Row]:
    for queue_count, member_count in SIZES:
        for name, (_, linear) in STRATEGIES.items():
            wanted = only in f"allocate/{name}/{queue_count}x{member_count}"
            if wanted and (linear or queue_count < LINEAR_ONLY_FROM):
                yield compare(name, queue_count, member_count, budget_s)


if __name__ == "__main__":
    parser = arguments("Share out a whole group's queues, against one member at a time.")
    parser.add_argument("--budget-s", type=float, default=1.0, help="seconds per side of a case")
    given = parser.parse_args()
    raise SystemExit(run(rows(given.only, given.budget_s), as_json=given.json))

"""How many queues change hands when a group changes, beyond what no strategy can avoid.

For groups of 2 to 200 members: one member joins, one leaves, a queue is added, an eighth of the
queues is added. `ours` is the mean of (moves - least possible moves) in percent of the queues.
The anchor is `capped-rendezvous`: queues in sorted order, each to the highest-scoring member with
room, everyone having the same fixed number of seats except that the first in hash order have one
more. Both see the same groups, with hashes of their own; the spread is checked to be at most 1.

The least is that of somebody who remembers who had what. `forced-without-memory` is the part of
`ours` that follows from remembering nothing: undoing a change then gives every queue back to whom it
had before, so the same queues move in both directions, and the least of the way back counts, too.
For added queues the least is 0, and that of taking them away again is not.
The sizes lie closer together among small groups, where a change concerns more of the queues.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from hashlib import blake2b
from statistics import fmean
from typing import Final, NamedTuple, TypeAlias

from gimbalmq.balance import allocate, measure
from gimbalmq.model.queue import MessageQueue
from harness import Row, arguments, run

Queues: TypeAlias = list[MessageQueue]
Shares: TypeAlias = dict[str, tuple[MessageQueue, ...]]
Rule: TypeAlias = Callable[[Queues, list[str]], Shares]

QUEUE_COUNTS: Final = (16, 64, 256, 512)
GROUP_SIZES: Final = (2, 3, 4, 6, 8, 12, 16, 24, 31, 48, 64, 100, 128, 200)
EVENTS: Final = ("join", "leave", "queue", "queues-eighth")


def capped_hash(queues: Queues, members: list[str]) -> Shares:
    return allocate("CAPPED_HASH", queues=queues, members=members)


def averagely(queues: Queues, members: list[str]) -> Shares:
    return allocate("AVG", queues=queues, members=members)


def capped_rendezvous(queues: Queues, members: list[str]) -> Shares:
    size, extra = divmod(len(queues), len(members))
    by_hash = sorted(members, key=lambda member: score(member, ""))
    room = {member: size + (at < extra) for at, member in enumerate(by_hash)}
    shares: dict[str, list[MessageQueue]] = {member: [] for member in members}
    for queue in sorted(queues):
        owner = max((one for one in members if room[one]), key=lambda one: score(one, queue.path))
        room[owner] -= 1
        shares[owner].append(queue)
    return {member: tuple(share) for member, share in shares.items()}


def score(member: str, queue: str) -> bytes:
    return blake2b(f"{member}\0{queue}".encode(), digest_size=8).digest()


class Excess(NamedTuple):
    """Moves beyond the least in percent of the queues; `forced`: those that no memory costs."""

    moves: float
    forced: float


def excess(rule: Rule, event: str, queue_count: int, size: int, seed: int) -> Excess:
    """One change of one group; percent of the queues that were there before."""
    chance = random.Random(f"{event} {queue_count} {size} {seed}")
    topic = f"t{chance.getrandbits(32)}"
    added = {"queue": 1, "queues-eighth": max(2, queue_count // 8)}.get(event, 0)
    queues = [MessageQueue(topic, f"broker-{at % 2}", at // 2) for at in range(queue_count + added)]
    members = [f"10.0.0.{at}@{chance.getrandbits(40)}" for at in range(size + (event == "join"))]
    before = rule(queues[:queue_count], members[:size])
    after = rule(queues, members[1:] if event == "leave" else members)
    there, back = measure(before, after), measure(after, before)
    if there.spread > 1:
        raise SystemExit(f"{rule.__name__}: spread {there.spread} at {queue_count} x {size}")
    forced = max(0, back.least_moves - there.least_moves)
    return Excess(100 * (there.moves - there.least_moves) / queue_count, 100 * forced / queue_count)


def mean_excess(rule: Rule, event: str, queue_count: int, rounds: int) -> Excess:
    found = [
        excess(rule, event, queue_count, size, seed)
        for size in GROUP_SIZES
        for seed in range(rounds)
    ]
    return Excess(fmean(one.moves for one in found), fmean(one.forced for one in found))


def rows(only: str, rounds: int) -> Iterator[Row]:
    for event in EVENTS:
        for queue_count in QUEUE_COUNTS:
            case = f"moves/CAPPED_HASH/{event}/{queue_count}"
            if only not in case:
                continue
            ours = mean_excess(capped_hash, event, queue_count, rounds)
            anchors = {"forced-without-memory": ours.forced}
            for name, rule in (("capped-rendezvous", capped_rendezvous), ("AVG", averagely)):
                anchors[name] = mean_excess(rule, event, queue_count, rounds).moves
            for name, anchor in anchors.items():
                yield Row(
                    case=case,
                    ours=ours.moves,
                    anchor=anchor,
                    anchor_name=name,
                    unit="% of queues over the least",
                    note=f"mean of {len(GROUP_SIZES)} group sizes, 2 to 200, {rounds} groups each",
                )


if __name__ == "__main__":
    parser = arguments("Queues that change hands beyond the least possible.")
    parser.add_argument("--rounds", type=int, default=5, help="random groups per size")
    given = parser.parse_args()
    raise SystemExit(run(rows(given.only, given.rounds), as_json=given.json))

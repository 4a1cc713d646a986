"""How good an assignment is, and what it cost to get there.

Used by reports, simulations and tests. Knows assignments as mappings from member to queues and
nothing about the strategies that made them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec

from gimbalmq.model.queue import MessageQueue

__all__ = ["Measures", "jain_index", "measure"]


class Measures(msgspec.Struct, frozen=True):
    """The change from one assignment to the next.

    moves: queues that had an owner and now have another one.
    least_moves: the fewest moves by which any assignment of the same queues to the same members
        with spread at most 1 could have been reached. A strategy that gives up balance can stay
        below it.
    spread: largest share minus smallest share, in queues.
    fairness: Jain's index of the share sizes, 1.0 when all are equal, 1/members when one has all.

    >>> first, second = (MessageQueue("orders", "broker-a", number) for number in range(2))
    >>> measure({"ann": [first, second], "bob": []}, {"ann": [first], "bob": [second]})
    Measures(moves=1, least_moves=1, spread=0, fairness=1.0)
    """

    moves: int
    least_moves: int
    spread: int
    fairness: float


def measure(
    before: Mapping[str, Collection[MessageQueue]], after: Mapping[str, Collection[MessageQueue]]
) -> Measures:
    """Compare two assignments in time linear in their queues.

    Every member of the group is a key, also one without queues. Only queues that `after` gives to
    somebody count: one that vanished with its broker did not move, and one that is new had no
    owner to lose.

    >>> a, b, c, d = (MessageQueue("orders", "broker-a", number) for number in range(4))
    >>> measure({"x": [a, b], "y": [c, d]}, {"w": [d], "x": [a], "y": [c], "z": [b]})
    Measures(moves=2, least_moves=2, spread=0, fairness=1.0)
    """
    owned_before: set[MessageQueue] = set()
    for share in before.values():
        owned_before.update(share)
    owned_after: set[MessageQueue] = set()
    moves = 0
    for member, share in after.items():
        owned_after.update(share)
        moves += len(owned_before.intersection(share).difference(before.get(member, ())))
    sizes = [len(share) for share in after.values()]
    return Measures(
        moves=moves,
        least_moves=_least_moves(before, after, owned_before & owned_after, len(owned_after)),
        spread=max(sizes, default=0) - min(sizes, default=0),
        fairness=jain_index(sizes),
    )


def _least_moves(
    before: Mapping[str, Collection[MessageQueue]],
    members: Collection[str],
    movable: set[MessageQueue],
    queues: int,
) -> int:
    """Queues with an owner, minus as many as can stay when shares differ by at most one.

    With spread at most 1, the sizes are fixed: `extra` members have one more than `size`. Each
    member keeps what it holds up to its size, and the larger sizes go to members that hold more.
    """
    if not members:
        return 0
    size, extra = divmod(queues, len(members))
    stay = 0
    could_keep_one_more = 0
    for member in members:
        held = len(movable.intersection(before.get(member, ())))
        stay += min(held, size)
        could_keep_one_more += held > size
    return len(movable) - stay - min(extra, could_keep_one_more)


def jain_index(sizes: Iterable[float]) -> float:
    """Jain's fairness index, (sum)^2 / (count * sum of squares); 1.0 when there is nothing.

    >>> jain_index([2, 2, 2]), jain_index([6, 0])
    (1.0, 0.5)
    """
    listed = list(sizes)
    squares = sum(size * size for size in listed)
    return sum(listed) ** 2 / (len(listed) * squares) if squares else 1.0

"""CONSISTENT_HASH: members stand on a ring of hashes, a queue belongs to the next one.

Goals, in order: when a member comes or goes only its own queues move; then balance, which is
poor with few virtual nodes. Cost: sorting the ring, then one binary search per queue.
Ties: two virtual nodes at one place of the ring, the later member in order stays.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeAlias

from gimbalmq.core.allocation.base import BuiltIn, Explanation
from gimbalmq.core.allocation.snapshot import Shares, Snapshot
from gimbalmq.errors import AllocationError
from gimbalmq.model.queue import MessageQueue

__all__ = ["DEFAULT_VIRTUAL_NODES", "ConsistentHash", "RingHash", "md5_hash"]

RingHash: TypeAlias = Callable[[str], int]

#: Java's default number of places that each member has on the ring.
DEFAULT_VIRTUAL_NODES: Final = 10


def md5_hash(text: str) -> int:
    """Java's ring hash: the first four bytes of MD5 over UTF-8, as an unsigned number.

    >>> md5_hash("c0-0")
    2316876094
    """
    # "replace": Java encodes half of a surrogate pair as a question mark.
    digest = hashlib.md5(text.encode("utf-8", "replace"), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4])


class _Ring:
    """Places in ascending order, and who stands at each."""

    __slots__ = ("owners", "places")

    def __init__(self, by_place: dict[int, str]) -> None:
        self.places = sorted(by_place)
        self.owners = [by_place[place] for place in self.places]
        if self.owners:
            # A search beyond the last place ends here, at the first one: the ring is closed.
            self.owners.append(self.owners[0])


class ConsistentHash(BuiltIn):
    """Java's AllocateMessageQueueConsistentHash, with its optional node count and hash."""

    name = "CONSISTENT_HASH"

    def __init__(
        self,
        *,
        virtual_nodes: int = DEFAULT_VIRTUAL_NODES,
        hash: RingHash | None = None,  # noqa: A002 the option's public name
    ) -> None:
        if isinstance(virtual_nodes, bool) or not isinstance(virtual_nodes, int):
            raise AllocationError(
                f"strategy '{self.name}': option virtual_nodes is {virtual_nodes!r}; "
                "give a whole number"
            )
        if virtual_nodes < 0:
            raise AllocationError(
                f"strategy '{self.name}': option virtual_nodes is {virtual_nodes}; "
                "it must not be negative"
            )
        if hash is not None and not callable(hash):
            raise AllocationError(
                f"strategy '{self.name}': option hash is {hash!r}; "
                "give a function from text to a whole number"
            )
        self.virtual_nodes = virtual_nodes
        self.hash: RingHash = md5_hash if hash is None else hash
        # The ring of the latest members: rooms, topics and repeated passes ask for the same one.
        self._latest: tuple[Sequence[str], _Ring] | None = None

    def shares(self, snapshot: Snapshot) -> Shares:
        """Give each queue to the first virtual node at or after its hash."""
        ring = self._ring(snapshot.members)
        if not ring.places:
            return {}
        places, owners = ring.places, ring.owners
        hashes = self._hashes(map(str, snapshot.queues))
        gathered: dict[str, list[MessageQueue]] = {}
        for queue, value in zip(snapshot.queues, hashes, strict=True):
            owner = owners[bisect_left(places, value)]
            if owner in gathered:
                gathered[owner].append(queue)
            else:
                gathered[owner] = [queue]
        return {member: tuple(share) for member, share in gathered.items()}

    def explain(self, snapshot: Snapshot, queue: MessageQueue) -> Explanation:
        """Say where the queue falls on the ring and which node comes next."""
        snapshot.position(queue)
        ring = self._ring(snapshot.members)
        value = self.hash(str(queue))
        data: dict[str, Any] = {"hash": value, "virtual_nodes": self.virtual_nodes}
        if not ring.places:
            return Explanation(
                None,
                self.name,
                data,
                f"{queue.path} belongs to nobody: with 0 virtual nodes the ring is empty.",
            )
        index = bisect_left(ring.places, value)
        owner = ring.owners[index]
        wraps = index == len(ring.places)
        place = ring.places[0] if wraps else ring.places[index]
        node = self._node_at(place, owner, snapshot.members.count(owner))
        data |= {"place": place, "virtual_node": node, "wraps": wraps}
        nearest = (
            "no virtual node lies at or beyond that, so the first of the ring is next"
            if wraps
            else "the next virtual node on the ring"
        )
        return Explanation(
            owner,
            self.name,
            data,
            f"{queue.path} hashes to {value}; {nearest} is '{node}' at {place}, "
            f"so it belongs to '{owner}'.",
        )

    def _hashes(self, texts: Iterable[str]) -> list[int]:
        if self.hash is not md5_hash:
            return list(map(self.hash, texts))
        # `md5_hash` written out: the calls would take a quarter of the time.
        md5, number = hashlib.md5, int.from_bytes
        return [
            number(md5(text.encode("utf-8", "replace"), usedforsecurity=False).digest()[:4])
            for text in texts
        ]

    def _node_at(self, place: int, owner: str, times_listed: int) -> str:
        keys = (f"{owner}-{number}" for number in range(self.virtual_nodes * times_listed))
        return next(key for key in keys if self.hash(key) == place)

    def _ring(self, members: Sequence[str]) -> _Ring:
        latest = self._latest
        if latest is not None and (latest[0] is members or latest[0] == members):
            return latest[1]
        ring = _Ring(self._places(members))
        self._latest = (members, ring)
        return ring

    def _places(self, members: Sequence[str]) -> dict[int, str]:
        numbers = range(self.virtual_nodes)
        if len(set(members)) == len(members):
            keys = (f"{member}-{number}" for member in members for number in numbers)
            owners = (member for member in members for _ in numbers)
            return dict(zip(self._hashes(keys), owners, strict=True))
        # A repeated id goes on counting after the nodes that it has at that moment, which are
        # fewer than it placed if another member took one of its places.
        by_place: dict[int, str] = {}
        standing: Counter[str] = Counter()
        for member in members:
            already = standing[member]
            for number in range(already, already + self.virtual_nodes):
                place = self.hash(f"{member}-{number}")
                if place in by_place:
                    standing[by_place[place]] -= 1
                by_place[place] = member
                standing[member] += 1
        return by_place

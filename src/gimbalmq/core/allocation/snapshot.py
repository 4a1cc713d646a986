"""What a strategy sees: the group's name, its queues and its members, in the order all agree on.

Every member computes the group's assignment by itself, so the input has to be the same value
everywhere. Sorting happens here, once, and nowhere else.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, pairwise
from typing import TypeAlias

import msgspec

from gimbalmq.errors import AllocationError
from gimbalmq.model.java import sorted_as_java
from gimbalmq.model.queue import MessageQueue, sorted_queues

__all__ = ["Assignment", "Shares", "Snapshot"]

#: What a strategy answers: member -> its queues. A member that is left out has none.
Assignment: TypeAlias = Mapping[str, Sequence[MessageQueue]]

#: What the package itself makes of it; `allocate` has every member as a key.
Shares: TypeAlias = dict[str, tuple[MessageQueue, ...]]


class Snapshot(msgspec.Struct, frozen=True):
    """One view of a group, immutable.

    Use `Snapshot.of`, which sorts; the plain constructor trusts its caller, as strategies that
    pass a part of a snapshot on to another strategy do.

    >>> queues = [MessageQueue("orders", "broker-a", number) for number in (10, 9)]
    >>> snapshot = Snapshot.of("billing", queues, ["10.0.0.1@9#1", "10.0.0.10@9#1"])
    >>> [queue.queue_id for queue in snapshot.queues]
    [9, 10]
    >>> snapshot.members
    ('10.0.0.10@9#1', '10.0.0.1@9#1')
    """

    group: str
    #: Sorted by topic, broker, queue id.
    queues: tuple[MessageQueue, ...]
    #: Client ids, sorted as Java sorts text. An id with two connections is listed twice.
    members: tuple[str, ...]

    @classmethod
    def of(cls, group: str, queues: Iterable[MessageQueue], members: Iterable[str]) -> Snapshot:
        """Sort queues and members as Java does; refuse a queue that is listed twice."""
        ordered = tuple(sorted_queues(queues))
        if len(set(ordered)) < len(ordered):
            twice = next(a for a, b in pairwise(ordered) if a == b)
            raise AllocationError(
                f"group '{group}': queue {twice.path} is listed twice; list each queue once"
            )
        return cls(group, ordered, tuple(sorted_as_java(members)))

    def check(self) -> None:
        """Refuse a snapshot that nothing can be shared out in.

        Raises:
            AllocationError: no queues, no members, or a member without id, as in Java.
        """
        if not self.queues:
            raise AllocationError(
                f"group '{self.group}': no queues to share out; does the topic have a route?"
            )
        if not self.members:
            raise AllocationError(
                f"group '{self.group}': no members to share the queues among; is one running?"
            )
        if "" in self.members:
            raise AllocationError(
                f"group '{self.group}': a member has an empty client id; every member needs one"
            )

    def by_topic(self) -> tuple[Snapshot, ...]:
        """One snapshot per topic, in order; the members are the same in each."""
        if not self.queues or self.queues[0].topic == self.queues[-1].topic:
            return (self,)
        return tuple(
            Snapshot(self.group, tuple(queues), self.members)
            for _, queues in groupby(self.queues, key=operator.attrgetter("topic"))
        )

    def position(self, queue: MessageQueue) -> int:
        """Where the queue stands in the sorted list, counted from 0."""
        try:
            return self.queues.index(queue)
        except ValueError:
            raise AllocationError(
                f"queue {queue.path} is not one of the {len(self.queues)} queues given; "
                "check topic, broker and queue id"
            ) from None

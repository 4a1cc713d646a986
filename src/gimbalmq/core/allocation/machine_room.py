"""MACHINE_ROOM: only queues of chosen rooms are shared out; the room stands in the broker name.

A broker is named `room@name`. Queues of brokers that are named otherwise, or stand in another
room, belong to nobody; all members share the rest, wherever they are. Goals, in order: only
chosen rooms; shares differ by at most one queue. Ties: each member has an equal block from the
front, and the queues left over at the tail go one by one to the first members, unlike AVG.

Releases before 4.8.0 cut the blocks from the unfiltered list and so consumed the wrong rooms.
That defect is not copied: a group must not mix such clients with this one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import islice

from gimbalmq.core.allocation.base import BuiltIn, Explanation
from gimbalmq.core.allocation.positions import explain_position
from gimbalmq.core.allocation.snapshot import Shares, Snapshot
from gimbalmq.errors import AllocationError
from gimbalmq.model.queue import MessageQueue

__all__ = ["MachineRoom"]


class MachineRoom(BuiltIn):
    """Java's AllocateMessageQueueByMachineRoom; `rooms` is its `consumeridcs`."""

    name = "MACHINE_ROOM"

    def __init__(self, *, rooms: Iterable[str]) -> None:
        if (
            isinstance(rooms, str)
            or not isinstance(rooms, Collection)
            or not all(isinstance(room, str) for room in rooms)
        ):
            raise AllocationError(
                f"strategy '{self.name}': option rooms is {rooms!r}; give a collection of room "
                "names, for example ['room1', 'room2']"
            )
        self.rooms = frozenset(rooms)

    def shares(self, snapshot: Snapshot) -> Shares:
        """Share out the queues of the chosen rooms."""
        queues = self._of_chosen_rooms(snapshot)
        members = snapshot.members
        size, extra = divmod(len(queues), len(members))
        tail = size * len(members)
        shares: Shares = {}
        for position, member in enumerate(islice(members, len(queues))):
            if member in shares:
                continue
            share = queues[position * size : (position + 1) * size]
            if position < extra:
                share += (queues[tail + position],)
            shares[member] = share
        return shares

    def explain(self, snapshot: Snapshot, queue: MessageQueue) -> Explanation:
        """Say whether the room is chosen, and then which block or tail place it is."""
        queues = self._of_chosen_rooms(snapshot)
        snapshot.position(queue)
        room = _room(queue.broker)
        if room not in self.rooms:
            why = (
                f"broker '{queue.broker}' is not named room@name"
                if room is None
                else f"room '{room}' is not one of {sorted(self.rooms)}"
            )
            return Explanation(
                None,
                self.name,
                {"room": room, "rooms": sorted(self.rooms)},
                f"{queue.path} belongs to nobody under {self.name}: {why}.",
            )
        chosen = Snapshot(snapshot.group, queues, snapshot.members)
        at = chosen.position(queue)
        size = len(queues) // len(snapshot.members)
        tail = size * len(snapshot.members)
        if at < tail:
            position, where = at // size, f"blocks of {size} are cut from the front"
        else:
            position, where = at - tail, "the queues left over at the tail go to the first members"
        return explain_position(
            self.name,
            chosen,
            queue,
            position,
            {"room": room, "rooms": sorted(self.rooms), "block": size, "from_tail": at >= tail},
            f"only queues of the chosen rooms count, and {where}",
        )

    def _of_chosen_rooms(self, snapshot: Snapshot) -> tuple[MessageQueue, ...]:
        brokers = {queue.broker for queue in snapshot.queues}
        chosen = {broker for broker in brokers if _room(broker) in self.rooms}
        return tuple([queue for queue in snapshot.queues if queue.broker in chosen])


def _room(broker: str) -> str | None:
    """The room in a broker name; None when the name does not have exactly two parts.

    Java's split leaves out empty parts at the end, so `room@` has one part and `room@name@` two.
    """
    parts = broker.rstrip("@").split("@")
    return parts[0] if len(parts) == 2 else None

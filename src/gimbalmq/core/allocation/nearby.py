"""MACHINE_ROOM_NEARBY: queues go to members in the same room, by another strategy.

Goals, in order: a queue whose room has members stays in the room; a queue whose room has none is
shared by everyone; inside a room, and for each room without members, the inner strategy decides.
Order inside a share: the member's own room, then rooms without members by ascending name. Those
are shared out room by room, so their remainders all fall to the first members, as in Java.

Which room a queue or a member is in is the user's knowledge: two functions of theirs say it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias, TypeVar

from gimbalmq.core.allocation.base import BuiltIn, Explanation, Strategy, explain, shares_of
from gimbalmq.core.allocation.snapshot import Shares, Snapshot
from gimbalmq.core.identity import NEARBY_PREFIX
from gimbalmq.errors import AllocationError
from gimbalmq.model.java import sorted_as_java
from gimbalmq.model.queue import MessageQueue

__all__ = ["Nearby", "RoomOfMember", "RoomOfQueue"]

RoomOfQueue: TypeAlias = Callable[[MessageQueue], str]
RoomOfMember: TypeAlias = Callable[[str], str]
_Thing = TypeVar("_Thing", MessageQueue, str)


class Nearby(BuiltIn):
    """Java's AllocateMachineRoomNearby, around any strategy."""

    def __init__(
        self, inner: Strategy, room_of_queue: RoomOfQueue, room_of_member: RoomOfMember
    ) -> None:
        for option, function in (
            ("room_of_queue", room_of_queue),
            ("room_of_member", room_of_member),
        ):
            if not callable(function):
                raise AllocationError(
                    f"strategy '{NEARBY_PREFIX}{inner.name}': option {option} is {function!r}; "
                    "give a function that returns the name of the room"
                )
        self.inner = inner
        self.room_of_queue = room_of_queue
        self.room_of_member = room_of_member
        self.name = f"{NEARBY_PREFIX}{inner.name}"
        self.cross_topic = getattr(inner, "cross_topic", False)

    def check_names(self, members: Iterable[str]) -> None:
        """Let the inner strategy check the names in its options."""
        if isinstance(self.inner, BuiltIn):
            self.inner.check_names(members)

    def shares(self, snapshot: Snapshot) -> Shares:
        """Share out room by room."""
        queues, members = self._rooms(snapshot)
        gathered: dict[str, list[MessageQueue]] = {}
        for room, near in queues.items():
            if room in members:
                part = Snapshot(snapshot.group, tuple(near), tuple(members[room]))
                for member, share in shares_of(self.inner, part).items():
                    gathered[member] = list(share)
        for room in sorted_as_java(queues.keys() - members.keys()):
            part = Snapshot(snapshot.group, tuple(queues[room]), snapshot.members)
            for member, share in shares_of(self.inner, part).items():
                gathered.setdefault(member, []).extend(share)
        return {member: tuple(share) for member, share in gathered.items()}

    def explain(self, snapshot: Snapshot, queue: MessageQueue) -> Explanation:
        """Say which members could have the queue, and what the inner strategy made of that."""
        snapshot.position(queue)
        queues, members = self._rooms(snapshot)
        room = self.room_of_queue(queue)
        near = members.get(room)
        part = Snapshot(
            snapshot.group,
            tuple(queues[room]),
            snapshot.members if near is None else tuple(near),
        )
        inner = explain(self.inner, part, queue)
        who = (
            f"no member is in room '{room}', so all {len(part.members)} share its queues"
            if near is None
            else f"room '{room}' has members of its own ({len(part.members)}), who share its queues"
        )
        return Explanation(
            inner.owner,
            self.name,
            {"room": room, "nearby": near is not None, "inner": inner.data},
            f"{queue.path} is in room '{room}': {who}. Inside: {inner.sentence}",
        )

    def _rooms(
        self, snapshot: Snapshot
    ) -> tuple[dict[str, list[MessageQueue]], dict[str, list[str]]]:
        return (
            self._grouped(snapshot.queues, self.room_of_queue, "queue"),
            self._grouped(snapshot.members, self.room_of_member, "member"),
        )

    def _grouped(
        self, things: Iterable[_Thing], room_of: Callable[[_Thing], object], kind: str
    ) -> dict[str, list[_Thing]]:
        rooms: dict[str, list[_Thing]] = {}
        for thing in things:
            room = room_of(thing)
            if not isinstance(room, str) or not room:
                raise AllocationError(
                    f"strategy '{self.name}': room_of_{kind} returned {room!r} for {kind} "
                    f"'{getattr(thing, 'path', thing)}'; every {kind} must be in a room with a name"
                )
            if room in rooms:
                rooms[room].append(thing)
            else:
                rooms[room] = [thing]
        return rooms

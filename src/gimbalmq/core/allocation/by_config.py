"""CONFIG: every member has the queues that were written down for it.

Java returns the written list for every topic; here it is filtered by the queues of the snapshot,
because a list that never fits keeps Java's rebalance loop spinning. The order of the list is
kept, and two members may have the same queue, as in Java: whoever writes the lists decides.

An entry names a member by its client id, or by the stem that the user gave as client id. A named
member that is not running right now is normal in a live group: `allocate` passes over its entry,
so that the others can work. Questions about a group of given members (`gimbalmq.balance`, the
command line) call `check_names` first, where a name that no member has is an error, since there
it can only be a mistake.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gimbalmq.core.allocation.base import BuiltIn, Explanation
from gimbalmq.core.allocation.snapshot import Shares, Snapshot
from gimbalmq.core.identity import stem_of
from gimbalmq.errors import AllocationError
from gimbalmq.model.queue import MessageQueue

__all__ = ["ByConfig"]


class ByConfig(BuiltIn):
    """Java's AllocateMessageQueueByConfig, with the lists of all members in one place."""

    name = "CONFIG"

    def __init__(self, *, queues: Mapping[str, Iterable[MessageQueue]]) -> None:
        if not isinstance(queues, Mapping):
            raise AllocationError(
                f"strategy '{self.name}': option queues is a {type(queues).__name__}; give a "
                "mapping from member to its queues"
            )
        self.queues: Shares = {member: tuple(listed) for member, listed in queues.items()}
        # By topic, so that a group with many topics does not read every list once per topic.
        self._by_topic: dict[str, dict[str, list[MessageQueue]]] = {}
        for member, listed in self.queues.items():
            for queue in listed:
                if not isinstance(queue, MessageQueue):
                    raise AllocationError(
                        f"strategy '{self.name}': the list of '{member}' contains {queue!r}; "
                        "every entry must be a MessageQueue"
                    )
                lists = self._by_topic.setdefault(queue.topic, {})
                lists.setdefault(member, []).append(queue)

    def check_names(self, members: Iterable[str]) -> None:
        """Refuse an entry for a member that the group does not have."""
        self._refuse_strangers("queues are", self.queues, members)

    def shares(self, snapshot: Snapshot) -> Shares:
        """Give each member the part of its list that is in the snapshot."""
        present = set(snapshot.queues)
        first, last = snapshot.queues[0].topic, snapshot.queues[-1].topic
        lists: Mapping[str, Iterable[MessageQueue]] = (
            self._by_topic.get(first, {}) if first == last else self.queues
        )
        shares: Shares = {}
        for member in snapshot.members:
            listed = lists.get(self._entry_of(member), ())
            shares[member] = tuple([queue for queue in listed if queue in present])
        return shares

    def explain(self, snapshot: Snapshot, queue: MessageQueue) -> Explanation:
        """Say in whose list the queue stands."""
        snapshot.position(queue)
        distinct = dict.fromkeys(snapshot.members)
        owners = [
            member for member in distinct if queue in self.queues.get(self._entry_of(member), ())
        ]
        data = {"owners": owners, "members": len(snapshot.members)}
        if not owners:
            return Explanation(
                None,
                self.name,
                data,
                f"{queue.path} belongs to nobody: no configured list of a member contains it.",
            )
        if len(owners) > 1:
            names = ", ".join(f"'{owner}'" for owner in owners)
            sentence = (
                f"{queue.path} stands in the configured lists of {len(owners)} members ({names}), "
                "so each of them consumes it: leave it in one list."
            )
        else:
            sentence = f"{queue.path} stands in the configured list of '{owners[0]}'."
        return Explanation(owners[0], self.name, data, sentence)

    def _entry_of(self, member: str) -> str:
        """The name under which the member's list is written; the full id goes first."""
        return member if member in self.queues else stem_of(member)

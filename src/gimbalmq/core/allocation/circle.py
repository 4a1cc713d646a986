"""AVG_BY_CIRCLE: queues are dealt out one by one, round and round.

Goals, in order: shares differ by at most one queue; each broker's queues are spread over the
members, so that a lost broker hurts all alike. Cost: one strided slice per member that gets
something. Ties: the first `queues mod members` members have one queue more.
"""

from __future__ import annotations

from itertools import islice

from gimbalmq.core.allocation.base import BuiltIn, Explanation
from gimbalmq.core.allocation.positions import explain_position
from gimbalmq.core.allocation.snapshot import Shares, Snapshot
from gimbalmq.model.queue import MessageQueue

__all__ = ["AveragelyByCircle"]


class AveragelyByCircle(BuiltIn):
    """Java's AllocateMessageQueueAveragelyByCircle."""

    name = "AVG_BY_CIRCLE"

    def shares(self, snapshot: Snapshot) -> Shares:
        """Deal queue k to member position k mod members."""
        queues = snapshot.queues
        step = len(snapshot.members)
        shares: Shares = {}
        for position, member in enumerate(islice(snapshot.members, len(queues))):
            # A repeated id keeps its first share; the later one belongs to nobody, as in Java.
            if member not in shares:
                shares[member] = queues[position::step]
        return shares

    def explain(self, snapshot: Snapshot, queue: MessageQueue) -> Explanation:
        """Find the position that the queue was dealt to."""
        turn, position = divmod(snapshot.position(queue), len(snapshot.members))
        return explain_position(
            self.name,
            snapshot,
            queue,
            position,
            {"round": turn},
            f"queues are dealt out in turn, and this one falls to turn {position + 1} "
            f"of round {turn + 1}",
        )

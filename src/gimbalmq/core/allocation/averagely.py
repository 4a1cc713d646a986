"""AVG: contiguous pages of the sorted queue list, Java's default.

Goals, in order: shares differ by at most one queue; a member's queues are neighbours. Cost: one
slice per member that gets something. Ties: the first `queues mod members` members have one queue
more. One member more or less shifts the page boundaries, so most queues move.
"""

from __future__ import annotations

from itertools import islice

from gimbalmq.core.allocation.base import BuiltIn, Explanation
from gimbalmq.core.allocation.positions import explain_position
from gimbalmq.core.allocation.snapshot import Shares, Snapshot
from gimbalmq.model.queue import MessageQueue

__all__ = ["Averagely"]


class Averagely(BuiltIn):
    """Java's AllocateMessageQueueAveragely."""

    name = "AVG"

    def shares(self, snapshot: Snapshot) -> Shares:
        """Cut the queue list into one page per member position."""
        queues = snapshot.queues
        size, extra = divmod(len(queues), len(snapshot.members))
        shares: Shares = {}
        start = 0
        # Positions beyond the number of queues are idle.
        for position, member in enumerate(islice(snapshot.members, len(queues))):
            until = start + size + (position < extra)
            # A repeated id keeps its first page; the later page belongs to nobody, as in Java.
            if member not in shares:
                shares[member] = queues[start:until]
            start = until
        return shares

    def explain(self, snapshot: Snapshot, queue: MessageQueue) -> Explanation:
        """Find the page that holds the queue."""
        size, extra = divmod(len(snapshot.queues), len(snapshot.members))
        at = snapshot.position(queue)
        in_larger_pages = extra * (size + 1)
        if at < in_larger_pages:
            page, size = at // (size + 1), size + 1
            page_from = page * size
        else:
            page = extra + (at - in_larger_pages) // size
            page_from = in_larger_pages + (page - extra) * size
        return explain_position(
            self.name,
            snapshot,
            queue,
            page,
            {"page_from": page_from, "page_until": page_from + size},
            f"pages are contiguous, and page {page + 1} is queues {page_from + 1} to "
            f"{page_from + size}",
        )

"""The words that the positional strategies share.

They give queues to positions in the sorted member list. A client id with two connections stands
at two positions but takes only its first share, so the second one belongs to nobody.
"""

from __future__ import annotations

from typing import Any

from gimbalmq.core.allocation.base import Explanation
from gimbalmq.core.allocation.snapshot import Snapshot
from gimbalmq.model.queue import MessageQueue

__all__ = ["explain_position"]


def explain_position(
    rule: str,
    snapshot: Snapshot,
    queue: MessageQueue,
    position: int,
    data: dict[str, Any],
    because: str,
) -> Explanation:
    """Explain a queue that the rule gives to the member at `position` (from 0)."""
    members = snapshot.members
    member = members[position]
    first = members.index(member)
    at = snapshot.position(queue)
    facts = {
        "queue_position": at,
        "queues": len(snapshot.queues),
        "member_position": position,
        "members": len(members),
        **data,
    }
    text = (
        f"{queue.path} is queue {at + 1} of {len(snapshot.queues)} in sorted order and the group "
        f"has {len(members)} {'member' if len(members) == 1 else 'members'}; under {rule} {because}"
    )
    if first == position:
        return Explanation(
            member, rule, facts, f"{text}, so it belongs to member {position + 1}, '{member}'."
        )
    return Explanation(
        None,
        rule,
        {**facts, "duplicate_of": first},
        f"{text}. That is member {position + 1}, '{member}', who is listed twice and takes only "
        f"the share of member {first + 1}, so the queue belongs to nobody until the second "
        "connection of that client id is gone.",
    )

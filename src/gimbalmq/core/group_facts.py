"""What there is to know about a group from outside, at two moments: the input of a diagnosis.

Values only. Who asked whom for them is not known here; what could not be asked is None or left
out, never made up.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from gimbalmq.model.queue import MessageQueue
from gimbalmq.model.sharing import Sharing

__all__ = [
    "BrokerFacts",
    "GroupFacts",
    "GroupSample",
    "HoldFacts",
    "MemberFacts",
    "QueueFacts",
    "is_retry",
]

_RETRY_PREFIX = "%RETRY%"


class HoldFacts(msgspec.Struct, frozen=True):
    """What a member says about a queue in its table.

    `position` is the offset up to which it has finished, None when it does not say. `releasing`
    marks a queue that it has lost and has not handed over yet.
    """

    position: int | None = None
    locked: bool = False
    releasing: bool = False
    #: It gets the queue's messages one at a time from the broker (POP), without owning the queue.
    popped: bool = False
    #: Messages that it has pulled and not finished.
    cached: int = 0


class MemberFacts(msgspec.Struct, frozen=True):
    """A member: what brokers say of it, and what it says itself (`held` None: no answer)."""

    client_id: str
    language: str = "JAVA"
    version: str = ""
    #: How many connections under this id the broker with most of them has.
    connections: int = 1
    #: Names of the brokers that list it.
    listed_by: frozenset[str] = frozenset()
    held: dict[MessageQueue, HoldFacts] | None = None
    #: Topic to filter expression; None when it did not answer.
    subscriptions: dict[str, str] | None = None
    ordered: bool = False
    #: By what it shares out; None when it did not answer, or is foreign and does not say.
    sharing: Sharing | None = None

    def owns(self) -> Iterator[tuple[MessageQueue, HoldFacts]]:
        """The queues that it works on now."""
        for queue, hold in (self.held or {}).items():
            if not hold.releasing and not hold.popped:
                yield queue, hold


class QueueFacts(msgspec.Struct, frozen=True):
    """What a broker stores in a queue, and how far the group has committed; None: not at all."""

    minimum: int
    maximum: int
    committed: int | None


class BrokerFacts(msgspec.Struct, frozen=True):
    """How a broker did when it was asked; `failure` is why it could not be."""

    name: str
    failure: str = ""
    #: How long its answer took.
    answer_s: float = 0.0
    has_master: bool = True
    #: Bytes that are stored and not yet in the queues that consumers read.
    behind_bytes: int = 0
    #: How long the oldest request that waits for a thread has been waiting.
    waiting_s: float = 0.0


class GroupSample(msgspec.Struct, frozen=True):
    """One look at members, queues and brokers."""

    members: tuple[MemberFacts, ...]
    offsets: dict[MessageQueue, QueueFacts]
    brokers: tuple[BrokerFacts, ...] = ()

    def owners(self) -> dict[MessageQueue, tuple[str, ...]]:
        """Who works on each queue, by client id."""
        found: dict[MessageQueue, list[str]] = {}
        for member in self.members:
            for queue, _ in member.owns():
                found.setdefault(queue, []).append(member.client_id)
        return {queue: tuple(sorted(ids)) for queue, ids in found.items()}

    def position(self, queue: MessageQueue) -> int | None:
        """How far the group is: what its owner says, or what is committed if that is more."""
        known = [
            hold.position
            for member in self.members
            for held, hold in member.owns()
            if held == queue and hold.position is not None
        ]
        facts = self.offsets.get(queue)
        if facts is not None and facts.committed is not None:
            known.append(facts.committed)
        return max(known, default=None)


class GroupFacts(msgspec.Struct, frozen=True):
    """A group at two moments, `interval_s` apart."""

    group: str
    first: GroupSample
    second: GroupSample
    interval_s: float
    broadcasting: bool = False
    #: Queues that no member of an ordered group has locked, and whose lock a stranger was refused.
    locked_by_unknown: tuple[MessageQueue, ...] = ()

    @property
    def ordered(self) -> bool:
        """Whether a member consumes in order, so that queues need locks."""
        return any(member.ordered for member in self.second.members)

    @property
    def own_queues(self) -> tuple[MessageQueue, ...]:
        """The queues of the topics that users made: retry queues aside."""
        return tuple(queue for queue in self.second.offsets if not is_retry(queue))


def is_retry(queue: MessageQueue) -> bool:
    """Whether the queue brings failed messages back to a group."""
    return queue.topic.startswith(_RETRY_PREFIX)

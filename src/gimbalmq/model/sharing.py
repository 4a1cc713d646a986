"""What a member says about how it shares out queues, and why a queue is where it is.

Members tell each other and tools only what these values hold. How they are computed and how they
travel is not known here.
"""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = ["LockTimes", "MemberAnswer", "Move", "Reason", "Sharing", "WithoutMembers"]


class LockTimes(msgspec.Struct, frozen=True):
    """How long a member trusts a queue's lock, and after how long it takes one over."""

    trust_s: float
    grace_s: float


class Sharing(msgspec.Struct, frozen=True, omit_defaults=True):
    """By what a member shares out queues at this moment.

    strategy: What it uses; "" before it has seen a list of members.
    wanted: What it was given.
    reason: Why it does not use what it was given; "" when it does.
    listed: A digest of the ids in its list of members, so that lists can be compared.
    waits: Members that are gone and counted as if they were there, and the seconds left for each.
    no_waiting: Why nobody is waited for, though it was given a grace time; "" otherwise.
    weights_topic: Where it reads weights; None when it reads none.
    versions: Of the published weights that it uses, by the topic that they weigh.
    """

    strategy: str
    wanted: str
    reason: str = ""
    listed: str = ""
    waits: dict[str, float] = msgspec.field(default_factory=dict)
    no_waiting: str = ""
    weights_topic: str | None = None
    versions: dict[str, int] = msgspec.field(default_factory=dict)
    #: It keeps what it has until its user resumes it.
    paused: bool = False
    #: Its user chose the queues.
    manual: bool = False
    #: Its user pulls, so it does not know which of its queues are read.
    passive: bool = False
    #: It consumes a queue only with its lock; None: without.
    locks: LockTimes | None = None


class Reason(msgspec.Struct, frozen=True):
    """Why a queue belongs to its owner: the rule's name, its numbers, and all of it in words."""

    owner: str | None
    rule: str
    data: dict[str, Any]
    sentence: str


class Move(msgspec.Struct, frozen=True, rename={"origin": "from"}):
    """A queue, by path, that would go from one member to another; None is nobody."""

    queue: str
    origin: str | None
    to: str | None


class WithoutMembers(msgspec.Struct, frozen=True):
    """What would be if some members left: who would have the queue, why, and all the moves.

    `strategy` is what the rest would use, `reason` why that is not what they were given. `waits_s`
    is how long nothing would move first, because their queues would be kept for them.
    """

    members: tuple[str, ...]
    owner: str | None
    sentence: str
    moves: tuple[Move, ...]
    strategy: str
    reason: str = ""
    waits_s: float | None = None


class MemberAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a member answers when it is asked about a queue; `trouble` is why it cannot say."""

    reason: Reason | None = None
    without: WithoutMembers | None = None
    trouble: str = ""

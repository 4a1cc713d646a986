"""What to do about the difference between the queues held and the queues to hold.

One decision, made at the end of each rebalance pass: (held, target, now) -> plan. Every queue
appears with the reason for what happens to it, so that logs, listeners and reports can say why.

    held      target    dropped  idle too long   plan
    yes       yes       no       no              keep
    yes       yes       no       yes             revoke PULL_EXPIRED, acquire AFTER_EXPIRY
    yes       yes       yes      -               revoke RELEASE_UNFINISHED, acquire RETURNED
    yes       no        no       -               revoke NOT_IN_TARGET (or UNSUBSCRIBED)
    yes       no        yes      -               revoke RELEASE_UNFINISHED
    no        yes       -        -               acquire NEW

A queue that is both in `revoke` and in `acquire` is acquired after its release is complete. Java
leaves a dropped queue that comes back in its table until it counts as idle, two minutes later;
here it is named in both lists at once.

Must not know how a queue is locked, drained or pulled.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from typing import Final

import msgspec

from gimbalmq.model.queue import MessageQueue, sorted_queues

__all__ = ["HeldView", "Reason", "RebalancePlan", "RebalanceStep", "plan_rebalance"]


class Reason(enum.Enum):
    """Why a queue is kept, acquired or revoked; the value is the text for people."""

    IN_TARGET = "still assigned to this member"
    NEW = "newly assigned to this member"
    AFTER_EXPIRY = "taken again, because its pulls had stopped"
    RETURNED = "assigned again before its release was complete"
    NOT_IN_TARGET = "assigned to another member"
    PULL_EXPIRED = "not pulled for too long"
    UNSUBSCRIBED = "topic no longer subscribed"
    LOCK_LOST = "lock lost"
    RELEASE_UNFINISHED = "an earlier release is not complete"


#: Steps that repeat what an earlier pass has already set in motion.
_UNFINISHED: Final = frozenset({Reason.RELEASE_UNFINISHED, Reason.RETURNED})


class HeldView(msgspec.Struct, frozen=True):
    """What the decision needs to know of a held queue.

    `last_pull_at` is the time of the last pull, or of acquisition when none was made yet, on the
    clock of `now`. `dropped` marks a queue whose release has begun and is not complete.
    """

    last_pull_at: float
    dropped: bool = False


class RebalanceStep(msgspec.Struct, frozen=True):
    """One queue, and why it is where it is in the plan."""

    queue: MessageQueue
    reason: Reason


class RebalancePlan(msgspec.Struct, frozen=True):
    """What to do, each list in queue order."""

    keep: tuple[RebalanceStep, ...]
    acquire: tuple[RebalanceStep, ...]
    revoke: tuple[RebalanceStep, ...]

    @property
    def changed(self) -> bool:
        """Whether the plan starts something, beyond finishing releases already begun."""
        return any(step.reason not in _UNFINISHED for step in (*self.revoke, *self.acquire))


def plan_rebalance(
    held: Mapping[MessageQueue, HeldView],
    target: Collection[MessageQueue],
    *,
    now: float,
    pull_idle_limit_s: float | None,
    subscribed: Collection[str] | None = None,
) -> RebalancePlan:
    """Decide what to keep, acquire and revoke; the same for any order of the arguments.

    `held` and `target` cover the same topics: one topic, or all of them. Topics whose target is
    not known in this pass belong in neither, so that their queues stay as they are.

    Args:
        held: The queues in hand.
        target: The queues that the allocation gives to this member.
        now: The time, on the clock of `HeldView.last_pull_at`.
        pull_idle_limit_s: A queue not pulled for longer is taken anew, as push consumers do (Java:
            120 s); None for consumers whose user decides when to pull.
        subscribed: The subscribed topics; held queues of others are revoked as UNSUBSCRIBED, even
            when `target` has them. None: do not look.

    >>> a, b, c = (MessageQueue("orders", "broker-a", number) for number in range(3))
    >>> plan = plan_rebalance({a: HeldView(95.0), b: HeldView(95.0)}, {b, c}, now=100.0,
    ...                       pull_idle_limit_s=120.0)
    >>> [(step.queue.queue_id, step.reason.name) for step in plan.revoke + plan.acquire]
    [(0, 'NOT_IN_TARGET'), (2, 'NEW')]
    """
    wanted = {queue for queue in target if subscribed is None or queue.topic in subscribed}
    keep: list[RebalanceStep] = []
    acquire: list[RebalanceStep] = []
    revoke: list[RebalanceStep] = []
    for queue in sorted_queues(held.keys() | wanted):
        view = held.get(queue)
        if view is None:
            acquire.append(RebalanceStep(queue, Reason.NEW))
            continue
        why = _why_revoked(
            queue,
            view,
            wanted=queue in wanted,
            expired=pull_idle_limit_s is not None and now - view.last_pull_at > pull_idle_limit_s,
            subscribed=subscribed,
        )
        if why is None:
            keep.append(RebalanceStep(queue, Reason.IN_TARGET))
            continue
        revoke.append(RebalanceStep(queue, why))
        if queue in wanted:
            again = Reason.AFTER_EXPIRY if why is Reason.PULL_EXPIRED else Reason.RETURNED
            acquire.append(RebalanceStep(queue, again))
    return RebalancePlan(tuple(keep), tuple(acquire), tuple(revoke))


def _why_revoked(
    queue: MessageQueue,
    view: HeldView,
    *,
    wanted: bool,
    expired: bool,
    subscribed: Collection[str] | None,
) -> Reason | None:
    if view.dropped:
        return Reason.RELEASE_UNFINISHED
    if not wanted:
        gone = subscribed is not None and queue.topic not in subscribed
        return Reason.UNSUBSCRIBED if gone else Reason.NOT_IN_TARGET
    return Reason.PULL_EXPIRED if expired else None

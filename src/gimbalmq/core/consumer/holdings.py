"""Moves what a member holds towards a target: which queues are taken, which are given up.

A queue that is taken is locked if need be, then located, then pulled; one that is given up is
`Release`'s from there on. A queue whose offset cannot be found is not owned: an error is never
mapped to an offset.

Decides neither the target (`PassPlanner` does, or the user) nor when to try again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from gimbalmq.core.consumer.context import Context
from gimbalmq.core.consumer.effects import Commit, FindOffset
from gimbalmq.core.consumer.events import OffsetFound
from gimbalmq.core.consumer.held import HeldQueue, HeldState
from gimbalmq.core.consumer.locks import LockKeeper
from gimbalmq.core.consumer.passes import Target
from gimbalmq.core.consumer.release import Release
from gimbalmq.core.consumer.reports import Reports
from gimbalmq.core.process_queue import ProcessQueue
from gimbalmq.core.rebalance import HeldView, plan_rebalance

__all__ = ["Holdings"]


class Holdings:
    """The queues of one member, on their way in."""

    def __init__(
        self,
        context: Context,
        locks: LockKeeper,
        releases: Release,
        reports: Reports,
        *,
        located: Callable[[HeldQueue, float], None],
        failed: Callable[[HeldQueue, float], None],
    ) -> None:
        """`located` is told of each queue that can be pulled, `failed` when one cannot be had."""
        self._context = context
        self._settings = context.settings
        self._locks = locks
        self._releases = releases
        self._reports = reports
        self._located = located
        self._failed = failed

    def move_to(self, target: Target, now: float) -> bool:
        """Move from what is held of one topic to the target; True when something changed."""
        held = self._context.held
        views = {
            queue: HeldView(last_pull_at=_last_activity(one, now), dropped=one.released)
            for queue, one in held.items()
            if queue.topic == target.topic
        }
        plan = plan_rebalance(
            views, target.queues, now=now, pull_idle_limit_s=self._settings.pull_idle_limit_s
        )
        revoked = [
            (held[step.queue], step.reason.value)
            for step in plan.revoke
            if not held[step.queue].released
        ]
        # A queue that is still being let go is taken again once that is done.
        for step in plan.acquire:
            if step.queue in held:
                held[step.queue].wanted_again = True
        acquired = [
            (self._context.hold(step.queue, now), step.reason.value)
            for step in plan.acquire
            if step.queue not in held
        ]
        if not (revoked or acquired):
            return False
        self._reports.decided(target, acquired, revoked, kept=len(plan.keep))
        for one, why in revoked:
            self._releases.begin(one, now, why)
        self._acquire([one for one, _ in acquired])
        return True

    def _acquire(self, fresh: Sequence[HeldQueue]) -> None:
        if self._settings.locking:
            self._locks.acquire(fresh)
        else:
            self._context.out += (FindOffset(held.queue, held.epoch) for held in fresh)

    def give_up(self, some: Iterable[HeldQueue], target: Target, now: float, reason: str) -> None:
        """Give up queues of one topic that no pass has taken away; `target` is what is left."""
        revoked = [(held, reason) for held in some if not held.released]
        if not revoked:
            return
        going = {held.queue for held, _ in revoked}
        kept = sum(
            queue.topic == target.topic and not held.released and queue not in going
            for queue, held in self._context.held.items()
        )
        self._reports.decided(target, (), revoked, kept=kept)
        for held, why in revoked:
            self._releases.begin(held, now, why)

    def offset_found(self, event: OffsetFound, now: float) -> None:
        """A queue can be pulled, or its offset could not be found."""
        held = self._context.current(event.queue, event.epoch)
        if held is None or held.state is not HeldState.LOCATING:
            return
        offset, held.reset_offset = held.reset_offset, None
        if offset is not None:
            # An operator moved it while it was looked up; only its owner can store that.
            self._context.out.append(Commit(held.queue, offset))
        else:
            offset = event.offset
        if offset is None or offset < 0:
            # Never map an error to an offset: the queue stays unowned until the next pass, and
            # its lock is given back so that somebody else may have better luck.
            why = event.reason or f"offset {event.offset}"
            self._context.warn(
                f"offset {event.queue.path}",
                f"{event.queue.path}: no start offset ({why}); trying again",
            )
            self._releases.let_go(held, now)
            self._failed(held, now)
            return
        held.process = ProcessQueue(offset)
        self._reports.came(held, now)
        self._located(held, now)


def _last_activity(held: HeldQueue, now: float) -> float:
    # Only a pull that never came back can be idle for too long; a queue that is held back
    # by slow listeners or paused by the user is not lost.
    return held.last_pull_at if held.state is HeldState.PULLING else now

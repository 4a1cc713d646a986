"""How a queue is given up: cancel what waits, let listeners finish, store the offset, unlock.

Each step is answered before the next begins, and a queue that is on its way out stays in hand until
the last: nobody takes it again before. When listeners do not finish in time, a queue whose lock is
needed stays (its next owner would start beside them), and any other is handed over with a warning.

The offset is stored when no message is on its way back to a broker: one that is both sent back and
left uncommitted comes twice, and so does everything above it. Without its lock a queue's offset is
not stored: the next owner may have begun, and a broker keeps whatever comes last, so an offset of
ours could undo one of theirs.

Decides neither which queues are given up nor what follows when one is gone.
"""

from __future__ import annotations

from collections.abc import Callable

from gimbalmq.core.consumer.context import Context
from gimbalmq.core.consumer.effects import Cancel, HandOver, Unlock
from gimbalmq.core.consumer.events import (
    Cancelled,
    Consumed,
    HandedOver,
    LockAnswered,
    TimerName,
    Unlocked,
)
from gimbalmq.core.consumer.held import HeldQueue, HeldState
from gimbalmq.core.rebalance import Reason

__all__ = ["Release"]


class Release:
    """The ways of queues out of the hands of one member."""

    def __init__(self, context: Context, *, gone: Callable[[HeldQueue, float], None]) -> None:
        """`gone` is told of each queue that is no longer in hand."""
        self._context = context
        self._gone = gone

    def begin(self, held: HeldQueue, now: float, reason: str) -> None:
        """Give a queue up, unless that has begun."""
        if held.released:
            return
        held.released_at = now
        held.reason = reason
        held.followed = _followed(held, reason, now)
        if held.permit is not None and (held.followed or self._context.settings.ordered):
            held.permit.valid_until = 0.0
        if held.process is None:
            self.let_go(held, now)
            return
        held.give_up(HeldState.DRAINING)
        self._context.out.append(Cancel(held.queue, held.epoch))

    def cancelled(self, event: Cancelled, now: float) -> None:
        """What waited was discarded; what runs is waited for."""
        held = self._context.current(event.queue, event.epoch)
        if held is None or held.state is not HeldState.DRAINING:
            return
        held.running = event.running
        if held.running or held.returning:
            self._context.set_timer(TimerName.DRAIN, self._context.drain_s, held)
        else:
            self._hand_over(held, now)

    def renewed(self, event: LockAnswered) -> None:
        """Messages before those that have begun may start for as long as the lock is sure to hold."""
        for queue, epoch in event.asked:
            held = self._context.current(queue, epoch)
            if held is None or held.permit is None or held.state is not HeldState.DRAINING:
                continue
            sure = event.granted is not None and queue in event.granted
            if sure and event.sent_at < held.permit.valid_until:
                held.permit.valid_until = event.sent_at + self._context.settings.lock_trust_s

    def consumed(self, held: HeldQueue, event: Consumed, now: float) -> None:
        """Listeners have ended; what did not start is left to the next owner."""
        if held.running is not None:
            held.running -= event.until - event.first
        self.returned(held, now)

    def returned(self, held: HeldQueue, now: float) -> None:
        """A message has gone back, or could not: go on when nothing else is under way."""
        if held.state is HeldState.DRAINING and held.running == 0 and not held.returning:
            self._hand_over(held, now)

    def drain_overdue(self, held: HeldQueue, now: float) -> None:
        """The time for running listeners, and for what goes back, is over."""
        if held.state is not HeldState.DRAINING:
            return
        if held.running:
            self._listeners_overdue(held, now)
            return
        self._context.warn(
            f"drain {held.queue.path}",
            f"{held.queue.path}: failed messages that no broker has taken back after "
            f"{self._context.drain_s:g} s: {held.returning}; the queue is handed over, and its "
            "next owner gets them again, with what follows them",
        )
        self._hand_over(held, now)

    def _listeners_overdue(self, held: HeldQueue, now: float) -> None:
        late = (
            f"{held.queue.path}: {held.running} messages still in listeners "
            f"after {self._context.drain_s:g} s"
        )
        if held.permit is not None and not self._context.stopping:
            # Handing it over would let the next owner start beside the running listener.
            follows = (
                "its next owner waits until they end"
                if held.lock_sure(now)
                else "its lock is lost, and another member may consume the queue beside them"
            )
            self._context.warn(f"drain {held.queue.path}", f"{late}; {follows}")
            self._context.set_timer(TimerName.DRAIN, self._context.drain_s, held)
            return
        held.overdue = True
        # What was still to start before the messages that have begun is the next owner's, too.
        self._context.out.append(Cancel(held.queue, held.epoch))
        self._context.warn(
            f"drain {held.queue.path}",
            f"{late}; the queue is handed over and they will be delivered again to its next owner",
        )
        self._hand_over(held, now)

    def _hand_over(self, held: HeldQueue, now: float) -> None:
        assert held.process is not None
        if not held.lock_sure(now):
            self._context.warn(
                f"hand-over {held.queue.path}",
                f"{held.queue.path}: its lock is lost, so its last offset is not stored; "
                "its next owner reads some messages again",
            )
            self.let_go(held, now)
            return
        held.give_up(HeldState.HANDING_OVER)
        if held.reset_offset is not None:
            offset, force = held.reset_offset, True
            held.reset_offset = None
        else:
            offset, force = held.process.commit_offset, False
        self._context.out.append(HandOver(held.queue, held.epoch, offset, force))

    def handed_over(self, event: HandedOver, now: float) -> None:
        """The last offset is stored, or could not be."""
        held = self._context.current(event.queue, event.epoch)
        if held is None or held.state is not HeldState.HANDING_OVER:
            return
        if held.reset_offset is not None:
            self._hand_over(held, now)  # moved by an operator meanwhile
            return
        if event.reason:
            self._context.warn(
                f"hand-over {event.queue.path}",
                f"{event.queue.path}: last offset could not be stored ({event.reason}); "
                "its next owner reads some messages again",
            )
        self.let_go(held, now)

    def let_go(self, held: HeldQueue, now: float) -> None:
        """Give the lock back, if there is one; with a listener still running it must expire."""
        if held.permit is None or held.overdue:
            self._remove(held, now)
        else:
            held.give_up(HeldState.UNLOCKING)
            self._context.out.append(Unlock(held.queue, held.epoch))

    def unlocked(self, event: Unlocked, now: float) -> None:
        """The lock was given back."""
        held = self._context.current(event.queue, event.epoch)
        if held is not None and held.state is HeldState.UNLOCKING:
            self._remove(held, now)

    def _remove(self, held: HeldQueue, now: float) -> None:
        del self._context.held[held.queue]
        self._context.past.add(held.tally)
        self._gone(held, now)


def _followed(held: HeldQueue, reason: str, now: float) -> bool:
    """Whether another member may begin with a queue before this one has let go of it."""
    if reason == Reason.LOCK_LOST.value or not held.sure(now):
        return True
    return held.permit is None and reason == Reason.NOT_IN_TARGET.value

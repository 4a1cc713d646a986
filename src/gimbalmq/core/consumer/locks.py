"""Queue locks: asking for them, asking again, renewing them.

A lock lives on the queue's broker under this member's id, for 60 s after the last request. This
member trusts it for `lock_trust_s` after the request left, and starts no message later than that
(the queue's permit). So when a member has been gone from every broker's list for longer than
that, nothing new starts there, and others may take its locks off without waiting for 60 s:
`TakeOvers` decides when.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from gimbalmq.core.consumer.context import Context
from gimbalmq.core.consumer.effects import FindOffset, Lock, Permit, Unlock
from gimbalmq.core.consumer.events import LockAnswered, TakenOver, TimerName
from gimbalmq.core.consumer.held import HeldQueue, HeldState
from gimbalmq.model.queue import MessageQueue

__all__ = ["LockKeeper"]

#: A lock that is refused is asked for again after this part of the time it was waited for: quick
#: hand-overs are noticed at once, and one that takes long costs few requests.
_ASK_AGAIN_AFTER: Final = 0.25


class LockKeeper:
    """The locks of one member."""

    def __init__(
        self,
        context: Context,
        *,
        secured: Callable[[HeldQueue, float], None],
        lost: Callable[[HeldQueue, str, float], None],
    ) -> None:
        """`secured` is told of locks that were renewed, `lost` of those that were not, and why."""
        self._context = context
        self._secured = secured
        self._lost = lost
        #: Acquisitions to ask for again, because they were refused or got no answer.
        self._again: list[tuple[MessageQueue, int]] = []
        #: When that is done.
        self._again_at = float("inf")

    def acquire(self, held: Iterable[HeldQueue]) -> None:
        """Ask for the locks of new queues, together."""
        fresh = list(held)
        for one in fresh:
            one.state = HeldState.LOCKING
            one.permit = Permit(0.0)
        if fresh:
            self._context.out.append(Lock(tuple((one.queue, one.epoch) for one in fresh)))

    def retry(self) -> None:
        """Ask again for what was refused, all together."""
        self._again_at = float("inf")
        again, self._again = self._again, []
        self._ask(again)

    def _ask(self, wanted: Iterable[tuple[MessageQueue, int]]) -> None:
        asked = tuple(
            (queue, epoch)
            for queue, epoch in wanted
            if (held := self._context.current(queue, epoch)) is not None
            and held.state is HeldState.LOCKING
        )
        if asked:
            self._context.out.append(Lock(asked))

    def _ask_later(self, refused: list[HeldQueue], now: float) -> None:
        self._again += ((held.queue, held.epoch) for held in refused)
        settings = self._context.settings
        waited_s = min(now - held.held_since for held in refused)
        pause_s = min(waited_s * _ASK_AGAIN_AFTER, settings.lock_renew_s)
        pause_s = max(pause_s, settings.lock_retry_s)
        if now + pause_s < self._again_at:
            self._again_at = now + pause_s
            self._context.set_timer(TimerName.LOCK, pause_s)

    def renew(self) -> None:
        """Renew every lock in hand, also of queues whose listeners are still finishing."""
        asked = tuple(
            (held.queue, held.epoch)
            for held in self._context.held.values()
            if held.permit is not None
            and held.state not in {HeldState.LOCKING, HeldState.UNLOCKING}
        )
        if asked:
            self._context.out.append(Lock(asked))
        self._context.set_timer(TimerName.RENEW_LOCKS, self._context.settings.lock_renew_s)

    def answered(self, event: LockAnswered, now: float) -> None:
        """A broker granted or refused; no answer at all changes nothing but the time left."""
        refused: list[HeldQueue] = []
        for queue, epoch in event.asked:
            held = self._context.current(queue, epoch)
            granted = event.granted is not None and queue in event.granted
            if held is None:
                if granted and queue not in self._context.held:
                    # Granted to an acquisition that ended meanwhile: nobody would give it back.
                    self._context.out.append(Unlock(queue, epoch))
            elif granted:
                self._granted(held, event.sent_at, now)
            elif held.state is HeldState.LOCKING:
                held.lock_refused = event.granted is not None
                refused.append(held)
            elif event.granted is not None:
                assert held.permit is not None
                held.permit.locked_until = held.permit.valid_until = 0.0
                self._lost(held, "another member has taken its lock", now)
        if refused:
            self._ask_later(refused, now)

    def _granted(self, held: HeldQueue, sent_at: float, now: float) -> None:
        assert held.permit is not None
        held.lock_refused = False
        held.permit.locked_until = sent_at + self._context.settings.lock_trust_s
        if held.released:
            return  # renewed only so that nobody else starts while listeners finish
        if held.state is not HeldState.LOCKING and sent_at >= held.permit.valid_until:
            # It was not sure between the two: another member may have had the queue, so what is
            # cached, and how far this member believes to be, no longer count.
            self._lost(held, "its lock was not renewed in time, and others may have had it", now)
            return
        held.permit.valid_until = held.permit.locked_until
        if held.state is HeldState.LOCKING:
            held.state = HeldState.LOCATING
            self._context.out.append(FindOffset(held.queue, held.epoch))
        else:
            self._secured(held, now)

    def taken_over(self, event: TakenOver) -> None:
        """Locks of the dead are off: ask for them at once."""
        self._again = [(queue, epoch) for queue, epoch in self._again if queue not in event.queues]
        held = self._context.held
        self._ask((queue, held[queue].epoch) for queue in event.queues if queue in held)

"""Queue locks: asking, renewing, giving back, and taking over from the dead.

A lock lives on the queue's broker under this member's id, for 60 s after the last request. This
member trusts it for `lock_trust_s` after the request left, and starts no message later than that
(the queue's permit). So when a member has been gone from every broker's list for longer than
that, nothing new starts there, and others may take its locks off without waiting for 60 s: a
broker accepts an unlock in anybody's name. `docs/explanation/take-over.md` has the argument.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from gimbalmq.core.consumer.context import Context
from gimbalmq.core.consumer.effects import ConfirmGone, FindOffset, Lock, Permit, TakeOver, Unlock
from gimbalmq.core.consumer.events import GoneConfirmed, LockAnswered, TakenOver, TimerName
from gimbalmq.core.consumer.held import HeldQueue, HeldState
from gimbalmq.core.identity import all_ours
from gimbalmq.model.queue import MessageQueue

__all__ = ["LockKeeper"]

#: A broker forgets a lock after 60 s; with some slack, nobody needs to be remembered longer.
_FORGET_GONE_S: Final = 90.0


class LockKeeper:
    """The locks of one member."""

    def __init__(
        self,
        context: Context,
        *,
        secured: Callable[[HeldQueue, float], None],
        lost: Callable[[HeldQueue, float], None],
    ) -> None:
        self._context = context
        self._secured = secured
        self._lost = lost
        self._members: frozenset[str] = frozenset()
        #: Members that vanished from the list, and when that was noticed.
        self._gone: dict[str, float] = {}
        self._confirming = False

    # ---- asking ------------------------------------------------------------------------------

    def acquire(self, held: Iterable[HeldQueue]) -> None:
        """Ask for the locks of new queues, together."""
        fresh = list(held)
        for one in fresh:
            one.state = HeldState.LOCKING
            one.permit = Permit(0.0)
        if fresh:
            self._context.out.append(Lock(tuple((one.queue, one.epoch) for one in fresh)))

    def retry(self, held: HeldQueue) -> None:
        """Ask again for a lock that was refused."""
        if held.state is HeldState.LOCKING:
            self._context.out.append(Lock(((held.queue, held.epoch),)))

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
                self._context.set_timer(TimerName.LOCK, self._context.settings.lock_retry_s, held)
            elif event.granted is not None and not held.released:
                self._lost(held, now)
        self._plan_take_over(now)

    def _granted(self, held: HeldQueue, sent_at: float, now: float) -> None:
        assert held.permit is not None
        held.lock_refused = False
        if held.released:
            return  # renewed only so that nobody else starts while listeners finish
        held.permit.valid_until = sent_at + self._context.settings.lock_trust_s
        if held.state is HeldState.LOCKING:
            held.state = HeldState.LOCATING
            self._context.out.append(FindOffset(held.queue, held.epoch))
        else:
            self._secured(held, now)

    # ---- taking over -------------------------------------------------------------------------

    def members_listed(self, members: tuple[str, ...], now: float) -> None:
        """Note who vanished; whoever comes back is no longer gone."""
        listed = frozenset(members)
        for member in self._members - listed:
            self._gone[member] = now
        self._members = listed
        self._gone = {
            member: since
            for member, since in self._gone.items()
            if member not in listed and now - since < _FORGET_GONE_S
        }
        self._plan_take_over(now)

    def _grace_s(self) -> float | None:
        settings = self._context.settings
        if all_ours(self._members) and all_ours(self._gone):
            return settings.take_over_grace_s
        return settings.take_over_foreign_grace_s

    def _refused(self) -> tuple[MessageQueue, ...]:
        return tuple(
            held.queue
            for held in self._context.held.values()
            if held.state is HeldState.LOCKING and held.lock_refused
        )

    def _plan_take_over(self, now: float) -> None:
        grace_s = self._grace_s()
        if grace_s is None or not self._gone or self._confirming or not self._refused():
            return
        wait_s = max(0.0, min(self._gone.values()) + grace_s - now)
        self._context.set_timer(TimerName.TAKE_OVER, wait_s)

    def take_over_due(self, now: float) -> None:
        """The grace time of someone is over: make sure that no broker lists it."""
        grace_s = self._grace_s()
        if grace_s is None or self._confirming or not self._refused():
            return
        gone = frozenset(one for one, since in self._gone.items() if now - since >= grace_s)
        if gone:
            self._confirming = True
            self._context.out.append(ConfirmGone(gone))

    def gone_confirmed(self, event: GoneConfirmed, now: float) -> None:
        """Every broker was asked: take the locks of those that none lists."""
        self._confirming = False
        grace_s = self._grace_s()
        dead = frozenset(one for one in event.members if one in self._gone)
        queues = self._refused()
        if grace_s is None or not queues:
            return
        if dead:
            self._context.out.append(TakeOver(queues, dead))
        else:
            # Asked in vain: some broker still lists them, or could not be asked.
            self._gone = dict.fromkeys(self._gone, now)
            self._plan_take_over(now)

    def taken_over(self, event: TakenOver) -> None:
        """The locks are off: ask for them."""
        asked = tuple(
            (held.queue, held.epoch)
            for queue in event.queues
            if (held := self._context.held.get(queue)) is not None
            and held.state is HeldState.LOCKING
        )
        if asked:
            self._context.out.append(Lock(asked))

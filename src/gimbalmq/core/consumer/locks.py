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
        #: Those of them that no broker listed any more, and since when that is known.
        self._cleared: dict[str, float] = {}
        #: Whom the brokers are being asked about, and whether it is for the last time.
        self._asked: frozenset[str] = frozenset()
        self._last_question = False
        self._ask_again_at = float("-inf")

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
        if held.state is not HeldState.LOCKING and sent_at >= held.permit.valid_until:
            # It was not sure between the two: another member may have had the queue, so what is
            # cached, and how far this member believes to be, no longer count.
            self._lost(held, now)
            return
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
        # Somebody may have come and gone on a broker that this list is not from: the grace time
        # of everyone starts anew.
        self._cleared.clear()
        self._plan_take_over(now)

    def told_gone(self, members: Iterable[str], now: float) -> None:
        """Others say that these are gone; whether that is so is asked before anything is done."""
        for member in frozenset(members) - self._members:
            self._gone.setdefault(member, now)

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
        """Ask every broker at once about the gone, then again when their grace time is over."""
        grace_s = self._grace_s()
        if grace_s is None or not self._gone or self._asked or not self._refused():
            return
        unsure = frozenset(self._gone) - self._cleared.keys()
        if unsure and now >= self._ask_again_at:
            self._ask(unsure, last=False)
            return
        starts = [since + grace_s for since in self._cleared.values()]
        if unsure:
            starts.append(self._ask_again_at)
        self._context.set_timer(TimerName.TAKE_OVER, max(0.0, min(starts) - now))

    def _ask(self, members: frozenset[str], *, last: bool) -> None:
        self._asked, self._last_question = members, last
        self._context.out.append(ConfirmGone(members))

    def take_over_due(self, now: float) -> None:
        """The grace time of someone is over: make sure that no broker lists it."""
        grace_s = self._grace_s()
        if grace_s is None or self._asked or not self._refused():
            return
        due = frozenset(one for one, since in self._cleared.items() if since + grace_s <= now)
        if due:
            self._ask(due, last=True)
        else:
            self._plan_take_over(now)

    def gone_confirmed(self, event: GoneConfirmed, now: float) -> None:
        """Every broker was asked: grace begins for those that none lists, or is over."""
        asked, self._asked = self._asked, frozenset()
        missing = event.members & asked & self._gone.keys()
        grace_s = self._grace_s()
        if grace_s is None:
            return
        if asked - missing:
            # Some broker still lists them, or could not be asked.
            self._ask_again_at = now + grace_s
            for member in asked - missing:
                self._cleared.pop(member, None)
        queues = self._refused()
        dead = missing & self._cleared.keys()
        if self._last_question and dead and queues:
            self._context.out.append(TakeOver(queues, dead))
            return
        for member in missing:
            self._cleared.setdefault(member, now)
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

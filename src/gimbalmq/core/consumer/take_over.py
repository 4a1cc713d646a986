"""From whom locks are taken over, and when: who is gone, for how long, and what was tried.

A member that vanished from the list may be dead, or cut off and alive; either way it starts no
message once `lock_trust_s` has passed since the last broker lost it. So every broker is asked for
its list; when none names the member its grace time begins, and when that is over every broker is
asked once more before its locks are taken off. `docs/explanation/take-over.md` has the argument.

What begins the grace time anew, and what does not. A list that names the member does, and so does
any sign that it may have been back for a moment: a notice of a broker about a change that the
lists do not show, or a connection of this member that broke, on which notices may have been
missed. Another member that joins or leaves does not: its notice is explained by the lists. A pass
that finds what the last one found means nothing.

Decides whom to suspect and when to act. Must not know how locks are asked for or renewed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from gimbalmq.core.consumer.context import Context
from gimbalmq.core.consumer.effects import ListEverywhere, TakeOver
from gimbalmq.core.consumer.events import ListedEverywhere, TimerName
from gimbalmq.core.consumer.held import HeldState
from gimbalmq.core.identity import all_ours
from gimbalmq.model.queue import MessageQueue

__all__ = ["TakeOvers"]

#: A broker forgets a lock after 60 s; with some slack, nobody needs to be remembered longer.
_FORGET_GONE_S: Final = 90.0
#: A timer is set for this long at least: one that runs out before its time would be set for ever.
_SOONEST_S: Final = 0.001
_LONG_AGO: Final = float("-inf")


class _Gone(msgspec.Struct):
    """A member that vanished from the list of members."""

    #: When that was noticed.
    since: float
    #: Since when no broker lists it; None while one does, or could not be asked.
    unlisted_since: float | None = None
    #: When to ask about it, while that is None.
    ask_at: float = _LONG_AGO
    #: Queues that were unlocked in its name: when to do so again, and the pause after that.
    unlocked: dict[MessageQueue, tuple[float, float]] = {}

    def due_at(self, queue: MessageQueue, grace_s: float) -> float:
        """When to ask about it for the sake of this queue: for the last time, if it is unlisted."""
        if self.unlisted_since is None:
            return self.ask_at
        again_at, _pause_s = self.unlocked.get(queue, (_LONG_AGO, 0.0))
        return max(self.unlisted_since + grace_s, again_at)

    def note_unlocked(self, queue: MessageQueue, grace_s: float, now: float) -> None:
        """Its lock is off, or the broker could not be reached: wait longer before the next time.

        Whoever has the lock now is most likely alive, and takes its time to let the queue go.
        """
        _again_at, pause_s = self.unlocked.get(queue, (_LONG_AGO, grace_s))
        self.unlocked[queue] = now + pause_s, 2 * pause_s


class TakeOvers:
    """Watches those that are gone, for one member that waits for their locks."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._members: frozenset[str] = frozenset()
        self._gone: dict[str, _Gone] = {}
        #: Queues that were refused while somebody was gone, in order. Some may be another member's
        #: by now: a newcomer, perhaps, that has seen nobody go and would wait for 60 s.
        self._denied: dict[MessageQueue, None] = {}
        #: When every broker was asked for its list; None while nobody is asked.
        self._asked_at: float | None = None
        #: What they answered last; None before, and when what they said no longer counts.
        self._lists: Mapping[str, frozenset[str]] | None = None
        #: Notices of changes since that answer.
        self._notices = 0

    # ---- who is gone -------------------------------------------------------------------------

    def members_listed(self, members: Iterable[str], now: float) -> None:
        """Note who vanished; whoever is back is no longer gone."""
        listed = frozenset(members)
        for member in self._members - listed:
            self._gone[member] = _Gone(now)
        self._members = listed
        for member in listed & self._gone.keys():
            del self._gone[member]
        self.plan(now)

    def told_gone(self, members: Iterable[str], now: float) -> None:
        """Others say that these are gone; whether that is so is asked before anything is done."""
        for member in frozenset(members) - self._members - self._gone.keys():
            self._gone[member] = _Gone(now)

    def noticed(self, now: float) -> None:
        """A broker says that members changed: one that is gone may be back, or have been back."""
        if self._lists is None:
            return  # nothing is known that could have changed
        if self._grace_s() is None or not (self._gone and self._wanted()):
            self._doubt_all()  # nobody waits for a lock of theirs, so nobody is asked now
            return
        self._notices += 1
        if self._asked_at is None:
            self._ask(now)

    def reconnected(self, now: float) -> None:
        """This member was not connected to a broker, and may have missed its notices."""
        self._doubt_all()
        self.plan(now)

    def _doubt_all(self) -> None:
        self._lists, self._notices = None, 0
        for one in self._gone.values():
            one.unlisted_since = None

    def _forget(self, now: float) -> None:
        self._gone = {
            member: one for member, one in self._gone.items() if now - one.since < _FORGET_GONE_S
        }

    # ---- when to act -------------------------------------------------------------------------

    def _grace_s(self) -> float | None:
        settings = self._context.settings
        if all_ours(self._members) and all_ours(self._gone):
            return settings.take_over_grace_s
        return settings.take_over_foreign_grace_s

    def _wanted(self) -> tuple[MessageQueue, ...]:
        """The queues to take locks off: those that are refused, or were, and have no lock here."""
        held = self._context.held
        return tuple(
            queue
            for queue in self._denied
            if queue not in held
            or (held[queue].state is HeldState.LOCKING and held[queue].lock_refused)
        )

    def plan(self, now: float) -> None:
        """Ask every broker when it is time for that, about whomever is gone."""
        self._forget(now)
        self._denied.update(
            (held.queue, None)
            for held in self._context.held.values()
            if held.state is HeldState.LOCKING and held.lock_refused
        )
        if not self._gone:
            self._denied.clear()
        grace_s, queues = self._grace_s(), self._wanted()
        if grace_s is None or self._asked_at is not None or not (self._gone and queues):
            return
        due_at = min(one.due_at(queue, grace_s) for one in self._gone.values() for queue in queues)
        if due_at <= now:
            self._ask(now)
        else:
            self._context.set_timer(TimerName.TAKE_OVER, max(due_at - now, _SOONEST_S))

    def _ask(self, now: float) -> None:
        self._asked_at = now
        self._context.out.append(ListEverywhere())

    def listed_everywhere(self, event: ListedEverywhere, now: float) -> None:
        """Every broker was asked: grace times begin, go on, or are over."""
        asked_at, self._asked_at = self._asked_at, None
        assert asked_at is not None
        grace_s = self._grace_s()
        if grace_s is None:
            self._doubt_all()
            return
        if event.lists is None:
            self._doubt_all()
            for one in self._gone.values():
                one.ask_at = now + grace_s
        else:
            self._compare(event.lists, now + grace_s, now)
            self._take_over(asked_at, grace_s, now)
        self.plan(now)

    def _compare(self, lists: Mapping[str, frozenset[str]], ask_at: float, now: float) -> None:
        anew = self._notices > _differences(self._lists or {}, lists)
        self._lists, self._notices = lists, 0
        for member, one in self._gone.items():
            if any(member in listed for listed in lists.values()):
                one.unlisted_since, one.ask_at = None, ask_at
            elif one.unlisted_since is None or anew:
                one.unlisted_since = now

    def _take_over(self, asked_at: float, grace_s: float, now: float) -> None:
        """Act on those that no broker listed when it was asked after their grace time."""
        wanted = self._wanted()
        due = {
            (member, queue)
            for member, one in self._gone.items()
            for queue in wanted
            if one.unlisted_since is not None and one.due_at(queue, grace_s) <= asked_at
        }
        if not due:
            return
        for member, queue in due:
            self._gone[member].note_unlocked(queue, grace_s, now)
        unlocked = {queue for _member, queue in due}
        queues = tuple(queue for queue in wanted if queue in unlocked)
        self._context.out.append(TakeOver(queues, frozenset(member for member, _queue in due)))
        for queue in queues:
            if queue not in self._context.held:
                del self._denied[queue]  # done what can be done for whoever wants it


def _differences(before: Mapping[str, frozenset[str]], after: Mapping[str, frozenset[str]]) -> int:
    """How many came or went, counted once for each broker, as their notices are."""
    nobody = frozenset[str]()
    return sum(
        len(before.get(broker, nobody) ^ after.get(broker, nobody))
        for broker in before.keys() | after.keys()
    )

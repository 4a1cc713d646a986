"""Who is gone from the group and may come back: the memory behind `rejoin_grace_s`.

A member that leaves or dies is counted as if it were there until its grace time is over, so that
queues are shared out as before and its own wait for it. Each member remembers by itself whom it
saw go, and when by its own clock. A newcomer has seen nobody go: before its first pass it asks
members that were there whom they wait for, so that all count alike.

Two members may still count differently, for as long as one has noticed a change and the other has
not, or, where a newcomer got no answer, until the grace time is over. Then a queue may be without
owner. That it never has two is up to the locks, without which there is no grace time.
`docs/explanation/rejoin.md` has the argument.

Decides whom to count and whom to ask. Must not know how queues are shared out or anybody is asked.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from gimbalmq.core.identity import agreed_rejoin, capability

__all__ = ["Absence"]

#: How many members a newcomer asks before it goes on without an answer.
_ASKED_MAX: Final = 3


class Absence:
    """What one member knows about those that are gone."""

    def __init__(self, client_id: str, grace_s: float) -> None:
        self._me = client_id
        self._capability = capability(client_id)
        self._grace_s = grace_s
        self._listed: frozenset[str] = frozenset()
        #: Since when members are gone.
        self._gone: dict[str, float] = {}
        #: When the first list came: who went before that is forgotten a grace time later.
        self._watching_since: float | None = None
        #: Whether it may share out queues, having asked or having nobody to ask.
        self._asked = False
        self._asking = False
        #: Whether others may rely on what it knows.
        self._informed = False

    def listed(self, members: Collection[str], now: float) -> None:
        """Take a list of the members in that is believed."""
        if self._watching_since is None:
            self._watching_since = now
        elif now - self._watching_since >= self._grace_s:
            self._asked = self._informed = True
        present = frozenset(members)
        self._note(dict.fromkeys(self._listed - present, now))
        self._listed = present
        if self.disagreement():
            self._gone.clear()  # their queues go to others now
        self._forget(now)

    def disagreement(self) -> str:
        """Why nobody is waited for in this group; "" when all members do."""
        return agreed_rejoin(sorted(self._listed), self._me)

    def question(self, members: Sequence[str]) -> tuple[str, ...]:
        """Whom to ask before sharing out queues for the first time; the next in the list."""
        if self._asked or self._asking:
            return ()
        if self.disagreement() or self._me not in members:
            return ()  # nothing is counted now; should that change, it is asked then
        at = members.index(self._me)
        others = (*members[at + 1 :], *members[:at])[:_ASKED_MAX]
        self._asking = bool(others)
        # With nobody else there, what it does is what those that come later have to know.
        self._asked = self._informed = not others
        return others

    @property
    def asking(self) -> bool:
        """Whether an answer is waited for, and nothing can be shared out yet."""
        return self._asking

    def told(self, absent: Mapping[str, float] | None, now: float) -> None:
        """Take in how long members have been gone, as another one knows; None: nobody knew."""
        self._asking = False
        self._asked = True
        if absent is None:
            return
        self._informed = True
        seen = self._gone
        self._gone = {}
        self._note({member: now - seconds for member, seconds in absent.items()} | seen)
        self._forget(now)

    def waited_for(self, now: float) -> dict[str, float]:
        """Those to count as if they were there, and the seconds that are left for each."""
        self._forget(now)
        return {member: since + self._grace_s - now for member, since in sorted(self._gone.items())}

    def known(self, now: float) -> dict[str, float] | None:
        """How many seconds members have been gone, for those that ask; None: ask another."""
        if not self._informed:
            return None
        self._forget(now)
        return {member: now - since for member, since in self._gone.items()}

    def _note(self, gone: Mapping[str, float]) -> None:
        for member, since in gone.items():
            # Ids of an earlier strategy, or of foreign members, do not come back as they were.
            if capability(member) == self._capability:
                self._gone[member] = since

    def _forget(self, now: float) -> None:
        self._gone = {
            member: since
            for member, since in self._gone.items()
            if member not in self._listed and now - since < self._grace_s
        }

"""When a watcher may release the locks of a member that is gone, and when it must not.

An ordered group of unmodified members stands still for up to a minute after one of them died: its
locks have to expire. Brokers let anybody release them, so a watcher can; it has to be sure that
the member starts no more messages. All it has are the brokers' member lists.

What a list tells. A member leaves it when its connection ends. If the member is alive, it comes
back: a client of 5.2 or later registers again as soon as it has reconnected (within 2 s), an older
one with its next heartbeat (30 s). A member that is cut off without a word stays listed for two
minutes, longer than its locks live (60 s), and longer than it trusts them itself (30 s). So a member that
is gone from every list for longer than its time to come back is dead, unless something between it
and the brokers closes connections and then keeps it out; `strict` covers that, too, by waiting
until no client would trust its locks.

Decides from looks at the lists; asks nobody, and unlocks nothing itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, TypeAlias

import msgspec

from gimbalmq.core.identity import all_ours, capability

__all__ = [
    "BrokerLook",
    "Decision",
    "GroupLook",
    "GuardMachine",
    "GuardSettings",
    "ListedMember",
    "grace_s",
]

#: Clients from here on register again as soon as they have reconnected.
_REGISTERS_AT_ONCE: Final = (5, 2)
#: For how long clients of either age may be absent and alive.
_BACK_SOON_S: Final = 3.0
_BACK_LATE_S: Final = 31.0
#: A broker that is no longer registered may go on serving its members; after the life of its
#: locks nothing is left on it to release.
_BROKER_MEMORY_S: Final = 60.0
#: How long a member whose locks were released is remembered, to notice that it was alive.
_MEMBER_MEMORY_S: Final = 3600.0


class GuardSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How long a member must be gone from every list."""

    #: Members that register again at once: Java 5.2 and later, and ours.
    grace_s: float = 5.0
    #: Older ones, and whenever it is not sure which a member is.
    old_grace_s: float = 35.0
    #: Wait `old_grace_s` for every member.
    strict: bool = False
    #: A healed group is woken again after this time if a queue is still not held.
    wake_again_s: float = 5.0

    def problems(self) -> str:
        """Why these settings cannot be safe; empty when they can."""
        if self.grace_s < _BACK_SOON_S:
            return (
                f"a grace time of {self.grace_s:g} s is too short: a live member needs up to 2 s "
                f"to come back after its connection broke; give {_BACK_SOON_S:g} s or more"
            )
        if self.old_grace_s < _BACK_LATE_S:
            return (
                f"a grace time of {self.old_grace_s:g} s for old members is too short: before 5.2 "
                "a live member comes back with its next heartbeat, up to 30 s later; give "
                f"{_BACK_LATE_S:g} s or more"
            )
        return ""


class ListedMember(msgspec.Struct, frozen=True):
    """A member as a broker lists it; `release` like `5.5.0`."""

    client_id: str
    release: str


class BrokerLook(msgspec.Struct, frozen=True):
    """Whom a broker lists; None when it could not be asked."""

    broker: str
    members: tuple[ListedMember, ...] | None


class GroupLook(msgspec.Struct, frozen=True):
    """The lists of all brokers at one moment."""

    brokers: tuple[BrokerLook, ...]
    broadcasting: bool = False


Kind: TypeAlias = Literal["watching", "missing", "returned", "release", "wake", "refuse", "alive"]


class Decision(msgspec.Struct, frozen=True):
    """What the watcher decided, and why; only `release` and `wake` change anything."""

    kind: Kind
    members: tuple[str, ...]
    reason: str


class _Known(msgspec.Struct):
    release: str
    listed_by: frozenset[str]
    #: When it was first missing from every list; None while it is listed.
    gone_at: float | None = None
    #: Its brokers lost everybody at once: more likely their fault than its death.
    doubtful: bool = False
    released: bool = False


def grace_s(client_id: str, release: str, settings: GuardSettings) -> float:
    """How long this member must be gone.

    >>> grace_s("10.0.0.7@1", "5.5.0", GuardSettings()), grace_s("x", "4.9.5", GuardSettings())
    (5.0, 35.0)
    """
    if settings.strict:
        return settings.old_grace_s
    if capability(client_id) is not None or _release(release) >= _REGISTERS_AT_ONCE:
        return settings.grace_s
    return settings.old_grace_s


def _release(text: str) -> tuple[int, ...]:
    # Beyond the releases that have a number, Java and we say `higher`.
    if text == "higher":
        return (99,)
    head = text.partition("-")[0].split(".")
    return tuple(int(part) for part in head if part.isascii() and part.isdigit())


class GuardMachine:
    """Looks in, decisions out; remembers who was there."""

    def __init__(self, settings: GuardSettings) -> None:
        self.settings = settings
        self._known: dict[str, _Known] = {}
        self._told = ""
        self._wake_at: float | None = None
        self._brokers: dict[str, float] = {}

    def look(self, look: GroupLook, now: float) -> list[Decision]:
        """Decide what follows from the lists of this moment."""
        refusal = self._refusal(look, now)
        if refusal:
            # Whoever is missing may be listed where nobody could ask: the time starts over.
            for known in self._known.values():
                if not known.released:
                    known.gone_at = None
            return self._refuse(refusal)
        self._forget(now)
        listed: dict[str, ListedMember] = {}
        for broker in look.brokers:
            listed |= {one.client_id: one for one in broker.members or ()}
        emptied = self._emptied(look)
        decisions = self._arrivals(look, listed)
        survivors = tuple(sorted(listed))
        if all_ours(self._known) and self._known:
            return decisions + self._refuse(
                "every member is GimbalMQ's: they take over from each other by themselves"
            )
        decisions += self._departures(listed, emptied, now)
        if not survivors:
            if self._known:
                decisions += self._refuse("nobody is left in the group who could take over")
            return decisions
        self._told = ""
        decisions += self._releases(survivors, now)
        return decisions

    def queues_held(self, *, complete: bool, now: float) -> list[Decision]:
        """After a release: whether the survivors hold all queues now."""
        if self._wake_at is None:
            return []
        if complete:
            self._wake_at = None
            return []
        if now < self._wake_at:
            return []
        self._wake_at = now + self.settings.wake_again_s
        return [Decision("wake", (), "some queues are still held by nobody")]

    @property
    def waits_for_queues(self) -> bool:
        """Whether it is worth asking the members what they hold."""
        return self._wake_at is not None

    # ---- what must not be decided ------------------------------------------------------------

    def _refusal(self, look: GroupLook, now: float) -> str:
        for one in look.brokers:
            self._brokers[one.broker] = now
        self._brokers = {
            name: seen for name, seen in self._brokers.items() if now - seen < _BROKER_MEMORY_S
        }
        answered = {one.broker for one in look.brokers if one.members is not None}
        silent = sorted(self._brokers.keys() - answered)
        if silent:
            return (
                f"broker {', '.join(silent)} cannot be asked, and may list whoever is missing: "
                "the time counts anew once all brokers answer"
            )
        if not look.brokers:
            return "no broker is registered"
        if look.broadcasting:
            return "the group broadcasts: it has no locks, and every member reads every queue"
        return ""

    def _refuse(self, reason: str) -> list[Decision]:
        if self._told == reason:
            return []
        self._told = reason
        return [Decision("refuse", (), reason)]

    def _forget(self, now: float) -> None:
        self._known = {
            client_id: known
            for client_id, known in self._known.items()
            if known.gone_at is None or now - known.gone_at < _MEMBER_MEMORY_S
        }

    # ---- who came and who went ---------------------------------------------------------------

    def _emptied(self, look: GroupLook) -> frozenset[str]:
        """Brokers that listed several members before, and now list nobody."""
        before: dict[str, int] = {}
        for known in self._known.values():
            if known.gone_at is None:
                for broker in known.listed_by:
                    before[broker] = before.get(broker, 0) + 1
        return frozenset(
            one.broker for one in look.brokers if not one.members and before.get(one.broker, 0) > 1
        )

    def _arrivals(self, look: GroupLook, listed: dict[str, ListedMember]) -> list[Decision]:
        decisions: list[Decision] = []
        fresh = []
        for client_id, one in sorted(listed.items()):
            by = frozenset(
                view.broker
                for view in look.brokers
                if any(own.client_id == client_id for own in view.members or ())
            )
            known = self._known.get(client_id)
            if known is None:
                fresh.append(client_id)
            elif known.released:
                decisions.append(
                    Decision(
                        "alive",
                        (client_id,),
                        "it is back after its locks were released, so it was not dead: messages "
                        "of its queues may have run out of order; use a longer grace time",
                    )
                )
            elif known.gone_at is not None:
                decisions.append(Decision("returned", (client_id,), "it is listed again"))
            self._known[client_id] = _Known(one.release, by)
        if fresh:
            decisions.append(
                Decision("watching", tuple(fresh), f"{len(listed)} members are listed")
            )
        return decisions

    def _departures(
        self, listed: Iterable[str], emptied: frozenset[str], now: float
    ) -> list[Decision]:
        here = frozenset(listed)
        decisions = []
        for client_id, known in sorted(self._known.items()):
            if client_id in here or known.gone_at is not None:
                continue
            known.gone_at = now
            known.doubtful = bool(emptied & known.listed_by)
            why = (
                "its broker lost all members at once, which is more likely the broker's fault"
                if known.doubtful
                else "no broker lists it any more"
            )
            wait_s = self._grace_s(client_id, known)
            text = f"{why}; its locks are released unless it is back in {wait_s:g} s"
            decisions.append(Decision("missing", (client_id,), text))
        return decisions

    def _grace_s(self, client_id: str, known: _Known) -> float:
        if known.doubtful:
            return self.settings.old_grace_s
        return grace_s(client_id, known.release, self.settings)

    def _releases(self, survivors: tuple[str, ...], now: float) -> list[Decision]:
        due = [
            client_id
            for client_id, known in sorted(self._known.items())
            if known.gone_at is not None
            and not known.released
            and now - known.gone_at > self._grace_s(client_id, known)
        ]
        for client_id in due:
            self._known[client_id].released = True
        if not due:
            return []
        self._wake_at = now + self.settings.wake_again_s
        longest = max(now - (self._known[one].gone_at or now) for one in due)
        return [
            Decision(
                "release",
                tuple(due),
                f"gone from every broker's list for {longest:.1f} s; "
                f"{len(survivors)} members are there to take over",
            ),
            Decision("wake", survivors, "so that they take the queues now"),
        ]

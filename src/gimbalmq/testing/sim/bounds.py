"""How soon a group has to be at rest after the last change: by how it consumes, and what happened.

Decides the bound from the members' timers and the history, so that a group that waits for a lock
to expire, where it could have taken it over, is found. Must not know how the members do it.

After the last change a group needs, one after the other:

- until all have heard of it: no time where connections were closed and brokers tell it; otherwise
  the patience of brokers with the silent, or until the hindered are in touch again, and a pass;
- until one that leaves has left, which waits for its listeners, but not for ever;
- with locks, the grace time of a take-over; or until listeners end for which a queue waits.

Where nobody is left who saw the dead, and in groups with foreign members, locks have to expire; so
has one that a member could not give back, and that nobody knows of.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from gimbalmq.testing.sim.cast import CHANNEL_LIFE_S, CHANNEL_SCAN_S, DRAIN_S, DRIFT_MAX, Cast
from gimbalmq.testing.sim.history import History, Kind
from gimbalmq.testing.sim.options import FAULTS

__all__ = ["locks_expire", "settling_s"]

_LOCK_LIFE_S: Final = 60.0
_GRACE_S: Final = 4.0
#: How often a foreign member looks who is there, and asks for a lock that it was refused.
_FOREIGN_S: Final = 20.0
#: A heartbeat that is not answered says that a connection is gone; then the pause of a reconnect.
_CONTACT_S: Final = 5.0 + 3.0
#: Passes that gather notices, round trips, delayed frames.
_ROUND_TRIPS_S: Final = 3.0

_OF_LOCKS: Final = (Kind.LOCKED, Kind.UNLOCKED, Kind.TAKEN_OFF, Kind.EXITED, Kind.RESTARTED)
_SILENT: Final = frozenset({"power loss", "torn connection"})
#: What keeps those who live from hearing of each other.
_HINDERING: Final = frozenset(FAULTS) - {"join", "leave", "crash", "power loss"}


def settling_s(cast: Cast, happened: Collection[str]) -> float:
    """Until when the group has to be at rest, in seconds of true time after the last change."""
    options = cast.options
    bound_s = _heard_s(cast, happened) + (options.rejoin_grace_s or 0.0)
    bound_s += DRAIN_S if cast.habits.hang_share else cast.habits.longest_s
    if cast.mode.locking:
        bound_s += max(_GRACE_S, cast.habits.hang_s - DRAIN_S)
        if options.foreign:
            bound_s = max(bound_s, _LOCK_LIFE_S + _FOREIGN_S)
        elif locks_expire(cast.world.history):
            bound_s = max(bound_s, _LOCK_LIFE_S)
    return bound_s / (1 - DRIFT_MAX) + _ROUND_TRIPS_S


def _heard_s(cast: Cast, happened: Collection[str]) -> float:
    """Until all have heard of the last change: nothing where brokers tell it, and are heard."""
    options = cast.options
    # Brokers and those who were hindered need their time side by side.
    if options.busy_brokers or _SILENT.intersection(happened):
        wait_s = CHANNEL_LIFE_S + CHANNEL_SCAN_S
    elif _HINDERING.intersection(happened):
        wait_s = _CONTACT_S
    else:
        return 0.0
    assert options.rebalance_interval_s is not None
    return wait_s + (_FOREIGN_S if options.foreign else options.rebalance_interval_s)


def locks_expire(history: History) -> bool:
    """Whether a lock had to expire, because nobody could have taken it off.

    Its holder died, and somebody is there in the end who never saw it; or it is back under its id,
    and nobody is dead. Or its holder lives and has left it behind, since the broker did not answer
    when the queue was given up.
    """
    exited: set[str] = set()
    holders: dict[str, str] = {}
    dead: set[str] = set()
    for line in history.of(*_OF_LOCKS):
        match line.kind:
            case Kind.EXITED:
                exited.add(line.who)
                if line.who in holders.values():
                    dead.add(_id_of(line.who))
            case Kind.RESTARTED:
                holders = {q: who for q, who in holders.items() if f"/{line.who}/" not in q}
            case Kind.LOCKED:
                if holders.get(line.queue, line.who) not in {line.who, *exited}:
                    return True
                holders[line.queue] = line.who
                if line.who in exited:  # the request waited at the broker
                    dead.add(_id_of(line.who))
            case _:
                holders.pop(line.queue, None)
    seen = _seen(history, exited)
    return any(_id_of(who) in dead or not ids >= dead for who, ids in seen.items())


def _id_of(who: str) -> str:
    """The client id of a process, which is counted if it is not the first of its id."""
    return who.partition(" ")[0]


def _seen(history: History, exited: Collection[str]) -> dict[str, set[str]]:
    """The ids that each member has seen that is there in the end."""
    seen: dict[str, set[str]] = {
        line.who: set() for line in history.of(Kind.JOINED) if line.who not in exited
    }
    for line in history.of(Kind.LISTED):
        if line.who in seen:
            seen[line.who].update(line.text.split())
    return seen

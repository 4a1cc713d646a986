"""What a campaign of simulations varies; everything else of a run follows from its seed.

Decides the vocabulary alone: how the group consumes, what may go wrong, and the limits that a run
is held against. Must not know how a scenario is played.
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec

__all__ = ["FAULTS", "RESTARTS", "Mode", "Options"]

#: What may go wrong; a scenario draws from a selection of these.
FAULTS: Final = (
    "join",
    "leave",
    "crash",
    "power loss",
    "pause",
    "partition",
    "isolation",
    "torn connection",
    "broker crash",
    "broker pause",
    "name server crash",
)

#: A member leaves or crashes and comes back under its id; with the members' grace time.
RESTARTS: Final = ("restart", "crash and restart")


class Mode(enum.Enum):
    """How the group consumes."""

    CONCURRENT = "concurrent"
    ORDERED = "ordered"
    LEASE = "lease"


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What a campaign varies; the rest follows from the seed."""

    #: None: drawn from the seed.
    mode: Mode | None = None
    faults: tuple[str, ...] = FAULTS
    faults_max: int = 6
    faithful: bool = True
    #: Whether listeners may fail and hang.
    rough_listeners: bool = True
    #: While faults happen, and after the last one.
    trouble_s: float = 30.0
    quiet_s: float = 150.0
    #: How long a crashed broker stays away. Its locks are in its memory: they are safe only if
    #: it is away for longer than members trust them.
    broker_away_s: tuple[float, float] = (4.0, 8.0)
    #: After the last change. Takes long where a whole group died: nobody is left who knows whose
    #: locks to take over, and a broker keeps them for 60 s by its own clock.
    settled_within_s: float = 65.0
    #: Whether everything is sent at once, so that there is much to read, and little in a pull.
    backlog: bool = False
    #: `rejoin_grace_s` of every member.
    rejoin_grace_s: float | None = None
    #: `rebalance_interval_s` of every member.
    rebalance_interval_s: float = 10.0
    #: How long a member that restarts stays away.
    member_away_s: tuple[float, float] = (0.5, 8.0)

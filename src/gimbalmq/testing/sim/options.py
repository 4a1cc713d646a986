"""What a campaign of simulations varies; everything else of a run follows from its seed.

Decides the vocabulary alone: how the group consumes, what may go wrong, and the limits that a run
is held against; and how what is left open is drawn. Must not know how a scenario is played.
"""

from __future__ import annotations

import enum
import random
from typing import Final

import msgspec

__all__ = ["CLEAN", "ENDING", "FAULTS", "PEACEFUL", "RESTARTS", "Mode", "Options"]

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

#: Members come and go, and each goes as one should.
CLEAN: Final = frozenset({"join", "leave", "restart"})
#: Nobody who lives is hindered: no listener outlives the right to its queue.
PEACEFUL: Final = CLEAN | {"crash", "power loss", "crash and restart", "name server crash"}
#: These end a member; one that is spared is not hit by them.
ENDING: Final = frozenset({"leave", "crash", "power loss", *RESTARTS})


class Mode(enum.Enum):
    """How the group consumes."""

    CONCURRENT = "concurrent"
    ORDERED = "ordered"
    LEASE = "lease"
    #: The user polls, and what was polled is done with the next poll.
    LITE_PULL = "lite pull"
    #: The user pulls and keeps the offsets; the group only shares the queues.
    CLASSIC_PULL = "classic pull"

    @property
    def locking(self) -> bool:
        """Whether a queue is owned with its lock only."""
        return self in {Mode.ORDERED, Mode.LEASE}

    @property
    def listening(self) -> bool:
        """Whether messages are pushed to listeners."""
        return self not in {Mode.LITE_PULL, Mode.CLASSIC_PULL}


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What a campaign varies; the rest, and what is None here, follows from the seed."""

    mode: Mode | None = None
    faults: tuple[str, ...] = FAULTS
    faults_max: int = 6
    faithful: bool = True
    #: Whether listeners may fail and hang.
    rough_listeners: bool = True
    #: While faults happen, and after the last one.
    trouble_s: float = 30.0
    quiet_s: float = 100.0
    #: How long a crashed broker stays away. Its locks are in its memory: they are safe only if
    #: it is away for longer than members trust them.
    broker_away_s: tuple[float, float] = (4.0, 8.0)
    #: After the last change the group has to be at rest; None: worked out by `bounds`.
    settled_within_s: float | None = None
    #: Whether everything is sent at once, so that there is much to read, and little in a pull.
    backlog: bool = False
    #: `rejoin_grace_s` of every member.
    rejoin_grace_s: float | None = None
    #: How long a member that restarts stays away.
    member_away_s: tuple[float, float] = (0.5, 8.0)
    #: `rebalance_interval_s` of every member of ours.
    rebalance_interval_s: float | None = None
    #: `parallel_by="key"` for all listeners.
    keyed: bool | None = None
    #: Whether some members are foreign: without a token, with the timers of Java's.
    foreign: bool | None = None
    #: Whether brokers take their time for some kinds of requests, so that requests and answers of
    #: one connection overtake each other, as the pools of threads of a real broker let them.
    busy_brokers: bool | None = None
    #: Whether the first member stays to the end: then somebody has always seen who is gone.
    spare_first: bool | None = None

    def __repr__(self) -> str:
        """Python that makes it again: what differs from the defaults."""
        defaults = Options()
        given = (
            f"{name}={_python(value)}"
            for name in self.__struct_fields__
            if (value := getattr(self, name)) != getattr(defaults, name)
        )
        return f"Options({', '.join(given)})"

    def drawn(self, seed: int) -> Options:
        """Fill in what is None from a seed; what is given moves nothing else."""
        # Not for secrets: a run must be repeatable.
        chance = random.Random(f"{seed} options")  # noqa: S311
        mode = chance.choice((Mode.CONCURRENT, Mode.ORDERED, Mode.LEASE))
        interval_s = chance.choice((3.0, 10.0, 20.0))
        keyed, foreign = chance.random() < 0.2, chance.random() < 0.2
        busy, spare = chance.random() < 0.25, chance.random() < 0.5
        mode = self.mode or mode
        foreign = foreign and mode is not Mode.LEASE and self.rejoin_grace_s is None
        return msgspec.structs.replace(
            self,
            mode=mode,
            rebalance_interval_s=self.rebalance_interval_s or interval_s,
            keyed=_given(self.keyed, keyed and mode.listening),
            foreign=_given(self.foreign, foreign),
            busy_brokers=_given(self.busy_brokers, busy),
            spare_first=_given(self.spare_first, spare),
        )


def _given(value: bool | None, drawn: bool) -> bool:  # noqa: FBT001 - one of two
    return drawn if value is None else value


def _python(value: object) -> str:
    return f"{type(value).__name__}.{value.name}" if isinstance(value, enum.Enum) else repr(value)

"""What a supervisor hears (events) and what it wants done (effects).

Children are told apart by number. A child's process has an epoch, which grows with every start, so
that news of an old process is not taken for news of the new one.
"""

from __future__ import annotations

import enum

import msgspec

__all__ = [
    "Began",
    "ChildExited",
    "ChildFailed",
    "ChildReady",
    "Drain",
    "Effect",
    "End",
    "Event",
    "Failure",
    "Hurry",
    "Kill",
    "Notice",
    "ReloadAsked",
    "SetTimer",
    "Spawn",
    "StopAsked",
    "Tell",
    "TimerFired",
    "TimerName",
]


class Failure(enum.Enum):
    """Why a child gave up by itself."""

    #: The module cannot be imported, or what it names cannot be run: nothing but a change helps.
    UNUSABLE = "unusable"
    #: A server cannot be reached: it may come back.
    UNREACHABLE = "unreachable"


class TimerName(enum.Enum):
    """What a timer is for."""

    RESTART = "restart"
    START = "start"
    DRAIN = "drain"


# ---- events --------------------------------------------------------------------------------------


class Began(msgspec.Struct, frozen=True):
    """Start the children."""


class ChildReady(msgspec.Struct, frozen=True):
    """A child is in its group and consumes."""

    number: int
    epoch: int


class ChildFailed(msgspec.Struct, frozen=True):
    """A child says why it is about to exit."""

    number: int
    epoch: int
    failure: Failure
    reason: str


class ChildExited(msgspec.Struct, frozen=True):
    """A child's process is gone; a negative code is the signal that ended it."""

    number: int
    epoch: int
    code: int


class StopAsked(msgspec.Struct, frozen=True):
    """SIGTERM or SIGINT; the second one means: quickly, the third: now."""


class ReloadAsked(msgspec.Struct, frozen=True):
    """SIGHUP: run the code that is there now."""


class TimerFired(msgspec.Struct, frozen=True):
    """A timer that was set has run out."""

    name: TimerName
    number: int
    epoch: int


Event = Began | ChildReady | ChildFailed | ChildExited | StopAsked | ReloadAsked | TimerFired


# ---- effects -------------------------------------------------------------------------------------


class Spawn(msgspec.Struct, frozen=True):
    """Start a process for a child."""

    number: int
    epoch: int


class Drain(msgspec.Struct, frozen=True):
    """Let a child finish what its listeners do, commit, leave the group and exit."""

    number: int


class Hurry(msgspec.Struct, frozen=True):
    """Let a draining child wait for its listeners no longer."""

    number: int


class Kill(msgspec.Struct, frozen=True):
    """End a child's process at once."""

    number: int


class SetTimer(msgspec.Struct, frozen=True):
    """Hand `TimerFired` back after `delay_s`."""

    name: TimerName
    number: int
    epoch: int
    delay_s: float


class Notice(enum.Enum):
    """What people and programs are told."""

    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    EXITED = "exited"
    DIED = "died"
    FAILED = "failed"
    GIVEN_UP = "given_up"
    KILLED = "killed"
    RELOADING = "reloading"
    RELOADED = "reloaded"
    RELOAD_HALTED = "reload_halted"
    STOPPING = "stopping"
    STOPPED = "stopped"


class Tell(msgspec.Struct, frozen=True):
    """Write something down; `number` is 0 when it is about all."""

    notice: Notice
    number: int
    text: str


class End(msgspec.Struct, frozen=True):
    """No process is left; the supervisor ends with this exit code."""

    code: int


Effect = Spawn | Drain | Hurry | Kill | SetTimer | Tell | End

"""What is known of one child of a worker, and what its deaths mean for its next start.

Decides how long a child that died is waited for, and when it has died too often. Must not know
the other children, nor whether the worker stops or reloads: `machine` decides about all of them.
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from gimbalmq.cli.worker.events import ChildFailed, Failure

__all__ = ["Child", "ChildState", "SupervisorSettings", "restart_delay_s"]


class SupervisorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker treats its children."""

    processes: int
    #: How long listeners may go on when a child drains.
    drain_s: float = 30.0
    #: How long a child may take until it consumes.
    start_timeout_s: float = 120.0
    #: A child that dies within this time of its start died quickly.
    quick_death_s: float = 10.0
    #: After so many quick deaths in a row a child is given up.
    give_up_after: int = 5
    first_delay_s: float = 0.5
    longest_delay_s: float = 30.0


class ChildState(enum.Enum):
    """What a child does."""

    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    #: Dead, and to be started again after a pause.
    WAITING = "waiting"
    GIVEN_UP = "given_up"
    #: Without a process, and none is wanted.
    GONE = "gone"


#: States in which there is a process.
_ALIVE: Final = frozenset({ChildState.STARTING, ChildState.READY, ChildState.DRAINING})


class Child:
    """What is known of one child."""

    __slots__ = (
        "epoch",
        "failure",
        "number",
        "quick_deaths",
        "restarts",
        "started_at",
        "state",
        "unreachable",
    )

    def __init__(self, number: int) -> None:
        self.number = number
        self.state = ChildState.GONE
        self.epoch = 0
        self.started_at = 0.0
        #: Quick deaths in a row, and starts in a row that found no server.
        self.quick_deaths = 0
        self.unreachable = 0
        self.restarts = 0
        #: What it said before it exited, if it did.
        self.failure: ChildFailed | None = None

    @property
    def alive(self) -> bool:
        """Whether there is a process."""
        return self.state in _ALIVE

    def begin(self, now: float) -> None:
        """A new process of it starts; news of earlier ones no longer counts."""
        self.epoch += 1
        self.state = ChildState.STARTING
        self.started_at = now
        self.failure = None

    def count_death(self, settings: SupervisorSettings, now: float) -> None:
        """Note that it died: without its servers, quickly, or after it had run for a while."""
        if self.failure is not None and self.failure.failure is Failure.UNREACHABLE:
            self.unreachable += 1
        elif now - self.started_at < settings.quick_death_s:
            self.quick_deaths += 1
        else:
            self.quick_deaths = 0

    def forgive(self) -> None:
        """Forget its deaths: there is new code, or somebody asked for another try."""
        self.quick_deaths = self.unreachable = 0

    def hopeless(self, settings: SupervisorSettings) -> bool:
        """Whether it died quickly too many times in a row."""
        return self.quick_deaths >= settings.give_up_after

    def restart_delay_s(self, settings: SupervisorSettings) -> float:
        """How long to wait before its next start, after the deaths that were counted."""
        return restart_delay_s(settings, self.quick_deaths + self.unreachable)


def restart_delay_s(settings: SupervisorSettings, quick_deaths: int) -> float:
    """How long to wait before the next start, after so many quick deaths in a row.

    >>> settings = SupervisorSettings(processes=1)
    >>> [restart_delay_s(settings, deaths) for deaths in (0, 1, 2, 3, 20)]
    [0.0, 0.5, 1.0, 2.0, 30.0]
    """
    if quick_deaths == 0:
        return 0.0
    # The exponent is bounded: a child that waits for its servers may die thousands of times.
    doubled = settings.first_delay_s * 2.0 ** min(quick_deaths - 1, 30)
    return min(doubled, settings.longest_delay_s)

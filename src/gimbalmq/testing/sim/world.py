"""Virtual time, and the processes that live in it.

One heap of events, chance from one seed: the same seed gives the same run. A process sees its own
clock, which may run fast or slow; everything that happens to it goes through `run`, so that a
paused process does nothing and a crashed one nothing ever again.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable

from gimbalmq.flows.effects import Instant
from gimbalmq.testing.sim.history import Happened, History, Kind

__all__ = ["Clock", "Process", "SimTimer", "World"]

_START_MS = 1_700_000_000_000
#: More events than any sane run has: a loop without end is our mistake.
_EVENTS_MAX = 3_000_000


class SimTimer:
    """A pending call."""

    __slots__ = ("_action",)

    def __init__(self, action: Callable[[], None]) -> None:
        self._action: Callable[[], None] | None = action

    def cancel(self) -> None:
        """Do not run it."""
        self._action = None

    def fire(self) -> None:
        """Run it, once, unless it was cancelled."""
        action, self._action = self._action, None
        if action is not None:
            action()


class World:
    """True time, chance and history."""

    def __init__(self, seed: int) -> None:
        self.now = 0.0
        self._seed = seed
        #: Who plays, what goes wrong, what is sent; see `stream` for the rest.
        self.chance = self.stream("scenario")
        self.history = History()
        self._heap: list[tuple[float, int, SimTimer]] = []
        self._numbers = itertools.count()

    def stream(self, name: str) -> random.Random:
        """A source of chance of its own: what is drawn from it moves nothing else."""
        # Not for secrets: a run must be repeatable.
        return random.Random(f"{self._seed} {name}")  # noqa: S311

    def at(self, when: float, action: Callable[[], None]) -> SimTimer:
        """Run something at a moment of true time, or now if that is over."""
        timer = SimTimer(action)
        heapq.heappush(self._heap, (max(when, self.now), next(self._numbers), timer))
        return timer

    def after(self, delay_s: float, action: Callable[[], None]) -> SimTimer:
        """Run something after a while of true time."""
        return self.at(self.now + delay_s, action)

    def run_until(self, until: float) -> None:
        """Let time pass."""
        for _ in range(_EVENTS_MAX):
            if not self._heap or self._heap[0][0] > until:
                self.now = until
                return
            self.now, _number, timer = heapq.heappop(self._heap)
            timer.fire()
        raise AssertionError(f"more than {_EVENTS_MAX} events: something runs in circles")

    def note(
        self,
        kind: Kind,
        who: str,
        *,
        queue: str = "",
        offset: int = -1,
        epoch: int = 0,
        text: str = "",
    ) -> None:
        """Write a line of history."""
        self.history.add(Happened(self.now, kind, who, queue, offset, epoch, text))


class Clock:
    """The clock of one computer: how fast it runs, and what it shows at the beginning."""

    def __init__(self, world: World, rate: float = 1.0, start_s: float = 0.0) -> None:
        self.world = world
        self.rate = rate
        self._start_s = start_s

    def read(self) -> Instant:
        """What a process on this computer sees."""
        at_s = self._start_s + self.world.now * self.rate
        return Instant(at_s, _START_MS + int(at_s * 1000))

    def true_delay(self, delay_s: float) -> float:
        """How long a delay by this clock takes in truth."""
        return delay_s / self.rate


class Process:
    """One run of a program; a restarted program is another process of the same name."""

    def __init__(self, name: str, clock: Clock) -> None:
        self.name = name
        self.clock = clock
        self.world = clock.world
        self.alive = True
        self.paused = False
        self._backlog: list[Callable[[], None]] = []
        self._on_end: list[Callable[[], None]] = []

    def run(self, action: Callable[[], None]) -> None:
        """Let something happen in this process: now, after its pause, or never."""
        if self.paused and self.alive:
            self._backlog.append(action)
        elif self.alive:
            action()

    def soon(self, action: Callable[[], None]) -> None:
        """Run something after what runs now."""
        self.world.after(0.0, lambda: self.run(action))

    def later(self, delay_s: float, action: Callable[[], None]) -> SimTimer:
        """Run something after a while by this process's clock."""
        timer = SimTimer(action)
        self.world.after(self.clock.true_delay(delay_s), lambda: self.run(timer.fire))
        return timer

    def pause(self) -> None:
        """Stop it as SIGSTOP does: its clock and the network go on."""
        self.paused = True

    def resume(self) -> None:
        """Let it go on with everything that came meanwhile, in order."""
        self.paused = False
        while self._backlog and not self.paused:
            backlog, self._backlog = self._backlog, []
            for action in backlog:
                self.run(action)

    def on_end(self, action: Callable[[], None]) -> None:
        """Have the operating system clean something up when the process ends."""
        self._on_end.append(action)

    def end(self) -> None:
        """End it, however that came about."""
        if self.alive:
            self.alive = False
            self._backlog.clear()
            for action in self._on_end:
                action()

"""Decides about the children of a worker: when to start, restart, replace and stop each of them.

A machine: `handle(event, now)` returns what has to be done. It knows children by number and time as
an argument; processes, signals and clocks are the driver's business.

- A child that dies is replaced: at once when it had run for a while, else after a pause that
  doubles with every quick death in a row. After `give_up_after` of them it is given up, and when
  every child is, the worker ends with a failure. A child that merely cannot reach its servers is
  tried again for ever.
- A reload replaces one child after the other. The next one is not touched before the replacement
  consumes, and never the last one that does: the replacement of an only child starts first, under
  the number that is free.
- A replacement that does not come up halts the reload; the other children keep the old code.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from gimbalmq.cli.worker import events as ev
from gimbalmq.cli.worker.children import Child, ChildState, SupervisorSettings
from gimbalmq.cli.worker.events import Failure, Notice, TimerName

__all__ = ["ChildState", "SupervisorMachine", "SupervisorSettings"]

_FAILED: Final = 2
#: States of a process that is meant to go on.
_USEFUL: Final = frozenset({ChildState.STARTING, ChildState.READY})
#: A child that was told to hurry commits and leaves; that takes a few round trips.
_HURRY_S: Final = 5.0
#: How much longer than the listeners' time a drain may take: commits, and leaving the group.
_LEAVE_S: Final = 15.0


class SupervisorMachine:
    """The children of one worker."""

    def __init__(self, settings: SupervisorSettings) -> None:
        self.settings = settings
        self.children = {number: Child(number) for number in range(1, settings.processes + 1)}
        #: Reloads by how they ended.
        self.reloads: Counter[str] = Counter()
        self._stops = 0
        self._code = 0
        self._ended = False
        self._ever_ready = False
        self._reloading = False
        #: Processes that still run the old code: number and epoch.
        self._old: list[tuple[int, int]] = []
        #: The child that is being replaced, and the one that takes its place, while reloading.
        self._step: tuple[int, int] | None = None
        self._out: list[ev.Effect] = []

    def handle(self, event: ev.Event, now: float) -> list[ev.Effect]:
        """Take one event in; returns what has to be done."""
        self._out = []
        if not self._ended:
            self._take(event, now)
            if not self._ended:
                self._end_if_over()
        return self._out

    def _take(self, event: ev.Event, now: float) -> None:
        match event:
            case ev.Began():
                for child in list(self.children.values()):
                    self._spawn(child, now)
            case ev.StopAsked():
                self._stop()
            case ev.ReloadAsked():
                self._reload(now)
            case _:
                about = self.children.get(event.number)
                if about is not None and about.epoch == event.epoch:
                    self._take_news(about, event, now)

    def _take_news(
        self,
        child: Child,
        event: ev.ChildReady | ev.ChildFailed | ev.ChildExited | ev.TimerFired,
        now: float,
    ) -> None:
        match event:
            case ev.ChildReady():
                self._ready(child, now)
            case ev.ChildFailed():
                child.failure = event
            case ev.ChildExited():
                self._exited(child, event.code, now)
            case ev.TimerFired():
                self._fired(child, event.name, now)

    @property
    def stopping(self) -> bool:
        """Whether all children are to end."""
        return self._stops > 0

    @property
    def reloading(self) -> bool:
        """Whether children are being replaced."""
        return self._reloading

    # ---- starting ----------------------------------------------------------------------------

    def _spawn(self, child: Child, now: float) -> None:
        child.begin(now)
        number, epoch = child.number, child.epoch
        self._out.append(ev.Spawn(number, epoch))
        self._tell(Notice.STARTING, child, "starting")
        timeout_s = self.settings.start_timeout_s
        self._out.append(ev.SetTimer(TimerName.START, number, epoch, timeout_s))

    def _ready(self, child: Child, now: float) -> None:
        if child.state is not ChildState.STARTING:
            return
        child.state = ChildState.READY
        child.unreachable = 0
        self._ever_ready = True
        self._tell(Notice.READY, child, "consuming")
        if self._step is not None and self._step[1] == child.number:
            old = self.children[self._step[0]]
            if old is not child and old.alive:
                self._drain(old)
                return
            if old is not child:
                del self.children[old.number]
            self._step = None
        self._reload_next(now)

    # ---- ending ------------------------------------------------------------------------------

    def _exited(self, child: Child, code: int, now: float) -> None:
        was = child.state
        child.state = ChildState.GONE
        if was is ChildState.DRAINING:
            self._tell(Notice.EXITED, child, "has left")
            if self._stops == 0:
                self._replaced(child, now)
            return
        if self._stops == 0:
            self._died(child, code, was, now)

    def _replaced(self, child: Child, now: float) -> None:
        """A child has drained for the reload: its replacement is next, or was there before."""
        if self._step is not None and self._step[0] == child.number:
            if self._step[1] == child.number:
                self._spawn(child, now)
                return
            del self.children[child.number]
            self._step = None
            self._reload_next(now)
            return
        self._spawn(child, now)

    def _died(self, child: Child, code: int, was: ChildState, now: float) -> None:
        failure = child.failure
        unusable = failure is not None and failure.failure is Failure.UNUSABLE
        words = failure.reason if failure is not None else _end_of(code)
        self._tell(Notice.FAILED if failure is not None else Notice.DIED, child, words)
        if was is not ChildState.READY and self._halt_reload(child):
            return
        if unusable and not self._ever_ready:
            # Nothing has worked yet: the command line is wrong, not a release.
            self._code = _FAILED
            self._stop()
            return
        child.count_death(self.settings, now)
        if child.hopeless(self.settings):
            self._give_up(child, now)
            return
        child.restarts += 1
        child.state = ChildState.WAITING
        delay_s = child.restart_delay_s(self.settings)
        if delay_s == 0.0:
            self._spawn(child, now)
        else:
            self._tell(Notice.DIED, child, f"starts again in {delay_s:g} s")
            self._out.append(ev.SetTimer(TimerName.RESTART, child.number, child.epoch, delay_s))

    def _give_up(self, child: Child, now: float) -> None:
        child.state = ChildState.GIVEN_UP
        self._code = _FAILED
        self._tell(
            Notice.GIVEN_UP,
            child,
            f"died {child.quick_deaths} times within {self.settings.quick_death_s:g} s of its "
            "start and is given up; SIGHUP tries it again",
        )
        self._reload_next(now)

    def _fired(self, child: Child, name: TimerName, now: float) -> None:
        match name, child.state:
            case TimerName.RESTART, ChildState.WAITING:
                self._spawn(child, now)
            case TimerName.START, ChildState.STARTING:
                self._kill(child, f"did not consume within {self.settings.start_timeout_s:g} s")
            case TimerName.DRAIN, ChildState.DRAINING:
                self._kill(child, "did not leave in time: its messages are delivered again")
                self._code = _FAILED if self._stops else self._code

    def _kill(self, child: Child, why: str) -> None:
        self._tell(Notice.KILLED, child, why)
        self._out.append(ev.Kill(child.number))

    def _drain(self, child: Child) -> None:
        if child.state is ChildState.DRAINING:
            return
        child.state = ChildState.DRAINING
        self._tell(Notice.DRAINING, child, "finishes its messages")
        self._out.append(ev.Drain(child.number))
        self._timed(child, self.settings.drain_s + _LEAVE_S)

    def _timed(self, child: Child, delay_s: float) -> None:
        self._out.append(ev.SetTimer(TimerName.DRAIN, child.number, child.epoch, delay_s))

    def _stop(self) -> None:
        self._stops += 1
        self._reloading = False
        self._old.clear()
        self._step = None
        for child in self.children.values():
            if not child.alive:
                if child.state is ChildState.WAITING:
                    child.state = ChildState.GONE
            elif self._stops == 1:
                self._drain(child)
            elif self._stops == 2:
                self._out.append(ev.Hurry(child.number))
                self._timed(child, _HURRY_S)
            else:
                self._kill(child, "was not waited for")
        words = ("stopping", "hurrying", "ending now")[min(self._stops, 3) - 1]
        self._out.insert(0, ev.Tell(Notice.STOPPING, 0, words))

    def _end_if_over(self) -> None:
        children = self.children.values()
        if any(child.alive or child.state is ChildState.WAITING for child in children):
            return
        if self._stops == 0 and not any(child.state is ChildState.GIVEN_UP for child in children):
            return  # not begun yet
        self._ended = True
        words = "stopped" if self._stops else "no child is left"
        self._out += [ev.Tell(Notice.STOPPED, 0, words), ev.End(self._code)]

    # ---- reloading ---------------------------------------------------------------------------

    def _reload(self, now: float) -> None:
        if self._stops:
            return
        self._tell_all(Notice.RELOADING, "replacing one child after the other")
        self._reloading = True
        self._code = 0
        goes = None
        if self._step is not None and self._step[0] != self._step[1]:
            goes = self._step[0]  # drained in any case, as soon as the other one consumes
        self._old = [
            (child.number, child.epoch)
            for child in self.children.values()
            # One that drains for a reload is started anew in any case.
            if child.state in _USEFUL and child.number != goes
        ]
        for child in list(self.children.values()):
            if child.state in {ChildState.WAITING, ChildState.GIVEN_UP}:
                child.forgive()
                self._spawn(child, now)
        self._reload_next(now)

    def _reload_next(self, now: float) -> None:
        """Go on with the reload, if there is one and it may go on."""
        if self._step is not None or not self._reloading:
            return
        while self._old:
            number, epoch = self._old[0]
            child = self.children.get(number)
            if child is None or child.epoch != epoch or child.state not in _USEFUL:
                self._old.pop(0)  # died meanwhile: what starts in its place runs the new code
                continue
            if child.state is ChildState.READY:
                self._replace(child, now)
            return
        self._reloading = False
        self.reloads["completed"] += 1
        self._tell_all(Notice.RELOADED, "every child runs the new code")

    def _replace(self, child: Child, now: float) -> None:
        others = [one.state for one in self.children.values() if one is not child]
        if ChildState.READY in others:
            self._old.pop(0)
            self._step = child.number, child.number
            self._drain(child)
        elif ChildState.STARTING not in others and ChildState.WAITING not in others:
            # No other one consumes, or will: this one goes on until its replacement is there.
            self._old.pop(0)
            numbers = range(1, self.settings.processes + 2)
            spare = Child(min(set(numbers) - self.children.keys()))
            # Numbers come back: news of an earlier process must not be taken for this one's.
            spare.epoch = max(one.epoch for one in self.children.values())
            self.children[spare.number] = spare
            self._step = child.number, spare.number
            self._spawn(spare, now)

    def _halt_reload(self, child: Child) -> bool:
        """A child died before it consumed; True when it was only there to replace another."""
        if self._step is None or self._step[1] != child.number:
            return False
        old, new = self._step
        self._step = None
        self._reloading = False
        self._old.clear()
        self.reloads["halted"] += 1
        self._tell_all(
            Notice.RELOAD_HALTED,
            f"the new child {new} did not come up; the others keep the old code. Mend it, then "
            "send SIGHUP again",
        )
        if old != new:
            del self.children[new]
            return True
        return False

    # ---- words -------------------------------------------------------------------------------

    def _tell(self, notice: Notice, child: Child, text: str) -> None:
        self._out.append(ev.Tell(notice, child.number, text))

    def _tell_all(self, notice: Notice, text: str) -> None:
        self._out.append(ev.Tell(notice, 0, text))


def _end_of(code: int) -> str:
    if code < 0:
        return f"was ended by signal {-code}"
    return f"exited by itself with code {code}"

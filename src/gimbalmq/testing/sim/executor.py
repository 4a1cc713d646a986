"""Listeners in virtual time: takes runs of messages as the worker threads do.

A worker looks at the queue's permit before each message; a run of single messages that turns out
slow gives its rest back to be shared; an ordered run stops at the first message that fails.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

import msgspec

from gimbalmq.core.consumer.claims import Claims
from gimbalmq.core.consumer.effects import Consume
from gimbalmq.core.consumer.events import Consumed
from gimbalmq.model.queue import MessageQueue
from gimbalmq.runtime.running import RunningWork
from gimbalmq.testing.sim.history import Kind
from gimbalmq.testing.sim.world import Process

__all__ = ["ListenerHabits", "SimExecutor"]

_RUN_S: Final = 0.002
_RUN_MESSAGES: Final = 4
_SUSPEND_S: Final = 0.2


class ListenerHabits(msgspec.Struct, frozen=True):
    """How long listeners take, and how often they fail or hang."""

    shortest_s: float = 0.001
    longest_s: float = 0.02
    hang_s: float = 6.0
    hang_share: float = 0.0
    #: In true time: what a group has to catch up with when all is quiet takes no longer for that.
    hang_until_s: float = float("inf")
    failure_share: float = 0.0

    def takes_s(self, chance: random.Random, now: float) -> float:
        """How long the next message takes."""
        duration_s = chance.uniform(self.shortest_s, self.longest_s)
        hangs = chance.random() < self.hang_share and now < self.hang_until_s
        return self.hang_s if hangs else duration_s


class _Run:
    """What one worker is doing."""

    def __init__(self, consume: Consume, first: int, until: int, now: float) -> None:
        self.consume = consume
        self.first = first
        self.until = until
        self.position = first
        self.share_at = now + _RUN_S
        #: When its present message was started.
        self.since = now
        self.failures: list[tuple[int, int]] = []


class SimExecutor:
    """The workers of one member."""

    def __init__(
        self,
        process: Process,
        habits: ListenerHabits,
        workers: int,
        finished: Callable[[Consumed], None],
    ) -> None:
        self._process = process
        self._world = process.world
        self._chance = process.world.stream(f"listeners of {process.name}")
        self._habits = habits
        self._idle = workers
        self._finished = finished
        self._claims = Claims()
        self._runs: list[_Run] = []

    # ---- the host's side ---------------------------------------------------------------------

    def submit(self, consume: Consume) -> None:
        """Let a run of messages wait for a worker."""
        self._claims.add(consume)
        self._process.soon(self._wake)

    def cancel(self, queue: MessageQueue, epoch: int) -> int:
        """Give a queue up; returns how many messages of it run or still have to."""
        return self._claims.cancel(queue, epoch)

    def accounted(self, done: Consumed) -> None:
        """The owner has taken a result in."""
        self._claims.account(done)

    def running(self) -> list[RunningWork]:
        """What the workers are doing now."""
        works = []
        for number, run in enumerate(self._runs):
            work = RunningWork(run.consume, run.first, run.until, run.since, number)
            work.position = run.position
            works.append(work)
        return works

    # ---- workers -----------------------------------------------------------------------------

    def _now(self) -> float:
        return self._process.clock.read().at_s

    def _wake(self) -> None:
        while self._idle and self._claims.waiting:
            # An ordered run is claimed whole: its length is not left to chance.
            ordered = self._claims.waiting[0].ordered
            most = 1 if ordered else self._chance.randint(1, _RUN_MESSAGES)
            consume, first, until = self._claims.claim(most)
            self._idle -= 1
            run = _Run(consume, first, until, self._now())
            self._runs.append(run)
            self._next(run)

    def _next(self, run: _Run) -> None:
        permit, now = run.consume.permit, self._now()
        over = run.position >= run.until or (permit is not None and now >= permit.valid_until)
        if over or (not run.consume.ordered and now >= run.share_at):
            self._end(run)
            return
        run.since = now
        self._note(Kind.STARTED, run)
        chance, habits = self._chance, self._habits
        duration_s = habits.takes_s(chance, self._world.now)
        fails = chance.random() < habits.failure_share
        self._process.later(duration_s, lambda: self._ended(run, fails=fails))

    def _note(self, kind: Kind, run: _Run) -> None:
        consume = run.consume
        message = consume.batch.messages[run.position]
        self._world.note(
            kind,
            self._process.name,
            queue=consume.queue.path,
            offset=consume.batch.offsets[run.position],
            epoch=consume.epoch,
            text=bytes(message.body).decode(),
        )

    def _ended(self, run: _Run, *, fails: bool) -> None:
        self._note(Kind.FAILED if fails else Kind.ENDED, run)
        if fails and run.consume.ordered:
            self._end(run, suspend_s=_SUSPEND_S)
            return
        if fails:
            run.failures.append((run.position, 0))
        run.position += 1
        self._next(run)

    def _end(self, run: _Run, suspend_s: float | None = None) -> None:
        consume, reached = run.consume, run.position
        done = Consumed(
            consume.queue,
            consume.epoch,
            consume.batch,
            run.first,
            run.until,
            tuple(run.failures),
            None if reached == run.until else reached,
            suspend_s,
        )
        if reached < run.until and not consume.ordered and self._give_back(run):
            done = msgspec.structs.replace(done, until=reached, reached=None)
        self._idle += 1
        self._runs.remove(run)
        self._process.soon(lambda: self._finished(done))
        self._process.soon(self._wake)

    def _give_back(self, run: _Run) -> bool:
        consume, permit = run.consume, run.consume.permit
        ended = permit is not None and self._now() >= permit.valid_until
        if ended or self._claims.is_over(consume, run.until):
            return False
        self._claims.give_back(consume, run.position, run.until)
        return True

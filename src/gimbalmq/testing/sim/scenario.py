"""Random scenarios: a cast, messages, and what goes wrong, all from one seed.

`simulate(seed)` runs one and judges its history. Equal seeds and options give equal histories.
Decides when things happen and what counts as wrong; must not know how members and brokers are
made (`cast`) nor what a fault does (`faults`).
"""

from __future__ import annotations

import functools
import traceback
from typing import Final

import msgspec

from gimbalmq.model.queue import MessageQueue
from gimbalmq.testing import checkers
from gimbalmq.testing.sim.bounds import settling_s
from gimbalmq.testing.sim.cast import BEGIN_S, TOPIC, Cast
from gimbalmq.testing.sim.faults import Faults
from gimbalmq.testing.sim.history import History, Kind
from gimbalmq.testing.sim.options import CLEAN, PEACEFUL, Mode, Options

__all__ = ["Outcome", "simulate"]

#: More requests of one member in a second than these are no answer to anything that happened.
_LOAD_MAX: Final = {
    "GET_CONSUMER_LIST_BY_GROUP": 40,
    "LOCK_BATCH_MQ": 60,
    "UNLOCK_BATCH_MQ": 60,
    "HEART_BEAT": 60,
}


class Outcome(msgspec.Struct, frozen=True):
    """How a run went."""

    seed: int
    #: As they were given, and with what was drawn for this run.
    options: Options
    drawn: Options
    history: History
    violations: tuple[str, ...]
    settled_after_s: float
    #: Within how long it had to settle.
    settled_within_s: float

    @property
    def mode(self) -> Mode:
        """How the group consumed."""
        assert self.drawn.mode is not None
        return self.drawn.mode

    @property
    def replay(self) -> str:
        """Python that does it again, with the names of `gimbalmq.testing.sim`."""
        return f"simulate({self.seed}, {self.options!r})"

    def report(self) -> str:
        """What was wrong, with what does it again."""
        lines = [self.replay, f"drawn: {self.drawn!r}", *self.violations[:10]]
        lines += map(str, self.history.of(Kind.CHANGED, Kind.JOINED, Kind.RESTARTED))
        return "\n".join(lines)


class _Scenario:
    """One run."""

    def __init__(self, cast: Cast) -> None:
        self._cast = cast
        self._calm_at = BEGIN_S + cast.options.trouble_s
        self.faults = Faults(cast, self._calm_at)

    def run(self) -> None:
        """Everything, from the first server to the end of the quiet time."""
        cast, world, chance = self._cast, self._cast.world, self._cast.chance
        cast.nameserver.start()
        for broker in cast.brokers:
            broker.start()
            broker.create_topic(TOPIC, cast.queues_each)
        world.run_until(1.0)
        for _ in range(chance.randint(1, 3)):
            world.after(chance.uniform(0.0, 1.0), self._join)
        self._produce()
        selection = chance.sample(
            cast.options.faults, k=min(len(cast.options.faults), chance.randint(1, 4))
        )
        for _ in range(chance.randint(1, cast.options.faults_max) if selection else 0):
            name = chance.choice(selection)
            world.at(
                chance.uniform(BEGIN_S, self._calm_at),
                functools.partial(self.faults.happen, name),
            )
        world.run_until(self._calm_at)
        world.at(self._calm_at, self._calm)
        world.run_until(self._calm_at + cast.options.quiet_s)

    def _join(self) -> None:
        self._cast.start_member()

    def _produce(self) -> None:
        cast, world, chance = self._cast, self._cast.world, self._cast.chance
        keys = chance.randint(2, 6)
        each = chance.randint(10, 50)
        pause_s = 0.0 if cast.options.backlog else 1.8 * cast.options.trouble_s / each

        def pause() -> float:
            return chance.uniform(0.0, pause_s) if world.now < self._calm_at else 0.01

        for key in range(keys):
            bodies = [f"k{key}-{number}" for number in range(each)]
            cast.producer.send(key, bodies, pause)

    def _calm(self) -> None:
        """The end of all trouble: somebody must be left."""
        if not self._cast.alive():
            self._cast.start_member()

    # ---- judging -----------------------------------------------------------------------------

    def settled_within_s(self) -> float:
        """How soon the group had to be at rest."""
        given_s = self._cast.options.settled_within_s
        return settling_s(self._cast, self.faults.happened) if given_s is None else given_s

    def violations(self) -> list[str]:
        """What the checkers found."""
        cast, history = self._cast, self._cast.world.history
        found = checkers.check_loss(history)
        if cast.producer.unsettled:
            found.append(f"stuck: {cast.producer.unsettled} keys were not sent to their end")
        found += checkers.check_stores(history)
        if cast.options.keyed:
            found += checkers.check_lanes(history)
        if cast.mode.locking:
            found += self._broken_locks(history)
        if cast.mode is Mode.ORDERED:
            found += checkers.check_key_order(history)
            if not cast.options.keyed:
                found += checkers.check_order(history, TOPIC)
        found += checkers.check_load(history, _LOAD_MAX)
        found += checkers.check_cover(*self._owned())
        return found + checkers.check_settled(history, self.settled_within_s())

    def _broken_locks(self, history: History) -> list[str]:
        """What is wrong where a queue is owned with its lock only."""
        found = checkers.check_exclusive(history)
        found += checkers.check_drained(history)
        found += checkers.check_late_stores(history)
        if not self._cast.options.busy_brokers:
            found += checkers.check_commits(history)
        if self.faults.happened <= PEACEFUL:
            found += checkers.check_overlap(history)
        # Keys run ahead of each other, and what they did above the stored offset comes again.
        if self.faults.happened <= CLEAN and not self._cast.options.keyed:
            found += checkers.check_once(history)
        return found

    def _owned(self) -> tuple[dict[str, list[str]], list[str]]:
        cast = self._cast
        owned = {
            member.process.name: [
                queue.path for queue in member.assignment() if queue.topic == TOPIC
            ]
            for member in cast.members
        }
        queues = [
            MessageQueue(TOPIC, broker.name, number).path
            for broker in cast.brokers
            for number in range(cast.queues_each)
        ]
        return owned, queues


def simulate(seed: int, options: Options | None = None) -> Outcome:
    """Run one scenario and judge it; what it raises counts as a violation, and ends it."""
    options = options or Options()
    cast = Cast(seed, options)
    scenario = _Scenario(cast)
    try:
        scenario.run()
        violations = scenario.violations()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is told with what replays it
        said = "".join(traceback.format_exception(error))
        violations = [f"broken at {cast.world.now:.4f}: {said}"]
    history = cast.world.history
    return Outcome(
        seed,
        options,
        cast.options,
        history,
        tuple(violations),
        checkers.settled_after_s(history),
        scenario.settled_within_s(),
    )

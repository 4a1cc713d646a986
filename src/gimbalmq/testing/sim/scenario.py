"""Random scenarios: a cast, messages, and what goes wrong, all from one seed.

`simulate(seed)` runs one and judges its history. Equal seeds and options give equal histories.
Decides when things happen and what counts as wrong; must not know how members and brokers are
made (`cast`) nor what a fault does (`faults`).
"""

from __future__ import annotations

import functools
from typing import Final

import msgspec

from gimbalmq.model.queue import MessageQueue
from gimbalmq.testing import checkers
from gimbalmq.testing.sim.cast import TOPIC, Cast
from gimbalmq.testing.sim.faults import Faults
from gimbalmq.testing.sim.history import History, Kind
from gimbalmq.testing.sim.options import Mode, Options

__all__ = ["Outcome", "simulate"]

_BEGIN_S: Final = 3.0


class Outcome(msgspec.Struct, frozen=True):
    """How a run went."""

    seed: int
    mode: Mode
    history: History
    violations: tuple[str, ...]
    settled_after_s: float

    def report(self) -> str:
        """What was wrong, with the seed that does it again."""
        lines = [f"seed {self.seed} ({self.mode.value}):", *self.violations[:10]]
        lines += [str(line) for line in self.history.of(Kind.CHANGED, Kind.RESTARTED)]
        return "\n".join(lines)


class _Scenario:
    """One run."""

    def __init__(self, cast: Cast) -> None:
        self._cast = cast
        self._calm_at = _BEGIN_S + cast.options.trouble_s
        self._faults = Faults(cast, self._calm_at)

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
                chance.uniform(_BEGIN_S, self._calm_at),
                functools.partial(self._faults.happen, name),
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

    def violations(self) -> list[str]:
        """What the checkers found."""
        cast, history = self._cast, self._cast.world.history
        found = checkers.check_loss(history)
        if cast.producer.unsettled:
            found.append(f"stuck: {cast.producer.unsettled} keys were not sent to their end")
        if cast.mode is not Mode.CONCURRENT:
            found += checkers.check_exclusive(history)
            found += checkers.check_commits(history)
        if cast.mode is Mode.ORDERED:
            found += checkers.check_order(history, TOPIC)
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
        found += checkers.check_cover(owned, queues)
        return found + checkers.check_settled(history, cast.options.settled_within_s)


def simulate(seed: int, options: Options | None = None) -> Outcome:
    """Run one scenario and judge it."""
    cast = Cast(seed, options or Options())
    scenario = _Scenario(cast)
    scenario.run()
    history = cast.world.history
    return Outcome(
        seed,
        cast.mode,
        history,
        tuple(scenario.violations()),
        checkers.settled_after_s(history),
    )

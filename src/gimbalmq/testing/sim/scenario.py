"""Random scenarios: a cluster, a group, a producer, and what goes wrong, all from one seed.

`simulate(seed)` runs one and judges its history. Equal seeds and options give equal histories.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable
from typing import Final

import msgspec

from gimbalmq.broker.settings import BrokerSettings
from gimbalmq.core.allocation import Strategy, strategy_named
from gimbalmq.core.consumer.settings import ConsumerSettings
from gimbalmq.core.identity import member_id, stem_of
from gimbalmq.flows.route import NameServers
from gimbalmq.model.queue import MessageQueue
from gimbalmq.runtime.instance import InstanceSettings
from gimbalmq.runtime.pull_calls import PullSettings
from gimbalmq.testing import checkers
from gimbalmq.testing.sim.clients import SimMember, SimProducer
from gimbalmq.testing.sim.executor import ListenerHabits
from gimbalmq.testing.sim.history import History, Kind
from gimbalmq.testing.sim.network import Network
from gimbalmq.testing.sim.servers import SimBroker, SimNameServer
from gimbalmq.testing.sim.world import Clock, World

__all__ = ["FAULTS", "RESTARTS", "Mode", "Options", "Outcome", "simulate"]

_TOPIC: Final = "orders"
_GROUP: Final = "billing"
_NAMESERVERS: Final = ("10.0.1.1:9876",)
_BEGIN_S: Final = 3.0
_CHANNEL_LIFE_S: Final = 20
_DRIFT_MAX: Final = 0.05
_DRAIN_S: Final = 5.0

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
    #: How long a member that restarts stays away.
    member_away_s: tuple[float, float] = (0.5, 8.0)


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

    def __init__(self, seed: int, options: Options) -> None:
        self.world = World(seed)
        self.chance = self.world.chance
        self.options = options
        self.mode = options.mode or self.chance.choice(list(Mode))
        self.network = Network(self.world)
        self.nameserver = SimNameServer("nameserver", _NAMESERVERS[0], self._clock(), self.network)
        self.queues_each = self.chance.randint(1, 4)
        self.brokers = [
            self._broker(name) for name in ("broker-a", "broker-b")[: self.chance.randint(1, 2)]
        ]
        self.producer = SimProducer(_TOPIC, _NAMESERVERS, self._clock(), self.network)
        self.members: list[SimMember] = []
        self.members_made = 0
        self.habits = self._habits()
        self.calm_at = _BEGIN_S + options.trouble_s

    # ---- the cast ----------------------------------------------------------------------------

    def _clock(self) -> Clock:
        rate = self.chance.uniform(1 - _DRIFT_MAX, 1 + _DRIFT_MAX)
        return Clock(self.world, rate, self.chance.uniform(100.0, 1000.0))

    def _habits(self) -> ListenerHabits:
        longest_s = self.chance.choice((0.002, 0.05, 0.3))
        if not self.options.rough_listeners:
            return ListenerHabits(0.0005, longest_s)
        return ListenerHabits(
            0.0005,
            longest_s,
            hang_share=self.chance.choice((0.0, 0.02)),
            failure_share=self.chance.choice((0.0, 0.05)),
        )

    def _broker(self, name: str) -> SimBroker:
        settings = BrokerSettings(
            name=name,
            host="10.0.2.1",
            port=10911 + 100 * (name == "broker-b"),
            faithful=self.options.faithful,
            channel_life_ms=_CHANNEL_LIFE_S * 1000,
            channel_scan_ms=2000,
            delay_levels_ms=(200,) * 18,
        )
        return SimBroker(settings, NameServers(_NAMESERVERS), self._clock(), self.network)

    def _member(self, stem: str | None = None) -> SimMember:
        """Start a member: another one, or the next run of one that was there."""
        if stem is None:
            self.members_made += 1
            stem = f"m{self.members_made}"
        strategy = self._strategy()
        client_id = member_id(stem, strategy.name, rejoin_grace_s=self.options.rejoin_grace_s)
        settings = ConsumerSettings(
            group=_GROUP,
            client_id=client_id,
            ordered=self.mode is Mode.ORDERED,
            lease=self.mode is Mode.LEASE,
            rebalance_interval_s=10.0,
            pull_idle_limit_s=40.0,
            rejoin_grace_s=self.options.rejoin_grace_s,
        )
        member = SimMember(
            settings,
            _TOPIC,
            _NAMESERVERS,
            self._clock(),
            self.network,
            timers=InstanceSettings(
                poll_name_server_interval_s=10.0, heartbeat_broker_interval_s=5.0
            ),
            habits=self.habits,
            workers=self.chance.randint(1, 4),
            pulls=PullSettings(pull_batch_size=2 if self.options.backlog else 32),
            strategy=strategy,
            run=1 + sum(one.client_id == client_id for one in self.members),
        )
        self.members.append(member)
        self._changed(member.process.name, "joins")
        member.start()
        return member

    @staticmethod
    def _strategy() -> Strategy:
        return strategy_named("AVG")

    def _changed(self, who: str, what: str) -> None:
        self.world.note(Kind.CHANGED, who, text=what)

    def _alive(self) -> list[SimMember]:
        return [one for one in self.members if one.process.alive and not one.leaving]

    # ---- the plot ----------------------------------------------------------------------------

    def run(self) -> None:
        """Everything, from the first server to the end of the quiet time."""
        self.nameserver.start()
        for broker in self.brokers:
            broker.start()
            broker.create_topic(_TOPIC, self.queues_each)
        self.world.run_until(1.0)
        for _ in range(self.chance.randint(1, 3)):
            self.world.after(self.chance.uniform(0.0, 1.0), self._one_more)
        self._produce()
        selection = self.chance.sample(
            self.options.faults, k=min(len(self.options.faults), self.chance.randint(1, 4))
        )
        for _ in range(self.chance.randint(1, self.options.faults_max) if selection else 0):
            name = self.chance.choice(selection)
            self.world.at(
                self.chance.uniform(_BEGIN_S, self.calm_at), functools.partial(self._fault, name)
            )
        self.world.run_until(self.calm_at)
        self.world.at(self.calm_at, self._calm)
        self.world.run_until(self.calm_at + self.options.quiet_s)

    def _produce(self) -> None:
        keys = self.chance.randint(2, 6)
        each = self.chance.randint(10, 50)
        pause_s = 0.0 if self.options.backlog else 1.8 * self.options.trouble_s / each

        def pause() -> float:
            return self.chance.uniform(0.0, pause_s) if self.world.now < self.calm_at else 0.01

        for key in range(keys):
            bodies = [f"k{key}-{number}" for number in range(each)]
            self.producer.send(key, bodies, pause)

    def _calm(self) -> None:
        """The end of all trouble: somebody must be left."""
        if not self._alive():
            self._member()

    def _until_calm(self, delay_s: float, action: Callable[[], None]) -> None:
        self.world.at(min(self.world.now + delay_s, self.calm_at), action)

    # ---- what goes wrong ---------------------------------------------------------------------

    def _fault(self, name: str) -> None:
        actions = {
            "join": self._one_more,
            "restart": lambda: self._to_member(self._restart),
            "crash and restart": lambda: self._to_member(self._crash_and_restart),
            "leave": lambda: self._to_member(self._leave),
            "crash": lambda: self._to_member(self._crash),
            "power loss": lambda: self._to_member(self._power_loss),
            "pause": lambda: self._to_member(self._pause),
            "partition": lambda: self._to_member(self._partition),
            "isolation": lambda: self._to_member(self._isolation),
            "torn connection": self._tear,
            "broker crash": self._broker_crash,
            "broker pause": self._broker_pause,
            "name server crash": self._nameserver_crash,
        }
        actions[name]()

    def _to_member(self, action: Callable[[SimMember], None]) -> None:
        alive = self._alive()
        if alive:
            action(self.chance.choice(alive))

    def _leave(self, member: SimMember) -> None:
        if not member.process.paused:
            self._changed(member.process.name, "leaves")
            member.leave(_DRAIN_S)

    def _crash(self, member: SimMember) -> None:
        self._changed(member.process.name, "crashes")
        member.process.end()

    def _one_more(self) -> None:
        self._member()

    def _restart(self, member: SimMember) -> None:
        if not member.process.paused:
            member.process.on_end(lambda: self._come_back(member))
            self._leave(member)

    def _crash_and_restart(self, member: SimMember) -> None:
        self._crash(member)
        self._come_back(member)

    def _come_back(self, member: SimMember) -> None:
        stem = stem_of(member.client_id)
        # Not cut short by the calm, and known to happen: a group of the dead is waited for.
        self.world.after(
            self.chance.uniform(*self.options.member_away_s), lambda: self._run_again(stem)
        )

    def _run_again(self, stem: str) -> None:
        self._member(stem)

    def _power_loss(self, member: SimMember) -> None:
        self._changed(member.process.name, "loses power")
        self.network.silence(member.process)
        member.process.end()

    def _pause(self, member: SimMember) -> None:
        if member.process.paused:
            return
        self._changed(member.process.name, "pauses")
        member.process.pause()

        def resume() -> None:
            self._changed(member.process.name, "goes on")
            member.process.resume()

        self._until_calm(self.chance.uniform(0.5, 15.0), resume)

    def _partition(self, member: SimMember) -> None:
        self._cut(member.process.name, self.chance.choice(self.brokers).name)

    def _isolation(self, member: SimMember) -> None:
        for server in (*self.brokers, self.nameserver):
            self._cut(member.process.name, server.name)

    def _cut(self, one: str, other: str) -> None:
        self._changed(one, f"is cut off from {other}")
        self.network.cut(one, other)

        def heal() -> None:
            self._changed(one, f"reaches {other} again")
            self.network.heal(one, other)

        self._until_calm(self.chance.uniform(0.5, 15.0), heal)

    def _tear(self) -> None:
        connections = self.network.alive_connections()
        if not connections:
            return
        connection = self.chance.choice(connections)
        learns = [self.chance.uniform(0.0, 8.0), self.chance.uniform(0.0, 8.0)]
        never = self.chance.randint(0, 5)
        self._changed(" and ".join(sorted(connection.names)), "lose a connection")
        connection.tear((None if never == 0 else learns[0], None if never == 1 else learns[1]))

    def _broker_crash(self) -> None:
        broker = self.chance.choice(self.brokers)
        if not broker.process.alive or broker.process.paused:
            return
        self._changed(broker.name, "crashes")
        broker.crash()

        def restart() -> None:
            self._changed(broker.name, "starts")
            broker.restart()

        # Not cut short by the calm: how long it is away is a promise.
        self.world.after(self.chance.uniform(*self.options.broker_away_s), restart)

    def _broker_pause(self) -> None:
        broker = self.chance.choice(self.brokers)
        process = broker.process
        if process.paused or not process.alive:
            return
        self._changed(broker.name, "pauses")
        process.pause()

        def resume() -> None:
            self._changed(broker.name, "goes on")
            process.resume()

        self._until_calm(self.chance.uniform(0.5, 8.0), resume)

    def _nameserver_crash(self) -> None:
        if not self.nameserver.process.alive:
            return
        self._changed("nameserver", "crashes")
        self.nameserver.crash()

        def restart() -> None:
            self._changed("nameserver", "starts")
            self.nameserver.restart()

        self._until_calm(self.chance.uniform(0.5, 10.0), restart)

    # ---- the verdict -------------------------------------------------------------------------

    def violations(self) -> list[str]:
        """What the checkers found."""
        history = self.world.history
        found = checkers.check_loss(history)
        if self.producer.unsettled:
            found.append(f"stuck: {self.producer.unsettled} keys were not sent to their end")
        if self.mode is not Mode.CONCURRENT:
            found += checkers.check_exclusive(history)
            found += checkers.check_commits(history)
        if self.mode is Mode.ORDERED:
            found += checkers.check_order(history, _TOPIC)
        owned = {
            member.process.name: [
                queue.path for queue in member.assignment() if queue.topic == _TOPIC
            ]
            for member in self.members
        }
        queues = [
            MessageQueue(_TOPIC, broker.name, number).path
            for broker in self.brokers
            for number in range(self.queues_each)
        ]
        found += checkers.check_cover(owned, queues)
        return found + checkers.check_settled(history, self.options.settled_within_s)


def simulate(seed: int, options: Options | None = None) -> Outcome:
    """Run one scenario and judge it."""
    scenario = _Scenario(seed, options or Options())
    scenario.run()
    history = scenario.world.history
    return Outcome(
        seed,
        scenario.mode,
        history,
        tuple(scenario.violations()),
        checkers.settled_after_s(history),
    )

"""Who plays in a scenario: one name server, brokers, a producer, and the members of one group.

Decides how each of them is drawn from the seed: clocks that drift, listeners with habits, how many
queues and brokers there are. Must not know what happens to them: `faults` and `scenario` do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gimbalmq.broker.settings import BrokerSettings
from gimbalmq.core.allocation import Strategy, strategy_named
from gimbalmq.core.consumer.settings import ConsumerSettings
from gimbalmq.core.identity import member_id
from gimbalmq.flows.route import NameServers
from gimbalmq.runtime.instance import InstanceSettings
from gimbalmq.runtime.pull_calls import PullSettings
from gimbalmq.testing.sim.clients import SimMember, SimProducer
from gimbalmq.testing.sim.executor import ListenerHabits
from gimbalmq.testing.sim.history import Kind
from gimbalmq.testing.sim.network import Network
from gimbalmq.testing.sim.options import Mode, Options
from gimbalmq.testing.sim.servers import SimBroker, SimNameServer
from gimbalmq.testing.sim.world import Clock, World

__all__ = ["NAMESERVERS", "TOPIC", "Cast"]

TOPIC: Final = "orders"
NAMESERVERS: Final = ("10.0.1.1:9876",)
_GROUP: Final = "billing"
_CHANNEL_LIFE_S: Final = 20
_DRIFT_MAX: Final = 0.05
_DRAIN_S: Final = 5.0


class Cast:
    """Everyone in one run.

    The order in which things are drawn is part of what a seed means: new ones come last.
    """

    def __init__(
        self,
        seed: int,
        options: Options,
        *,
        strategy: Callable[[], Strategy] = lambda: strategy_named("AVG"),
    ) -> None:
        """`strategy` makes that of each member."""
        self.world = World(seed)
        self.chance = self.world.chance
        self.options = options
        self.mode = options.mode or self.chance.choice(list(Mode))
        self.network = Network(self.world)
        self.nameserver = SimNameServer("nameserver", NAMESERVERS[0], self.clock(), self.network)
        self.queues_each = self.chance.randint(1, 4)
        self.brokers = [
            self.broker(name) for name in ("broker-a", "broker-b")[: self.chance.randint(1, 2)]
        ]
        self.producer = SimProducer(TOPIC, NAMESERVERS, self.clock(), self.network)
        self.members: list[SimMember] = []
        self.members_made = 0
        self.habits = self._habits()
        self._strategy = strategy

    def clock(self) -> Clock:
        """A clock of its own for one process."""
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

    def broker(self, name: str) -> SimBroker:
        """A broker that is not started yet: `broker-a` or `broker-b`."""
        settings = BrokerSettings(
            name=name,
            host="10.0.2.1",
            port=10911 + 100 * (name == "broker-b"),
            faithful=self.options.faithful,
            channel_life_ms=_CHANNEL_LIFE_S * 1000,
            channel_scan_ms=2000,
            delay_levels_ms=(200,) * 18,
        )
        return SimBroker(settings, NameServers(NAMESERVERS), self.clock(), self.network)

    def start_member(self, stem: str | None = None) -> SimMember:
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
            rebalance_interval_s=self.options.rebalance_interval_s,
            pull_idle_limit_s=40.0,
            rejoin_grace_s=self.options.rejoin_grace_s,
        )
        member = SimMember(
            settings,
            TOPIC,
            NAMESERVERS,
            self.clock(),
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
        self.changed(member.process.name, "joins")
        member.start()
        return member

    def leave(self, member: SimMember) -> None:
        """Let a member stop cleanly; one that is paused cannot."""
        if not member.process.paused:
            self.changed(member.process.name, "leaves")
            member.leave(_DRAIN_S)

    def crash(self, member: SimMember) -> None:
        """End a member; its connections end with it."""
        self.changed(member.process.name, "crashes")
        member.process.end()

    def changed(self, who: str, what: str) -> None:
        """Note in the history that somebody came, went, or was hindered."""
        self.world.note(Kind.CHANGED, who, text=what)

    def alive(self) -> list[SimMember]:
        """The members that are there and mean to stay."""
        return [one for one in self.members if one.process.alive and not one.leaving]

"""Who plays in a scenario: one name server, brokers, a producer, and the members of one group.

Decides how each of them is drawn from the seed: clocks that drift, listeners with habits, how many
queues and brokers there are. Must not know what happens to them: `faults` and `scenario` do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gimbalmq.broker.settings import BrokerSettings
from gimbalmq.client.push_options import key_function
from gimbalmq.core.allocation import Strategy, strategy_named
from gimbalmq.core.consumer.machine import ConsumerMachine
from gimbalmq.core.consumer.passive import PassiveMachine
from gimbalmq.core.consumer.settings import ConsumerSettings
from gimbalmq.core.identity import member_id, stem_of
from gimbalmq.flows.route import NameServers
from gimbalmq.runtime.consumer_parts import Executor
from gimbalmq.runtime.instance import InstanceSettings
from gimbalmq.runtime.pull_calls import PullSettings
from gimbalmq.testing.sim.clients import SimMember
from gimbalmq.testing.sim.executor import ListenerHabits, SimExecutor
from gimbalmq.testing.sim.history import Kind
from gimbalmq.testing.sim.network import Network
from gimbalmq.testing.sim.options import Mode, Options
from gimbalmq.testing.sim.pools import SLOW_FRAMES, Pools
from gimbalmq.testing.sim.producer import SimProducer
from gimbalmq.testing.sim.servers import SimBroker, SimNameServer
from gimbalmq.testing.sim.users import PollingUser, PullingUser
from gimbalmq.testing.sim.world import Clock, World
from gimbalmq.wire.names import retry_topic
from gimbalmq.wire.subscription import parse_tags

__all__ = [
    "BEGIN_S",
    "CHANNEL_LIFE_S",
    "CHANNEL_SCAN_S",
    "DRAIN_S",
    "DRIFT_MAX",
    "NAMESERVERS",
    "TOPIC",
    "Cast",
]

TOPIC: Final = "orders"
NAMESERVERS: Final = ("10.0.1.1:9876",)
#: When trouble may begin.
BEGIN_S: Final = 3.0
#: How long brokers wait for a silent client, and how often they look.
CHANNEL_LIFE_S: Final = 20.0
CHANNEL_SCAN_S: Final = 2.0
#: How far clocks run fast or slow.
DRIFT_MAX: Final = 0.05
#: How long a member that leaves waits for its listeners.
DRAIN_S: Final = 5.0
_GROUP: Final = "billing"
_FOREIGN_SHARE: Final = 0.4


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
        self.options = options = options.drawn(seed)
        assert options.mode is not None
        self.mode = options.mode
        self.network = (
            Network(self.world, slow_frames=SLOW_FRAMES)
            if options.busy_brokers
            else Network(self.world)
        )
        self.nameserver = SimNameServer("nameserver", NAMESERVERS[0], self.clock(), self.network)
        self.queues_each = self.chance.randint(1, 4)
        self.brokers = [
            self.broker(name) for name in ("broker-a", "broker-b")[: self.chance.randint(1, 2)]
        ]
        self.producer = SimProducer(TOPIC, NAMESERVERS, self.clock(), self.network)
        self.members: list[SimMember] = []
        self.members_made = 0
        self.habits = self._habits()
        #: Of ours, in groups with foreign members.
        self.foreign_grace_s = self.chance.choice((None, 35.0))
        self._strategy = strategy

    def clock(self) -> Clock:
        """A clock of its own for one process."""
        rate = self.chance.uniform(1 - DRIFT_MAX, 1 + DRIFT_MAX)
        return Clock(self.world, rate, self.chance.uniform(100.0, 1000.0))

    def _habits(self) -> ListenerHabits:
        chance = self.chance
        longest_s = chance.choice((0.002, 0.05, 0.3))
        # Shorter, and longer, than a queue that is given up waits before it says so.
        hang_share, hang_s = chance.choice(((0.0, 0.0), (0.02, 6.0), (0.005, 14.0)))
        failure_share = chance.choice((0.0, 0.05, 0.2))
        if not self.options.rough_listeners:
            return ListenerHabits(0.0005, longest_s)
        return ListenerHabits(
            0.0005,
            longest_s,
            hang_s=hang_s,
            hang_share=hang_share,
            hang_until_s=BEGIN_S + self.options.trouble_s,
            failure_share=failure_share,
        )

    def broker(self, name: str) -> SimBroker:
        """A broker that is not started yet: `broker-a` or `broker-b`."""
        settings = BrokerSettings(
            name=name,
            host="10.0.2.1",
            port=10911 + 100 * (name == "broker-b"),
            faithful=self.options.faithful,
            channel_life_ms=int(CHANNEL_LIFE_S * 1000),
            channel_scan_ms=int(CHANNEL_SCAN_S * 1000),
            delay_levels_ms=(200,) * 18,
        )
        busy = self.options.busy_brokers
        return SimBroker(
            settings,
            NameServers(NAMESERVERS),
            self.clock(),
            self.network,
            pools=Pools(self.world.stream(f"pools of {name}")) if busy else None,
        )

    # ---- members -----------------------------------------------------------------------------

    def start_member(self, stem: str | None = None) -> SimMember:
        """Start a member: another one, or the next run of one that was there."""
        foreign = bool(self.options.foreign) and self.chance.random() < _FOREIGN_SHARE
        if stem is None:
            self.members_made += 1
            stem = f"m{self.members_made}"
        return self._start(stem, foreign=foreign)

    def start_again(self, member: SimMember) -> SimMember:
        """Start the next run of a member, under its id."""
        stem = member.client_id.removeprefix("java-") if member.foreign else None
        return self._start(stem or stem_of(member.client_id), foreign=member.foreign)

    def _start(self, stem: str, *, foreign: bool) -> SimMember:
        strategy = self._strategy()
        grace_s = self.options.rejoin_grace_s
        client_id = member_id(stem, strategy.name, rejoin_grace_s=grace_s)
        if foreign:
            client_id = f"java-{stem}"
        topics = (TOPIC, retry_topic(_GROUP)) if self.mode.listening else (TOPIC,)
        clock = self.clock()
        now_ms = clock.read().wall_ms
        subscriptions = {topic: parse_tags(topic, "*", now_ms) for topic in topics}
        settings = self._foreign_settings(client_id) if foreign else self._settings(client_id)
        member = SimMember(
            self._machine(settings, strategy, topics),
            subscriptions,
            NAMESERVERS,
            clock,
            self.network,
            timers=InstanceSettings(
                poll_name_server_interval_s=10.0, heartbeat_broker_interval_s=5.0
            ),
            pulls=self._pulls(),
            strategy=strategy,
            foreign=foreign,
            run=1 + sum(one.client_id == client_id for one in self.members),
        )
        self.members.append(member)
        self.world.note(Kind.JOINED, member.process.name)
        workers = self.chance.randint(1, 4)
        if self.mode is Mode.CLASSIC_PULL:
            PullingUser(member, self.habits, subscriptions[TOPIC])
            member.start()
        else:
            member.start(self._executor(member, workers))
        return member

    def _settings(self, client_id: str) -> ConsumerSettings:
        assert self.options.rebalance_interval_s is not None
        return ConsumerSettings(
            group=_GROUP,
            client_id=client_id,
            ordered=self.mode is Mode.ORDERED,
            lease=self.mode is Mode.LEASE,
            rebalance_interval_s=self.options.rebalance_interval_s,
            pull_idle_limit_s=40.0 if self.mode.listening else None,
            rejoin_grace_s=self.options.rejoin_grace_s,
            take_over_foreign_grace_s=self.foreign_grace_s if self.options.foreign else None,
        )

    def _foreign_settings(self, client_id: str) -> ConsumerSettings:
        """Java's timers; and nothing is ever taken over by a member without a token."""
        return ConsumerSettings(
            group=_GROUP,
            client_id=client_id,
            ordered=self.mode is Mode.ORDERED,
            rebalance_interval_s=20.0,
            rebalance_gap_s=1.0,
            pull_idle_limit_s=40.0 if self.mode.listening else None,
            lock_retry_s=0.5,
            lock_renew_s=20.0,
            lock_trust_s=30.0,
        )

    def _pulls(self) -> PullSettings:
        batch_size = 2 if self.options.backlog else 32
        if self.mode.listening:
            return PullSettings(pull_batch_size=batch_size)
        return PullSettings(consume_type="CONSUME_ACTIVELY", pull_batch_size=batch_size)

    def _machine(
        self, settings: ConsumerSettings, strategy: Strategy, topics: tuple[str, ...]
    ) -> ConsumerMachine | PassiveMachine:
        if self.mode is Mode.CLASSIC_PULL:
            return PassiveMachine(settings, strategy, topics)
        by = "key" if self.options.keyed else None
        key_of = key_function(by, batch_size=1, auto_commit=True)
        return ConsumerMachine(settings, strategy, topics, key_of=key_of)

    def _executor(self, member: SimMember, workers: int) -> Executor:
        if self.mode is Mode.LITE_PULL:
            return PollingUser(member, self.habits).polls
        return SimExecutor(member.process, self.habits, workers, member.host.finished)

    def leave(self, member: SimMember) -> None:
        """Let a member stop cleanly; one that is paused cannot."""
        if not member.process.paused:
            self.changed(member.process.name, "leaves")
            member.leave(DRAIN_S)

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

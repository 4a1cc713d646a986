"""Members of a group in virtual time: the real instance, host and machine in one process each.

Decides how a member lives, from its first attempt to join to its end, and what of it is noted.
Who takes the messages is given: workers with listeners (`executor`) or a user who reads (`users`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from gimbalmq.core.allocation import Strategy
from gimbalmq.core.consumer import effects as fx
from gimbalmq.core.consumer import events as ev
from gimbalmq.core.consumer.ground import Ground
from gimbalmq.core.consumer.held import HeldQueue
from gimbalmq.core.consumer.machine import ConsumerMachine
from gimbalmq.core.consumer.passive import PassiveMachine
from gimbalmq.core.consumer.settings import ConsumerSettings
from gimbalmq.errors import GimbalError
from gimbalmq.flows.offset import StartFrom, StartPolicy
from gimbalmq.flows.route import NameServers
from gimbalmq.model.queue import MessageQueue, sorted_queues
from gimbalmq.runtime.consumer_host import ConsumerHost, PullSettings
from gimbalmq.runtime.consumer_parts import Executor
from gimbalmq.runtime.instance import ClientInstance, InstanceSettings
from gimbalmq.runtime.offsets import BrokerOffsets
from gimbalmq.runtime.weights_watch import WeightsWatch
from gimbalmq.testing.sim.driver import SimDriver
from gimbalmq.testing.sim.history import Kind
from gimbalmq.testing.sim.network import Network
from gimbalmq.testing.sim.world import Clock, Process, World
from gimbalmq.wire.names import Namespace
from gimbalmq.wire.subscription import SubscriptionData

__all__ = ["SimMember", "WatchedMachine"]

_JOIN_AGAIN_S: Final = 1.0


class WatchedMachine:
    """A consumer's machine; invariants are checked, ownership and offsets noted, at each step."""

    def __init__(self, machine: ConsumerMachine | PassiveMachine, world: World, who: str) -> None:
        self.settings = machine.settings
        self.passive = machine.passive
        self._machine = machine
        self._world = world
        self._who = who
        self._owned: frozenset[MessageQueue] = frozenset()
        self._listed: frozenset[str] = frozenset()

    @property
    def held(self) -> Mapping[MessageQueue, HeldQueue]:
        """Queues in hand."""
        return self._machine.held

    def assignment(self) -> frozenset[MessageQueue]:
        """The queues that this member owns now."""
        return self._machine.assignment()

    def absent(self, now: float) -> Mapping[str, float] | None:
        """For how many seconds other members are gone."""
        return self._machine.absent(now)

    def ground(self, now: float) -> Ground:
        """What this member shares out queues by."""
        return self._machine.ground(now)

    def handle(self, event: ev.Event, now: float) -> list[fx.Effect]:
        """Take one event in."""
        if isinstance(event, ev.MembersListed):
            self._note_listed(frozenset(event.members or ()))
        effects = self._machine.handle(event, now)
        if isinstance(self._machine, ConsumerMachine):
            self._machine.validate()
        owned = self._machine.assignment()
        if owned != self._owned:
            for queue in sorted_queues(self._owned - owned):
                self._world.note(Kind.RELEASED, self._who, queue=queue.path)
            for queue in sorted_queues(owned - self._owned):
                self._world.note(
                    Kind.OWNED, self._who, queue=queue.path, epoch=self._epoch_of(queue)
                )
            self._owned = owned
        for effect in effects:
            self._note_offset(effect)
        return effects

    def _note_listed(self, members: frozenset[str]) -> None:
        if members and members != self._listed:
            self._listed = members
            self._world.note(Kind.LISTED, self._who, text=" ".join(sorted(members)))

    def _note_offset(self, effect: fx.Effect) -> None:
        match effect:
            case fx.Commit(queue, offset) | fx.HandOver(queue, _, offset):
                self._note_stores(queue, offset)
            case fx.Pull(queue, _, _, offset) if offset > 0:
                self._note_stores(queue, offset)

    def _note_stores(self, queue: MessageQueue, offset: int) -> None:
        epoch = self._epoch_of(queue)
        self._world.note(Kind.STORES, self._who, queue=queue.path, offset=offset, epoch=epoch)

    def _epoch_of(self, queue: MessageQueue) -> int:
        held = self.held.get(queue)
        return 0 if held is None else held.epoch


class SimMember:
    """One process with one consumer."""

    def __init__(
        self,
        machine: ConsumerMachine | PassiveMachine,
        subscriptions: Mapping[str, SubscriptionData],
        nameservers: tuple[str, ...],
        clock: Clock,
        network: Network,
        *,
        timers: InstanceSettings,
        pulls: PullSettings,
        strategy: Strategy | None = None,
        foreign: bool = False,
        run: int = 1,
    ) -> None:
        """`run` counts the processes that had this client id, one after the other."""
        settings = machine.settings
        who = settings.client_id if run == 1 else f"{settings.client_id} run {run}"
        self.process = Process(who, clock)
        self.process.on_end(lambda: clock.world.note(Kind.EXITED, who))
        self.client_id = settings.client_id
        self.foreign = foreign
        self.leaving = False
        #: What a user does who is about to leave.
        self.before_leaving: Callable[[], None] = lambda: None
        #: What a user does who has other queues now.
        self.on_rebalance: Callable[[fx.RebalanceReport], None] = lambda _report: None
        self.instance = ClientInstance(settings.client_id, NameServers(nameservers), timers)
        self.driver = SimDriver(self.process, network, self.instance)
        start = StartFrom(StartPolicy.FIRST)
        self.machine = WatchedMachine(machine, clock.world, who)
        self.host = ConsumerHost(
            self.instance,
            self.machine,
            subscriptions,
            offsets=BrokerOffsets(self.instance, settings.group, start),
            start=start,
            pulls=pulls,
            announced=self._announced,
            stopped=self.process.end,
            weights=self._watch_weights(strategy, settings),
        )

    def _watch_weights(
        self, strategy: Strategy | None, settings: ConsumerSettings
    ) -> Callable[[ConsumerHost], WeightsWatch] | None:
        topic: str | None = getattr(strategy, "weights_topic", None)
        if topic is None:
            return None
        return lambda host: WeightsWatch(
            self.instance,
            host.group,
            topic,
            names=Namespace(None),
            every_s=settings.weights_interval_s,
            read=host.dispatch,
            topics=host.topics,
        )

    def _announced(self, report: fx.RebalanceReport) -> None:
        self.on_rebalance(report)

    def start(self, executor: Executor | None = None) -> None:
        """Join the group; tried again until a name server can be reached."""
        self.instance.attach(self.driver)
        if executor is not None:
            self.host.attach(executor)
        self._join()

    def _join(self) -> None:
        def joined(error: GimbalError | None) -> None:
            if error is None:
                self.host.begin(lambda: None)
            else:
                self.process.later(_JOIN_AGAIN_S, self._join)

        self.instance.join(self.host, joined)

    def leave(self, drain_s: float) -> None:
        """Leave cleanly; the process ends when that is done."""
        self.leaving = True

        def stop() -> None:
            self.before_leaving()
            self.host.dispatch(ev.StopRequested(drain_s))

        self.process.run(stop)

    def assignment(self) -> frozenset[MessageQueue]:
        """The queues that this member owns now; none when it is dead."""
        return self.machine.assignment() if self.process.alive else frozenset()

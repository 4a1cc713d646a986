"""Members of a group and a producer, in virtual time: the real instance, host and machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from gimbalmq.core.allocation import Strategy, strategy_named
from gimbalmq.core.consumer import effects as fx
from gimbalmq.core.consumer import events as ev
from gimbalmq.core.consumer.ground import Ground
from gimbalmq.core.consumer.held import HeldQueue
from gimbalmq.core.consumer.machine import ConsumerMachine
from gimbalmq.core.consumer.settings import ConsumerSettings
from gimbalmq.errors import GimbalError
from gimbalmq.flows.effects import Flow, checked_call, now, sleep
from gimbalmq.flows.offset import StartFrom, StartPolicy
from gimbalmq.flows.route import NameServers, fetch_route
from gimbalmq.model.queue import MessageQueue, sorted_queues
from gimbalmq.runtime.consumer_host import ConsumerHost, PullSettings
from gimbalmq.runtime.instance import ClientInstance, InstanceSettings
from gimbalmq.runtime.offsets import BrokerOffsets
from gimbalmq.runtime.weights_watch import WeightsWatch
from gimbalmq.testing.sim.driver import SimDriver
from gimbalmq.testing.sim.executor import ListenerHabits, SimExecutor
from gimbalmq.testing.sim.history import Kind
from gimbalmq.testing.sim.network import Network
from gimbalmq.testing.sim.world import Clock, Process, World
from gimbalmq.wire.headers import parse_send_response, send_request
from gimbalmq.wire.names import Namespace, retry_topic
from gimbalmq.wire.subscription import parse_tags

__all__ = ["SimMember", "SimProducer", "WatchedMachine"]

_JOIN_AGAIN_S: Final = 1.0
_SEND_TIMEOUT_S: Final = 3.0
_SEND_ATTEMPTS_MAX: Final = 100


class WatchedMachine:
    """A consumer's machine whose invariants are checked, and ownership noted, at each step."""

    passive = False

    def __init__(self, machine: ConsumerMachine, world: World, who: str) -> None:
        self.settings = machine.settings
        self._machine = machine
        self._world = world
        self._who = who
        self._owned: frozenset[MessageQueue] = frozenset()

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
        effects = self._machine.handle(event, now)
        self._machine.validate()
        owned = self._machine.assignment()
        if owned != self._owned:
            for queue in sorted_queues(self._owned - owned):
                self._world.note(Kind.RELEASED, self._who, queue=queue.path)
            for queue in sorted_queues(owned - self._owned):
                epoch = self.held[queue].epoch
                self._world.note(Kind.OWNED, self._who, queue=queue.path, epoch=epoch)
            self._owned = owned
        return effects


class SimMember:
    """One process with one push consumer."""

    def __init__(
        self,
        settings: ConsumerSettings,
        topic: str,
        nameservers: tuple[str, ...],
        clock: Clock,
        network: Network,
        *,
        timers: InstanceSettings,
        habits: ListenerHabits,
        workers: int,
        pulls: PullSettings,
        strategy: Strategy | None = None,
        run: int = 1,
    ) -> None:
        """`run` counts the processes that had this client id, one after the other."""
        who = settings.client_id if run == 1 else f"{settings.client_id} run {run}"
        self.process = Process(who, clock)
        self.run = run
        self.client_id = settings.client_id
        self.leaving = False
        self._weights: WeightsWatch | None = None
        self._instance = ClientInstance(settings.client_id, NameServers(nameservers), timers)
        self._driver = SimDriver(self.process, network, self._instance)
        now_ms = clock.read().wall_ms
        subscriptions = {
            name: parse_tags(name, "*", now_ms) for name in (topic, retry_topic(settings.group))
        }
        start = StartFrom(StartPolicy.FIRST)
        self.machine = WatchedMachine(
            ConsumerMachine(settings, strategy or strategy_named("AVG"), subscriptions),
            clock.world,
            who,
        )
        self._host = ConsumerHost(
            self._instance,
            self.machine,
            subscriptions,
            offsets=BrokerOffsets(self._instance, settings.group, start),
            start=start,
            pulls=pulls,
            announced=lambda _report: None,
            stopped=self.process.end,
            weights=self._watch_weights(strategy, settings),
        )
        self._executor = SimExecutor(self.process, habits, workers, self._host.finished)

    def _watch_weights(
        self, strategy: Strategy | None, settings: ConsumerSettings
    ) -> Callable[[ConsumerHost], WeightsWatch] | None:
        topic: str | None = getattr(strategy, "weights_topic", None)
        if topic is None:
            return None

        def made(host: ConsumerHost) -> WeightsWatch:
            self._weights = WeightsWatch(
                self._instance,
                host.group,
                topic,
                names=Namespace(None),
                every_s=settings.weights_interval_s,
                read=host.dispatch,
                topics=host.topics,
            )
            return self._weights

        return made

    def start(self) -> None:
        """Join the group; tried again until a name server can be reached."""
        self._instance.attach(self._driver)
        self._host.attach(self._executor)
        self._join()

    def _join(self) -> None:
        def joined(error: GimbalError | None) -> None:
            if error is None:
                self._host.dispatch(ev.Started())
                if self._weights is not None:
                    self._weights.go_on()
            else:
                self.process.later(_JOIN_AGAIN_S, self._join)

        self._instance.join(self._host, joined)

    def leave(self, drain_s: float) -> None:
        """Leave cleanly; the process ends when that is done."""
        self.leaving = True
        self.process.run(lambda: self._host.dispatch(ev.StopRequested(drain_s)))

    def assignment(self) -> frozenset[MessageQueue]:
        """The queues that this member owns now; none when it is dead."""
        return self.machine.assignment() if self.process.alive else frozenset()


class SimProducer:
    """Sends numbered messages with keys until each is acknowledged, one after the other per key."""

    def __init__(
        self, topic: str, nameservers: tuple[str, ...], clock: Clock, network: Network
    ) -> None:
        self.process = Process("producer", clock)
        self._topic = topic
        self._nameservers = NameServers(nameservers)
        self._driver = SimDriver(self.process, network, None)
        self._queues: list[tuple[MessageQueue, str]] = []
        self.unsettled = 0

    def send(self, key: int, bodies: list[str], pause_s: Callable[[], float]) -> None:
        """Send messages of one key to one queue, in order."""
        self.unsettled += 1
        self._driver.spawn(self._sending(key, bodies, pause_s), self._done)

    def _done(self, error: GimbalError | None) -> None:
        assert error is None, error
        self.unsettled -= 1

    def _sending(self, key: int, bodies: list[str], pause_s: Callable[[], float]) -> Flow[None]:
        world = self.process.world
        queues = yield from self._all_queues()
        queue, address = queues[key % len(queues)]
        for body in bodies:
            yield from sleep(pause_s())
            for _ in range(_SEND_ATTEMPTS_MAX):
                instant = yield from now()
                request = send_request(
                    group="shop",
                    queue=queue,
                    body=body.encode(),
                    properties="",
                    born_timestamp_ms=instant.wall_ms,
                )
                try:
                    answer = yield from checked_call(address, request, _SEND_TIMEOUT_S)
                except GimbalError:
                    yield from sleep(0.5)
                    continue
                offset = parse_send_response(answer).queue_offset
                world.note(Kind.SENT, "producer", queue=queue.path, offset=offset, text=body)
                break

    def _all_queues(self) -> Flow[list[tuple[MessageQueue, str]]]:
        for _ in range(_SEND_ATTEMPTS_MAX):
            try:
                route = yield from fetch_route(self._nameservers, self._topic, _SEND_TIMEOUT_S)
            except GimbalError:
                yield from sleep(0.5)
                continue
            addresses = {one.name: one.any_address for one in route.brokers}
            return [
                (queue, address)
                for queue in sorted_queues(route.subscribe_queues())
                if (address := addresses.get(queue.broker)) is not None
            ]
        raise AssertionError("no name server ever answered")

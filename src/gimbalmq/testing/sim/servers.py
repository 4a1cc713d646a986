"""Brokers and name servers in virtual time: the real machines behind simulated connections."""

from __future__ import annotations

import functools
import itertools
import zlib
from collections.abc import Iterable
from typing import Final

from gimbalmq.broker.broker import BrokerMachine
from gimbalmq.broker.documents import KeptInMemory
from gimbalmq.broker.effects import Announce, Channel, Close, Effect, Lookup, Send
from gimbalmq.broker.nameserver import NameServerMachine
from gimbalmq.broker.server import Machine
from gimbalmq.broker.settings import BrokerSettings
from gimbalmq.errors import GimbalError
from gimbalmq.flows.route import NameServers, fetch_route
from gimbalmq.model.queue import MessageQueue, sorted_queues
from gimbalmq.model.route import TopicRoute
from gimbalmq.testing.sim.driver import SimDriver
from gimbalmq.testing.sim.history import Kind
from gimbalmq.testing.sim.network import End, Network
from gimbalmq.testing.sim.pools import Pools
from gimbalmq.testing.sim.store import MemoryStore
from gimbalmq.testing.sim.world import Clock, Process, SimTimer
from gimbalmq.wire.bodies import LockBody, decode_lock, decode_locked, encode_registration
from gimbalmq.wire.codes import PullFlag, RequestCode
from gimbalmq.wire.command import Command, decode_command, encode_command

__all__ = ["SimBroker", "SimNameServer", "SimServer"]

_REGISTER_EVERY_S: Final = 10.0
_REGISTER_AGAIN_S: Final = 0.5
_TIMEOUT_S: Final = 3.0
_COMMIT_WITH_PULL: Final = int(PullFlag.COMMIT_OFFSET)


class SimServer:
    """One process that serves a machine; `restart` makes the next one at the same address."""

    def __init__(self, name: str, address: str, clock: Clock, network: Network) -> None:
        self.name = name
        self.address = address
        self.process = Process(name, clock)
        self.network = network
        self._clock = clock
        self._numbers = itertools.count(1)
        self._ends: dict[Channel, End] = {}
        self._machine: Machine | None = None
        self._timer: SimTimer | None = None
        self._ticking_at_ms = 0

    def serve(self, machine: Machine) -> None:
        """Accept connections from now on."""
        self._machine = machine
        self._ends.clear()
        self._timer = None
        self.network.listen(self.address, self)
        self.perform(machine.tick(self.now_ms()))

    def now_ms(self) -> int:
        """The server's clock."""
        return self._clock.read().wall_ms

    def crash(self) -> None:
        """End the process; the operating system closes its connections."""
        self.process.end()

    def new_process(self) -> None:
        """Begin another run of the program."""
        self.process = Process(self.name, self._clock)

    # ---- connections -------------------------------------------------------------------------

    def accept(self, end: End) -> None:
        """Take a new connection."""
        channel = Channel(next(self._numbers), "10.0.0.1", 40_000 + next(self._numbers) % 20_000)
        self._ends[channel] = end
        end.received = functools.partial(self._received, channel)
        end.closed = functools.partial(self._closed, channel)
        if not end.open:
            self._closed(channel)

    def _received(self, channel: Channel, frame: bytes) -> None:
        end = self._ends.get(channel)
        if end is None:
            return
        command = decode_command(memoryview(frame)[4:])
        wait_s = self.wait_s(command)
        if wait_s:
            serve = functools.partial(self._serve, command, channel, end.peer)
            self.process.later(wait_s, serve)
        else:
            self._serve(command, channel, end.peer)

    def _serve(self, command: Command, channel: Channel, peer: str) -> None:
        """Carry a request out, though its connection may be gone: what waits is not called back."""
        assert self._machine is not None
        effects = self._machine.handle(command, channel, self.now_ms())
        if not command.is_response:
            self.observe(command, peer, effects)
        self.perform(effects)

    def _closed(self, channel: Channel) -> None:
        if self._ends.pop(channel, None) is not None:
            assert self._machine is not None
            self.perform(self._machine.channel_closed(channel, self.now_ms()))

    def wait_s(self, command: Command) -> float:
        """For how long a request waits before the machine gets it, or one of its own leaves."""
        del command
        return 0.0

    def observe(self, command: Command, peer: str, effects: list[Effect]) -> None:
        """Look at a request and at what it came to."""

    # ---- effects -----------------------------------------------------------------------------

    def perform(self, effects: list[Effect]) -> None:
        """Do what the machine wants done."""
        for effect in effects:
            match effect:
                case Send(channel, command, slices):
                    if slices:
                        command.body = b"".join(slices)
                    send = functools.partial(self._send, channel, encode_command(command))
                    wait_s = 0.0 if command.is_response else self.wait_s(command)
                    if wait_s:
                        self.process.later(wait_s, send)
                    else:
                        send()
                case Close(channel):
                    end = self._ends.get(channel)
                    if end is not None:
                        end.close()
                        self.process.soon(functools.partial(self._closed, channel))
                case Announce():
                    self.announce()
                case Lookup(topic):
                    self.look_up(topic)
        self._plan_tick()

    def _send(self, channel: Channel, frame: bytes) -> None:
        end = self._ends.get(channel)
        if end is not None:
            end.send(frame)

    def announce(self) -> None:
        """The topics have changed."""

    def look_up(self, topic: str) -> None:
        """The machine wants to know a route."""

    def _plan_tick(self) -> None:
        assert self._machine is not None
        now_ms = self.now_ms()
        due_ms = max(self._machine.next_due_ms, now_ms + 5)
        if self._timer is not None:
            if self._ticking_at_ms <= due_ms:
                return
            self._timer.cancel()
        self._ticking_at_ms = due_ms
        self._timer = self.process.later((due_ms - now_ms) / 1000, self._tick)

    def _tick(self) -> None:
        assert self._machine is not None
        self._timer = None
        self.perform(self._machine.tick(self.now_ms()))


class SimNameServer(SimServer):
    """A name server; forgets every broker when it restarts."""

    def start(self) -> None:
        """Serve, with empty tables."""
        self.serve(NameServerMachine())

    def restart(self) -> None:
        """Begin anew after a crash."""
        self.new_process()
        self.start()


class SimBroker(SimServer):
    """A broker; its messages and saved documents outlive its crashes."""

    def __init__(
        self,
        settings: BrokerSettings,
        nameservers: NameServers,
        clock: Clock,
        network: Network,
        *,
        pools: Pools | None = None,
    ) -> None:
        super().__init__(settings.name, settings.address, clock, network)
        self._pools = pools
        self._settings = settings
        self._nameservers = nameservers
        self._store = MemoryStore(settings.host, settings.port)
        self._documents = KeptInMemory()
        self._driver: SimDriver | None = None
        self.machine: BrokerMachine | None = None
        #: Who has the locks; a lock that expired is its last holder's until it is given anew.
        self._holders: dict[MessageQueue, str] = {}

    def start(self) -> None:
        """Serve what the store and the documents hold, and register."""
        world = self.process.world
        chance = world.stream(f"{self.name} from {world.now}")
        self.machine = BrokerMachine(
            self._settings, self._store, self._documents, chance, self.now_ms()
        )
        self._driver = SimDriver(self.process, self.network, self)
        self.serve(self.machine)
        self._register()
        self.process.later(_REGISTER_EVERY_S, self._keep_registered)

    def restart(self) -> None:
        """Begin anew after a crash: locks, members and unsaved offsets are gone."""
        self.process.world.note(Kind.RESTARTED, self.name)
        self._holders.clear()
        self.new_process()
        self.start()

    def create_topic(self, topic: str, queues: int) -> None:
        """Have a topic, as an operator would create it."""
        assert self.machine is not None
        fields = {
            "topic": topic,
            "defaultTopic": "TBW102",
            "readQueueNums": str(queues),
            "writeQueueNums": str(queues),
            "perm": "6",
            "topicFilterType": "SINGLE_TAG",
            "order": "false",
        }
        request = Command(RequestCode.UPDATE_AND_CREATE_TOPIC, fields, opaque=1)
        operator = Channel(0, "10.0.0.1", 1)
        self.perform(self.machine.handle(request, operator, self.now_ms()))

    def wait_s(self, command: Command) -> float:
        """For how long a request waits before the machine gets it, or one of its own leaves."""
        return 0.0 if self._pools is None else self._pools.wait_s(command.code)

    def observe(self, command: Command, peer: str, effects: list[Effect]) -> None:
        """Note how much is asked, the offsets that the broker is told, and who has its locks."""
        world, code = self.process.world, command.code
        world.history.requests[peer, RequestCode(code).name, int(world.now)] += 1
        fields = command.fields
        if code == RequestCode.UPDATE_CONSUMER_OFFSET or (
            code == RequestCode.PULL_MESSAGE and int(fields["sysFlag"]) & _COMMIT_WITH_PULL
        ):
            queue = f"{fields['topic']}/{self.name}/{fields['queueId']}"
            world.note(Kind.COMMITTED, peer, queue=queue, offset=int(fields["commitOffset"]))
        elif code == RequestCode.LOCK_BATCH_MQ:
            for answer in effects:
                if isinstance(answer, Send) and answer.command.is_response:
                    self._note_locked(peer, decode_locked(answer.command.body))
        elif code == RequestCode.UNLOCK_BATCH_MQ:
            self._note_unlocked(peer, decode_lock(command.body))

    def _note_locked(self, peer: str, queues: Iterable[MessageQueue]) -> None:
        for queue in sorted_queues(queues):
            if self._holders.get(queue) != peer:
                self._holders[queue] = peer
                self.process.world.note(Kind.LOCKED, peer, queue=queue.path)

    def _note_unlocked(self, peer: str, body: LockBody) -> None:
        world = self.process.world
        for queue in body.queues:
            # A process is named after its client id, and counted if it is not the first of it.
            if self._holders.get(queue, "").partition(" ")[0] != body.client_id:
                continue
            del self._holders[queue]
            own = peer.partition(" ")[0] == body.client_id
            world.note(Kind.UNLOCKED if own else Kind.TAKEN_OFF, peer, queue=queue.path)

    # ---- name servers ------------------------------------------------------------------------

    def announce(self) -> None:
        """Register at once."""
        if self._driver is not None:
            self._register()

    def look_up(self, topic: str) -> None:
        """Ask a name server for a route."""
        assert self._driver is not None
        flow = fetch_route(self._nameservers, topic, _TIMEOUT_S)
        self._driver.spawn(flow, functools.partial(self._routed, topic))

    def _routed(self, topic: str, result: TopicRoute | GimbalError) -> None:
        assert self.machine is not None
        known = isinstance(result, TopicRoute)
        queues = tuple(result.subscribe_queues()) if isinstance(result, TopicRoute) else ()
        self.perform(self.machine.routed(topic, queues if known else (), self.now_ms()))

    def _keep_registered(self) -> None:
        self._register()
        self.process.later(_REGISTER_EVERY_S, self._keep_registered)

    def _register(self) -> None:
        assert self.machine is not None
        assert self._driver is not None
        body = encode_registration(self.machine.topics)
        for address in self._nameservers.addresses:
            fields = {
                "brokerName": self.name,
                "brokerAddr": self.address,
                "clusterName": self._settings.cluster,
                "brokerId": "0",
                "haServerAddr": f"{self._settings.host}:0",
                "compressed": "false",
                "bodyCrc32": str(zlib.crc32(body) & 0x7FFFFFFF),
            }
            request = Command(RequestCode.REGISTER_BROKER, fields, body)
            self._driver.call(address, request, _TIMEOUT_S, self._registered)

    def _registered(self, answer: Command | GimbalError) -> None:
        if isinstance(answer, GimbalError):
            self.process.later(_REGISTER_AGAIN_S, self._register)

    # ---- what the driver reports -------------------------------------------------------------

    def on_connected(self, address: str) -> None:
        """A name server was reached."""

    def on_disconnected(self, address: str, error: GimbalError) -> None:
        """A name server forgets a broker whose connection is gone: register again."""
        del address, error
        self.process.later(_REGISTER_AGAIN_S, self._register)

    @staticmethod
    def on_request(address: str, request: Command) -> Command | None:
        """Name servers ask nothing."""
        del address, request
        return None

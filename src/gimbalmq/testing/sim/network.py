"""A network of connections: ordered inside one, not across them; slow, cut, torn.

A connection behaves as TCP's: what is sent arrives in order or not at all. A partition holds back
what is under way, as retransmission does, and lets it through when it heals. A torn connection
delivers nothing more, and each side learns of it in its own time, or never.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from gimbalmq.testing.sim.world import Process, World

__all__ = ["Connection", "End", "Listener", "Network"]

_SYN_AGAIN_S: Final = 1.0

Received = Callable[[bytes], None]
Closed = Callable[[], None]


class Listener(Protocol):
    """A server that accepts connections."""

    process: Process

    def accept(self, end: End) -> None:
        """Take a new connection; called in the server's process."""


class End:
    """One side of a connection, in the hands of a process."""

    def __init__(self, connection: Connection, side: int, process: Process) -> None:
        self.process = process
        self.open = True
        self.received: Received | None = None
        self.closed: Closed | None = None
        self._connection = connection
        self._side = side

    @property
    def peer(self) -> str:
        """The name of the process at the other side."""
        return self._connection.ends[1 - self._side].process.name

    def send(self, frame: bytes) -> None:
        """Send a frame; whether it arrives is another question."""
        if self.open:
            self._connection.transmit(self._side, frame)

    def close(self) -> None:
        """Close this side; nothing is received any more, and the other side hears of it."""
        if self.open:
            self.open = False
            self._connection.transmit(self._side, None)

    def lose(self) -> None:
        """This side finds out that the connection is gone."""
        if self.open:
            self.open = False
            self.process.run(self._tell_closed)

    def deliver(self, frame: bytes) -> None:
        """Something arrived."""
        self.process.run(lambda: self._tell(frame))

    def _tell(self, frame: bytes) -> None:
        # A frame may have waited in a paused process while its connection was closed.
        if self.received is not None:
            self.received(frame)

    def _tell_closed(self) -> None:
        if self.closed is not None:
            self.closed()


class Connection:
    """Two ends and what is under way between them."""

    def __init__(self, network: Network, client: Process, server: Process) -> None:
        self._network = network
        self.ends = (End(self, 0, client), End(self, 1, server))
        self._arrival = [0.0, 0.0]
        self._held: tuple[list[bytes | None], list[bytes | None]] = ([], [])
        self.torn = False

    @property
    def names(self) -> frozenset[str]:
        """Between whom."""
        return frozenset(end.process.name for end in self.ends)

    def transmit(self, side: int, item: bytes | None) -> None:
        """Put a frame, or the end of them (None), on its way."""
        world = self._network.world
        arrival = max(self._arrival[side], world.now + self._network.delay_s())
        self._arrival[side] = arrival
        world.at(arrival, lambda: self._arrive(side, item))

    def _arrive(self, side: int, item: bytes | None) -> None:
        if self.torn:
            return
        if self._held[side] or self._network.is_cut(self.names):
            self._held[side].append(item)
            return
        target = self.ends[1 - side]
        if item is None:
            target.lose()
        elif target.open:
            target.deliver(item)
        else:
            # Data for a closed side: its computer answers with a reset.
            world = self._network.world
            world.after(self._network.delay_s(), self.ends[side].lose)

    def healed(self) -> None:
        """Let through what a partition held back."""
        for side in (0, 1):
            held, self._held[side][:] = list(self._held[side]), []
            for item in held:
                self.transmit(side, item)

    def tear(self, learns_s: tuple[float | None, float | None]) -> None:
        """Deliver nothing more; each side learns of it after a while, or never (None)."""
        self.torn = True
        for end, delay_s in zip(self.ends, learns_s, strict=True):
            if delay_s is not None:
                self._network.world.after(delay_s, end.lose)


class Network:
    """Who can reach whom, and how fast."""

    def __init__(
        self,
        world: World,
        *,
        delay_s: tuple[float, float] = (0.0002, 0.005),
        slow_frames: float = 100.0,
    ) -> None:
        """`slow_frames`: how much longer than most a few frames take."""
        self.world = world
        self._delay_s = delay_s
        self._slow_frames = slow_frames
        self._chance = world.stream("network")
        self._listeners: dict[str, Listener] = {}
        self._connections: list[Connection] = []
        self._cuts: dict[frozenset[str], int] = {}

    def delay_s(self) -> float:
        """How long the next frame takes; now and then much longer than most."""
        shortest, longest = self._delay_s
        delay_s = self._chance.uniform(shortest, longest)
        return delay_s * self._slow_frames if self._chance.random() < 0.002 else delay_s

    def listen(self, address: str, listener: Listener) -> None:
        """Accept connections to an address."""
        self._listeners[address] = listener

    def connect(
        self, process: Process, address: str, connected: Callable[[End | None], None]
    ) -> None:
        """Open a connection; `connected` gets None when it is refused, nothing when it is lost."""
        self.world.after(self.delay_s(), lambda: self._syn(process, address, connected))

    def _syn(self, process: Process, address: str, connected: Callable[[End | None], None]) -> None:
        if not process.alive:
            return
        listener = self._listeners.get(address)
        name = "" if listener is None else listener.process.name
        if self.is_cut(frozenset({process.name, name})):
            self.world.after(_SYN_AGAIN_S, lambda: self._syn(process, address, connected))
        elif listener is None or not listener.process.alive:
            self.world.after(self.delay_s(), lambda: process.run(lambda: connected(None)))
        else:
            self._open(process, listener, connected)

    def _open(
        self, process: Process, listener: Listener, connected: Callable[[End | None], None]
    ) -> None:
        connection = Connection(self, process, listener.process)
        self._connections.append(connection)
        client, server = connection.ends
        process.on_end(client.close)
        listener.process.on_end(server.close)
        # The operating system accepts, also for a process that is paused.
        listener.process.run(lambda: listener.accept(server))
        self.world.after(self.delay_s(), lambda: process.run(lambda: connected(client)))

    # ---- faults ------------------------------------------------------------------------------

    def is_cut(self, names: frozenset[str]) -> bool:
        """Whether nothing passes between two processes now."""
        return names in self._cuts

    def cut(self, one: str, other: str) -> None:
        """Begin a partition between two processes."""
        names = frozenset({one, other})
        self._cuts[names] = self._cuts.get(names, 0) + 1

    def heal(self, one: str, other: str) -> None:
        """End a partition; when several were begun, all of them have to end."""
        names = frozenset({one, other})
        self._cuts[names] -= 1
        if not self._cuts[names]:
            del self._cuts[names]
            for connection in self._connections:
                if connection.names == names:
                    connection.healed()

    def silence(self, process: Process) -> None:
        """Take a computer off the network, power and all: nobody is told."""
        for connection in self.alive_connections():
            if process.name in connection.names:
                connection.tear((None, None))

    def alive_connections(self) -> list[Connection]:
        """Connections that both sides think are there."""
        self._connections = [
            one for one in self._connections if any(end.open for end in one.ends) and not one.torn
        ]
        return [one for one in self._connections if all(end.open for end in one.ends)]

"""The driver of a client in virtual time; behaves as the engine thread does.

Connections by address, opened by the next request but not before a pause that doubles with each
failure; a request that is over its time on a connection that was silent since takes the
connection with it; callers hear of a lost connection before the client does.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, Final

from gimbalmq.errors import CallTimeoutError, GimbalError, TransportError
from gimbalmq.flows.effects import Flow, Instant
from gimbalmq.runtime.driver import DriverClient
from gimbalmq.runtime.reconnect import ReconnectPauses
from gimbalmq.runtime.stepping import FlowRun
from gimbalmq.testing.sim.network import End, Network
from gimbalmq.testing.sim.world import Process, SimTimer
from gimbalmq.wire.command import FLAG_ONEWAY, Command, decode_command, encode_command

__all__ = ["SimDriver"]

Answered = Callable[[Command | GimbalError], None]

_CONNECT_TIMEOUT_S: Final = 3.0
_EXPIRE_EVERY_S: Final = 0.1


class _Link:
    """One connection of the client, from the first attempt on."""

    def __init__(self, address: str, now: float) -> None:
        self.address = address
        self.opened_at = now
        self.heard_at = now
        self.end: End | None = None
        self.unsent: list[bytes] = []
        self.pending: dict[int, tuple[float, float, Answered]] = {}
        self.opaque = itertools.count(1)

    def send(self, frame: bytes) -> None:
        if self.end is None:
            self.unsent.append(frame)
        else:
            self.end.send(frame)


class SimDriver:
    """Runs one client instance in one simulated process."""

    def __init__(self, process: Process, network: Network, client: DriverClient | None) -> None:
        self._process = process
        self._network = network
        self._client = client
        self._links: dict[str, _Link] = {}
        self._pauses = ReconnectPauses()

    def now(self) -> Instant:
        """Read the clocks."""
        return self._process.clock.read()

    def monotonic(self) -> float:
        """Read the clock that never jumps."""
        return self._process.clock.read().at_s

    def post(self, action: Callable[[], None]) -> None:
        """Run something on the owner's side."""
        self._process.soon(action)

    def call_later(self, delay_s: float, action: Callable[[], None]) -> SimTimer:
        """Run something after a while."""
        return self._process.later(delay_s, action)

    # ---- requests ----------------------------------------------------------------------------

    def call(self, address: str, command: Command, timeout_s: float, done: Answered) -> None:
        """Send a request; `done` gets the answer or the error, later."""
        try:
            link = self._link(address)
        except TransportError as error:
            failure = error
            self._process.soon(lambda: done(failure))
            return
        now = self.now().at_s
        command.opaque = opaque = next(link.opaque)
        link.pending[opaque] = now, now + timeout_s, done
        link.send(encode_command(command))
        self._process.later(timeout_s + _EXPIRE_EVERY_S, lambda: self._expire(link, opaque))

    def notify(self, address: str, command: Command) -> None:
        """Send a one-way request."""
        try:
            link = self._link(address)
        except TransportError:
            return
        command.opaque = next(link.opaque)
        command.flag |= FLAG_ONEWAY
        link.send(encode_command(command))

    def answer(self, address: str, response: Command) -> None:
        """Send a late answer to a request of a server, if its connection is still there."""
        link = self._links.get(address)
        if link is not None:
            link.send(encode_command(response))

    def disconnect(self, address: str) -> None:
        """Close the connection to an address, if there is one."""
        link = self._links.get(address)
        if link is not None:
            self._lose(link, TransportError(f"no longer using {address}", address=address))

    def spawn(self, flow: Flow[Any], done: Callable[[Any], None]) -> None:
        """Run a flow; `done` gets its result, or the error it ended with."""
        FlowRun(self, flow, done).start()

    # ---- connections -------------------------------------------------------------------------

    def _link(self, address: str) -> _Link:
        link = self._links.get(address)
        if link is not None:
            return link
        now = self.now().at_s
        self._pauses.check(address, now)
        link = self._links[address] = _Link(address, now)
        self._network.connect(self._process, address, lambda end: self._connected(link, end))
        self._process.later(
            _CONNECT_TIMEOUT_S + _EXPIRE_EVERY_S, lambda: self._connect_overdue(link)
        )
        return link

    def _connected(self, link: _Link, end: End | None) -> None:
        if self._links.get(link.address) is not link:
            if end is not None:
                end.close()
        elif end is None:
            self._lose(link, TransportError(f"{link.address} refused", address=link.address))
        elif not end.open:
            self._lose(link, TransportError(f"{link.address} closed", address=link.address))
        else:
            end.received = lambda frame: self._received(link, frame)
            end.closed = lambda: self._lose(
                link, TransportError(f"{link.address} closed", address=link.address)
            )
            link.end = end
            link.heard_at = self.now().at_s
            for frame in link.unsent:
                end.send(frame)
            link.unsent.clear()
            if self._client is not None:
                self._client.on_connected(link.address)

    def _connect_overdue(self, link: _Link) -> None:
        if link.end is None:
            self._lose(link, CallTimeoutError(f"{link.address} timed out", address=link.address))

    def _received(self, link: _Link, frame: bytes) -> None:
        if self._links.get(link.address) is not link:
            return
        link.heard_at = self.now().at_s
        command = decode_command(memoryview(frame)[4:])
        if command.is_response:
            waiting = link.pending.pop(command.opaque, None)
            if waiting is not None:
                waiting[2](command)
        elif self._client is not None:
            response = self._client.on_request(link.address, command)
            if response is not None:
                link.send(encode_command(response))

    def _expire(self, link: _Link, opaque: int) -> None:
        waiting = link.pending.pop(opaque, None)
        if waiting is None:
            return
        sent_at, _deadline, done = waiting
        error = CallTimeoutError(f"{link.address} did not answer", address=link.address)
        done(error)
        if link.heard_at < sent_at:
            self._lose(link, error)

    def _lose(self, link: _Link, error: GimbalError) -> None:
        if self._links.get(link.address) is not link:
            return
        del self._links[link.address]
        self._pauses.lost(
            link.address,
            self.now().at_s,
            connected=link.end is not None,
            opened_at=link.opened_at,
        )
        if link.end is not None:
            link.end.close()
        pending, link.pending = link.pending, {}
        for _sent_at, _deadline, done in pending.values():
            done(error)
        if self._client is not None:
            self._client.on_disconnected(link.address, error)

"""The asyncio front of a machine: accepts connections, cuts frames, performs effects.

Decides limits (connections, frame sizes, what may wait to be sent) and what bytes that are no
protocol cost: their own connection, nothing else. Knows no request; the machine does.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import logging
import socket
import ssl
import time
from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from gimbalmq.broker.effects import Announce, Channel, Close, Effect, Lookup, Send
from gimbalmq.broker.peer import Limits, Peer, first_byte
from gimbalmq.errors import ConfigurationError
from gimbalmq.wire.codes import ResponseCode
from gimbalmq.wire.command import Command, encode_command, response_to
from gimbalmq.wire.frame import FRAME_BYTES_MAX

__all__ = ["Front", "Machine"]

_logger: Final = logging.getLogger("gimbalmq.broker")

#: First byte of a TLS handshake; no frame starts with it (it would be 350 MB long).
_TLS_HANDSHAKE: Final = b"\x16"
_TICK_MS_MIN: Final = 5
_TICK_MS_MAX: Final = 100
_IDLE_SCAN_S: Final = 5.0
_BACKLOG: Final = 1024


class Machine(Protocol):
    """What a front drives."""

    @property
    def next_due_ms(self) -> int:
        """When `tick` has something to do again."""

    def handle(self, request: Command, channel: Channel, now_ms: int) -> list[Effect]:
        """Take a command."""

    def channel_closed(self, channel: Channel, now_ms: int) -> list[Effect]:
        """A connection is gone."""

    def tick(self, now_ms: int) -> list[Effect]:
        """Do what is due."""


class Front:
    """Serves one machine on one listening socket, in the running event loop.

    `settle` gets what is about to go out, at most once per round of the loop, and may change it: a
    store flushes there what the answers of the round acknowledge.
    """

    def __init__(
        self,
        machine: Machine,
        *,
        name: str,
        limits: Limits | None = None,
        tls: ssl.SSLContext | None = None,
        settle: Callable[[list[Effect]], list[Effect]] | None = None,
        on_tick: Callable[[int], None] | None = None,
    ) -> None:
        self._machine = machine
        self._name = name
        self._limits = limits or Limits()
        self._tls = tls
        self._settle = settle
        self._on_tick = on_tick
        #: Performs `Announce` and `Lookup`, which are none of this front's business.
        self.on_announce: Callable[[], None] | None = None
        self.on_lookup: Callable[[str], None] | None = None
        self._peers: dict[Channel, Peer] = {}
        self._numbers = itertools.count(1)
        self._outgoing: list[Effect] = []
        self._flush_planned = False
        self._listener: socket.socket | None = None
        self._accepting = False
        self._timer: asyncio.TimerHandle | None = None
        self._next_idle_scan = 0.0
        self._now_ms = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ticking_at_ms = 0

    # Life

    def start(self, listener: socket.socket) -> None:
        """Serve on a socket that listens already."""
        self._loop = asyncio.get_running_loop()
        listener.setblocking(False)
        self._listener = listener
        self._accept_more()
        self.perform(self._machine.tick(self.now_ms()))
        self._plan_tick()

    def stop(self) -> None:
        """Close every connection at once, as the end of the process would."""
        if self._loop is None:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._accept_no_more()
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        for task in self._tasks:
            task.cancel()
        for peer in list(self._peers.values()):
            peer.abort()
        self._peers.clear()
        self._loop = None

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        return len(self._peers)

    def now_ms(self) -> int:
        """The wall clock, which never goes back here."""
        self._now_ms = max(self._now_ms, time.time_ns() // 1_000_000)
        return self._now_ms

    # Accepting

    def _accept_more(self) -> None:
        if not self._accepting and self._listener is not None:
            assert self._loop is not None
            self._loop.add_reader(self._listener, self._accept)
            self._accepting = True

    def _accept_no_more(self) -> None:
        if self._accepting and self._listener is not None:
            assert self._loop is not None
            self._loop.remove_reader(self._listener)
            self._accepting = False

    def _accept(self) -> None:
        """Take what waits, up to the limit; the rest stays with the operating system.

        Accepting only to close would make Java clients reconnect hundreds of times a second.
        """
        assert self._listener is not None
        for _ in range(_BACKLOG):
            if len(self._peers) + len(self._tasks) >= self._limits.connections_max:
                _logger.warning("%s has %d connections, its limit", self._name, len(self._peers))
                self._accept_no_more()
                return
            try:
                client, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # Too many open files: they will be fewer; do not spin until then.
                _logger.warning("%s cannot accept: %s", self._name, error)
                self._accept_no_more()
                assert self._loop is not None
                self._loop.call_later(1.0, self._accept_more)
                return
            client.setblocking(False)
            with contextlib.suppress(OSError):
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            assert self._loop is not None
            task = self._loop.create_task(self._welcome(client))
            self._tasks.add(task)
            task.add_done_callback(functools.partial(self._welcomed, client))

    def _welcomed(self, client: socket.socket, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            client.close()  # here, because it may be cancelled before its first step

    async def _welcome(self, client: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            tls = self._tls
            if tls is not None:
                async with asyncio.timeout(self._limits.idle_s):
                    first = await first_byte(loop, client)
                tls = tls if first == _TLS_HANDSHAKE else None
            await loop.connect_accepted_socket(lambda: Peer(self), client, ssl=tls)
        except (OSError, ssl.SSLError, TimeoutError) as error:
            _logger.debug("%s: a connection failed at its start: %s", self._name, error)
            client.close()

    # Peers

    def opened(self, peer: Peer, host: str, port: int) -> Channel:
        """A connection is ready."""
        channel = Channel(next(self._numbers), host, port)
        self._peers[channel] = peer
        return channel

    def closed(self, channel: Channel) -> None:
        """A connection is gone, however."""
        if self._peers.pop(channel, None) is None or self._loop is None:
            return
        self.perform(self._machine.channel_closed(channel, self.now_ms()))
        if len(self._peers) < self._limits.connections_max:
            self._accept_more()

    def received(self, channel: Channel, commands: list[Command]) -> None:
        """Hand commands to the machine; what it fails on costs an answer, not the server."""
        now_ms = self.now_ms()
        for command in commands:
            try:
                effects = self._machine.handle(command, channel, now_ms)
            except Exception:  # our mistake, logged: other clients must not pay for it
                _logger.exception("%s failed on request %d", self._name, command.code)
                if command.is_oneway or command.is_response:
                    continue
                remark = f"{self._name} failed on request {command.code}; see its log"
                answer = response_to(command, ResponseCode.SYSTEM_ERROR, remark)
                effects = [Send(channel, answer)]
            self.perform(effects)

    @property
    def limits(self) -> Limits:
        """What clients are granted."""
        return self._limits

    # Effects

    def perform(self, effects: list[Effect]) -> None:
        """Do what a machine wants done; sends go out at the end of the loop's round."""
        if not effects:
            self._plan_tick()
            return
        self._outgoing += effects
        if not self._flush_planned and self._loop is not None:
            self._flush_planned = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_planned = False
        outgoing, self._outgoing = self._outgoing, []
        if self._settle is not None:
            outgoing = self._settle(outgoing)
        # What goes to one peer in one round goes out in one write.
        parts: dict[Channel, list[bytes | memoryview]] = {}
        for effect in outgoing:
            match effect:
                case Send(channel, command, slices):
                    if channel in self._peers:
                        parts.setdefault(channel, []).extend(self._frame(command, slices))
                case Close(channel, reason):
                    self._write(channel, parts.pop(channel, []))
                    self._close(channel, reason)
                case Announce() if self.on_announce is not None:
                    self.on_announce()
                case Lookup(topic) if self.on_lookup is not None:
                    self.on_lookup(topic)
        for channel, pending in parts.items():
            self._write(channel, pending)
        self._plan_tick()

    def _write(self, channel: Channel, parts: list[bytes | memoryview]) -> None:
        peer = self._peers.get(channel)
        if peer is not None and parts:
            peer.write(parts)

    def _close(self, channel: Channel, reason: str) -> None:
        peer = self._peers.get(channel)
        if peer is not None:
            _logger.info("%s closes %s: %s", self._name, channel.address, reason)
            peer.close()

    def _frame(
        self, command: Command, slices: tuple[bytes | memoryview, ...]
    ) -> list[bytes | memoryview]:
        try:
            return _framed(command, slices)
        except ConfigurationError as error:
            _logger.warning("%s cannot send code %d: %s", self._name, command.code, error)
            if not command.is_response:
                return []
            # Who asked must not wait in vain: Java's clients would close their connection.
            failed = msgspec.structs.replace(
                command,
                code=int(ResponseCode.SYSTEM_ERROR),
                fields={},
                body=b"",
                remark=f"{self._name} cannot send its answer: {error}",
            )
            return [encode_command(failed)]

    # Time

    def _plan_tick(self) -> None:
        if self._loop is None:
            return
        now_ms = self.now_ms()
        due_ms = min(max(self._machine.next_due_ms, now_ms + _TICK_MS_MIN), now_ms + _TICK_MS_MAX)
        if self._timer is not None:
            if self._ticking_at_ms <= due_ms:
                return
            self._timer.cancel()
        self._ticking_at_ms = due_ms
        self._timer = self._loop.call_later((due_ms - now_ms) / 1000, self._tick)

    def _tick(self) -> None:
        self._timer = None
        now_ms = self.now_ms()
        try:
            if self._on_tick is not None:
                self._on_tick(now_ms)
            if now_ms >= self._machine.next_due_ms:
                self.perform(self._machine.tick(now_ms))
            self._close_idle()
        except Exception:  # our mistake, logged: the clock must go on
            _logger.exception("%s failed in its tick", self._name)
        self._plan_tick()

    def _close_idle(self) -> None:
        now = time.monotonic()
        if now < self._next_idle_scan:
            return
        self._next_idle_scan = now + min(_IDLE_SCAN_S, self._limits.idle_s / 2)
        for peer in list(self._peers.values()):
            if now - peer.used_at > self._limits.idle_s:
                peer.close()


def _framed(command: Command, slices: tuple[bytes | memoryview, ...]) -> list[bytes | memoryview]:
    """The parts of a frame whose body is `slices`, when there are any."""
    frame = encode_command(command)
    if not slices:
        return [frame]
    extra = sum(map(len, slices))
    if len(frame) + extra > FRAME_BYTES_MAX:
        raise ConfigurationError(
            f"the frame has {len(frame) + extra} bytes, above the protocol's limit of "
            f"{FRAME_BYTES_MAX}: ask for less at once"
        )
    # The length word is the only one that knows of the body.
    return [(len(frame) - 4 + extra).to_bytes(4, "big"), memoryview(frame)[4:], *slices]

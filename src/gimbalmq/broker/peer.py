"""One connection of a server: bytes to commands, commands to bytes, and how slow it may be."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from typing import Final, Protocol

import msgspec

from gimbalmq.broker.effects import Channel, Close, Effect
from gimbalmq.errors import ProtocolError
from gimbalmq.wire.command import Command
from gimbalmq.wire.connection import Connection
from gimbalmq.wire.frame import FRAME_BYTES_MAX

__all__ = ["Limits", "Owner", "Peer", "first_byte"]

_logger: Final = logging.getLogger("gimbalmq.broker")


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What one server grants its clients."""

    connections_max: int = 10_000
    frame_bytes_max: int = FRAME_BYTES_MAX
    #: The header of a send holds its properties, 32 KiB at most; the rest is small.
    header_bytes_max: int = 1024 * 1024
    #: A client that reads so slowly that more than this waits for it is cut off.
    unsent_bytes_max: int = 64 * 1024 * 1024
    #: Above this much unsent, no more is read from the client until it has caught up.
    unsent_bytes_high: int = 4 * 1024 * 1024
    #: A connection on which nothing was read or written for so long is closed.
    idle_s: float = 120.0


class Owner(Protocol):
    """Who is told what happens on a connection."""

    @property
    def limits(self) -> Limits:
        """What clients are granted."""

    def opened(self, peer: Peer, host: str, port: int) -> Channel:
        """A connection is ready."""

    def closed(self, channel: Channel) -> None:
        """A connection is gone."""

    def received(self, channel: Channel, commands: list[Command]) -> None:
        """Commands have arrived."""

    def perform(self, effects: list[Effect]) -> None:
        """Do this after what is planned already."""


class Peer(asyncio.Protocol):
    """One connection."""

    def __init__(self, front: Owner) -> None:
        self._front = front
        limits = front.limits
        self._incoming = Connection(limits.frame_bytes_max, limits.header_bytes_max)
        self._transport: asyncio.Transport | None = None
        self._channel: Channel | None = None
        self.used_at = time.monotonic()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket, or the TLS session on it, is ready."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(self._front.limits.unsent_bytes_high)
        host, port = (transport.get_extra_info("peername") or ("127.0.0.1", 0))[:2]
        self._channel = self._front.opened(self, host.partition("%")[0], port)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone, however."""
        del exc
        self._transport = None
        if self._channel is not None:
            self._front.closed(self._channel)

    def data_received(self, data: bytes) -> None:
        """Cut frames and hand them over."""
        self.used_at = time.monotonic()
        assert self._channel is not None
        try:
            commands = self._incoming.receive(data)
        except ProtocolError as error:
            _logger.debug("%s sent no frame: %s", self._channel.address, error)
            self.abort()
            return
        self._front.received(self._channel, commands)
        if self._incoming.fault is not None:
            # After the answers to what came before the bad bytes.
            self._front.perform([Close(self._channel, "it sent bytes that are no frame")])

    def pause_writing(self) -> None:
        """The peer reads too slowly: take nothing more from it."""
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """The peer has caught up."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def write(self, parts: list[bytes | memoryview]) -> None:
        """Send, unless too much waits already: such a peer is cut off."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self.used_at = time.monotonic()
        transport.writelines(parts)
        if transport.get_write_buffer_size() > self._front.limits.unsent_bytes_max:
            _logger.warning("%s reads too slowly and is cut off", self._channel)
            transport.abort()

    def close(self) -> None:
        """Close after what waits is sent."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()


async def first_byte(loop: asyncio.AbstractEventLoop, client: socket.socket) -> bytes:
    """The first byte of a connection, left where it is."""
    readable: asyncio.Future[None] = loop.create_future()
    loop.add_reader(client, _settle_once, readable)
    try:
        await readable
    finally:
        loop.remove_reader(client)
    return client.recv(1, socket.MSG_PEEK)


def _settle_once(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)

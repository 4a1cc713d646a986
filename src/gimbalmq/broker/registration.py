"""A broker's connections to its name servers: registers, keeps alive, asks for routes.

One task per name server. A registration goes out at once, when the topics change, and at an
interval; a name server that is away is tried again with growing pauses, for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import zlib
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from gimbalmq.broker.settings import BrokerSettings
from gimbalmq.errors import GimbalError
from gimbalmq.model.queue import MessageQueue
from gimbalmq.transport.address import split_address
from gimbalmq.wire.bodies import TopicConfigTable, decode_route, encode_registration
from gimbalmq.wire.codes import RequestCode
from gimbalmq.wire.command import Command, encode_command
from gimbalmq.wire.connection import Connection
from gimbalmq.wire.headers import route_request

__all__ = ["Registration"]

_logger: Final = logging.getLogger("gimbalmq.broker")

#: Java's brokers register this often; name servers drop them after 120 s.
_INTERVAL_S: Final = 30.0
_CONNECT_S: Final = 3.0
_CALL_S: Final = 6.0
_PAUSE_S_MIN: Final = 0.1
_PAUSE_S_MAX: Final = 5.0
_READ_BYTES: Final = 1 << 16


class _Link:
    """One name server."""

    def __init__(self, address: str) -> None:
        self.address = address
        #: Set when there is something new to register.
        self.news = asyncio.Event()
        self.registered = asyncio.Event()
        self._opaque = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Command]] = {}
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None

    async def open(self) -> None:
        host, port = split_address(self.address)
        async with asyncio.timeout(_CONNECT_S):
            reader, self._writer = await asyncio.open_connection(host, port)
        self._reading = asyncio.create_task(self._read(reader))

    async def call(self, command: Command) -> Command:
        if self._writer is None:
            raise ConnectionError(f"{self.address} is not connected")
        command.opaque = next(self._opaque) & 0x7FFFFFFF
        answer: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
        self._waiting[command.opaque] = answer
        try:
            self._writer.write(encode_command(command))
            await self._writer.drain()
            # Not wait_for: on 3.11 it forgets that it was cancelled when the answer is there.
            async with asyncio.timeout(_CALL_S):
                return await answer
        finally:
            self._waiting.pop(command.opaque, None)

    async def wait_for_news(self) -> None:
        """Until there is something to register, the interval is over, or the connection lost."""
        assert self._reading is not None
        news = asyncio.create_task(self.news.wait())
        try:
            done, _ = await asyncio.wait(
                {news, self._reading},
                timeout=_INTERVAL_S,
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            news.cancel()
        if self._reading in done:
            raise ConnectionError(f"{self.address} closed the connection")

    async def close(self) -> None:
        self.registered.clear()
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait({self._reading})
            self._reading = None
        if self._writer is not None:
            self._writer.close()
            with contextlib.suppress(OSError, asyncio.TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._writer.wait_closed()
            self._writer = None

    async def _read(self, reader: asyncio.StreamReader) -> None:
        incoming = Connection()
        try:
            while data := await reader.read(_READ_BYTES):
                for command in incoming.receive(data):
                    waiting = self._waiting.get(command.opaque)
                    if command.is_response and waiting is not None and not waiting.done():
                        waiting.set_result(
                            msgspec.structs.replace(command, body=bytes(command.body))
                        )
        except (OSError, GimbalError) as error:
            _logger.info("connection to name server %s broke: %s", self.address, error)
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(ConnectionError(f"{self.address} closed the connection"))


class Registration:
    """Keeps one broker known to its name servers; lives in the running event loop."""

    def __init__(
        self,
        nameservers: Iterable[str],
        settings: BrokerSettings,
        topics: Callable[[], TopicConfigTable],
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._links = [_Link(address) for address in nameservers]
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Register with every name server, now and from now on."""
        self._tasks = [asyncio.create_task(self._keep(link)) for link in self._links]

    async def registered(self) -> None:
        """Wait until every name server knows the broker."""
        await asyncio.gather(*(link.registered.wait() for link in self._links))

    def announce(self) -> None:
        """The topics have changed."""
        for link in self._links:
            link.news.set()

    async def lookup(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues of a topic on all brokers; none when no name server knows it."""
        for link in self._links:
            with contextlib.suppress(OSError, asyncio.TimeoutError, GimbalError):
                answer = await link.call(route_request(topic))
                if answer.code == 0:
                    return tuple(decode_route(topic, answer.body).subscribe_queues())
        return ()

    async def stop(self, *, goodbye: bool = True) -> None:
        """End; with `goodbye`, every name server is told."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        for link in self._links:
            if goodbye and link.registered.is_set():
                with contextlib.suppress(OSError, asyncio.TimeoutError):
                    await link.call(Command(RequestCode.UNREGISTER_BROKER, self._identity()))
            await link.close()

    async def _keep(self, link: _Link) -> None:
        pause_s = _PAUSE_S_MIN
        while True:
            try:
                await link.open()
                while True:
                    link.news.clear()
                    answer = await link.call(self._request())
                    if answer.code:
                        _logger.warning(
                            "name server %s refused the broker: %s", link.address, answer.remark
                        )
                    else:
                        link.registered.set()
                        pause_s = _PAUSE_S_MIN
                    await link.wait_for_news()
            except (TimeoutError, OSError) as error:
                _logger.debug("name server %s: %s", link.address, error)
            await link.close()
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, _PAUSE_S_MAX)

    def _identity(self) -> dict[str, str]:
        settings = self._settings
        return {
            "brokerName": settings.name,
            "brokerAddr": settings.address,
            "clusterName": settings.cluster,
            "brokerId": str(settings.broker_id),
        }

    def _request(self) -> Command:
        body = encode_registration(self._topics())
        fields = {
            **self._identity(),
            "haServerAddr": f"{self._settings.host}:0",
            "compressed": "false",
            "bodyCrc32": str(zlib.crc32(body) & 0x7FFFFFFF),
        }
        return Command(RequestCode.REGISTER_BROKER, fields, body)

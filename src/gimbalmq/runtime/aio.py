"""The asyncio driver: connections and timers of a client instance on the loop that is running.

No thread of its own. What is asked for while the loop handles one round of events leaves in one
write per connection. Behaves as the engine thread does: a failed connection is opened again by
the next request, after a pause; a request over its time on a connection that was silent since
takes the connection with it.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import ssl
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from gimbalmq.errors import ConfigurationError, GimbalError, StateError, TransportError
from gimbalmq.flows.effects import Flow, Instant
from gimbalmq.runtime.driver import CONNECT_TIMEOUT_S, DriverClient
from gimbalmq.runtime.reconnect import ReconnectPauses
from gimbalmq.runtime.stepping import FlowRun
from gimbalmq.transport.address import split_address
from gimbalmq.transport.reach import PLAIN, Reach
from gimbalmq.transport.requests import Answered, RequestTable
from gimbalmq.transport.tls import handshake_error, stream_error
from gimbalmq.transport.trouble import broken, unreachable
from gimbalmq.wire.command import Command

__all__ = ["AioDriver"]

_log = logging.getLogger("gimbalmq.runtime")
_T = TypeVar("_T")

_EXPIRE_EVERY_S = 0.1


class _AioConnection(RequestTable, asyncio.Protocol):
    """One connection on the loop, from the first attempt on."""

    def __init__(self, driver: AioDriver, address: str, now: float, reach: Reach) -> None:
        super().__init__(address, now, reach)
        self._driver = driver
        self._transport: asyncio.WriteTransport | None = None
        self.connecting: asyncio.Task[None] | None = None
        #: Why it cannot be used any more.
        self.lost_by: GimbalError | None = None

    @property
    def connected(self) -> bool:
        return self._transport is not None

    def flush(self) -> None:
        if self._transport is not None and self._unsent:
            self._transport.writelines(list(self._unsent))
            self._unsent.clear()

    def close(self) -> None:
        if self.connecting is not None and self.connecting is not asyncio.current_task():
            self.connecting.cancel()
        if self._transport is not None:
            self._transport.abort()

    # ---- what the loop reports ---------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport
        self._driver.made(self)

    def data_received(self, data: bytes) -> None:
        self._driver.received(self, data)

    def connection_lost(self, exc: Exception | None) -> None:
        error: GimbalError
        if isinstance(exc, ssl.SSLError):
            error = stream_error(self.address, exc)
        elif isinstance(exc, OSError) and (self._talked or not isinstance(exc, ConnectionError)):
            error = broken(self.address, exc)
        else:
            error = self.ended()
        self._driver.lose(self, error)
        self._driver.ended(self)


class _Request:
    """A request in flight, which may be forgotten."""

    __slots__ = ("_connection", "_done", "opaque")

    def __init__(self, connection: RequestTable | None, done: Answered) -> None:
        self._connection = connection
        self._done: Answered | None = done
        self.opaque = 0

    def __call__(self, answer: Command | GimbalError) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(answer)

    def cancel(self) -> None:
        self._done = None
        if self._connection is not None:
            self._connection.forget(self.opaque)


class _Timer:
    """A pending call, known to the driver until it ran, so that none outlives it."""

    __slots__ = ("_action", "_handle", "_timers")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        timers: set[_Timer],
        delay_s: float,
        action: Callable[[], None],
    ) -> None:
        self._action = action
        self._timers = timers
        self._handle = loop.call_later(delay_s, self._fire)
        timers.add(self)

    def cancel(self) -> None:
        self._handle.cancel()
        self._timers.discard(self)

    def _fire(self) -> None:
        self._timers.discard(self)
        _guard(self._action)


class AioDriver:
    """Runs one client instance on a running loop; all but `post` is for that loop's thread."""

    def __init__(
        self,
        client: DriverClient,
        *,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        reach: Reach = PLAIN,
    ) -> None:
        self._client = client
        self._connect_timeout_s = connect_timeout_s
        self._reach = reach
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        self._connections: dict[str, _AioConnection] = {}
        #: Those whose transport has not said its last word.
        self._open: set[_AioConnection] = set()
        self._connecting: set[asyncio.Task[None]] = set()
        self._pauses = ReconnectPauses()
        self._touched: set[_AioConnection] = set()
        self._flushing = False
        self._timers: set[_Timer] = set()
        self._all_ended: asyncio.Future[None] | None = None
        self._closed = False
        self.call_later(_EXPIRE_EVERY_S, self._expire)

    # ---- life --------------------------------------------------------------------------------

    async def close(self) -> None:
        """Close every connection and forget every timer; whoever waits gets an error."""
        if self._closed:
            return
        error = TransportError("this client is stopped")
        self._closed = True
        for timer in tuple(self._timers):
            timer.cancel()
        for connection in tuple(self._connections.values()):
            self.lose(connection, error)
        # Transports say goodbye on a later round of the loop; a socket that is still open when
        # the loop ends would be a leak.
        if self._connecting:
            await asyncio.wait(self._connecting)
        if self._open:
            self._all_ended = self._loop.create_future()
            await self._all_ended

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop that everything runs on."""
        return self._loop

    # ---- any thread --------------------------------------------------------------------------

    def post(self, action: Callable[[], None]) -> None:
        """Run something on the loop, soon; a StateError once the driver has stopped."""
        if self._closed:
            raise StateError("this client is stopped: make a new one")
        guarded = functools.partial(_guard, action)
        if threading.get_ident() == self._thread_id:
            self._loop.call_soon(guarded)
            return
        try:
            self._loop.call_soon_threadsafe(guarded)
        except RuntimeError as error:  # the loop has ended without a stop of the client
            raise StateError("the event loop of this client has ended") from error

    @staticmethod
    def now() -> Instant:
        """Read the clocks."""
        return Instant(time.monotonic(), time.time_ns() // 1_000_000)

    #: Reads the clock that never jumps.
    monotonic = staticmethod(time.monotonic)

    # ---- requests ----------------------------------------------------------------------------

    def call(self, address: str, command: Command, timeout_s: float, done: Answered) -> _Request:
        """Send a request; `done` gets the answer or the error, never before this returns."""
        try:
            connection = self._connection(address)
        except TransportError as error:
            request = _Request(None, done)
            self._loop.call_soon(_guard, functools.partial(request, error))
            return request
        request = _Request(connection, done)
        request.opaque = connection.request(command, time.monotonic(), timeout_s, request)
        self._touch(connection)
        return request

    def notify(self, address: str, command: Command) -> None:
        """Send a one-way request."""
        try:
            connection = self._connection(address)
        except TransportError as error:
            _log.debug("one-way request %s not sent: %s", command.code, error)
            return
        connection.notify(command)
        self._touch(connection)

    async def reach(self, address: str, timeout_s: float) -> None:
        """Wait until there is a connection to an address, for whoever wants no answer.

        Raises:
            TransportError: there is none.
        """
        connection = self._connection(address)
        if not connection.connected and connection.connecting is not None:
            # Not the task itself: others wait for it, too.
            await asyncio.wait([connection.connecting], timeout=timeout_s)
        if connection.lost_by is not None:
            raise connection.lost_by
        if not connection.connected:
            raise unreachable(address, "timed out")

    def answer(self, address: str, response: Command) -> None:
        """Send a late answer to a request of a server, if its connection is still there."""
        connection = self._connections.get(address)
        if connection is not None:
            connection.answer(response)
            self._touch(connection)

    def disconnect(self, address: str) -> None:
        """Close the connection to an address, if there is one."""
        connection = self._connections.get(address)
        if connection is not None:
            self.lose(connection, TransportError(f"no longer using {address}", address=address))

    def call_later(self, delay_s: float, action: Callable[[], None]) -> _Timer:
        """Run something after a while."""
        return _Timer(self._loop, self._timers, delay_s, action)

    def spawn(self, flow: Flow[Any], done: Callable[[Any], None]) -> None:
        """Run a flow; `done` gets its result, or the error it ended with."""
        FlowRun(self, flow, done).start()

    async def run(self, flow: Flow[_T]) -> _T:
        """Run a flow and return its result; when cancelled, the flow ends and is forgotten."""
        result: asyncio.Future[_T] = self._loop.create_future()

        def done(outcome: Any) -> None:
            if result.done():
                return
            if isinstance(outcome, GimbalError):
                result.set_exception(outcome)
            else:
                result.set_result(outcome)

        running = FlowRun(self, flow, done)
        running.start()
        try:
            return await result
        except asyncio.CancelledError:
            running.cancel()
            raise

    # ---- connections -------------------------------------------------------------------------

    def _connection(self, address: str) -> _AioConnection:
        connection = self._connections.get(address)
        if connection is not None:
            return connection
        if self._closed:
            raise TransportError("this client is stopping", address=address)
        now = time.monotonic()
        self._pauses.check(address, now)
        connection = self._connections[address] = _AioConnection(self, address, now, self._reach)
        connection.connecting = task = self._loop.create_task(self._connect(connection))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)
        return connection

    async def _connect(self, connection: _AioConnection) -> None:
        address = connection.address
        target = address
        try:
            target, context = self._reach.target(address), self._reach.context()
            host, port = split_address(target)
            async with asyncio.timeout(self._connect_timeout_s):
                await self._loop.create_connection(
                    lambda: connection,
                    host,
                    port,
                    ssl=context,
                    server_hostname=None if context is None else host,
                )
        except GimbalError as error:
            self.lose(connection, error)
        except OSError as error:  # a time-out and a failed handshake are OSErrors, too
            if isinstance(error, ssl.SSLError):
                self.lose(connection, handshake_error(address, error))
                return
            reason = "timed out" if isinstance(error, TimeoutError) else error.strerror or error
            self.lose(connection, unreachable(address, reason, target))

    def made(self, connection: _AioConnection) -> None:
        """A connection is there."""
        self._open.add(connection)
        if self._connections.get(connection.address) is not connection:
            connection.close()  # given up in the meantime
            return
        _guard(functools.partial(self._client.on_connected, connection.address))
        self._touch(connection)

    def received(self, connection: _AioConnection, data: bytes) -> None:
        """Bytes came."""
        if self._connections.get(connection.address) is connection:
            _guard(functools.partial(self._take_in, connection, data))

    def _take_in(self, connection: _AioConnection, data: bytes) -> None:
        try:
            for request in connection.take_in(data, time.monotonic()):
                response = self._client.on_request(connection.address, request)
                if response is not None:
                    connection.answer(response)
                    self._touch(connection)
        except GimbalError as error:
            self.lose(connection, error)

    def lose(self, connection: _AioConnection, error: GimbalError) -> None:
        """A connection cannot be used any more."""
        if self._connections.get(connection.address) is not connection:
            return
        del self._connections[connection.address]
        connection.lost_by = error
        self._touched.discard(connection)
        if not isinstance(error, ConfigurationError):  # nobody was asked then
            self._pauses.lost(
                connection.address,
                time.monotonic(),
                connected=connection.connected,
                opened_at=connection.opened_at,
            )
        connection.close()
        _guard(functools.partial(connection.fail_all, error))
        if not self._closed:
            _guard(functools.partial(self._client.on_disconnected, connection.address, error))

    def ended(self, connection: _AioConnection) -> None:
        """The transport of a connection is closed."""
        self._open.discard(connection)
        if self._all_ended is not None and not self._open and not self._all_ended.done():
            self._all_ended.set_result(None)

    def _touch(self, connection: _AioConnection) -> None:
        self._touched.add(connection)
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush_touched)

    def _flush_touched(self) -> None:
        self._flushing = False
        touched, self._touched = self._touched, set()
        for connection in touched:
            connection.flush()

    def _expire(self) -> None:
        # First the next time: one that fails must not be the last.
        self.call_later(_EXPIRE_EVERY_S, self._expire)
        now = time.monotonic()
        for connection in tuple(self._connections.values()):
            if not connection.connected and connection.waits_too_long(now):
                address = connection.address
                self.lose(connection, unreachable(address, "timed out", address))
                continue
            try:
                connection.give_up_late(now)
            except GimbalError as error:
                self.lose(connection, error)


def _guard(action: Callable[[], object]) -> None:
    try:
        action()
    except Exception:  # noqa: BLE001 - the last line of defence of a shared loop
        # A fault in one group's code must not stop the others that share this instance.
        _log.exception("fault in the client's driver; this is a bug, please report it")

"""The threaded driver: one engine thread owns all connections and timers of a client instance.

Everything the thread runs is short: parse, decide, queue bytes. Other threads come in through
`post`, which wakes the loop only when it sleeps. Requests made while the loop handles one round of
events leave in one system call per connection.

User code runs elsewhere (`workers`), with one exception: listeners that are known to be quick may
run on the engine thread between two rounds, as errands, because what one thread has just read and
decoded is at hand there, and handing it to another costs more than such a listener takes. Whoever
gives an errand watches it, and lets another thread go on with the loop when it takes too long
(`replace`); the first then ends with its errand.

A connection that fails is opened again by the next request, but not before a pause that doubles
with each failure in a row, so a broker that accepts and closes at once is not stormed.
"""

from __future__ import annotations

import contextlib
import functools
import heapq
import itertools
import logging
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from gimbalmq.errors import GimbalError, StateError, TransportError
from gimbalmq.flows.effects import Flow, Instant
from gimbalmq.runtime.driver import CONNECT_TIMEOUT_S, DriverClient
from gimbalmq.runtime.reconnect import ReconnectPauses
from gimbalmq.runtime.resolving import Resolver
from gimbalmq.runtime.stepping import FlowRun
from gimbalmq.transport.address import Where
from gimbalmq.transport.nonblocking import Answered, NonBlockingConnection, Offered
from gimbalmq.transport.reach import PLAIN, Reach
from gimbalmq.transport.requests import StoredTogether
from gimbalmq.wire.command import Command

__all__ = ["Engine"]

_log = logging.getLogger("gimbalmq.runtime")

#: How often requests are checked for their time-outs, and hence how late one may be noticed.
_EXPIRE_EVERY_S = 0.1
#: How often whoever waits for the end looks whether there is a thread that will bring it about.
_LOOK_EVERY_S = 0.5
#: Well above what a round of answers takes; see `_keep_heap`.
_LARGE_BLOCK_BYTES = 1 << 22


class _Timer:
    __slots__ = ("action",)

    def __init__(self, action: Callable[[], None]) -> None:
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        self.action = None


def _keep_heap() -> None:
    """Let the process keep the memory that a round of answers takes and the next takes again.

    Linux's C library gives the free end of a thread's heap back to the kernel above a limit that
    it learns from: twice the largest block that came straight from the kernel and was freed. The
    answers of one round are above its first limit, and each page that comes anew costs more than
    the messages in it. A block that is freed at once, and never touched, raises the limit.
    """
    block = bytes(_LARGE_BLOCK_BYTES)
    del block


class Engine:
    """Runs one client instance on a thread of its own."""

    def __init__(
        self,
        name: str,
        client: DriverClient,
        *,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        reach: Reach = PLAIN,
    ) -> None:
        self._client = client
        self._reach = reach
        self._connect_timeout_s = connect_timeout_s
        self._connections: dict[str, NonBlockingConnection] = {}
        self._pauses = ReconnectPauses()
        self._resolver = Resolver(self.post)
        self._touched: set[NonBlockingConnection] = set()
        self._timers: list[tuple[float, int, _Timer]] = []
        self._timer_numbers = itertools.count()
        self._inbox: deque[Callable[[], None]] = deque()
        self._awake = True
        self._errands: deque[Callable[[], None]] = deque()
        #: Whether the thread is on an errand; changes, as the thread does, under the lock.
        self._away = False
        self._turn = threading.Lock()
        self._stopping = False
        self._closed = False
        self._ended = threading.Event()
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = socket.socketpair()
        self._wake_read.setblocking(False)
        self._selector.register(self._wake_read, selectors.EVENT_READ, None)
        self._name = f"gimbalmq-{name}"
        self._thread = self._new_thread()

    def _new_thread(self) -> threading.Thread:
        return threading.Thread(target=self._run, name=self._name, daemon=True)

    # ---- any thread --------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread."""
        _keep_heap()
        self.call_later(_EXPIRE_EVERY_S, self._expire)
        self._thread.start()

    def stop(self) -> None:
        """End the thread and close every connection; waits unless called by the thread itself."""
        if self._thread.ident is None:  # it could not be started
            self._close()
            return
        # The thread may end between taking the order and being woken for it.
        with contextlib.suppress(StateError):
            self.post(self._stop_here)
        if threading.current_thread() is not self._thread:
            while not self._ended.wait(_LOOK_EVERY_S) and self._thread.is_alive():
                pass  # its listener may have ended the thread, or another may have taken over
            self._thread.join()

    @property
    def is_current(self) -> bool:
        """Whether the caller is what the loop runs; an errand is not."""
        return threading.current_thread() is self._thread and not self._away

    def post(self, action: Callable[[], None]) -> None:
        """Run something on the engine thread, soon; a StateError once the engine has stopped."""
        if self._closed:
            raise StateError("this client is stopped: make a new one")
        self._inbox.append(action)
        if not self._awake:
            self._awake = True
            try:
                self._wake_write.send(b"\x00")
            except OSError as error:
                raise StateError("this client is stopped: make a new one") from error

    def offer(
        self,
        address: str,
        offered: Offered,
        together: StoredTogether | None = None,
    ) -> bool:
        """Send requests that are written down already; their givers get the answers or errors.

        With `together` they are sends, and answers that say stored go there.

        The calling thread writes them, because the engine's would have to wait for its turn while
        the other end has nothing to do. False when there is no open connection that takes frames
        as they are; `post` a `call` of each instead.
        """
        connection = self._connections.get(address)
        if connection is None or not connection.offer(offered, time.monotonic(), together):
            return False
        try:
            connection.flush()
        except GimbalError as error:
            self.post(functools.partial(self._lose, connection, error))
        else:
            if connection.wants_write:
                self.post(functools.partial(self._touch, connection))
        return True

    def replace(self, thread_id: int) -> None:
        """Let another thread go on with the loop, if that one still is on an errand."""
        with self._turn:
            if self._away and self._thread.ident == thread_id:
                self._away = False
                self._thread = self._new_thread()
                self._thread.start()

    @staticmethod
    def now() -> Instant:
        """Read the clocks."""
        return Instant(time.monotonic(), time.time_ns() // 1_000_000)

    #: Reads the clock that never jumps.
    monotonic = staticmethod(time.monotonic)

    # ---- engine thread only ------------------------------------------------------------------

    def call(self, address: str, command: Command, timeout_s: float, done: Answered) -> None:
        """Send a request; `done` gets the answer or the error, never before this returns."""
        try:
            connection = self._connections.get(address) or self._connection(address)
        except GimbalError as error:
            failure = error
            self._inbox.append(lambda: done(failure))
            return
        connection.request(command, time.monotonic(), timeout_s, done)
        self._touched.add(connection)

    def notify(self, address: str, command: Command) -> None:
        """Send a one-way request."""
        try:
            connection = self._connection(address)
        except GimbalError as error:
            _log.debug("one-way request %s not sent: %s", command.code, error)
            return
        connection.notify(command)
        self._touched.add(connection)

    def errand(self, action: Callable[[], None]) -> None:
        """Run something that is not the engine's after this round; its giver has to watch it."""
        self._errands.append(action)

    def call_later(self, delay_s: float, action: Callable[[], None]) -> _Timer:
        """Run something after a while."""
        timer = _Timer(action)
        due = time.monotonic() + delay_s
        heapq.heappush(self._timers, (due, next(self._timer_numbers), timer))
        return timer

    def spawn(self, flow: Flow[Any], done: Callable[[Any], None]) -> None:
        """Run a flow; `done` gets its result, or the error it ended with."""
        FlowRun(self, flow, done).start()

    def answer(self, address: str, response: Command) -> None:
        """Send a late answer to a request of a server, if its connection is still there."""
        connection = self._connections.get(address)
        if connection is not None:
            connection.answer(response)
            self._touched.add(connection)

    def disconnect(self, address: str) -> None:
        """Close the connection to an address, if there is one."""
        connection = self._connections.get(address)
        if connection is not None:
            self._lose(connection, TransportError(f"no longer using {address}", address=address))

    # ---- connections -------------------------------------------------------------------------

    def _connection(self, address: str) -> NonBlockingConnection:
        connection = self._connections.get(address)
        if connection is not None:
            return connection
        if self._stopping:
            raise TransportError("this client is stopping", address=address)
        now = time.monotonic()
        self._pauses.check(address, now)
        try:
            connection = NonBlockingConnection(address, now, self._connect_timeout_s, self._reach)
        except TransportError:  # not what stands in the options: nobody was asked then
            self._pauses.failed(address, now)
            raise
        self._connections[address] = connection
        if connection.has_socket:
            self._watch(connection)
        else:
            self._resolver.look_up(connection.target, functools.partial(self._connect, connection))
        return connection

    def _connect(self, connection: NonBlockingConnection, found: Where | GimbalError) -> None:
        """Connect to where a name leads to, unless that took too long."""
        if self._connections.get(connection.address) is not connection:
            return
        try:
            if isinstance(found, GimbalError):
                raise found
            connection.connect(found)
        except GimbalError as error:
            self._lose(connection, error)
        else:
            self._watch(connection)

    def _watch(self, connection: NonBlockingConnection) -> None:
        self._selector.register(
            connection.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, connection
        )

    def _lose(self, connection: NonBlockingConnection, error: GimbalError) -> None:
        if self._connections.get(connection.address) is not connection:
            return
        del self._connections[connection.address]
        self._touched.discard(connection)
        if connection.has_socket:
            self._selector.unregister(connection.socket)
        self._pauses.lost(
            connection.address,
            time.monotonic(),
            connected=connection.connected,
            opened_at=connection.opened_at,
        )
        connection.fail(error)
        if not self._stopping:
            self._client.on_disconnected(connection.address, error)

    def _serve(self, connection: NonBlockingConnection, events: int) -> None:
        try:
            if not connection.opened:
                if events & selectors.EVENT_WRITE:
                    connection.finish_connect()
                    self._touched.add(connection)
                    if connection.connected:
                        self._client.on_connected(connection.address)
                return
            if events & selectors.EVENT_READ:
                self._receive(connection)
            if events & selectors.EVENT_WRITE:
                self._touched.add(connection)
        except GimbalError as error:
            self._lose(connection, error)

    def _receive(self, connection: NonBlockingConnection) -> None:
        shaking_hands = not connection.connected
        requests = connection.receive(time.monotonic())
        if shaking_hands:
            self._touched.add(connection)
            if connection.connected:
                self._client.on_connected(connection.address)
        for request in requests:
            response = self._client.on_request(connection.address, request)
            if response is not None:
                connection.answer(response)
                self._touched.add(connection)

    def _touch(self, connection: NonBlockingConnection) -> None:
        if self._connections.get(connection.address) is connection:
            self._touched.add(connection)

    def _flush_touched(self) -> None:
        while self._touched:
            connection = self._touched.pop()
            if not connection.opened:
                continue
            try:
                connection.flush()
            except GimbalError as error:
                self._lose(connection, error)
                continue
            events = selectors.EVENT_READ
            if connection.wants_write:
                events |= selectors.EVENT_WRITE
            if self._selector.get_key(connection.socket).events != events:
                self._selector.modify(connection.socket, events, connection)

    # ---- loop --------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping:
            self._awake = False
            timeout_s = 0.0 if self._inbox else self._until_next_timer()
            ready = self._selector.select(timeout_s)
            self._awake = True
            for key, events in ready:
                if key.data is None:
                    self._wake_read.recv(4096)
                else:
                    self._guard(functools.partial(self._serve, key.data, events))
            self._run_timers()
            for _ in range(len(self._inbox)):
                self._guard(self._inbox.popleft())
            self._flush_touched()
            while self._errands:
                if not self._run_errand(self._errands.popleft()):
                    return
        self._close()

    def _run_errand(self, errand: Callable[[], None]) -> bool:
        """Run an errand; False when another thread has gone on with the loop meanwhile."""
        self._away = True
        self._guard(errand)
        with self._turn:
            if threading.current_thread() is not self._thread:
                return False
            self._away = False
            return True

    @staticmethod
    def _guard(action: Callable[[], None]) -> None:
        # A fault in one group's code must not stop the others that share this thread.
        try:
            action()
        except Exception:  # noqa: BLE001 - the last line of defence of a shared thread
            _log.exception("fault in the client's engine; this is a bug, please report it")
        except BaseException as error:  # noqa: BLE001 - as above; it ends a thread of its own only
            _log.exception(
                "a callback or listener on the client's own thread raised %s, which is ignored "
                "there, because every client of this id would end with that thread: end a process "
                "from its main thread",
                type(error).__name__,
            )

    def _until_next_timer(self) -> float:
        return max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else 1.0

    def _run_timers(self) -> None:
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            timer = heapq.heappop(self._timers)[2]
            if timer.action is not None:
                self._guard(timer.action)

    def _expire(self) -> None:
        # First the next time: one that fails must not be the last.
        self.call_later(_EXPIRE_EVERY_S, self._expire)
        now = time.monotonic()
        for connection in list(self._connections.values()):
            try:
                connection.expire(now)
            except GimbalError as error:
                self._lose(connection, error)
                continue
            if connection.wants_write:
                # Whoever offered this was interrupted before it was written.
                self._touched.add(connection)

    def _stop_here(self) -> None:
        self._stopping = True

    def _close(self) -> None:
        error = TransportError("this client is stopped")
        for connection in list(self._connections.values()):
            self._guard(functools.partial(self._lose, connection, error))
        self._closed = True
        # Callbacks of the requests that were just failed may still be queued.
        while self._inbox:
            self._guard(self._inbox.popleft())
        self._selector.close()
        self._wake_read.close()
        self._wake_write.close()
        self._ended.set()

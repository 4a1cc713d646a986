"""Runs flows on the calling thread, over blocking connections; threads help where one does not do.

`ConnectionPool` is shared by threads; a connection is borrowed for the length of one call. The
pool opens nothing until it is used and can be dropped after a fork, so Spark workers may hold
one at module level.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TypeVar

from gimbalmq.errors import GimbalError, StateError
from gimbalmq.flows.effects import Call, Flow, Instant, Notify, Now, Sleep, Together
from gimbalmq.transport.blocking import BlockingConnection
from gimbalmq.transport.reach import PLAIN, Reach
from gimbalmq.wire.command import Command
from gimbalmq.wire.stored import StoredAnswer

__all__ = ["ConnectionPool", "run_inline"]

_T = TypeVar("_T")


class ConnectionPool:
    """Idle connections by address; all are made the way that `reach` says.

    A new one may take half of the time that its request has, and `connect_timeout_s` at most: if
    that is not enough, there is time left to ask another server.
    """

    def __init__(self, *, connect_timeout_s: float = 3.0, reach: Reach = PLAIN) -> None:
        self._connect_timeout_s = connect_timeout_s
        self._reach = reach
        self._lock = threading.Lock()
        self._idle: dict[str, list[BlockingConnection]] = {}
        self._closed = False

    def call(self, address: str, command: Command, timeout_s: float) -> Command:
        """Send a request over an idle or new connection and wait for its answer."""
        connection = self._idle_one(address)
        if connection is None:
            connection, timeout_s = self._open(address, timeout_s)
        try:
            answer = connection.call(command, timeout_s)
        except BaseException:
            # Also an interrupt: an answer may still be on its way.
            connection.close()
            raise
        self._give_back(connection)
        return answer

    def store(
        self, address: str, frame: bytes, opaque: int, timeout_s: float
    ) -> StoredAnswer | Command:
        """As `call`, for a message whose request is written down already."""
        connection = self._idle_one(address)
        if connection is None:
            connection, timeout_s = self._open(address, timeout_s)
        try:
            answer = connection.store(frame, opaque, timeout_s)
        except BaseException:
            connection.close()
            raise
        self._give_back(connection)
        return answer

    def notify(self, address: str, command: Command, timeout_s: float = 3.0) -> None:
        """Send a one-way request."""
        # No answer will tell that the connection is gone, so it is looked at first.
        connection = self._idle_one(address, look=True)
        if connection is None:
            connection, timeout_s = self._open(address, timeout_s)
        try:
            connection.notify(command, timeout_s)
        except BaseException:
            connection.close()
            raise
        self._give_back(connection)

    def _idle_one(self, address: str, *, look: bool = False) -> BlockingConnection | None:
        with self._lock:
            if self._closed:
                raise StateError("this client is stopped: make a new one")
            idle = self._idle.get(address)
            while idle:
                connection = idle.pop()
                if connection.healthy(look=look):
                    return connection
                connection.close()
        return None

    def _open(self, address: str, timeout_s: float) -> tuple[BlockingConnection, float]:
        """A new connection, and what is left of the time."""
        started_s = time.monotonic()
        limit_s = min(self._connect_timeout_s, timeout_s / 2)
        connection = BlockingConnection(address, connect_timeout_s=limit_s, reach=self._reach)
        return connection, timeout_s - (time.monotonic() - started_s)

    def _give_back(self, connection: BlockingConnection) -> None:
        with self._lock:
            if not self._closed:
                idle = self._idle.get(connection.address)
                if idle is None:
                    idle = self._idle[connection.address] = []
                idle.append(connection)
                return
        connection.close()

    def drop_unused(self, until_s: float) -> None:
        """Close the idle connections that were last used before a time."""
        unused: list[BlockingConnection] = []
        with self._lock:
            for address, idle in list(self._idle.items()):
                unused += [one for one in idle if one.used_at < until_s]
                idle[:] = [one for one in idle if one.used_at >= until_s]
                if not idle:
                    del self._idle[address]
        for connection in unused:
            connection.close()

    def close(self) -> None:
        """Close every idle connection; borrowed ones are closed when they come back."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, {}
        for connections in idle.values():
            for connection in connections:
                connection.close()


def run_inline(flow: Flow[_T], pool: ConnectionPool) -> _T:
    """Run a flow to its end on this thread and return its result."""
    try:
        effect = next(flow)
        while True:
            try:
                result: object = None
                match effect:
                    case Call():
                        result = pool.call(effect.address, effect.command, effect.timeout_s)
                    case Notify():
                        pool.notify(effect.address, effect.command)
                    case Now():
                        result = Instant(time.monotonic(), time.time_ns() // 1_000_000)
                    case Sleep():
                        time.sleep(effect.seconds)
                    case Together():
                        result = _run_together(effect, pool)
            except GimbalError as error:
                effect = flow.throw(error)
            else:
                effect = flow.send(result)
    except StopIteration as stop:
        value: _T = stop.value
        return value


def _run_together(effect: Together, pool: ConnectionPool) -> list[object]:
    """What each of the flows ended with, in order."""
    results: list[object] = [None] * len(effect.flows)
    waiting = deque(enumerate(effect.flows))

    def work() -> None:
        while waiting:
            try:
                number, flow = waiting.popleft()
            except IndexError:  # another thread was faster
                return
            try:
                results[number] = run_inline(flow, pool)
            except Exception as error:  # noqa: BLE001 - the caller's thread sorts them
                results[number] = error

    # They end with the process: whoever interrupts the caller does not wait for silent servers.
    threads = [
        threading.Thread(target=work, name="gimbalmq-together", daemon=True)
        for _ in range(min(effect.at_once, len(waiting)) - 1)
    ]
    try:
        for thread in threads:
            thread.start()
        work()
        for thread in threads:
            thread.join()
    finally:
        waiting.clear()
    for result in results:
        if isinstance(result, Exception) and not isinstance(result, GimbalError):
            raise result
    return results

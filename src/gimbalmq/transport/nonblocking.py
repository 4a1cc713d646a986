"""A connection for an event loop: never waits, keeps what could not be written yet.

Holds the requests in flight by their opaque number. Knows nothing of threads or timers: its
owner watches the socket, calls in when it is ready, and says what time it is.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import socket
from collections import deque
from collections.abc import Callable

from gimbalmq.errors import CallTimeoutError, GimbalError, TransportError
from gimbalmq.transport.address import resolve
from gimbalmq.wire.command import FLAG_ONEWAY, Command, encode_command
from gimbalmq.wire.connection import Connection

__all__ = ["Answered", "NonBlockingConnection"]

#: Receives the answer of a request, or the reason why there is none.
Answered = Callable[[Command | GimbalError], None]

#: What one system call reads while answers are large, and otherwise: larger blocks come from the
#: kernel each time, which costs more than a small answer.
_READ_BYTES = 1 << 18
_READ_BYTES_SMALL = 1 << 16
#: Linux accepts at most 1024 buffers in one system call.
_WRITE_BUFFERS_MAX = 512


class NonBlockingConnection:
    """One TCP connection and the requests in flight on it."""

    def __init__(self, address: str, now: float, connect_timeout_s: float) -> None:
        self.address = address
        self.connected = False
        self.opened_at = now
        #: When the peer last sent anything; tells a dead connection from a slow answer.
        self.heard_at = now
        self._connect_until = now + connect_timeout_s
        self._read_bytes = _READ_BYTES_SMALL
        self._protocol = Connection()
        self._opaque = itertools.count(1)
        self._pending: dict[int, tuple[float, float, Answered]] = {}
        self._unsent: deque[memoryview] = deque()
        family, where = resolve(address)
        self.socket = socket.socket(family, socket.SOCK_STREAM)
        with contextlib.ExitStack() as undo:
            undo.callback(self.socket.close)
            self.socket.setblocking(False)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            code = self.socket.connect_ex(where)
            if code not in {0, errno.EINPROGRESS, errno.EWOULDBLOCK}:
                raise self._unreachable(code)
            undo.pop_all()

    def _unreachable(self, code: int) -> TransportError:
        return TransportError(
            f"cannot connect to {self.address}: {errno.errorcode.get(code, code)}; is it running, "
            "and is the address reachable from here?",
            address=self.address,
        )

    # ---- requests ----------------------------------------------------------------------------

    def request(self, command: Command, now: float, timeout_s: float, done: Answered) -> None:
        """Queue a request; `done` is called once, by `receive`, `expire` or `fail`."""
        command.opaque = next(self._opaque) & 0x7FFFFFFF
        self._unsent.append(memoryview(encode_command(command)))
        self._pending[command.opaque] = (now, now + timeout_s, done)

    def notify(self, command: Command) -> None:
        """Queue a one-way request."""
        command.opaque = next(self._opaque) & 0x7FFFFFFF
        command.flag |= FLAG_ONEWAY
        self._unsent.append(memoryview(encode_command(command)))

    def answer(self, response: Command) -> None:
        """Queue an answer to a request of the server."""
        self._unsent.append(memoryview(encode_command(response)))

    @property
    def idle(self) -> bool:
        """Whether no request waits for an answer."""
        return not self._pending

    # ---- socket ------------------------------------------------------------------------------

    @property
    def wants_write(self) -> bool:
        """Whether the owner should watch for room to write (or for the connect to finish)."""
        return bool(self._unsent) or not self.connected

    def finish_connect(self) -> None:
        """The socket became writable for the first time: it is connected, or refused."""
        code = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise self._unreachable(code)
        self.connected = True

    def flush(self) -> None:
        """Write what fits."""
        unsent = self._unsent
        try:
            while unsent:
                sent = self.socket.sendmsg(list(itertools.islice(unsent, _WRITE_BUFFERS_MAX)))
                while unsent and sent >= len(unsent[0]):
                    sent -= len(unsent.popleft())
                if sent:
                    unsent[0] = unsent[0][sent:]
        except BlockingIOError:
            return
        except OSError as error:
            raise self._broken(error) from error

    def receive(self, now: float) -> list[Command]:
        """Read once; calls `done` of every answer and returns the server's own requests."""
        try:
            data = self.socket.recv(self._read_bytes)
        except BlockingIOError:
            return []
        except OSError as error:
            raise self._broken(error) from error
        if not data:
            raise TransportError(f"{self.address} closed the connection", address=self.address)
        self.heard_at = now
        self._read_bytes = _READ_BYTES if len(data) >= _READ_BYTES_SMALL else _READ_BYTES_SMALL
        requests: list[Command] = []
        for command in self._protocol.receive(data):
            if not command.is_response:
                requests.append(command)
                continue
            waiting = self._pending.pop(command.opaque, None)
            if waiting is not None:  # else it was given up: the answer comes too late
                waiting[2](command)
        return requests

    def _broken(self, error: OSError) -> TransportError:
        return TransportError(
            f"the connection to {self.address} broke: {error.strerror or error}",
            address=self.address,
        )

    # ---- time --------------------------------------------------------------------------------

    def expire(self, now: float) -> None:
        """Give up requests that are over their time.

        Raises:
            TransportError: the connect took too long, or the peer has been silent since before a
                request that was given up, so the connection is dead.
        """
        if not self.connected and now > self._connect_until:
            raise CallTimeoutError(
                f"cannot connect to {self.address}: timed out; is the address reachable from here?",
                address=self.address,
            )
        late = [(opaque, one) for opaque, one in self._pending.items() if one[1] < now]
        for opaque, (sent_at, deadline, done) in late:
            del self._pending[opaque]
            error = CallTimeoutError(
                f"{self.address} did not answer within {deadline - sent_at:.1f} s",
                address=self.address,
            )
            done(error)
            if self.heard_at < sent_at:
                raise error

    def fail(self, error: GimbalError) -> None:
        """Close, and tell every waiting request why there will be no answer."""
        self.socket.close()
        self._unsent.clear()
        pending, self._pending = self._pending, {}
        for _sent_at, _deadline, done in pending.values():
            done(error)

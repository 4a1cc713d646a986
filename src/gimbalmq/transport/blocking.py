"""A connection for one thread that waits: write, read, parse, no hand-over to another thread.

Used where one caller waits for one result (sync sends, admin calls, Spark tasks): a hand-over to
an I/O thread would cost more than the call itself. Several requests may be in flight: `send`
them, then `receive` answers in whatever order they come.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from collections import deque
from collections.abc import Iterable
from typing import Self

from gimbalmq.errors import CallTimeoutError, ProtocolError, TransportError
from gimbalmq.transport.address import resolve
from gimbalmq.transport.reach import PLAIN, Reach, tls_host
from gimbalmq.transport.reading import READ_BYTES_FIRST, next_read_bytes
from gimbalmq.transport.requests import next_opaque
from gimbalmq.transport.tls import handshake_error, stream_error
from gimbalmq.transport.trouble import broken, closed, unreachable
from gimbalmq.wire.command import FLAG_ONEWAY, Command, decode_command, encode_command
from gimbalmq.wire.connection import Connection
from gimbalmq.wire.stored import StoredAnswer, read_stored

__all__ = ["BlockingConnection"]

#: Whoever waits here takes all that came, and works on it later.
_READ_BYTES_MAX = 1 << 20
#: A connection used this recently is not looked at before it is used again.
_TRUSTED_IDLE_S = 1.0


class BlockingConnection:
    """One TCP connection, used by one thread at a time; `reach` says by which way and in whose name.

    After any error the connection is closed and every later call says so: an answer that comes
    late must never be taken for the answer to the next question.
    """

    def __init__(
        self, address: str, *, connect_timeout_s: float = 3.0, reach: Reach = PLAIN
    ) -> None:
        self.address = address
        self.reach = reach
        self._signs = reach.credentials is not None
        self._talked = False
        self._protocol = Connection()
        self._arrived: deque[Command] = deque()
        #: When it was last asked something.
        self.used_at = time.monotonic()
        self._read_bytes = READ_BYTES_FIRST
        #: The time-out that the socket has now; none that is known to begin with.
        self._limit_s = 0.0
        self._socket: socket.socket | None = _connect(address, connect_timeout_s, reach)

    @property
    def closed(self) -> bool:
        """Whether the connection can no longer be used."""
        return self._socket is None

    def healthy(self, *, look: bool = False) -> bool:
        """Whether an idle connection can still be used, looked at after a pause, or on request.

        A broker closes connections that were idle for two minutes; sending into one would look
        like a failed send although nothing went out.
        """
        if self._socket is None:
            return False
        if not look and time.monotonic() - self.used_at < _TRUSTED_IDLE_S:
            return True
        self._socket.settimeout(0)
        self._limit_s = 0.0
        try:
            if isinstance(self._socket, ssl.SSLSocket):
                return self._still_open(self._socket)
            return bool(self._socket.recv(1, socket.MSG_PEEK))
        except BlockingIOError:
            return True
        except OSError:
            return False

    def _still_open(self, sock: ssl.SSLSocket) -> bool:
        """Look without peeking, which TLS cannot: what comes is taken in."""
        try:
            data = sock.recv(READ_BYTES_FIRST)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return True
        if data:
            self._take_in(data)
        return bool(data)

    def close(self) -> None:
        """Close the socket; safe to call again."""
        open_socket, self._socket = self._socket, None
        if open_socket is not None:
            open_socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(self, command: Command, timeout_s: float) -> Command:
        """Send a request and wait for its answer."""
        deadline = time.monotonic() + timeout_s
        opaque = self.send(command, timeout_s)
        while True:
            answer = self.receive(deadline - time.monotonic())
            if answer.opaque == opaque:
                return answer

    def store(self, frame: bytes, opaque: int, timeout_s: float) -> StoredAnswer | Command:
        """Send a message whose request is written down already, and wait for its answer.

        Most answers say that it is stored, which is read in one step.
        """
        started = time.monotonic()
        self._write(frame, timeout_s)
        remaining_s = timeout_s
        try:
            while True:
                for arrived in self._protocol.frames(self._read(remaining_s, timeout_s)):
                    stored = read_stored(arrived)
                    if stored is not None and stored.opaque == opaque:
                        self.used_at = started
                        return stored
                    answer = decode_command(arrived)
                    if answer.opaque == opaque and self._is_answer(answer):
                        self.used_at = started
                        return answer
                remaining_s = started + timeout_s - time.monotonic()
        except ProtocolError:
            self.close()
            raise

    def send(self, command: Command, timeout_s: float = 3.0) -> int:
        """Send a request without waiting; returns the number that its answer will carry."""
        return self.send_all((command,), timeout_s)[0]

    def send_all(self, commands: Iterable[Command], timeout_s: float = 3.0) -> list[int]:
        """Send requests in one piece; returns the numbers that their answers will carry.

        Each is encoded before the next is asked for, so one object may be changed and given again.
        """
        self._usable()
        opaques: list[int] = []
        encoded: list[bytes] = []
        for command in commands:
            command.opaque = next_opaque()
            opaques.append(command.opaque)
            encoded.append(encode_command(self.reach.signed(command) if self._signs else command))
        self._write(b"".join(encoded), timeout_s)
        return opaques

    def _write(self, data: bytes, timeout_s: float) -> None:
        sock = self._usable()
        try:
            self._limit(sock, timeout_s)
            sock.sendall(data)
        except TimeoutError as error:
            self.close()
            raise CallTimeoutError(
                f"{self.address} took no data for {timeout_s:.1f} s", address=self.address
            ) from error
        except OSError as error:
            self.close()
            raise self._failed(error) from error

    def notify(self, command: Command, timeout_s: float = 3.0) -> None:
        """Send a one-way request."""
        command.flag |= FLAG_ONEWAY
        self.send(command, timeout_s)

    def receive(self, timeout_s: float) -> Command:
        """The next answer of any request in flight."""
        self._await(timeout_s)
        return self._arrived.popleft()

    def receive_all(self, timeout_s: float) -> list[Command]:
        """All answers that are here, in the order in which they came; waits for one at least."""
        self._await(timeout_s)
        answers = list(self._arrived)
        self._arrived.clear()
        return answers

    def _await(self, timeout_s: float) -> None:
        """Read until there is an answer."""
        deadline = time.monotonic() + timeout_s
        while not self._arrived:
            self._take_in(self._read(deadline - time.monotonic(), timeout_s))
        self.used_at = deadline - timeout_s

    def _read(self, remaining_s: float, timeout_s: float) -> bytes:
        sock = self._usable()
        try:
            if remaining_s <= 0:
                raise TimeoutError  # noqa: TRY301 - handled as a time-out of the socket is
            self._limit(sock, remaining_s)
            data = sock.recv(self._read_bytes)
        except TimeoutError as error:
            self.close()
            if self._protocol.speaks_http2:
                raise self._ended() from error
            raise CallTimeoutError(
                f"{self.address} did not answer within {timeout_s:.1f} s", address=self.address
            ) from error
        except OSError as error:
            self.close()
            raise self._failed(error) from error
        if not data:
            self.close()
            raise self._ended()
        self._talked = True
        self._read_bytes = next_read_bytes(len(data), _READ_BYTES_MAX)
        return data

    def _take_in(self, data: bytes) -> None:
        try:
            received = self._protocol.receive(data)
        except ProtocolError:
            self.close()
            raise
        self._arrived += filter(self._is_answer, received)

    def _is_answer(self, command: Command) -> bool:
        """Whether it is an answer, then also in words for the user if it is a refusal."""
        # Requests of the server (change notices and the like) go to registered clients only; this
        # connection never registers.
        if not command.is_response:
            return False
        if command.code:
            self.reach.explain(command)
        return True

    def _limit(self, sock: socket.socket, timeout_s: float) -> None:
        """Set the socket's time-out; a system call, so not for less than a hundredth of it."""
        if not 0.99 * timeout_s <= self._limit_s <= timeout_s * 1.01:
            self._limit_s = max(timeout_s, 0.001)
            sock.settimeout(self._limit_s)

    def _usable(self) -> socket.socket:
        if self._socket is None:
            raise TransportError(
                f"the connection to {self.address} is closed", address=self.address
            )
        return self._socket

    def _ended(self) -> TransportError | ProtocolError:
        return closed(
            self.address,
            http2=self._protocol.speaks_http2,
            tls=self.reach.tls is not None,
            talked=self._talked,
        )

    def _failed(self, error: OSError) -> TransportError | ProtocolError:
        if isinstance(error, ConnectionError | ssl.SSLEOFError) and not self._talked:
            # It hung up before it read what was sent, so why it did has not come through.
            return self._ended()
        if isinstance(error, ssl.SSLError):
            return stream_error(self.address, error)
        return broken(self.address, error)


def _connect(address: str, timeout_s: float, reach: Reach) -> socket.socket:
    """A socket that is connected, with TLS if that is wanted, within the time in all."""
    deadline = time.monotonic() + timeout_s
    target, context = reach.target(address), reach.context()
    family, where = resolve(target)
    sock = socket.socket(family, socket.SOCK_STREAM)
    with contextlib.ExitStack() as undo:
        undo.callback(sock.close)
        try:
            sock.settimeout(_left_s(deadline))
            sock.connect(where)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            reason = "timed out" if isinstance(error, TimeoutError) else error.strerror or error
            raise unreachable(address, reason, target) from error
        if context is not None:
            try:
                sock.settimeout(_left_s(deadline))
                sock = context.wrap_socket(sock, server_hostname=tls_host(target))
            except OSError as error:
                raise handshake_error(address, error) from error
        undo.pop_all()
    return sock


def _left_s(deadline: float) -> float:
    """What is left of the time; raises a `TimeoutError` as a socket would."""
    left_s = deadline - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    return left_s

"""A connection for an event loop: never waits, keeps what could not be written yet.

The socket's side of a `RequestTable`. Its owner watches the socket, calls in when it is ready, and
says what time it is. Other threads may `offer` requests and `flush`, and nothing else.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import socket
import threading
from collections import deque

import msgspec

from gimbalmq.errors import GimbalError, ProtocolError, TransportError
from gimbalmq.transport.address import Where, numeric
from gimbalmq.transport.reach import PLAIN, Reach, tls_host
from gimbalmq.transport.reading import READ_BYTES_FIRST, next_read_bytes
from gimbalmq.transport.requests import Answered, RequestTable, StoredTogether
from gimbalmq.transport.tls import TlsStream, handshake_error
from gimbalmq.transport.trouble import broken, unreachable
from gimbalmq.wire.command import Command

__all__ = ["Answered", "NonBlockingConnection", "Offered"]


class Offered(msgspec.Struct):
    """Requests that are written down already, one behind the other."""

    frames: bytes
    #: Who gets the answers, by the numbers of the requests.
    answered: dict[int, Answered]
    #: How long each answer may take.
    timeout_s: float
    #: Whether a connection has them; whoever is interrupted while offering them looks here.
    taken: bool = False


#: A larger reading saves system calls, but where consumers were measured, 512 KiB and 1 MiB cost the
#: thread more in all than 256 KiB did, and so did 64 and 128 KiB.
_READ_BYTES_MAX = 1 << 18
#: Linux accepts at most 1024 buffers in one system call.
_WRITE_BUFFERS_MAX = 512


class NonBlockingConnection(RequestTable):
    """One TCP connection and the requests in flight on it.

    A host that is given by its number is connected to at once; a name has to be resolved first, by
    the owner, because that waits: it looks `target` up and calls `connect`; until then the
    connection has no `socket`. It is `opened` when the socket is connected, and `connected` when
    requests can go out, which with TLS is after the handshake.
    """

    def __init__(
        self, address: str, now: float, connect_timeout_s: float, reach: Reach = PLAIN
    ) -> None:
        super().__init__(address, now, reach)
        self.opened = False
        self.connected = False
        self._connect_until = now + connect_timeout_s
        self._read_bytes = READ_BYTES_FIRST
        #: Held to add to what is unsent, to write, and to close.
        self._writing = threading.Lock()
        self._dead = False
        #: What the socket took and is not yet taken off `_outgoing`: none or one number, see `_flush`.
        self._sent: list[int] = []
        self.target = reach.target(address)
        self.has_socket = False
        context = reach.context()
        self._tls: TlsStream | None = None
        #: What the socket has not taken yet: frames, or with TLS what became of them.
        self._outgoing = self._unsent
        if context is not None:
            self._tls = TlsStream(context, tls_host(self.target), address)
            self._outgoing = deque()
        if (where := numeric(self.target)) is not None:
            self.connect(where)

    def connect(self, where: Where) -> None:
        """Begin to connect.

        Raises:
            UnreachableError: there is no way to it.
        """
        family, place = where
        sock = socket.socket(family, socket.SOCK_STREAM)
        with contextlib.ExitStack() as undo:
            undo.callback(sock.close)
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            code = sock.connect_ex(place)
            if code not in {0, errno.EINPROGRESS, errno.EWOULDBLOCK}:
                raise self._unreachable(code)
            undo.pop_all()
        self.socket, self.has_socket = sock, True

    def _unreachable(self, code: int) -> TransportError:
        return unreachable(self.address, errno.errorcode.get(code, code), self.target)

    # ---- requests ----------------------------------------------------------------------------

    def _queue(self, frame: bytes) -> None:
        with self._writing:
            self._unsent.append(frame)

    @property
    def takes_frames(self) -> bool:
        """Whether other threads may `offer` and `flush`: it is open, and frames leave as they are.

        A TLS stream has one owner, who also reads.
        """
        return self.connected and not self._signs and self._tls is None

    def offer(self, offered: Offered, now: float, together: StoredTogether | None = None) -> bool:
        """Queue requests that are written down already, from any thread: all of them, or none.

        With `together` they are sends, and answers that say stored go there.

        False when the connection takes none from other threads: it is not open, it is closed, or
        requests have to be signed or encrypted.
        """
        if not self.takes_frames:
            return False
        with self._writing:
            if self._dead:
                return False
            if together is not None:
                self._together = True
            terms = now, now + offered.timeout_s, together
            answered = offered.answered
            entries = zip(answered.values(), itertools.repeat(terms), strict=False)
            pairs = zip(answered, entries, strict=True)
            # One step: an interrupt comes before or after. Frames that do not leave for it are late.
            offered.taken = True
            self._pending.update(pairs)
            self._unsent.append(offered.frames)
            return True

    # ---- socket ------------------------------------------------------------------------------

    @property
    def wants_write(self) -> bool:
        """Whether the owner should watch for room to write (or for the connect to finish)."""
        return bool(self._outgoing) or not self.opened

    def finish_connect(self) -> None:
        """The socket became writable for the first time: it is connected, or refused."""
        code = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise self._unreachable(code)
        self.opened = True
        if self._tls is None:
            self.connected = True
        else:
            self._tls.start()
            self._collect(self._tls)

    def _collect(self, tls: TlsStream) -> None:
        """Take over what TLS wants to say."""
        if data := tls.outgoing():
            self._outgoing.append(memoryview(data))

    def flush(self) -> None:
        """Write what fits; other threads only where it `takes_frames`."""
        with self._writing:
            if not self._dead:
                self._flush()

    def _flush(self) -> None:
        if self._tls is not None and self._tls.ready and self._unsent:
            for frame in self._unsent:
                self._tls.write(frame)
            self._unsent.clear()
            self._collect(self._tls)
        self._take_off_sent()
        try:
            while self._outgoing:
                some = list(itertools.islice(self._outgoing, _WRITE_BUFFERS_MAX))
                # A thread that is interrupted after the system call must not forget what it wrote,
                # or it would be written again. So the number is stored without a step in between.
                self._sent.extend(map(self.socket.sendmsg, (some,)))
                self._take_off_sent()
        except BlockingIOError:
            return
        except OSError as error:
            raise self._failed(error) from error

    def _take_off_sent(self) -> None:
        """Forget what the socket has taken; may be interrupted, and then goes on the next time."""
        sent, outgoing = self._sent, self._outgoing
        while sent and sent[0]:
            size = len(outgoing[0])
            if sent[0] < size:
                rest = memoryview(outgoing[0])[sent[0] :]
                outgoing[0] = rest
                sent[0] = 0
            else:
                sent[0] -= size
                outgoing.popleft()
        sent.clear()

    def receive(self, now: float) -> list[Command]:
        """Read once; calls `done` of every answer and returns the server's own requests."""
        try:
            data = self.socket.recv(self._read_bytes)
        except BlockingIOError:
            return []
        except OSError as error:
            raise self._failed(error) from error
        if not data:
            raise self._closed()
        self._read_bytes = next_read_bytes(len(data), _READ_BYTES_MAX)
        if self._tls is not None:
            self.heard_at = now
            data = self._decrypted(self._tls, data)
            if not data:
                return []
        return self.take_in(data, now)

    def _decrypted(self, tls: TlsStream, data: bytes) -> bytes:
        data = tls.receive(data)
        self._collect(tls)
        self.connected = tls.ready
        if tls.ended and not data:
            raise self._closed()
        return data

    def _closed(self) -> TransportError | ProtocolError:
        if self._tls is not None and not self._tls.ready:
            return handshake_error(self.address, ConnectionResetError())
        return self.ended()

    def _failed(self, error: OSError) -> TransportError | ProtocolError:
        if self._tls is not None and not self._tls.ready:
            return handshake_error(self.address, error)
        if isinstance(error, ConnectionError) and not self._talked:
            return self.ended()
        return broken(self.address, error)

    # ---- time --------------------------------------------------------------------------------

    def expire(self, now: float) -> None:
        """Give up requests that are over their time.

        Raises:
            TransportError: the connect took too long, or the peer has been silent since before a
                request that was given up, so the connection is dead.
        """
        if not self.connected and (now > self._connect_until or self.waits_too_long(now)):
            if self.opened:
                raise handshake_error(self.address, TimeoutError())
            raise unreachable(self.address, "timed out", self.target)
        self.give_up_late(now)

    def fail(self, error: GimbalError) -> None:
        """Close, and tell every waiting request why there will be no answer."""
        with self._writing:
            # Whoever writes has the number of the socket in hand, which may be another's soon.
            self._dead = True
            if self.has_socket:
                self.socket.close()
            self._outgoing.clear()
            self._sent.clear()
        self.fail_all(error)

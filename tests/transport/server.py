"""A server on the loopback interface that speaks frames, or whatever a test makes it speak."""

import contextlib
import socket
import threading

from gimbalmq.wire.command import encode_command, response_to
from gimbalmq.wire.connection import Connection


class LoopbackServer:
    """Answers each request with `answer(request)`; None means silence.

    `raw` is sent in place of any answer, and the connection closed. `closes` closes each
    connection as soon as it is made. `tls` is a context: everything is encrypted then.
    """

    def __init__(self, answer=response_to, *, raw=None, closes=False, port=0, tls=None):
        self._answer = answer
        self._tls = tls
        self._raw = raw
        self._closes = closes
        self._lock = threading.Lock()
        self._open = []
        self._threads = []
        self._stopped = False
        self.requests = []
        self.connects = 0
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port = self._listener.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self._thread(self._accept)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    @property
    def codes(self):
        return [request.code for request in list(self.requests)]

    @property
    def open_connections(self):
        with self._lock:
            return len(self._open)

    def push(self, command):
        """Send something that nobody asked for, on every connection."""
        with self._lock:
            for connection in self._open:
                connection.sendall(encode_command(command))

    def drop(self):
        """Close every connection; new ones are welcome."""
        with self._lock:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def stop(self):
        with self._lock:
            self._stopped = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.drop()
        for thread in self._threads:
            thread.join(20.0)
            assert not thread.is_alive()

    def _thread(self, target, *arguments):
        thread = threading.Thread(target=target, args=arguments, name="loopback", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connects += 1
            with self._lock:
                if self._closes or self._stopped:
                    connection.close()
                    continue
                self._open.append(connection)
            self._thread(self._serve, connection)

    def _serve(self, connection):
        with contextlib.suppress(OSError), connection:
            if self._tls is not None:
                encrypted = self._tls.wrap_socket(connection, server_side=True)
                with self._lock:
                    self._open[self._open.index(connection)] = connection = encrypted
            with connection:
                self._talk(connection)
        with self._lock:
            self._open.remove(connection)

    def _talk(self, connection):
        protocol = Connection()
        while data := connection.recv(1 << 16):
            if self._raw is not None:
                connection.sendall(self._raw)
                return
            for request in protocol.receive(data):
                request.body = bytes(request.body)
                self.requests.append(request)
                answer = self._answer(request)
                wanted = not (request.is_oneway or request.is_response)
                if answer is not None and wanted:
                    with self._lock:
                        connection.sendall(encode_command(answer))


def silent(_request):
    """Never answers."""


#: Bound, and never listening: who connects is refused, and no other process gets the port.
_closed = []


def closed_port():
    """A port of this machine on which nobody listens, or ever will in this process."""
    taken = socket.socket()
    taken.bind(("127.0.0.1", 0))
    _closed.append(taken)
    return taken.getsockname()[1]


class BlackHole:
    """A place where connections are never made and never refused: its waiting room is full."""

    def __enter__(self):
        self._listener = socket.socket()
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen(0)
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._waiting = [socket.socket() for _ in range(6)]
        for one in self._waiting:
            one.setblocking(False)
            one.connect_ex(self._listener.getsockname())
        return self

    def __exit__(self, *_):
        for one in (*self._waiting, self._listener):
            one.close()

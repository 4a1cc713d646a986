"""A way to a server that can be made slow, silent or impassable."""

import contextlib
import socket
import threading
import time


class Relay:
    """Stands before `target` ("host:port") and passes everything on, as long as it is told to."""

    def __init__(self, target):
        host, port = target.rsplit(":", 1)
        self._target = host, int(port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._lock = threading.Lock()
        self._open = []
        self._threads = []
        self._passing = threading.Event()
        self._passing.set()
        #: How long answers are kept back.
        self.delay_s = 0.0
        #: How many bytes have come from clients.
        self.received = 0

    def __enter__(self):
        self._thread(self._accept)
        return self

    def __exit__(self, *_):
        self.close()
        for thread in self._threads:
            thread.join(20.0)
            assert not thread.is_alive()

    def freeze(self):
        """Pass nothing on from now on, as a server that was stopped with SIGSTOP."""
        self._passing.clear()

    def close(self):
        """End every connection, and take no new ones; what was held is gone."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            for one in self._open:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
        self._passing.set()

    def _thread(self, target, *arguments):
        thread = threading.Thread(target=target, args=arguments, name="relay", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._target)
            with self._lock:
                self._open += client, server
            self._thread(self._pass, client, server, False)
            self._thread(self._pass, server, client, True)

    def _pass(self, source, sink, is_answer):
        with contextlib.suppress(OSError), source:
            while data := source.recv(1 << 16):
                if is_answer:
                    time.sleep(self.delay_s)
                else:
                    self.received += len(data)
                self._passing.wait()
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)

"""An HTTP endpoint for monitors and orchestrators: a few pages, made anew for each request.

Knows pages, not what is on them. Listens on this machine only unless told otherwise: pages name
groups and topics, and nobody is asked who they are.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from gimbalmq.errors import ConfigurationError
from gimbalmq.telemetry.exposition import CONTENT_TYPE

__all__ = ["Endpoint", "Page", "json_page", "metrics_page"]

_log = logging.getLogger("gimbalmq.endpoint")
#: A monitor that connects and then says nothing may hold a thread for this long.
_REQUEST_TIMEOUT_S: Final = 10.0


class Page(msgspec.Struct, frozen=True):
    """An answer."""

    body: bytes
    content_type: str
    status: int = 200


def metrics_page(text: str) -> Page:
    """A page for Prometheus."""
    return Page(text.encode(), CONTENT_TYPE)


def json_page(value: Any, *, ok: bool = True) -> Page:
    """A page for people and programs; 503 tells an orchestrator that something is not well."""
    status = HTTPStatus.OK if ok else HTTPStatus.SERVICE_UNAVAILABLE
    return Page(msgspec.json.encode(value) + b"\n", "application/json", status)


class Endpoint:
    """Answers GET and HEAD for its pages on threads of its own, from `start` to `stop`.

    Args:
        pages: What makes each page, by path; called on the thread of the request.
        port: Where to listen; 0 takes a free one, which `port` then tells.
        host: The address to listen on; "0.0.0.0" is every one of this machine.
    """

    def __init__(
        self, pages: Mapping[str, Callable[[], Page]], port: int, *, host: str = "127.0.0.1"
    ) -> None:
        self._pages = dict(pages)
        try:
            self._server = _Server((host, port), _handler(self._pages))
        except (OSError, OverflowError) as error:
            raise ConfigurationError(
                f"cannot listen on {host}:{port}: {error}. Give a free port, or 0 to take any"
            ) from error
        self._thread = threading.Thread(
            # How often it looks whether it is to stop: a stop takes no longer than that.
            target=self._server.serve_forever,
            args=(0.1,),
            name=f"gimbalmq-http-{self.port}",
            daemon=True,
        )

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._server.server_address[1])

    @property
    def address(self) -> str:
        """`host:port`."""
        return f"{self._server.server_address[0]!s}:{self.port}"

    def start(self) -> Self:
        """Answer from now on; one that is started already goes on."""
        if not self._thread.is_alive():
            self._thread.start()
        return self

    def stop(self) -> None:
        """Answer no more, and let go of the port; safe to call again."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # Threads of requests end by themselves; a stop does not wait for a monitor that hangs.
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        del request
        # A monitor that went away; a page that cannot be made is answered with 500 instead.
        _log.debug("request of %s broke off", client_address, exc_info=True)


def _handler(pages: Mapping[str, Callable[[], Page]]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = _REQUEST_TIMEOUT_S
        protocol_version = "HTTP/1.1"
        server_version = "gimbalmq"
        sys_version = ""

        def do_GET(self) -> None:
            self._answer(_made(pages, self.path.partition("?")[0]), with_body=True)

        def do_HEAD(self) -> None:
            self._answer(_made(pages, self.path.partition("?")[0]), with_body=False)

        def _answer(self, page: Page, *, with_body: bool) -> None:
            self.send_response(page.status)
            self.send_header("Content-Type", page.content_type)
            self.send_header("Content-Length", str(len(page.body)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            if with_body:
                self.wfile.write(page.body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name above
            _log.debug(format, *args)

    return Handler


def _made(pages: Mapping[str, Callable[[], Page]], path: str) -> Page:
    make = pages.get(path)
    if make is None:
        there = ", ".join(sorted(pages))
        return Page(f"no such page; there are {there}\n".encode(), "text/plain", 404)
    try:
        return make()
    except Exception as error:  # noqa: BLE001 - the monitor is told, and asks again later
        _log.exception("page %s cannot be made", path)
        return Page(f"{type(error).__name__}: {error}\n".encode(), "text/plain", 500)

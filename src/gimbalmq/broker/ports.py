"""Ports for servers that may be restarted on the same address."""

from __future__ import annotations

import random
import socket
from typing import Final

from gimbalmq.errors import EngineError

__all__ = ["listen"]

#: Below the range from which Linux takes the local ports of outgoing connections, so that a
#: server that was stopped finds its port free when it is started again.
_RANGE: Final = range(20_000, 32_000)
_ATTEMPTS: Final = 200
_BACKLOG: Final = 1024


def listen(host: str, port: int, *, what: str) -> socket.socket:
    """A socket that listens at host and port; port 0 means any free one.

    Raises:
        EngineError: the port is taken, or none is free.
    """
    if port:
        return _listen_at(host, port, what=what)
    chance = random.SystemRandom()
    for _ in range(_ATTEMPTS):
        try:
            return _listen_at(host, chance.choice(_RANGE), what=what)
        except EngineError:
            continue
    raise EngineError(
        f"{what} found no free port on {host} between {_RANGE.start} and {_RANGE.stop}: stop "
        "servers that are no longer needed"
    )


def _listen_at(host: str, port: int, *, what: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise EngineError(
            f"{what} cannot listen on {host}:{port} ({error.strerror or error}): stop what uses "
            "that port, or choose another one (0 means any free one)"
        ) from error
    return listener

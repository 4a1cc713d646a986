"""Chooses TCP ports of the loopback interface for servers that we start."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterable

from gimbalmq.errors import EngineError

__all__ = ["free_port", "require_free"]

#: Below the range from which Linux takes the local ports of outgoing connections, so that a
#: server that was killed finds its port free when it is started again.
_RANGE = range(20_000, 32_000)
_ATTEMPTS = 500


def free_port(*, also: Iterable[int] = (), avoid: set[int]) -> int:
    """A port that is free together with its neighbours `port + n` for n in `also`.

    Ports in `avoid` are not used; those chosen are added to it.
    """
    offsets = (0, *also)
    chance = random.SystemRandom()
    for _ in range(_ATTEMPTS):
        port = chance.choice(_RANGE)
        ports = {port + offset for offset in offsets}
        if not ports & avoid and all(_is_free(one) for one in ports):
            avoid |= ports
            return port
    raise EngineError(
        f"no free port was found between {_RANGE.start} and {_RANGE.stop} after {_ATTEMPTS} attempts: "
        "stop servers that are no longer needed"
    )


def require_free(port: int, *, what: str, option: str) -> None:
    """EngineError when `port`, which the caller chose, is taken."""
    if not _is_free(port):
        raise EngineError(
            f"port {port} for {what} is taken by another process: stop that process, "
            f"or choose another port with {option} (0 means any free one)"
        )


def _is_free(port: int) -> bool:
    # On all interfaces, as RocketMQ may listen on all of them.
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))  # noqa: S104 - bound for a moment, never listening
        except OSError:
            return False
    return True

"""Connections to brokers that outlive a task: Spark reuses its worker processes.

Kept per process: a worker is forked from a daemon, and a socket that two processes write to is
of no use to either. A connection is taken out while it is used and comes back only when nothing
is under way on it, so whoever takes it next finds it quiet. A process closes its own at its end.
"""

from __future__ import annotations

import atexit
import os
from typing import Final

from gimbalmq.transport.blocking import BlockingConnection
from gimbalmq.transport.reach import PLAIN, Reach

__all__ = ["close_idle", "give_back", "take"]

_CONNECT_TIMEOUT_S: Final = 3.0
#: By process id, address, and the way it was reached and in whose name.
_idle: Final[dict[tuple[int, str, Reach], list[BlockingConnection]]] = {}


def take(address: str, reach: Reach = PLAIN) -> BlockingConnection:
    """An idle connection that still works, or a new one; the caller owns it.

    Raises:
        TransportError: a new one could not be made.
    """
    idle = _idle.get((os.getpid(), address, reach), [])
    while idle:
        connection = idle.pop()
        if connection.healthy():
            return connection
        connection.close()
    return BlockingConnection(address, connect_timeout_s=_CONNECT_TIMEOUT_S, reach=reach)


def give_back(connection: BlockingConnection) -> None:
    """Keep a connection on which no answer is awaited for the next task."""
    if not connection.closed:
        key = os.getpid(), connection.address, connection.reach
        _idle.setdefault(key, []).append(connection)


@atexit.register
def close_idle() -> None:
    """Close what this process keeps; what a fork has left of its parent's stays untouched."""
    for key in [key for key in _idle if key[0] == os.getpid()]:
        for connection in _idle.pop(key):
            connection.close()

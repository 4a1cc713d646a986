"""The clients of this process that run now, so that whoever measures finds them.

Holds no client back from being forgotten, and knows nothing of what they are.
"""

from __future__ import annotations

import weakref
from typing import Final

__all__ = ["began", "ended", "running"]

#: By identity, in the order in which they began: equal clients are still two. Every use below is
#: a single step, and so needs no lock, which a forked child might find taken for ever.
_clients: Final[dict[int, weakref.ref[object]]] = {}


def began(client: object) -> None:
    """A client runs from now on."""
    key = id(client)

    def forget(gone: weakref.ref[object]) -> None:
        # Another client may have got the same number meanwhile.
        if _clients.get(key) is gone:
            _clients.pop(key, None)

    _clients[key] = weakref.ref(client, forget)


def ended(client: object) -> None:
    """A client runs no longer; fine when it never did."""
    _clients.pop(id(client), None)


def running() -> list[object]:
    """Those that run, oldest first."""
    found = [reference() for reference in list(_clients.values())]
    return [client for client in found if client is not None]

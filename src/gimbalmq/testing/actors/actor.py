"""What all clients in a Java process have in common: a name there, requests to it, an end.

Must not know what kinds of clients there are, nor how a request gets to the process.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeVar

import msgspec

from gimbalmq.testing.link import Event

__all__ = ["CALL_LIMIT_S", "Actor", "Allocation", "Host"]

#: Wire names of the strategies that Java ships; `MACHINE_ROOM_NEARBY-` wraps one of the others.
Allocation = str

T = TypeVar("T")

#: How long a request to the process may take, beyond what it is told to wait for.
CALL_LIMIT_S: Final = 60.0


class Host(Protocol):
    """The process that an actor lives in."""

    def request(self, op: str, actor: str, *, timeout_s: float, **fields: Any) -> msgspec.Raw:
        """Have an operation done by one of its clients; returns the answer as JSON."""

    def kill(self) -> None:
        """End it at once."""


class Actor:
    """Base of what a peer hosts; a context manager that closes it."""

    def __init__(self, peer: Host, name: str) -> None:
        #: The process; kill or pause it to see what the others do.
        self.peer = peer
        #: The client id on the wire.
        self.client_id = ""
        self._name = name

    def stop(self, *, timeout_s: float = CALL_LIMIT_S) -> None:
        """Shut this client down cleanly; the process goes on."""
        self.peer.request("close", self._name, timeout_s=timeout_s)

    def kill(self) -> None:
        """Kill the process that it lives in (SIGKILL), with all else that lives there."""
        self.peer.kill()

    def on_event(self, event: Event) -> None:
        """Called with each report of its Java side."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _ask(
        self, op: str, answer: type[T], *, timeout_s: float = CALL_LIMIT_S, **fields: Any
    ) -> T:
        raw = self.peer.request(op, self._name, timeout_s=timeout_s, **fields)
        return msgspec.json.decode(raw, type=answer)

    def _tell(self, op: str, **fields: Any) -> None:
        self.peer.request(op, self._name, timeout_s=CALL_LIMIT_S, **fields)

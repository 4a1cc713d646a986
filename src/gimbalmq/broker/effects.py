"""What the server machines say to their front: send this, close that, announce the topics.

A machine is told what arrived, on which channel, and what time it is; it answers with a list of
these. It never sees a socket, so that the same code runs under asyncio and in a simulation.
"""

from __future__ import annotations

from typing import Final

import msgspec

from gimbalmq.errors import GimbalError
from gimbalmq.wire.codes import ResponseCode
from gimbalmq.wire.command import Command

__all__ = ["NOBODY", "Announce", "Channel", "Close", "Effect", "Lookup", "RefusalError", "Send"]


class Channel:
    """One connection of a peer; it is the identity of whoever speaks on it."""

    __slots__ = ("host", "number", "port")

    def __init__(self, number: int, host: str, port: int) -> None:
        self.number = number
        #: The peer's address as numbers, never a name.
        self.host = host
        self.port = port

    @property
    def address(self) -> str:
        """`host:port` of the peer."""
        return f"{self.host}:{self.port}"

    def __repr__(self) -> str:
        return f"Channel({self.number}, {self.address})"


#: Stands for a channel where the machine acts by itself.
NOBODY: Final = Channel(-1, "127.0.0.1", 0)


class Send(msgspec.Struct, frozen=True):
    """Send a command; its body is `slices`, back to back, when there are any."""

    channel: Channel
    command: Command
    slices: tuple[bytes | memoryview, ...] = ()


class Close(msgspec.Struct, frozen=True):
    """Close a connection; the front reports it back as closed, as any other."""

    channel: Channel
    reason: str


class Announce(msgspec.Struct, frozen=True):
    """The topics have changed: register with every name server at once."""


class Lookup(msgspec.Struct, frozen=True):
    """Ask a name server for the route of a topic, and tell the machine (`routed`)."""

    topic: str


Effect = Send | Close | Announce | Lookup


class RefusalError(GimbalError):
    """Ends the handling of a request with an error code and the words that go with it."""

    def __init__(self, code: ResponseCode, remark: str, **fields: str) -> None:
        super().__init__(remark, code=int(code))
        self.answer_code: Final = int(code)
        self.remark: Final = remark
        self.fields: Final = fields

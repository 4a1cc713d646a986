"""The protocol side of one connection, without the connection: bytes in, commands out."""

from __future__ import annotations

from gimbalmq.errors import ProtocolError
from gimbalmq.wire.command import Command, decode_command
from gimbalmq.wire.frame import FRAME_BYTES_MAX, FrameBuffer

__all__ = ["Connection"]


class Connection:
    """Turns received bytes into commands.

    After an error the connection is unusable and must be closed. Commands that came before the
    bad bytes are returned first; the error is raised by the next call, and `fault` shows it at
    once.

    >>> from gimbalmq.wire.command import encode_command
    >>> connection = Connection()
    >>> frame = encode_command(Command(34, opaque=1))
    >>> [command.code for command in connection.receive(frame + frame)]
    [34, 34]
    """

    __slots__ = ("_fault", "_frames", "_header_bytes_max", "frames")

    def __init__(
        self, frame_bytes_max: int = FRAME_BYTES_MAX, header_bytes_max: int | None = None
    ) -> None:
        self._frames = FrameBuffer(frame_bytes_max)
        #: Takes what was received and returns the frames that are now complete, unread.
        self.frames = self._frames.feed
        self._header_bytes_max = header_bytes_max
        self._fault: ProtocolError | None = None

    @property
    def fault(self) -> ProtocolError | None:
        """The error that the next `receive` will raise, or None while all is well."""
        return self._fault or self._frames.fault

    @property
    def speaks_http2(self) -> bool:
        """Whether what came so far can only be from an HTTP/2 server, a gRPC proxy for example."""
        return self._frames.speaks_http2

    def receive(self, data: bytes | bytearray | memoryview) -> list[Command]:
        """Take what was received and return the commands that are now complete."""
        if self._fault is not None:
            raise self._fault
        commands: list[Command] = []
        try:
            for frame in self._frames.feed(data):
                if self._header_bytes_max is not None:
                    self._check_header(frame)
                commands.append(decode_command(frame))
        except ProtocolError as fault:
            self._fault = fault
            if not commands:
                raise
        return commands

    def _check_header(self, frame: bytes | bytearray | memoryview) -> None:
        size = int.from_bytes(frame[1:4], "big")
        if self._header_bytes_max is not None and size > self._header_bytes_max:
            raise ProtocolError(
                f"header of {size} bytes: this server reads at most {self._header_bytes_max}"
            )

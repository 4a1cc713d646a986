"""Cuts a byte stream into frames.

A frame is a length word and that many bytes. This file knows nothing of what is inside; it
decides where frames end, when bytes cannot be this protocol at all, and how much may be held.
"""

from __future__ import annotations

import struct
from typing import Final

from gimbalmq.errors import ConfigurationError, ProtocolError

__all__ = ["FRAME_BYTES_MAX", "FrameBuffer"]

#: Java's decoder closes the connection above this size, length word included.
FRAME_BYTES_MAX: Final = 16 * 1024 * 1024

_WORD_BYTES: Final = 4
#: Up to this size a copy costs less than a view, and keeps nothing else alive.
_COPIED_BYTES_MAX: Final = 1024
_length_of: Final = struct.Struct(">i").unpack_from

#: First bytes of what people connect to by mistake, as the length word would read them.
_TLS_RECORD_TYPES: Final = {0x14, 0x15, 0x16, 0x17}
_HTTP_STARTS: Final = (b"HTTP", b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI", b"PATC")
#: Type byte of a settings frame; five zero bytes follow: no flags, and stream 0.
_HTTP2_SETTINGS: Final = 0x04


class FrameBuffer:
    r"""Collects received bytes and gives back whole frames, without their length word.

    Frames are valid for as long as they are held. Large ones are views: nothing is copied for
    those that arrive within one `bytes` object, and a frame that arrives in pieces is collected
    once. Never holds more than one unfinished frame of at most `frame_bytes_max`.

    After bytes that cannot be a frame the buffer stays unusable. Frames that came before them are
    returned first; the error is raised by the next call, and `fault` shows it at once.

    >>> frames = FrameBuffer()
    >>> frames.feed(b"\x00\x00\x00\x05hel")
    []
    >>> [bytes(frame) for frame in frames.feed(b"lo\x00")]
    [b'hello']
    """

    __slots__ = ("_frame_bytes_max", "_pending", "_total", "fault")

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        if frame_bytes_max < 2 * _WORD_BYTES:
            raise ConfigurationError(
                f"frame_bytes_max is {frame_bytes_max}: a frame has at least 8 bytes"
            )
        self._frame_bytes_max = frame_bytes_max
        self._pending = bytearray()
        #: Size of the pending frame with its length word; 0 while the word is incomplete.
        self._total = 0
        self.fault: ProtocolError | None = None

    @property
    def pending_bytes(self) -> int:
        """How many bytes of an unfinished frame are held."""
        return len(self._pending)

    @property
    def speaks_http2(self) -> bool:
        """Whether what is held can only be an HTTP/2 server's first frame (its settings).

        As a frame of this protocol it would have a header of no bytes.
        """
        start = self._pending[3:9]
        return len(start) == 6 and start[0] == _HTTP2_SETTINGS and not any(start[1:])

    def feed(self, data: bytes | bytearray | memoryview) -> list[bytes | memoryview]:
        """Take what was received and return the frames that are now complete.

        Large frames are views of `bytes`; anything mutable is copied first, so that the caller may
        reuse its receive buffer.
        """
        if self.fault is not None:
            raise self.fault
        frames: list[bytes | memoryview] = []
        try:
            self._take(data if isinstance(data, bytes) else bytes(data), frames)
        except ProtocolError as fault:
            self.fault = fault
            self._pending = bytearray()
            if not frames:
                raise
        return frames

    def _take(self, data: bytes, frames: list[bytes | memoryview]) -> None:
        position = self._finish_pending(data, frames) if self._pending else 0
        end = len(data)
        view = memoryview(data)
        limit = self._frame_bytes_max - _WORD_BYTES
        while end - position >= _WORD_BYTES:
            length = _length_of(data, position)[0]
            if not _WORD_BYTES <= length <= limit:
                raise self._bad_length(data[position : position + _WORD_BYTES])
            frame_from = position + _WORD_BYTES
            frame_until = frame_from + length
            if frame_until > end:
                self._total = _WORD_BYTES + length
                break
            part = data if length <= _COPIED_BYTES_MAX else view
            frames.append(part[frame_from:frame_until])
            position = frame_until
        if position < end:
            self._pending += view[position:]

    def _finish_pending(self, data: bytes, frames: list[bytes | memoryview]) -> int:
        """Complete the pending frame as far as `data` allows; returns how much of it was used."""
        pending = self._pending
        used = 0
        if not self._total:
            used = min(_WORD_BYTES - len(pending), len(data))
            pending += data[:used]
            if len(pending) < _WORD_BYTES:
                return used
            length = _length_of(pending)[0]
            if not _WORD_BYTES <= length <= self._frame_bytes_max - _WORD_BYTES:
                raise self._bad_length(bytes(pending))
            self._total = _WORD_BYTES + length
        missing = self._total - len(pending)
        pending += memoryview(data)[used : used + missing]
        used = min(used + missing, len(data))
        if len(pending) == self._total:
            # The view takes the collected bytes over; a new buffer starts.
            frames.append(memoryview(pending)[_WORD_BYTES:])
            self._pending = bytearray()
            self._total = 0
        return used

    def _bad_length(self, word: bytes) -> ProtocolError:
        length = _length_of(word)[0]
        wrong_port = "; this is not a RocketMQ remoting port: check the address"
        if word[0] in _TLS_RECORD_TYPES and word[1] == 0x03:
            return ProtocolError(
                f"the peer speaks TLS (first bytes {word.hex(' ')}): "
                f"switch TLS on for this client, or{wrong_port[1:]}"
            )
        if word in _HTTP_STARTS:
            return ProtocolError(f"the peer speaks HTTP (first bytes {word!r}){wrong_port}")
        if all(0x20 <= byte < 0x7F for byte in word):
            return ProtocolError(f"the peer speaks plain text (first bytes {word!r}){wrong_port}")
        if length < _WORD_BYTES:
            return ProtocolError(f"frame length {length} is below 4{wrong_port}")
        return ProtocolError(
            f"frame of {length + _WORD_BYTES} bytes is above the limit of "
            f"{self._frame_bytes_max}: ask for less at once{wrong_port}"
        )

"""The plain answer to a pull: messages, and where to go on. Its header is read in one step.

While there is much to read, nearly all that a consumer gets are these. Whatever else an answer may
be (another code, the binary form, values that are no numbers) is left to the general reader, which
says what is wrong.
"""

from __future__ import annotations

import struct
from typing import Final, Literal

import msgspec

from gimbalmq.wire.command import FLAG_RESPONSE, Command, decode_command
from gimbalmq.wire.headers import PullResponse

__all__ = ["FoundCommand", "read_found"]

_word: Final = struct.Struct(">i").unpack_from
#: Below this it may as well be something else, for which a look would be wasted.
_BYTES_MIN: Final = 1024
_NO_FIELDS: Final[dict[str, str]] = {}
_NO_FRAME: Final = memoryview(b"")


class _Header(msgspec.Struct, gc=False):
    """What such an answer begins with: any other does not fit."""

    code: Literal[0]
    found: PullResponse = msgspec.field(name="extFields")
    flag: Literal[1]
    opaque: int


#: Not strict, because the numbers of a header stand in quotes.
_decode: Final = msgspec.json.Decoder(_Header, strict=False).decode


class FoundCommand(Command):
    """The answer to a pull that found messages; has its fields only when somebody asks for them."""

    found: PullResponse | None = None
    _frame: memoryview = _NO_FRAME

    @property  # type: ignore[misc] # a field of others, which nobody sets here
    def fields(self) -> dict[str, str]:  # type: ignore[override]
        """The header's ext fields."""
        return decode_command(self._frame).fields


def read_found(frame: bytes | memoryview) -> FoundCommand | None:
    """The answer in a frame (without its length word), if it is one that brings messages."""
    if len(frame) < _BYTES_MIN:
        return None
    view = memoryview(frame)
    # The highest byte is the form, and that of JSON is 0.
    header_until = 4 + _word(view)[0]
    if not 4 < header_until < len(view):
        return None
    try:
        header = _decode(view[4:header_until])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return FoundCommand(
        0,
        _NO_FIELDS,
        view[header_until:],
        header.opaque,
        FLAG_RESPONSE,
        found=header.found,
        _frame=view,
    )

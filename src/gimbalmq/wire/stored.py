"""The plain answer to a send: stored, and where. Read in one step, without what nobody asks for.

Most of a producer's answers are these. Whatever else an answer may be (another code, the binary
form, values that are no numbers) is left to the general reader, which says what is wrong.
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec

from gimbalmq.wire.command import FLAG_RESPONSE

__all__ = ["StoredAnswer", "StoredPlace", "read_stored"]

_word: Final = struct.Struct(">i").unpack_from


class StoredPlace(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Where a message is: the fields of the answer that a result is made of."""

    msg_id: str
    queue_id: int
    queue_offset: int


class StoredAnswer(msgspec.Struct, frozen=True, gc=False):
    """An answer that says that a message is stored."""

    code: int
    place: StoredPlace = msgspec.field(name="extFields")
    flag: int
    opaque: int


#: Not strict, because the numbers of a header stand in quotes.
_decode: Final = msgspec.json.Decoder(StoredAnswer, strict=False).decode


def read_stored(frame: bytes | memoryview) -> StoredAnswer | None:
    """The answer in a frame (without its length word), if it is one that says stored."""
    # The highest byte is the form, and that of JSON is 0.
    header_until = 4 + _word(frame)[0]
    if not 4 < header_until <= len(frame):
        return None
    try:
        answer = _decode(frame[4:header_until])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return None if answer.code or not answer.flag & FLAG_RESPONSE else answer

"""The plain answer to a send: stored, and where. Read in one step, without what nobody asks for;
many of them in one step, too.

Most of a producer's answers are these. Whatever else an answer may be (another code, the binary
form, values that are no numbers) is left to the general reader, which says what is wrong.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, Literal

import msgspec

__all__ = ["StoredAnswer", "StoredPlace", "read_all_stored", "read_stored"]

#: Longer ones bring something, and are not copied in vain.
_BYTES_MAX: Final = 1024
_word: Final = struct.Struct(">i").unpack_from


class StoredPlace(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Where a message is: the fields of the answer that a result is made of."""

    msg_id: str
    queue_id: int
    queue_offset: int


class StoredAnswer(msgspec.Struct, frozen=True, gc=False):
    """An answer that says that a message is stored, and nothing else: any other does not fit."""

    code: Literal[0]
    place: StoredPlace = msgspec.field(name="extFields")
    flag: Literal[1]
    opaque: int


# Not strict, because the numbers of a header stand in quotes.
_decode: Final = msgspec.json.Decoder(StoredAnswer, strict=False).decode
_decode_all: Final = msgspec.json.Decoder(list[StoredAnswer], strict=False).decode
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def read_stored(frame: bytes | memoryview) -> StoredAnswer | None:
    """The answer in a frame (without its length word), if it is one that says stored."""
    # The highest byte is the form, and that of JSON is 0.
    header_until = 4 + _word(frame)[0]
    if not 4 < header_until <= len(frame):
        return None
    try:
        return _decode(frame[4:header_until])
    except _UNREADABLE:
        return None


def read_all_stored(frames: Sequence[bytes | memoryview]) -> list[StoredAnswer] | None:
    """The answers in some frames, if all of them say stored and have no body, as is the rule.

    The header that is all of a frame but its first word is JSON, so many of them are a list.
    """
    if max(map(len, frames), default=0) > _BYTES_MAX:
        return None
    try:
        answers = _decode_all(b"[%b]" % b",".join([frame[4:] for frame in frames]))
    except _UNREADABLE:
        return None
    return answers if len(answers) == len(frames) else None

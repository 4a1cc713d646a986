"""What the answer to a pull means for a read that must get exactly its offsets. Pure.

A range is read in segments, each asked for at an offset that is predicted, so that many pulls are
under way at once; the answer says how far it got, which may be short of the segment or beyond it.
`judge` is the whole rule; `reading` carries it out.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from gimbalmq.wire.codes import ResponseCode
from gimbalmq.wire.headers import PullResponse

__all__ = ["PULL_CODES", "Advance", "AskAgain", "Gone", "Verdict", "judge"]

_FOUND: Final = int(ResponseCode.SUCCESS)
_NOT_FOUND: Final = int(ResponseCode.PULL_NOT_FOUND)
_NO_MATCH: Final = int(ResponseCode.PULL_RETRY_IMMEDIATELY)
_MOVED: Final = int(ResponseCode.PULL_OFFSET_MOVED)
#: The codes that say something about the queue; every other one is an error.
PULL_CODES: Final = frozenset({_FOUND, _NOT_FOUND, _NO_MATCH, _MOVED})


class Advance(msgspec.Struct, frozen=True):
    """Everything up to and without `offset` was looked at; the body holds what matched."""

    offset: int


class Gone(msgspec.Struct, frozen=True):
    """The queue does not have the asked offset; `found` is the nearest that it has.

    Above the asked one: older messages were deleted. Below: the queue ends there.
    """

    found: int


class AskAgain(msgspec.Struct, frozen=True):
    """The offset is there and was not served: a reset notice, or a slave that lags."""


Verdict: TypeAlias = Advance | Gone | AskAgain


def judge(asked: int, code: int, response: PullResponse, *, filtered: bool) -> Verdict:
    """What to do after a pull at offset `asked` that was answered with one of `PULL_CODES`.

    >>> judge(100, 0, PullResponse(132, 0, 500, 0), filtered=False)
    Advance(offset=132)
    >>> judge(5, 21, PullResponse(20, 20, 500, 0), filtered=False)
    Gone(found=20)
    """
    following = response.next_offset
    # First: what was delivered counts, also when retention moved the minimum meanwhile.
    if code == _FOUND and following > asked:
        return Advance(following)
    if asked < response.minimum:
        return Gone(response.minimum)
    if asked >= response.maximum:
        return Gone(response.maximum)
    if following > asked and code == _NO_MATCH and filtered:
        return Advance(following)
    # Without a filter everything matches: what the broker skips here is missing in its store.
    if following > asked and code in {_NO_MATCH, _NOT_FOUND}:
        return Gone(following)
    return AskAgain()

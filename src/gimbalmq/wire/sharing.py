"""How a member says by what it shares out queues, and why one queue is where it is.

Both travel in the running info, which brokers relay, as properties that hold JSON. The first is
always there. The second is there when the request names a queue; brokers pass the fields of such a
request on as they are, and clients that do not know them answer as always.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from gimbalmq.errors import ProtocolError
from gimbalmq.model.sharing import MemberAnswer, Sharing

__all__ = [
    "ANSWER_PROPERTY",
    "QUEUE_FIELD",
    "SHARING_PROPERTY",
    "WITHOUT_FIELD",
    "decode_answer",
    "decode_sharing",
    "decode_without",
    "encode_answer",
    "encode_sharing",
    "encode_without",
]

SHARING_PROPERTY: Final = "PROP_GIMBALMQ_SHARING"
ANSWER_PROPERTY: Final = "PROP_GIMBALMQ_EXPLANATION"

#: Fields of the request: the path of a queue, and a list of client ids.
QUEUE_FIELD: Final = "gimbalmqExplain"
WITHOUT_FIELD: Final = "gimbalmqWithout"

_sharing: Final = msgspec.json.Decoder(Sharing).decode
_answer: Final = msgspec.json.Decoder(MemberAnswer).decode
_names: Final = msgspec.json.Decoder(tuple[str, ...]).decode


def encode_sharing(sharing: Sharing) -> str:
    """The property's text.

    >>> encode_sharing(Sharing("AVG", "CAPPED_HASH", "member x runs AVG"))
    '{"strategy":"AVG","wanted":"CAPPED_HASH","reason":"member x runs AVG"}'
    """
    return msgspec.json.encode(sharing).decode()


def decode_sharing(text: str) -> Sharing:
    """Read the property's text.

    Raises:
        ProtocolError: it is something else.
    """
    try:
        return _sharing(text)
    except msgspec.DecodeError as error:
        raise _unreadable(SHARING_PROPERTY, error) from error


def encode_answer(answer: MemberAnswer) -> str:
    """The property's text; numbers of a user's strategy that JSON does not know become text."""
    return msgspec.json.encode(answer, enc_hook=str).decode()


def decode_answer(text: str) -> MemberAnswer:
    """Read the property's text.

    Raises:
        ProtocolError: it is something else.
    """
    try:
        return _answer(text)
    except msgspec.DecodeError as error:
        raise _unreadable(ANSWER_PROPERTY, error) from error


def encode_without(client_ids: Sequence[str]) -> str:
    """The field's text."""
    return msgspec.json.encode(client_ids).decode()


def decode_without(text: str) -> tuple[str, ...]:
    """Read the field's text.

    Raises:
        ProtocolError: it is something else.
    """
    try:
        return _names(text)
    except msgspec.DecodeError as error:
        raise _unreadable(WITHOUT_FIELD, error) from error


def _unreadable(where: str, error: msgspec.DecodeError) -> ProtocolError:
    return ProtocolError(f"what is said in {where} cannot be read: {error}")

"""How a member tells another one who is gone from their group.

A property of the running info, which brokers relay from member to member and tools show as it is:
JSON from client id to the seconds since it went. A member that does not know leaves it out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from gimbalmq.errors import ProtocolError

__all__ = ["ABSENT_PROPERTY", "decode_absent", "encode_absent"]

ABSENT_PROPERTY: Final = "PROP_GIMBALMQ_ABSENT"

_decode: Final = msgspec.json.Decoder(dict[str, float]).decode


def encode_absent(absent: Mapping[str, float]) -> str:
    """The property's text.

    >>> encode_absent({"till-2@gmq1-AVG+rejoin30": 1.25})
    '{"till-2@gmq1-AVG+rejoin30":1.25}'
    """
    rounded = {member: round(seconds, 3) for member, seconds in sorted(absent.items())}
    return msgspec.json.encode(rounded).decode()


def decode_absent(text: str) -> dict[str, float]:
    """Read the property's text.

    Raises:
        ProtocolError: it is something else.
    """
    try:
        return _decode(text)
    except msgspec.DecodeError as error:
        raise ProtocolError(
            f"a member says in {ABSENT_PROPERTY} who is gone, but it cannot be read: {error}"
        ) from error

"""The body of a batch send, which is also the body of an inner-batch record.

Per message: size, magic (0), CRC (0), flag, body and properties, each with its length.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

import msgspec

from gimbalmq.errors import ConfigurationError, ProtocolError

__all__ = [
    "ENTRY_BYTES_MIN",
    "BatchEntry",
    "decode_batch",
    "encode_batch",
    "entry_frame",
    "walk_batch",
]

#: size, magic, CRC, flag, body length
_start: Final = struct.Struct(">iiiii")
_short: Final = struct.Struct(">h")
#: What an entry has besides its body and properties.
ENTRY_BYTES_MIN: Final = _start.size + _short.size
_PROPERTIES_BYTES_MAX: Final = 32767


class BatchEntry(msgspec.Struct, frozen=True):
    """One message of a batch; `properties` is the properties string in UTF-8."""

    body: bytes
    properties: bytes = b""
    flag: int = 0


def encode_batch(entries: Iterable[BatchEntry]) -> bytes:
    r"""The body of SEND_BATCH_MESSAGE.

    >>> encode_batch([BatchEntry(b"m1", b"TAGS\x01a\x02")]).hex()
    '0000001f000000000000000000000000000000026d31000754414753016102'
    """
    parts: list[bytes] = []
    for entry in entries:
        start, middle = entry_frame(len(entry.body), len(entry.properties), entry.flag)
        parts += (start, entry.body, middle, entry.properties)
    return b"".join(parts)


def entry_frame(body_bytes: int, properties_bytes: int, flag: int = 0) -> tuple[bytes, bytes]:
    """What stands in front of an entry's body, and between it and the properties.

    Raises:
        ConfigurationError: the properties are too long.
    """
    if properties_bytes > _PROPERTIES_BYTES_MAX:
        raise ConfigurationError(
            f"properties of a message have {properties_bytes} bytes: "
            f"RocketMQ stores at most {_PROPERTIES_BYTES_MAX}"
        )
    size = ENTRY_BYTES_MIN + body_bytes + properties_bytes
    return _start.pack(size, 0, 0, flag, body_bytes), _short.pack(properties_bytes)


def walk_batch(data: bytes) -> list[tuple[int, int, int, int, int]]:
    """Where each entry's parts are: flag, body from and until, properties from and until."""
    places: list[tuple[int, int, int, int, int]] = []
    position, end = 0, len(data)
    while position < end:
        if end - position < ENTRY_BYTES_MIN:
            raise _corrupt(position, f"{end - position} bytes are left")
        size, _, _, flag, body_bytes = _start.unpack_from(data, position)
        body_from = position + _start.size
        body_until = body_from + body_bytes
        entry_until = position + size
        if not (body_from <= body_until <= entry_until - 2 and entry_until <= end):
            raise _corrupt(position, f"its size is {size}, its body has {body_bytes} bytes")
        properties_from = body_until + 2
        properties_until = properties_from + _short.unpack_from(data, body_until)[0]
        if not properties_from <= properties_until <= entry_until:
            raise _corrupt(position, "its properties do not fit")
        places.append((flag, body_from, body_until, properties_from, properties_until))
        position = entry_until
    return places


def decode_batch(data: bytes | memoryview) -> list[BatchEntry]:
    """Read a batch body.

    Raises:
        ProtocolError: the bytes are no batch.
    """
    whole = bytes(data)
    return [
        BatchEntry(whole[body_from:body_until], whole[properties_from:properties_until], flag)
        for flag, body_from, body_until, properties_from, properties_until in walk_batch(whole)
    ]


def _corrupt(position: int, what: str) -> ProtocolError:
    return ProtocolError(f"batch entry at byte {position} is corrupt: {what}")

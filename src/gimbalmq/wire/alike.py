"""Cuts records that are alike all at once.

Producers often send messages of one length, and then all records of a pull answer have the same
size. Where each part is follows from the first record, so that one call reads the parts of all of
them, and what would be done for each message is done once. Whether they really are alike is seen
from what was read; when they are not, or when something about them is unusual, nothing is decided
here, and whoever reads records one by one says what is wrong or reads them properly.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable
from typing import Any, Final

from gimbalmq.wire.record_layout import HEAD_BYTES, MAGIC_V1, RECORD_BYTES_MIN

__all__ = ["Alike", "cut_alike"]

#: Of each record: what is before its body, the body, and what is behind it.
Alike = tuple[tuple[bytes, ...], tuple[bytes, ...], tuple[bytes, ...]]

#: Fewer are read one by one in less time; more do not come from a broker as it is set up. The
#: bounds, and how many shapes are remembered, keep what they take to some hundred KiB.
_COUNT_MIN: Final = 12
_COUNT_MAX: Final = 64
_BYTES_MIN: Final = _COUNT_MIN * RECORD_BYTES_MIN
_SHAPES_MAX: Final = 128

#: Size, body length.
_first: Final = struct.Struct(">i80xi").unpack_from
#: Size and magic together, sysFlag, body length: what must be the same, and how.
_NUMBERS: Final = "q28xi44xi"


def cut_alike(data: bytes | bytearray | memoryview) -> Alike | None:
    """The parts of records of one size with bodies of one length; None: read them one by one."""
    if len(data) < _BYTES_MIN:
        return None
    size, body_bytes = _first(data)
    if size < RECORD_BYTES_MIN or len(data) % size:
        return None
    shape = _shape(size, body_bytes, len(data) // size)
    if shape is None:
        return None
    expected, numbers_of, parts_of = shape
    if numbers_of(data) != expected:
        return None
    parts = parts_of(data)
    return parts[::3], parts[1::3], parts[2::3]


_Reader = Callable[[bytes | bytearray | memoryview], tuple[Any, ...]]


@functools.lru_cache(maxsize=_SHAPES_MAX)
def _shape(
    size: int, body_bytes: int, count: int
) -> tuple[tuple[int, ...], _Reader, _Reader] | None:
    """Of so many records: the numbers that they have, and what reads their numbers and parts."""
    if not _COUNT_MIN <= count <= _COUNT_MAX or not 0 <= body_bytes <= size - RECORD_BYTES_MIN:
        return None
    behind = size - HEAD_BYTES
    expected = (size << 32 | MAGIC_V1 & 0xFFFFFFFF, 0, body_bytes) * count
    numbers = struct.Struct(">" + f"{_NUMBERS}{behind}x" * count)
    parts = struct.Struct(f"{HEAD_BYTES}s{body_bytes}s{behind - body_bytes}s" * count)
    return expected, numbers.unpack, parts.unpack

"""How much to read from a socket at once.

Each system call costs the same whatever it brings, so where answers are large and many, few large
readings take less time than many small ones. But the C library gets large blocks from the kernel
each time, which costs more than a small answer.
"""

from __future__ import annotations

from typing import Final

__all__ = ["READ_BYTES_FIRST", "next_read_bytes"]

#: What is read while answers are small.
READ_BYTES_FIRST: Final = 1 << 16
#: What is read while a reading brings more than that; a pull's answer has up to 256 KiB.
_READ_BYTES_LARGE: Final = 1 << 18


def next_read_bytes(got: int, most: int) -> int:
    """How much to read next, after so many bytes came; `most` is for large readings that were full.

    >>> most = 1 << 20
    >>> [next_read_bytes(got, most) for got in (300, 100_000, 1 << 18)]
    [65536, 262144, 1048576]
    """
    if got < READ_BYTES_FIRST:
        return READ_BYTES_FIRST
    return _READ_BYTES_LARGE if got < _READ_BYTES_LARGE else most

"""Cutting parts out of one large buffer, by numpy and Arrow; imports both, so import it late."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = [
    "ARROW_BYTES_MAX",
    "Places",
    "array_of",
    "buffer_of",
    "bytes_of",
    "cut",
    "cut_text",
    "offsets_of",
    "view_of",
]

#: Places in a buffer, or numbers read from it.
Places = npt.NDArray[np.int64]

#: Offsets of Arrow's string and binary columns have 32 bits.
ARROW_BYTES_MAX: Final = (1 << 31) - 1


def array_of(numbers: npt.NDArray[Any], **options: Any) -> Any:
    """Numbers as an Arrow array, not copied when their bytes can be shared."""
    return pa.array(numbers, **options)


def buffer_of(numbers: npt.NDArray[Any]) -> pa.Buffer:
    """The bytes of contiguous numbers as an Arrow buffer, not copied."""
    return pa.py_buffer(numbers.data)


def view_of(data: bytes | pa.Buffer, kind: str) -> npt.NDArray[Any]:
    """A number of this kind at every byte of the buffer; index it by places."""
    item = np.dtype(kind)
    count = max(0, len(data) - item.itemsize + 1)
    return np.ndarray((count,), item, memoryview(data), strides=(1,))


def cut(data: pa.Buffer, places_from: Places, places_until: Places, kind: pa.DataType) -> Any:
    """An array of the parts [from, until) of a buffer.

    The parts must be in ascending order, and the buffer not above `ARROW_BYTES_MAX`.
    """
    assert data.size <= ARROW_BYTES_MAX
    count = len(places_from)
    offsets = np.zeros(2 * count + 1, np.int32)
    offsets[1::2] = places_from
    offsets[2::2] = places_until
    gaps_and_parts = pa.Array.from_buffers(kind, 2 * count, [None, buffer_of(offsets), data])
    return gaps_and_parts.take(array_of(np.arange(1, 2 * count, 2, dtype=np.int32)))


def cut_text(data: pa.Buffer, places_from: Places, places_until: Places) -> Any:
    """Like `cut`, as valid text: bytes that are no UTF-8 become U+FFFD, as in Java."""
    texts = cut(data, places_from, places_until, pa.string())
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        stored = cut(data, places_from, places_until, pa.binary())
        return pa.array([str(part, "utf-8", "replace") for part in stored.to_pylist()], pa.string())
    return texts


def bytes_of(array: Any) -> pa.Buffer:
    """The data buffer of a binary or string array made by `cut`."""
    buffer = array.buffers()[2]
    return pa.py_buffer(b"") if buffer is None else buffer


def offsets_of(array: Any) -> Places:
    """The offsets of a binary or string array made by `cut`, one more than it has parts."""
    if not len(array):
        return np.zeros(1, np.int64)
    offsets = np.frombuffer(array.buffers()[1], np.int32, len(array) + 1)
    return offsets.astype(np.int64)

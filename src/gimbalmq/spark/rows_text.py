"""Texts of many rows at once: joining, checking and hashing them by whole columns."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute

from gimbalmq.model.java import hash_code
from gimbalmq.model.message import RESERVED_PROPERTIES
from gimbalmq.spark.ids import ROW_ID_PROPERTY

__all__ = [
    "as_binary",
    "bytes_of",
    "first_true",
    "fixed_binary",
    "has_separator",
    "java_hashes",
    "join",
    "map_texts",
    "offsets_of",
    "property_part",
]

#: The stubs know fewer forms of arguments than these functions take.
pc: Final[Any] = pyarrow.compute

Mask = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]

#: Not passed on: RocketMQ's own, and the id that every written row gets anew.
_DROPPED: Final = pa.array(sorted(RESERVED_PROPERTIES | {ROW_ID_PROPERTY}))
_SEPARATORS: Final = (b"\x01", b"\x02")


def as_binary(column: Any) -> Any:
    """A text or binary column as bytes."""
    return column.cast(pa.binary())


def join(*parts: Any) -> Any:
    """Per row the parts after each other; constants stand for every row, null and None for nothing."""
    given = [pa.scalar(part, pa.binary()) if isinstance(part, bytes) else part for part in parts]
    return pc.binary_join_element_wise(
        *(part for part in given if part is not None),
        pa.scalar(b"", pa.binary()),
        null_handling="replace",
        null_replacement="",
    )


def property_part(name: str, values: Any | None) -> Any | None:
    """A property as it stands in the properties string; null where the value is null or empty."""
    if values is None:
        return None
    some = pc.if_else(pc.equal(pc.binary_length(values), 0), pa.scalar(None, pa.binary()), values)
    return pc.binary_join_element_wise(
        pa.scalar(name.encode() + b"\x01", pa.binary()),
        some,
        pa.scalar(b"\x02", pa.binary()),
        pa.scalar(b"", pa.binary()),
    )


def fixed_binary(numbers: npt.NDArray[Any], width: int) -> Any:
    """Numbers as bytes, `width` of them per row."""
    buffer = pa.py_buffer(np.ascontiguousarray(numbers).tobytes())
    rows = buffer.size // width
    return pa.Array.from_buffers(pa.binary(width), rows, [None, buffer]).cast(pa.binary())


def has_separator(texts: Any) -> Mask:
    """Which texts contain one of the two characters that separate properties."""
    offsets = offsets_of(texts)
    used = np.frombuffer(bytes_of(texts), np.uint8)[offsets[0] : offsets[-1]]
    # As a rule none does, which one look at all of them tells.
    if not ((used == 1) | (used == 2)).any():
        return np.zeros(len(texts), np.bool_)
    found = [pc.greater(pc.count_substring(texts, mark), 0) for mark in _SEPARATORS]
    either = pc.fill_null(pc.or_(*found), False)
    mask: Mask = either.to_numpy(zero_copy_only=False).astype(np.bool_)
    return mask


def first_true(mask: Mask) -> int | None:
    """The first place where a mask is set."""
    return int(np.argmax(mask)) if mask.any() else None


def bytes_of(array: Any) -> memoryview:
    """The data buffer of a binary array."""
    buffer = array.buffers()[2]
    return memoryview(b"" if buffer is None else buffer)


def offsets_of(array: Any) -> Numbers:
    """Where each text starts in the data buffer, and where the last one ends."""
    if not len(array):
        return np.zeros(1, np.int64)
    offsets = np.frombuffer(array.buffers()[1], np.int32, len(array) + 1 + array.offset)
    return offsets[array.offset :].astype(np.int64)


def map_texts(column: Any) -> tuple[Any, Any, Mask]:
    """Maps as property strings, entries sorted by name.

    Returns all entries (what the row holds), those that messages keep, and which rows have a
    separator in an entry. Null and empty values do not exist for RocketMQ and are left out.
    """
    count = len(column)
    rows, names, values = _entries_of(column)
    bad = np.zeros(count, np.bool_)
    bad[rows[has_separator(names) | has_separator(values)]] = True
    texts = join(names, b"\x01", values, b"\x02")
    dropped = pc.is_in(names.cast(pa.string()), value_set=_DROPPED)
    kept = pc.invert(dropped)
    kept_rows = rows[kept.to_numpy(zero_copy_only=False)]
    return _gathered(texts, rows, count), _gathered(texts.filter(kept), kept_rows, count), bad


def _entries_of(column: Any) -> tuple[Numbers, Any, Any]:
    """Row, name and value of every entry, sorted by row and name."""
    offsets = column.offsets.to_numpy().astype(np.int64)
    rows = np.repeat(np.arange(len(column)), np.diff(offsets))
    first, length = int(offsets[0]), int(offsets[-1] - offsets[0])
    names = column.keys.slice(first, length)
    values = column.items.slice(first, length)
    present = pc.and_(
        pc.greater(pc.binary_length(names), 0),
        pc.fill_null(pc.greater(pc.binary_length(values), 0), False),
    ).to_numpy(zero_copy_only=False)
    if column.null_count:
        present &= column.is_valid().to_numpy(zero_copy_only=False)[rows]
    picked = np.flatnonzero(present)
    table = pa.table({"row": rows[picked], "name": names.take(pa.array(picked))})
    order = pc.sort_indices(table, sort_keys=[("row", "ascending"), ("name", "ascending")])
    picked = picked[order.to_numpy()]
    indices = pa.array(picked)
    return rows[picked], as_binary(names.take(indices)), as_binary(values.take(indices))


def _gathered(texts: Any, rows: Numbers, count: int) -> Any:
    """Texts that stand in the order of their rows, those of one row as one text."""
    starts = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(rows, minlength=count), out=starts[1:])
    offsets = offsets_of(texts)[starts].astype(np.int32)
    buffers = [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(bytes_of(texts))]
    return pa.Array.from_buffers(pa.binary(), count, buffers)


def java_hashes(texts: Any) -> tuple[Numbers, Mask]:
    """Java's `String.hashCode` of each text, and which texts there are (not null, not empty).

    >>> java_hashes(pa.array([b"TagA", None, b"hello"]))[0].tolist()
    [2598919, 0, 99162322]
    """
    data = np.frombuffer(bytes_of(texts), np.uint8)
    offsets = offsets_of(texts)
    lengths = np.diff(offsets)
    there: Mask = lengths > 0
    if texts.null_count:
        there &= texts.is_valid().to_numpy(zero_copy_only=False)
    used = data[offsets[0] : offsets[-1]]
    if (used > 127).any():
        hashed = [hash_code(str(text, "utf-8")) if text else 0 for text in texts.to_pylist()]
        return np.array(hashed, np.int64), there
    hashes = np.zeros(len(texts), np.int64)
    if not there.any():
        return hashes, there
    longest = int(lengths.max())
    powers = np.cumprod(
        np.r_[1, np.full(max(longest - 1, 0), 31)].astype(np.uint32), dtype=np.uint32
    )
    full = np.flatnonzero(lengths > 0)
    starts = offsets[full] - offsets[0]
    # How many characters come after each one in its text: the exponent of its factor.
    exponents = np.repeat(starts + lengths[full], lengths[full]) - 1 - np.arange(len(used))
    terms = used.astype(np.uint32) * powers[exponents]
    hashes[full] = np.add.reduceat(terms, starts, dtype=np.uint32).view(np.int32)
    hashes[~there] = 0
    return hashes, there

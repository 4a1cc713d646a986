"""What the bytes of a log segment mean.

A segment is a row of entries, each of which starts with its size and a magic number, as
RocketMQ's records do:

    seal     stands before the records of one append and vouches for them: how many bytes they
             have, their CRC, and how much of the log was safely on disk when it was written
    record   a message, exactly as a pull answer carries it
    blank    bytes to skip: the rest of a full segment, or what salvage had to give up

The seal makes an append all or nothing after a crash, protects a record's header and properties
(its own CRC covers the body alone), and tells a torn tail, which may be cut, from damage to what
had been stored safely, which may not. The last bytes of a full segment are its footer.

Must not know files: everything here works on a buffer.
"""

from __future__ import annotations

import struct
import zlib
from typing import Final, NamedTuple

import msgspec

from gimbalmq.wire.record_layout import (
    BORN_HOST_V6,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_BYTES_MIN,
    STORE_HOST_V6,
)

__all__ = [
    "BLANK_BYTES",
    "RESERVE_BYTES",
    "SEAL_BYTES",
    "Blank",
    "Facts",
    "Footer",
    "Frame",
    "blank",
    "entry_at",
    "footer_at",
    "make_footer",
    "next_seal",
    "record_facts",
    "record_size",
    "records_of",
    "seal",
    "written_bytes",
]

#: RocketMQ's mark for bytes to skip.
_BLANK_MAGIC: Final = -875286124
_SEAL_MAGIC: Final = -0x2C5EA1ED
_FOOTER_MAGIC: Final = -0x2C5EA1E0
_SEAL_MAGIC_BYTES: Final = _SEAL_MAGIC.to_bytes(4, "big", signed=True)
_MAGICS: Final = frozenset({MAGIC_V1, MAGIC_V2})

#: size, magic, bytes of the records, its own place in the log, place up to which all was safe
_seal: Final = struct.Struct(">iiiqq")
_crc: Final = struct.Struct(">I")
#: magic, place after the last record, first and last time of storing
_footer: Final = struct.Struct(">iqqq")
_entry: Final = struct.Struct(">ii")
#: size, magic, queue id, queue offset, physical offset, sysFlag
_record: Final = struct.Struct(">ii4xi4xqqi")
_int: Final = struct.Struct(">i").unpack_from
_long: Final = struct.Struct(">q").unpack_from
_short: Final = struct.Struct(">h").unpack_from

_WINDOW_BYTES: Final = 1 << 20
SEAL_BYTES: Final = _seal.size + _crc.size
BLANK_BYTES: Final = _entry.size
_FOOTER_BYTES: Final = _footer.size + _crc.size
#: What no append may take of a segment: room for the blank and the footer that close it.
RESERVE_BYTES: Final = BLANK_BYTES + _FOOTER_BYTES


class Frame(NamedTuple):
    """A seal and the records it vouches for, by their places in the buffer."""

    records_from: int
    until: int
    flushed_until: int


class Blank(NamedTuple):
    """Bytes to skip."""

    until: int


class Footer(NamedTuple):
    """What a full segment says about itself; `until` is the place after its last record."""

    until: int
    first_ms: int
    last_ms: int


class Facts(msgspec.Struct, frozen=True, gc=False):
    """What the indexes need to know of a record."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size: int
    store_timestamp_ms: int
    properties: bytes


def seal(records: bytes, position: int, flushed_until: int) -> bytes:
    """The seal to write at a place of the log, before `records`."""
    head = _seal.pack(SEAL_BYTES, _SEAL_MAGIC, len(records), position, flushed_until)
    return head + _crc.pack(zlib.crc32(records, zlib.crc32(head)))


def blank(size: int) -> bytes:
    """The start of `size` bytes to skip."""
    return _entry.pack(size, _BLANK_MAGIC)


def make_footer(footer: Footer) -> bytes:
    """The last bytes of a full segment."""
    body = _footer.pack(_FOOTER_MAGIC, *footer)
    return body + _crc.pack(zlib.crc32(body))


def footer_at(segment: memoryview) -> Footer | None:
    """The footer of a segment; None if it has none, or a damaged one."""
    at = len(segment) - _FOOTER_BYTES
    if at < 0:
        return None
    magic, until, first_ms, last_ms = _footer.unpack_from(segment, at)
    (crc,) = _crc.unpack_from(segment, at + _footer.size)
    if magic != _FOOTER_MAGIC or crc != zlib.crc32(segment[at : at + _footer.size]):
        return None
    return Footer(until, first_ms, last_ms)


def entry_at(segment: memoryview, at: int, start: int) -> Frame | Blank | None:
    """The entry at a byte of a segment that begins at `start` of the log, checked in full.

    None when nothing valid starts there: the end of what was written, or damage.
    """
    limit = len(segment)
    if at + BLANK_BYTES > limit:
        return None
    size, magic = _entry.unpack_from(segment, at)
    if magic == _BLANK_MAGIC:
        return Blank(at + size) if BLANK_BYTES <= size <= limit - at else None
    if magic != _SEAL_MAGIC or size != SEAL_BYTES or at + SEAL_BYTES > limit:
        return None
    _, _, covered, position, flushed_until = _seal.unpack_from(segment, at)
    records_from = at + SEAL_BYTES
    until = records_from + covered
    if position != start + at or covered < RECORD_BYTES_MIN or until > limit:
        return None
    (crc,) = _crc.unpack_from(segment, at + _seal.size)
    head = zlib.crc32(segment[at : at + _seal.size])
    if crc != zlib.crc32(segment[records_from:until], head):
        return None
    return Frame(records_from, until, flushed_until)


def next_seal(segment: memoryview, at: int, start: int) -> tuple[int, Frame] | None:
    """The first valid seal from a byte on, and where it is; None if there is none."""
    while at < len(segment):
        window = bytes(segment[at : at + _WINDOW_BYTES])
        found = window.find(_SEAL_MAGIC_BYTES, 4)
        while found >= 0:
            entry = entry_at(segment, at + found - 4, start)
            if isinstance(entry, Frame):
                return at + found - 4, entry
            found = window.find(_SEAL_MAGIC_BYTES, found + 1)
        # Windows overlap by what a seal at the edge could have before and in its magic number.
        at += max(len(window) - 7, 1) if at + len(window) < len(segment) else len(window)
    return None


def written_bytes(segment: memoryview, at: int) -> int:
    """How many bytes from `at` on were ever written: up to the last that is not zero."""
    until = len(segment)
    while until > at:
        window_from = max(at, until - _WINDOW_BYTES)
        rest = bytes(segment[window_from:until]).rstrip(b"\0")
        if rest:
            return window_from + len(rest) - at
        until = window_from
    return 0


def record_size(segment: memoryview, at: int, physical_offset: int) -> int | None:
    """Size of the record at a byte of a segment; None when no record starts there."""
    if at < 0 or len(segment) - at < RECORD_BYTES_MIN:
        return None
    size, magic, _, _, physical, _ = _record.unpack_from(segment, at)
    plausible = magic in _MAGICS and physical == physical_offset
    return size if plausible and RECORD_BYTES_MIN <= size <= len(segment) - at else None


def records_of(segment: memoryview, frame: Frame) -> list[Facts] | None:
    """Facts of a frame's records; None when they are not what this package writes."""
    found: list[Facts] = []
    at = frame.records_from
    while at < frame.until:
        facts = record_facts(segment[at : frame.until])
        if facts is None:
            return None
        found.append(facts)
        at += facts.size
    return found


def record_facts(record: memoryview) -> Facts | None:
    """Facts of the record that starts the buffer; None when its lengths do not fit together."""
    try:
        size, magic, queue_id, queue_offset, physical, sys_flag = _record.unpack_from(record)
        if magic not in _MAGICS or not RECORD_BYTES_MIN <= size <= len(record):
            return None
        host_at = 64 + (12 if sys_flag & BORN_HOST_V6 else 0)
        body_at = host_at + (36 if sys_flag & STORE_HOST_V6 else 24)
        topic_at = body_at + _int(record, body_at - 4)[0]
        if topic_at < body_at:
            return None
        wide = magic == MAGIC_V2
        topic_bytes = _short(record, topic_at)[0] if wide else record[topic_at]
        topic_at += 2 if wide else 1
        properties_at = topic_at + topic_bytes + 2
        properties_bytes = _short(record, properties_at - 2)[0]
        if topic_bytes <= 0 or properties_at + properties_bytes != size:
            return None
        topic = str(record[topic_at : properties_at - 2], "utf-8")
    except (struct.error, IndexError, UnicodeDecodeError):
        return None
    stored_ms = _long(record, host_at - 8)[0]
    properties = bytes(record[properties_at:size])
    return Facts(topic, queue_id, queue_offset, physical, size, stored_ms, properties)

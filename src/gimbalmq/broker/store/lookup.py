"""Reading: records of a queue from an offset on, and records that have a key.

Answers are slices of the log; nothing is encoded again. Must not change anything.
"""

from __future__ import annotations

import functools
from typing import Final

from gimbalmq.broker.store.api import ReadResult, ReadStatus, Wanted
from gimbalmq.broker.store.key_index import KeyIndex
from gimbalmq.broker.store.layout import record_facts
from gimbalmq.broker.store.queue_index import QueueIndex, unpack_entries
from gimbalmq.broker.store.segments import Segments
from gimbalmq.broker.store.terms import has_key, key_hash

__all__ = ["find_by_key", "read_queue"]

#: Entries fetched at a time while a filter looks for messages it wants.
_SCAN_STEP: Final = 256


def read_queue(
    segments: Segments,
    queue: QueueIndex | None,
    offset: int,
    *,
    max_messages: int,
    max_bytes: int,
    wanted: Wanted | None,
    scan_max: int,
) -> ReadResult:
    """See `Store.read`."""
    if queue is None or not queue.next_offset:
        return ReadResult([], 0, 0, 0, ReadStatus.NO_MESSAGE_IN_QUEUE)
    minimum, maximum = queue.minimum, queue.next_offset
    if not minimum <= offset < maximum:
        if offset < minimum:
            nearest, status = minimum, ReadStatus.OFFSET_TOO_SMALL
        elif offset == maximum:
            nearest, status = maximum, ReadStatus.OFFSET_OVERFLOW_ONE
        else:
            nearest, status = maximum, ReadStatus.OFFSET_OVERFLOW_BADLY
        return ReadResult([], nearest, minimum, maximum, status)
    records: list[memoryview] = []
    size = 0
    scan_until = min(offset + scan_max, maximum)
    step = max_messages if wanted is None else _SCAN_STEP
    while offset < scan_until and len(records) < max_messages:
        data = queue.entries(offset, min(offset + step, scan_until))
        offset, size, full = _collect(
            segments, data, records, offset, size, max_messages, max_bytes, wanted
        )
        if full:
            break
    status = ReadStatus.FOUND if records else ReadStatus.NO_MATCHED_MESSAGE
    return ReadResult(records, offset, minimum, maximum, status, size)


def _collect(
    segments: Segments,
    entries: bytes | bytearray,
    records: list[memoryview],
    offset: int,
    size: int,
    max_messages: int,
    max_bytes: int,
    wanted: Wanted | None,
) -> tuple[int, int, bool]:
    """Add the records of some entries; (next offset, bytes so far, whether that is enough)."""
    start = limit = 0
    view = memoryview(b"")
    append = records.append
    for place, record_bytes, tag_hash, _ in unpack_entries(entries):
        at = place - start
        if not 0 <= at < limit:
            segment = segments.segment_of(place)
            if segment is None:  # a hole, or an entry that damage made point nowhere
                offset += 1
                continue
            start, limit, view = segment.start, segment.limit, segments.view(segment)
            at = place - start
        if records and size + record_bytes > max_bytes:
            return offset, size, True
        record = view[at : at + record_bytes]
        offset += 1
        if wanted is None or wanted(tag_hash, functools.partial(bytes, record)):
            append(record)
            size += record_bytes
            if len(records) >= max_messages:
                return offset, size, True
    return offset, size, False


def find_by_key(
    segments: Segments,
    keys: KeyIndex,
    topic: str,
    key: str,
    *,
    begin_ms: int,
    end_ms: int,
    limit: int,
    deleted_before: int,
) -> list[memoryview]:
    """See `Store.find`; records before the place `deleted_before` do not count."""
    found: list[memoryview] = []
    wanted = key.encode("utf-8", "replace")
    number = key_hash(topic, wanted)
    for segment in reversed(segments.held):
        if segment.last_ms < begin_ms or segment.first_ms > end_ms:
            continue
        for relative in keys.places(segment.start, number):
            if len(found) >= limit:
                return found
            record = segments.record_at(segment.start + relative)
            facts = None if record is None else record_facts(record)
            if (
                record is not None
                and facts is not None
                and facts.topic == topic
                and facts.physical_offset >= deleted_before
                and begin_ms <= facts.store_timestamp_ms <= end_ms
                and has_key(facts.properties, wanted)
            ):
                found.append(record)
    return found

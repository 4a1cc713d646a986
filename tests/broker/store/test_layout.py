from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gimbalmq.broker.store.layout import (
    SEAL_BYTES,
    Blank,
    Footer,
    Frame,
    blank,
    entry_at,
    footer_at,
    make_footer,
    next_seal,
    record_facts,
    record_size,
    records_of,
    seal,
    written_bytes,
)
from gimbalmq.wire.record import encode_record

HOSTS = st.sampled_from([("127.0.0.1", 1), ("::1", 65535)])


def framed(*records, position=0, flushed_until=0):
    data = b"".join(records)
    return seal(data, position, flushed_until) + data


@given(
    topic=st.text("abc%|-_ü", min_size=1, max_size=200),
    body=st.binary(max_size=300),
    properties=st.binary(max_size=100),
    born=HOSTS,
    stored=HOSTS,
    queue_id=st.integers(0, 1 << 30),
    queue_offset=st.integers(0, 1 << 60),
)
def test_facts_are_read_from_every_kind_of_record(
    topic, body, properties, born, stored, queue_id, queue_offset
):
    record = encode_record(
        topic=topic,
        body=body,
        properties=properties,
        born_host=born,
        store_host=stored,
        queue_id=queue_id,
        queue_offset=queue_offset,
        physical_offset=7,
        store_timestamp_ms=99,
    )
    facts = record_facts(memoryview(record + b"more"))
    assert (facts.topic, facts.queue_id, facts.queue_offset) == (topic, queue_id, queue_offset)
    assert (facts.physical_offset, facts.size, facts.store_timestamp_ms) == (7, len(record), 99)
    assert facts.properties == properties
    assert record_size(memoryview(record), 0, 7) == len(record)
    assert record_size(memoryview(record), 0, 8) is None


@given(st.binary(max_size=200))
def test_any_bytes_are_facts_or_none(data):
    record_facts(memoryview(data))
    head = encode_record(topic="t", body=b"")[:8]
    record_facts(memoryview(head + data))
    entry_at(memoryview(data), 0, 0)


@given(data=st.data(), bodies=st.lists(st.binary(max_size=50), min_size=1, max_size=4))
def test_a_frame_is_whole_or_not_there(data, bodies):
    records = [encode_record(topic="t", body=body) for body in bodies]
    frame = framed(*records, position=100, flushed_until=50)
    view = memoryview(frame + bytes(20))
    entry = entry_at(view, 0, 100)
    assert entry == Frame(SEAL_BYTES, len(frame), 50)
    assert [facts.size for facts in records_of(view, entry)] == [len(one) for one in records]
    at = data.draw(st.integers(0, len(frame) - 1))
    bit = 1 << data.draw(st.integers(0, 7))
    garbled = bytearray(frame)
    garbled[at] ^= bit
    assert not isinstance(entry_at(memoryview(garbled), 0, 100), Frame)
    assert entry_at(memoryview(frame[:at]), 0, 100) is None
    assert entry_at(view, 0, 101) is None, "a frame belongs to its place"


def test_blanks_are_skipped_and_must_fit():
    assert entry_at(memoryview(blank(20) + bytes(12)), 0, 0) == Blank(20)
    assert entry_at(memoryview(blank(21) + bytes(12)), 0, 0) is None
    assert entry_at(memoryview(blank(7) + bytes(12)), 0, 0) is None


@pytest.mark.parametrize("before", [0, 1, 5, (1 << 20) - 10, (1 << 20) - 3, (1 << 20) + 5])
def test_the_next_seal_is_found_wherever_it_is(before):
    frame = framed(encode_record(topic="t", body=b"x"), position=before)
    view = memoryview(bytes(before) + frame + bytes(30))
    assert next_seal(view, 0, 0) == (before, Frame(before + SEAL_BYTES, before + len(frame), 0))
    assert next_seal(view, before + 1, 0) is None


def test_a_seal_copied_into_a_body_is_none():
    inner = framed(encode_record(topic="t", body=b"x"), position=0)
    outer = framed(encode_record(topic="t", body=inner), position=1000)
    assert next_seal(memoryview(outer), 1, 1000) is None


@pytest.mark.parametrize("size", [0, 1, 5000, (1 << 20) + 1])
def test_written_bytes_end_at_the_last_that_is_not_zero(size):
    view = memoryview(b"ab" + bytes(size))
    assert [written_bytes(view, at) for at in (0, 1, 2)] == [2, 1, 0]


def test_a_footer_is_whole_or_not_there():
    footer = Footer(4000, 1, 2)
    segment = bytes(100) + make_footer(footer)
    assert footer_at(memoryview(segment)) == footer
    assert footer_at(memoryview(segment[:-1] + b"\xff")) is None
    assert footer_at(memoryview(b"")) is None

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gimbalmq.errors import ConfigurationError, ProtocolError
from gimbalmq.wire.batch import BatchEntry, decode_batch, encode_batch

entries = st.builds(
    BatchEntry,
    body=st.binary(max_size=20),
    properties=st.binary(max_size=20),
    flag=st.integers(-(1 << 31), (1 << 31) - 1),
)
SPEC = (
    "0000001f000000000000000000000000000000026d310007544147530161020000001f00000000000000000000000100"
    "0000026d3200074b455953016b02"
)


@pytest.mark.rule("W7.7", "W4.8a")
def test_two_messages_as_the_specification_shows_them():
    batch = [BatchEntry(b"m1", b"TAGS\x01a\x02"), BatchEntry(b"m2", b"KEYS\x01k\x02", 1)]
    assert encode_batch(batch).hex() == SPEC
    assert decode_batch(bytes.fromhex(SPEC)) == batch


@given(st.lists(entries, max_size=5))
def test_a_batch_survives(batch):
    assert decode_batch(memoryview(encode_batch(batch))) == batch


@given(st.binary(max_size=80))
def test_any_bytes_are_a_batch_or_a_protocol_error(data):
    try:
        decode_batch(data)
    except ProtocolError:
        return


@given(st.lists(entries, min_size=1, max_size=3), st.data())
def test_a_batch_that_is_cut_off_is_refused(batch, data):
    whole = encode_batch(batch)
    sizes = {len(encode_batch(batch[:count])) for count in range(len(batch) + 1)}
    until = data.draw(st.integers(0, len(whole) - 1).filter(lambda size: size not in sizes))
    with pytest.raises(ProtocolError, match="batch entry at byte"):
        decode_batch(whole[:until])


def test_properties_that_lengthen_beyond_their_entry_are_refused():
    data = bytearray(encode_batch([BatchEntry(b"m", b"k\x01v")]))
    data[21:23] = b"\x00\x7f"
    with pytest.raises(ProtocolError, match="properties"):
        decode_batch(data)


def test_properties_that_no_broker_stores_are_refused():
    with pytest.raises(ConfigurationError, match="32767"):
        encode_batch([BatchEntry(b"m", bytes(32768))])

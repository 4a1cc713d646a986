from __future__ import annotations

import pickle
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gimbalmq.errors import ConfigurationError, ProtocolError
from gimbalmq.model.queue import MessageQueue
from gimbalmq.wire import record as record_module
from gimbalmq.wire.alike import cut_alike
from gimbalmq.wire.batch import BatchEntry, encode_batch
from gimbalmq.wire.codes import CompressionType
from gimbalmq.wire.compression import compress
from gimbalmq.wire.properties import encode_properties
from gimbalmq.wire.record import decode_records, encode_record
from gimbalmq.wire.record_layout import MAGIC_V1, MAGIC_V2
from wire.spec_records import COMPRESSED, RECORD

ATTRIBUTES = (
    "body", "topic", "record_topic", "queue", "queue_offset", "properties", "tags", "keys",
    "message_id", "offset_message_id", "born_at", "stored_at", "born_host", "store_host",
    "reconsume_times", "physical_offset", "sys_flag", "store_size", "flag", "stored_body",
    "body_crc", "prepared_transaction_offset", "stored_properties",
)  # fmt: skip

SECOND_FORM = (
    "000000e0daa320ab706b9d0f000000000000000000000000000000000000000000000000000000000000000000000000"
    "7f0000010000000100000000000000007f00000100002a9f000000000000000000000000000000027632008254545454"
    "545454545454545454545454545454545454545454545454545454545454545454545454545454545454545454545454"
    "545454545454545454545454545454545454545454545454545454545454545454545454545454545454545454545454"
    "5454545454545454545454545454545454545454545454545454545454540000"
)


@pytest.mark.rule("W7.5", "W4.1a", "W4.1f", "W4.2a")
def test_the_record_of_the_specification():
    data = bytes.fromhex(RECORD)
    [message] = decode_records(data, "broker-a")
    assert message.topic == message.record_topic == "TopicTest"
    assert message.body == message.stored_body == b"hello"
    assert message.queue == MessageQueue("TopicTest", "broker-a", 1)
    assert (message.queue_offset, message.physical_offset) == (5, 1024)
    assert message.born_at == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert message.store_timestamp_ms - message.born_timestamp_ms == 1
    assert message.stored_at.microsecond == 1000
    assert (message.born_host, message.store_host) == ("127.0.0.1:54321", "127.0.0.1:10911")
    assert message.body_crc == 907060870
    assert message.offset_message_id == "7F00000100002A9F0000000000000400"
    assert message.message_id == "7F00000100003D4E1A2B000000000000"
    assert (message.tags, message.keys) == ("TagA", ())
    assert list(message.properties) == ["UNIQ_KEY", "TAGS", "WAIT"]
    assert (message.reconsume_times, message.prepared_transaction_offset) == (0, 0)
    assert (message.sys_flag, message.flag, message.store_size) == (0, 0, 167)
    again = encode_record(
        topic="TopicTest",
        body=b"hello",
        properties=encode_properties(message.properties),
        queue_id=1,
        queue_offset=5,
        physical_offset=1024,
        born_timestamp_ms=1_700_000_000_000,
        born_host=("127.0.0.1", 54321),
        store_timestamp_ms=1_700_000_000_001,
        store_host=("127.0.0.1", 10911),
    )
    assert again == data


@pytest.mark.rule("W7.6", "W4.1c", "W4.3b")
def test_a_compressed_record_with_ipv6_hosts():
    [message] = decode_records(bytes.fromhex(COMPRESSED), "b")
    assert message.body == b"x" * 5000
    assert message.body is message.body
    assert len(message.stored_body) == 28
    assert (message.born_host, message.store_host) == ("::1:2", "fe80::1:10911")
    assert (message.tags, message.keys) == ("TagB", ("k1", "k2"))
    assert message.message_id == message.offset_message_id
    assert message.message_id == "FE80000000000000000000000000000100002A9F0000000000000000"


@pytest.mark.rule("W7.6", "W4.1b", "W4.2c", "W8a")
def test_a_topic_of_more_than_127_bytes_has_the_second_form():
    [message] = decode_records(bytes.fromhex(SECOND_FORM), "b")
    assert message.topic == "T" * 130
    assert message.properties == {}
    again = encode_record(
        topic="T" * 130, body=b"v2", born_host=("127.0.0.1", 1), store_host=("127.0.0.1", 10911)
    )
    assert again.hex() == SECOND_FORM
    assert int.from_bytes(again[4:8], "big", signed=True) == MAGIC_V2
    short = encode_record(topic="T" * 127, body=b"")
    assert int.from_bytes(short[4:8], "big", signed=True) == MAGIC_V1


hosts = st.tuples(st.ip_addresses().map(str), st.integers(0, 65535))
i32 = st.integers(-(1 << 31), (1 << 31) - 1)
i64 = st.integers(-(1 << 63), (1 << 63) - 1)
text = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), min_size=1, max_size=5
)
records = st.fixed_dictionaries(
    {
        "topic": st.text("abT%", max_size=200),
        "body": st.binary(max_size=40),
        "properties": st.dictionaries(text, text, max_size=4).map(encode_properties),
        "queue_id": i32,
        "queue_offset": i64,
        "physical_offset": i64,
        "sys_flag": st.sampled_from([0, 2, 4, 8, 0x300]),
        "flag": i32,
        "born_timestamp_ms": i64,
        "born_host": hosts,
        "store_timestamp_ms": i64,
        "store_host": hosts,
        "reconsume_times": i32,
        "prepared_transaction_offset": i64,
    }
)


@pytest.mark.rule("W4.1e")
@given(st.lists(records, max_size=4))
def test_records_back_to_back_survive(given_records):
    data = b"".join(encode_record(**record) for record in given_records)
    messages = decode_records(memoryview(data), "b")
    for message, record in zip(messages, given_records, strict=True):
        assert message.record_topic == record["topic"]
        assert message.body == record["body"]
        assert message.stored_properties == record["properties"]
        assert message.born_host == "{}:{}".format(*record["born_host"])
        assert message.store_host == "{}:{}".format(*record["store_host"])
        assert message.sys_flag & ~0x30 == record["sys_flag"]
        same = set(record) - {
            "topic", "body", "properties", "born_host", "store_host", "sys_flag"
        }  # fmt: skip
        for name in same:
            assert getattr(message, name) == record[name], name


def read_everything(data):
    try:
        messages = decode_records(data, "b")
    except ProtocolError:
        return
    for message in messages:
        for name in ATTRIBUTES:
            try:
                getattr(message, name)
            except ProtocolError:
                continue


@given(st.binary(max_size=300))
def test_any_bytes_are_records_or_a_protocol_error(data):
    read_everything(data)


@given(st.lists(records, min_size=1, max_size=2), st.data())
def test_damage_anywhere_gives_records_or_a_protocol_error(given_records, data):
    damaged = bytearray(b"".join(encode_record(**record) for record in given_records))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, min(len(damaged) - 1, 120)))
        damaged[place] = data.draw(st.integers(0, 255))
    read_everything(bytes(damaged))


@given(records, st.data())
def test_a_record_that_is_cut_off_is_refused(record, data):
    whole = encode_record(**record)
    until = data.draw(st.integers(1, len(whole) - 1))
    with pytest.raises(ProtocolError, match="record at byte 0 is corrupt or cut off"):
        decode_records(whole[:until], "b")
    with pytest.raises(ProtocolError, match=f"record at byte {len(whole)} "):
        decode_records(whole + whole[:until], "b")


@pytest.mark.rule("W4.1e")
@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (4, b"\xcb\xd4\x31\x94", "no magic number"),
        (0, b"\x00\x00\x00\x10", "its size is 16"),
        (84, b"\xff\xff\xff\xff", "its body has -1 bytes"),
        (84, b"\x00\x00\x10\x00", "its body has 4096 bytes"),
    ],
)
def test_a_corrupt_record_is_refused_with_its_place(place, value, words):
    data = bytearray.fromhex(RECORD * 2)
    data[167 + place : 167 + place + len(value)] = value
    with pytest.raises(ProtocolError, match=words) as caught:
        decode_records(data, "b")
    assert "at byte 167" in str(caught.value)


def test_a_record_too_short_for_the_hosts_it_claims_is_refused():
    data = bytearray(encode_record(topic="", body=b""))
    data[39] = 0x30
    with pytest.raises(ProtocolError, match="too small for IPv6"):
        decode_records(data, "b")


@pytest.mark.rule("W4.8b")
@pytest.mark.parametrize("packed", [False, True])
def test_an_inner_batch_is_expanded(packed):
    batch = encode_batch(
        [
            BatchEntry(b"one", b"TAGS\x01a", 7),
            BatchEntry(b"two", b"UNIQ_KEY\x01id\x02", 8),
        ]
    )
    body = compress(batch, CompressionType.ZLIB) if packed else batch
    data = encode_record(
        topic="t",
        body=body,
        queue_offset=10,
        queue_id=3,
        sys_flag=0xC0 | (0x301 if packed else 0),
        properties=b"INNER_NUM\x012",
    )
    plain = encode_record(topic="t", body=b"after", queue_offset=12)
    first, second, after = decode_records(data + plain, "b")
    assert [one.body for one in (first, second, after)] == [b"one", b"two", b"after"]
    assert first.stored_body == b"one"
    assert [one.queue_offset for one in (first, second, after)] == [10, 11, 12]
    assert (first.flag, second.flag) == (7, 8)
    assert (first.tags, second.tags) == ("a", None)
    assert second.message_id == "id"
    assert first.message_id == first.offset_message_id
    assert first.queue == second.queue == MessageQueue("t", "b", 3)
    assert first.properties == {"TAGS": "a"}


def test_an_inner_batch_that_is_no_batch_is_refused():
    data = encode_record(topic="t", body=b"not a batch", sys_flag=0xC0)
    with pytest.raises(ProtocolError, match="batch entry"):
        decode_records(data, "b")


def in_turn(data):
    """What reading the records one after the other gives, or why it cannot."""
    return outcome(record_module._decode_in_turn, bytes(data))


def outcome(decode, data):
    try:
        messages = decode(data, "b")
    except ProtocolError as error:
        return str(error)
    return [tuple(attribute(message, name) for name in ATTRIBUTES) for message in messages]


def attribute(message, name):
    try:
        return getattr(message, name)
    except ProtocolError as error:
        return str(error)


def alike(count, body=b"body", **fields):
    return bytearray(
        b"".join(
            encode_record(topic="orders", body=body, queue_offset=7 + index, **fields)
            for index in range(count)
        )
    )


@pytest.mark.parametrize("body", [b"", b"x", b"y" * 1024])
def test_records_that_are_alike_are_read_at_once_as_they_are_one_by_one(body):
    data = alike(32, body, properties=b"TAGS\x01new\x02", queue_id=3, physical_offset=99)
    assert cut_alike(data) is not None
    assert outcome(decode_records, data) == in_turn(data)
    assert [one.queue_offset for one in decode_records(data, "b")] == list(range(7, 39))


@given(st.integers(10, 70), st.integers(0, 3), st.data())
def test_whatever_is_wrong_with_one_of_many_is_found_as_one_by_one(count, flips, data):
    records = alike(count, data.draw(st.binary(max_size=3)))
    size = len(records) // count
    for _ in range(flips):
        place = data.draw(
            st.sampled_from([*range(8), *range(20, 28), *range(36, 40), *range(84, size)])
        )
        records[data.draw(st.integers(0, count - 1)) * size + place] = data.draw(
            st.sampled_from([0, 1, 0x10, 0x20, 0xC0, 0xFF])
        )
    until = data.draw(st.sampled_from([len(records), len(records) - 1, len(records) - size]))
    assert outcome(decode_records, memoryview(records)[:until]) == in_turn(records[:until])


@given(st.lists(st.tuples(records, st.integers(1, 8)), min_size=1, max_size=6))
def test_records_of_all_kinds_mixed_are_read_as_one_by_one(runs):
    data = b"".join(encode_record(**record) * times for record, times in runs)
    assert outcome(decode_records, data) == in_turn(data)


@pytest.mark.parametrize("sys_flag", [0x10, 0x20, 0x40, 0x301])
def test_many_records_of_one_size_that_are_unusual_are_read_one_by_one(sys_flag):
    hosts = ("::1", 1) if sys_flag & 0x30 else ("127.0.0.1", 1)
    body = compress(b"z" * 500, CompressionType.ZLIB) if sys_flag & 1 else b"plain"
    data = alike(32, body, sys_flag=sys_flag, born_host=hosts, store_host=hosts)
    assert cut_alike(data) is None
    assert {one.body for one in decode_records(data, "b")} == {
        b"z" * 500 if sys_flag & 1 else b"plain"
    }


def test_a_message_holds_its_own_record_and_nothing_else_of_the_answer():
    for data in (alike(32, b"y" * 500), alike(1, b"y" * 500) + alike(9, b"z" * 900)):
        message = decode_records(data, "b")[0]
        assert len(pickle.dumps(message)) < 1000


def test_a_changed_buffer_does_not_change_messages():
    buffer = bytearray.fromhex(RECORD)
    [message] = decode_records(buffer, "b")
    buffer[88:93] = b"XXXXX"
    assert message.body == b"hello"


def test_nothing_is_no_messages():
    assert decode_records(b"", "b") == []


def test_properties_that_no_broker_stores_are_refused():
    with pytest.raises(ConfigurationError, match="32767"):
        encode_record(topic="t", body=b"", properties=bytes(32768))

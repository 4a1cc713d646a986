from __future__ import annotations

import builtins

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gimbalmq.errors import ConfigurationError, ProtocolError
from gimbalmq.wire.batch import BatchEntry, encode_batch
from gimbalmq.wire.codes import CompressionType
from gimbalmq.wire.columns import COLUMNS, column_schema, decode_columns
from gimbalmq.wire.compression import compress
from gimbalmq.wire.record import decode_records, encode_record

pa = pytest.importorskip("pyarrow")
record_places = pytest.importorskip("gimbalmq.wire.record_places")

hosts = st.tuples(st.ip_addresses().map(str), st.integers(0, 65535))
property_bytes = st.text(st.sampled_from("abTAGSKEY\x01\x02é"), max_size=30).map(str.encode)
tagged = st.sampled_from(
    [
        b"",
        b"TAGS\x01a\x02",
        b"KEYS\x01k1 k2\x02UNIQ_KEY\x010123",
        b"UNIQ_KEY\x01first\x02TAGS\x01x\x02UNIQ_KEY\x01last\x02",
        b"TAGS\x01\x02TAGS\x01one\x02TAGS\x01\x02",
    ]
)


@st.composite
def records(draw):
    compression = draw(st.sampled_from([None, None, *CompressionType]))
    body = draw(st.binary(max_size=30))
    sys_flag = draw(st.sampled_from([0, 4, 8]))
    if draw(st.integers(0, 5)) == 0:
        properties = draw(property_bytes)
        body = encode_batch([BatchEntry(body, properties, 3), BatchEntry(b"second")])
        sys_flag |= 0xC0
    if compression is not None:
        body = compress(body, compression)
        sys_flag |= 1 | compression
    return encode_record(
        topic=draw(st.sampled_from(["t", "%RETRY%g", "T" * 130, "é"])),
        body=body,
        properties=draw(property_bytes | tagged),
        queue_id=draw(st.integers(0, 7)),
        queue_offset=draw(st.integers(0, 1 << 40)),
        physical_offset=draw(st.integers(0, 1 << 40)),
        sys_flag=sys_flag,
        born_timestamp_ms=draw(st.integers(0, 1 << 41)),
        born_host=draw(hosts),
        store_timestamp_ms=draw(st.integers(0, 1 << 41)),
        store_host=draw(hosts),
        reconsume_times=draw(st.integers(0, 16)),
    )


def expected_row(message):
    return {
        "topic": message.record_topic,
        "broker": message.broker,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "message_id": message.message_id,
        "keys": message.property_value("KEYS"),
        "tags": message.tags,
        "body": message.body,
        "born_timestamp": message.born_at,
        "store_timestamp": message.stored_at,
        "born_host": message.born_host,
        "sys_flag": message.sys_flag,
        "reconsume_times": message.reconsume_times,
        "properties": message.properties,
    }


def rows_of(batch):
    batch.validate(full=True)
    return batch.to_pylist(maps_as_pydicts="strict")


answers = st.lists(
    st.tuples(
        st.lists(records(), max_size=4).map(b"".join), st.sampled_from(["broker-a", "broker-b"])
    ),
    max_size=3,
)


@pytest.mark.rule("W4.1g")
@settings(max_examples=150)
@given(answers, st.lists(st.sampled_from(COLUMNS), unique=True))
def test_columns_agree_with_the_views(buffers, columns):
    expected = [
        expected_row(message)
        for data, broker in buffers
        for message in decode_records(data, broker)
    ]
    batch = decode_columns(buffers, columns)
    assert batch.schema.equals(column_schema(columns))
    if columns:
        assert rows_of(batch) == [{name: row[name] for name in columns} for row in expected]
    assert rows_of(decode_columns(buffers)) == expected


@given(answers, st.data())
def test_rows_outside_the_range_of_their_buffer_are_dropped(buffers, data):
    bound = st.integers(0, 1 << 40)
    ranges = [data.draw(st.tuples(bound, bound)) for _ in buffers]
    expected = [
        expected_row(message)
        for (content, broker), (offset_from, offset_until) in zip(buffers, ranges, strict=True)
        for message in decode_records(content, broker)
        if offset_from <= message.queue_offset < offset_until
    ]
    assert rows_of(decode_columns(buffers, ranges=ranges)) == expected


@given(st.lists(records(), min_size=1, max_size=3).map(b"".join), st.data())
def test_damage_anywhere_gives_columns_or_a_protocol_error(whole, data):
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(damaged) - 1))
        damaged[place] = data.draw(st.integers(0, 255))
    del damaged[data.draw(st.integers(1, len(damaged))) :]
    try:
        batch = decode_columns([(damaged, "b")])
    except ProtocolError:
        return
    batch.validate(full=True)


many_answers = st.lists(st.lists(st.integers(0, 9), max_size=5), min_size=8, max_size=30).map(
    lambda lengths: [
        b"".join(encode_record(topic="t", body=b"b" * size) for size in answer)
        for answer in lengths
    ]
)


def bodies_or_error(buffers):
    try:
        return decode_columns([(data, "b") for data in buffers], ["body"]).to_pydict()
    except ProtocolError as error:
        return str(error)


@given(many_answers, st.data())
def test_hopping_in_many_answers_at_once_finds_what_a_walk_through_each_finds(buffers, data):
    if data.draw(st.booleans()) and any(buffers):
        number = data.draw(st.sampled_from([n for n, one in enumerate(buffers) if one]))
        damaged = bytearray(buffers[number])
        # In a length word, of the first record or of the last.
        place = data.draw(st.sampled_from([0, max(0, len(damaged) - 93)])) + data.draw(
            st.integers(0, 3)
        )
        damaged[place] = data.draw(st.integers(0, 255))
        buffers[number] = bytes(damaged)
    together = bodies_or_error(buffers)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(record_places, "_TOGETHER_MIN", 1 << 31)
        assert bodies_or_error(buffers) == together


def test_types_are_those_that_spark_expects():
    schema = column_schema()
    assert schema.names == list(COLUMNS)
    assert schema.field("body").type == pa.binary()
    assert schema.field("born_timestamp").type == pa.timestamp("us", tz="UTC")
    assert schema.field("properties").type == pa.map_(pa.string(), pa.string())
    assert schema.field("queue_id").type == pa.int32()
    assert schema.field("queue_offset").type == pa.int64()
    assert all(field.nullable for field in schema)
    assert decode_columns([]).schema.equals(schema)
    assert decode_columns([(b"", "b")]).num_rows == 0


def test_a_batch_holds_the_rows_of_every_pull_answer_in_order():
    one = encode_record(topic="t", body=b"1", queue_offset=1)
    two = encode_record(topic="t", body=b"2", queue_offset=2)
    batch = decode_columns(
        [(memoryview(one + two), "a"), (b"", "x"), (bytearray(one), "b")], ["broker", "body"]
    )
    assert batch.to_pydict() == {"broker": ["a", "a", "b"], "body": [b"1", b"2", b"1"]}


def test_bytes_that_are_no_text_are_replaced_as_the_views_do():
    data = encode_record(topic="t", body=b"", properties=b"TAGS\x01\xff\x02\xfe\x01v\x02ok\x01v")
    [row] = rows_of(decode_columns([(data, "b")], ["tags", "properties"]))
    assert row == {"tags": "\ufffd", "properties": {"TAGS": "\ufffd", "\ufffd": "v", "ok": "v"}}


def test_times_that_no_timestamp_can_hold_become_the_last_that_it_can():
    data = encode_record(topic="t", body=b"", born_timestamp_ms=(1 << 63) - 1)
    column = decode_columns([(data, "b")], ["born_timestamp"]).column(0)
    assert column.cast(pa.int64()).to_pylist() == [((1 << 63) - 1) // 1000 * 1000]


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (4, b"\x00", "no magic number"),
        (0, b"\x00\x00\x00\x10", "cut off or corrupt"),
        (0, b"\x7f", "cut off or corrupt"),
        (84, b"\xff", "its body has"),
        (93, b"\x80", "its topic has 128"),
        (95, b"\x70", "its properties do not fit"),
    ],
)
def test_a_corrupt_record_is_refused_with_answer_and_place(place, value, words):
    good = encode_record(topic="t", body=b"hello", properties=b"k\x01v")
    bad = bytearray(good + good)
    at = len(good) + place
    bad[at : at + len(value)] = value
    with pytest.raises(ProtocolError, match=words) as caught:
        decode_columns([(good, "a"), (bad, "b")])
    assert f"byte {len(good)} of pull answer 1" in str(caught.value)


def test_a_record_too_short_for_the_hosts_it_claims_is_refused():
    data = bytearray(encode_record(topic="", body=b""))
    data[39] = 0x30
    with pytest.raises(ProtocolError, match="too short for its IPv6"):
        decode_columns([(data, "b")], ["body"])


def test_an_answer_that_ends_inside_a_record_is_refused():
    data = encode_record(topic="t", body=b"hello")
    with pytest.raises(ProtocolError, match="pull answer 0 is cut off"):
        decode_columns([(data + data[:20], "a"), (data, "a")], ["body"])


def test_unknown_columns_and_missing_ranges_are_refused():
    with pytest.raises(ConfigurationError, match="unknown column 'nope': there are topic"):
        decode_columns([], ["body", "nope"])
    with pytest.raises(ConfigurationError, match="unknown column"):
        column_schema(["nope"])
    with pytest.raises(ConfigurationError, match="1 buffers need as many ranges"):
        decode_columns([(b"", "b")], ranges=[])


def test_without_the_extra_the_error_says_what_to_install(monkeypatch):
    original = builtins.__import__

    def without_columnar(name, globals_=None, locals_=None, fromlist=(), level=0):
        if "columnar" in (fromlist or ()):
            raise ImportError(name)
        return original(name, globals_, locals_, fromlist, level)

    monkeypatch.setattr(builtins, "__import__", without_columnar)
    with pytest.raises(ConfigurationError, match=r'pip install "gimbalmq\[spark\]"'):
        decode_columns([])
    with pytest.raises(ConfigurationError, match=r'pip install "gimbalmq\[spark\]"'):
        column_schema()


def test_bodies_that_exceed_one_arrow_column_are_refused(monkeypatch):
    from gimbalmq.wire import columnar

    for module in (columnar, record_places):
        monkeypatch.setattr(module, "ARROW_BYTES_MAX", 200)
    data = encode_record(topic="t", body=b"hello")
    assert decode_columns([(data, "b")], ["body"]).num_rows == 1
    with pytest.raises(ConfigurationError, match="2 GiB"):
        decode_columns([(data * 3, "b")], ["body"])
    packed = encode_record(
        topic="t", body=compress(bytes(500), CompressionType.ZLIB), sys_flag=0x301
    )
    with pytest.raises(ConfigurationError, match="when decompressed"):
        decode_columns([(packed, "b")], ["body"])

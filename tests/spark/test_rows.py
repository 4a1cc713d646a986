from __future__ import annotations

import datetime as dt
import itertools

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gimbalmq.errors import ConfigurationError
from gimbalmq.model.java import hash_code
from gimbalmq.spark.ids import ROW_ID_PROPERTY
from gimbalmq.spark.rows import RowEncoder, slices
from gimbalmq.spark.rows_text import as_binary, java_hashes
from gimbalmq.spark.write_columns import layout_of
from gimbalmq.wire.batch import decode_batch
from gimbalmq.wire.properties import decode_properties
from spark.test_write_columns import fields

KINDS = {
    "body": ("string", pa.string()),
    "topic": ("string", pa.string()),
    "tags": ("string", pa.string()),
    "keys": ("array<string>", pa.list_(pa.string())),
    "sharding_key": ("string", pa.string()),
    "properties": ("map<string,string>", pa.map_(pa.string(), pa.string())),
    "delay_level": ("int", pa.int32()),
    "deliver_at": ("timestamp", pa.timestamp("us", tz="UTC")),
    "queue_offset": ("bigint", pa.int64()),
    "id": ("bigint", pa.int64()),
}


def encode(columns, *, topic="t", id_column=None, by_key=False):
    layout = layout_of(
        fields(*(f"{name} {KINDS[name][0]}" for name in columns)), id_column=id_column, topic=topic
    )
    numbers = itertools.count()
    encoder = RowEncoder(
        layout,
        topic=topic,
        by_key=by_key,
        new_ids=lambda count: [f"ID{next(numbers)}" for _ in range(count)],
        where="partition 3",
    )
    batch = pa.record_batch(
        [pa.array(values, KINDS[name][1]) for name, values in columns.items()], names=list(columns)
    )
    return encoder.encode(batch)


def messages(rows):
    """Body and properties of each row, as a broker would take them out of a batch."""
    entries = decode_batch(b"".join(rows.entries.to_pylist()))
    return [(entry.body, decode_properties(entry.properties)) for entry in entries]


def test_every_column_finds_its_place():
    rows = encode(
        {
            "body": ["one", "två"],
            "tags": ["paid", None],
            "keys": [["a", "b"], []],
            "sharding_key": ["k", None],
            "properties": [[("shop", "7"), ("area", "n")], None],
        }
    )
    (first, first_properties), (second, second_properties) = messages(rows)
    assert (first, second) == (b"one", "två".encode())
    row_id = first_properties.pop(ROW_ID_PROPERTY)
    assert len(row_id) == 32
    assert first_properties == {
        "UNIQ_KEY": "ID0",
        "WAIT": "true",
        "TAGS": "paid",
        "KEYS": "a b",
        "__SHARDINGKEY": "k",
        "shop": "7",
        "area": "n",
    }
    assert set(second_properties) == {"UNIQ_KEY", "WAIT", ROW_ID_PROPERTY}


def test_reserved_properties_and_an_old_row_id_are_not_passed_on():
    old = [("TAGS", "x"), ("UNIQ_KEY", "old"), (ROW_ID_PROPERTY, "old"), ("mine", "1"), ("e", "")]
    [(_, properties)] = messages(encode({"body": ["x"], "properties": [old]}))
    assert properties["UNIQ_KEY"] == "ID0"
    assert properties[ROW_ID_PROPERTY] != "old"
    assert {"TAGS", "e"}.isdisjoint(properties)
    assert properties["mine"] == "1"


def test_the_id_is_the_column_when_there_is_one():
    rows = encode({"body": ["x", "x"], "id": [7, 8]}, id_column="id")
    assert [p[ROW_ID_PROPERTY] for _, p in messages(rows)] == ["7", "8"]


def row_ids(columns):
    return [p[ROW_ID_PROPERTY] for _, p in messages(encode(columns))]


def test_the_id_comes_from_the_content_and_not_from_the_place():
    there = row_ids({"body": ["a", "b", "c"], "tags": ["x", None, "y"]})
    back = row_ids({"tags": ["y", None, "x"], "body": ["c", "b", "a"]})
    assert there == back[::-1]
    assert len(set(there)) == 3


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"body": ["ab"], "tags": ["c"]}, {"body": ["a"], "tags": ["bc"]}),
        ({"body": ["a"], "tags": [None]}, {"body": ["a"], "tags": [""]}),
        ({"body": ["a"], "tags": ["x"]}, {"body": ["a"], "sharding_key": ["x"]}),
        ({"body": ["a"], "queue_offset": [1]}, {"body": ["a"], "queue_offset": [2]}),
        (
            {"body": ["a"], "properties": [[("a", "1")]]},
            {"body": ["a"], "properties": [[("a", "2")]]},
        ),
    ],
)
def test_rows_that_differ_have_different_ids(one, other):
    assert row_ids(one) != row_ids(other)


def test_the_order_of_a_map_does_not_matter_for_the_id():
    assert row_ids({"body": ["a"], "properties": [[("x", "1"), ("y", "2")]]}) == row_ids(
        {"body": ["a"], "properties": [[("y", "2"), ("x", "1")]]}
    )


def test_delays_and_large_bodies_travel_by_themselves():
    moment = dt.datetime(2030, 1, 1, 0, 0, 0, 1999, dt.UTC)
    rows = encode(
        {
            "body": ["a", "b", "c" * 4096, "d"],
            "delay_level": [3, 0, None, None],
            "deliver_at": [None, None, None, moment],
        }
    )
    assert rows.single.tolist() == [True, False, True, True]
    found = [properties for _, properties in messages(rows)]
    assert found[0]["DELAY"] == "3"
    assert found[3]["TIMER_DELIVER_MS"] == str(int(moment.timestamp() * 1000))
    assert {"DELAY", "TIMER_DELIVER_MS"}.isdisjoint(found[1])


def test_topics_come_from_the_column_unless_the_option_says_one():
    columns = {"body": ["a", "b", "c"], "topic": ["x", "y", "x"]}
    rows = encode(columns, topic=None)
    assert (rows.topics, rows.topic_of.tolist()) == (("x", "y"), [0, 1, 0])
    assert encode(columns, topic="z").topics == ("z",)


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"body": ["a", None]}, "column 'body': it is null"),
        ({"body": ["a", ""]}, "column 'body': it is empty"),
        ({"body": ["a", "x" * (4 << 20) + "x"]}, "column 'body': it has more than 4194304 bytes"),
        ({"body": ["a", "b"], "tags": ["x", "a\x01b"]}, "column 'tags': it contains U+0001"),
        ({"body": ["a", "b"], "keys": [["x"], ["a b"]]}, "column 'keys': a key is null, empty or"),
        ({"body": ["a", "b"], "keys": [["x"], [None]]}, "column 'keys': a key is null, empty or"),
        (
            {"body": ["a", "b"], "properties": [[("n", "v")], [("n", "v\x02")]]},
            "column 'properties': a name or value contains",
        ),
        (
            {"body": ["a", "b"], "properties": [None, [("n", "v" * 40_000)]]},
            "column 'properties': keys, tags and properties take more",
        ),
        ({"body": ["a", "b"], "delay_level": [1, 19]}, "column 'delay_level': levels are 1 to 18"),
        (
            {
                "body": ["a", "b"],
                "delay_level": [1, 1],
                "deliver_at": [None, dt.datetime(2030, 1, 1, tzinfo=dt.UTC)],
            },
            "column 'deliver_at': delay_level is set as well",
        ),
    ],
)
def test_a_row_that_cannot_be_a_message_is_named(columns, why):
    with pytest.raises(ConfigurationError) as caught:
        encode(columns)
    assert str(caught.value).startswith(f"row 1 of partition 3 cannot be written: {why}")


@pytest.mark.parametrize(
    ("name", "why"), [(None, "it is null"), ("a b", "'a b'"), ("%RETRY%g", "retry topic")]
)
def test_a_row_with_a_bad_topic_is_named(name, why):
    with pytest.raises(ConfigurationError, match=r"row 1 of partition 3.*column 'topic'") as caught:
        encode({"body": ["a", "b"], "topic": ["fine", name]}, topic=None)
    assert why in str(caught.value)


def test_a_row_without_its_id_is_named():
    with pytest.raises(ConfigurationError, match=r"row 1 .* column 'id': it is null or empty"):
        encode({"body": ["a", "b"], "id": [1, None]}, id_column="id")


@given(st.lists(st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=40)))
def test_hashes_are_javas(texts):
    hashes, there = java_hashes(as_binary(pa.array(texts, pa.string())))
    assert hashes.tolist() == [hash_code(text or "") for text in texts]
    assert there.tolist() == [bool(text) for text in texts]


def test_hashes_of_a_slice_are_those_of_its_texts():
    texts = pa.array(["order-1", "hello", "order-2"]).slice(1)
    assert java_hashes(as_binary(texts))[0].tolist() == [hash_code("hello"), hash_code("order-2")]


def test_large_record_batches_are_taken_in_pieces():
    batch = pa.record_batch({"body": [b"x" * (1 << 20)] * 20})
    pieces = list(slices(batch))
    assert [piece.num_rows for piece in pieces] == [3] * 6 + [2]
    assert pa.Table.from_batches(pieces).num_rows == 20
    many = pa.record_batch({"body": [b""] * 100_000})
    assert max(piece.num_rows for piece in slices(many)) == 4096


def test_rows_of_a_sliced_batch_are_its_own():
    layout = layout_of(fields("body string", "properties map<string,string>"), topic="t")
    encoder = RowEncoder(
        layout, topic="t", by_key=False, new_ids=lambda count: ["ID"] * count, where="x"
    )
    whole = pa.record_batch(
        [
            pa.array(["a", "b", "c"]),
            pa.array([[("n", "1")], [("n", "2"), ("m", "3")], None], KINDS["properties"][1]),
        ],
        names=["body", "properties"],
    )
    (body, properties), (last, _) = messages(encoder.encode(whole.slice(1)))
    assert (body, last) == (b"b", b"c")
    assert (properties["n"], properties["m"]) == ("2", "3")


def test_keys_that_cannot_be_null_are_keys():
    layout = layout_of(fields("body string", "keys array<string>"), topic="t")
    encoder = RowEncoder(
        layout, topic="t", by_key=False, new_ids=lambda count: ["ID"] * count, where="x"
    )
    kind = pa.list_(pa.field("element", pa.string(), nullable=False))
    batch = pa.record_batch([pa.array(["a"]), pa.array([["k", "l"]], kind)], names=["body", "keys"])
    assert messages(encoder.encode(batch))[0][1]["KEYS"] == "k l"

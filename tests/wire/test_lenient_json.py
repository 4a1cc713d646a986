from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gimbalmq.errors import ProtocolError
from gimbalmq.model.queue import MessageQueue
from gimbalmq.wire import lenient_json
from gimbalmq.wire.lenient_json import DEPTH_MAX, object_key, read_json

QUEUE = MessageQueue("T", "b", 1)

json_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
documents = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | json_text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(json_text, inner, max_size=4),
    max_leaves=12,
)


def tolerant(data: bytes):
    return lenient_json._Reader(data, "body").document()


@given(documents)
def test_standard_json_is_read_alike_by_both_readers(document):
    data = json.dumps(document).encode()
    assert read_json(data) == document
    assert tolerant(data) == document
    assert tolerant(json.dumps(document, indent=2, ensure_ascii=False).encode()) == document


@given(st.binary(max_size=60) | st.text('{}[]:,"$ref\\1-.e nul', max_size=40).map(str.encode))
def test_any_bytes_are_a_document_or_a_protocol_error(data):
    try:
        read_json(data)
    except ProtocolError:
        return


@pytest.mark.rule("W3.0a", "W3.0b", "W7.8", "W8a")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"brokerAddrs":{0:"h:1",1:"h:2"}}', {"brokerAddrs": {0: "h:1", 1: "h:2"}}),
        ('{-1:{2:3},"a":4}', {-1: {2: 3}, "a": 4}),
        (
            '{"offsetTable":{{"brokerName":"b","queueId":1,"topic":"T"}:9}}',
            {"offsetTable": {QUEUE: 9}},
        ),
        (
            '{ { "topic" : "T" , "queueId" : "1" , "brokerName" : "b" } : [ 1.5 , true, null ] }',
            {QUEUE: [1.5, True, None]},
        ),
        ('{{"x":[1],"y":{"z":2}}:3}', {(("x", (1,)), ("y", (("z", 2),))): 3}),
        ('{0:"a\\u4e2d\\n\\"\t"}', {0: 'a中\n"\t'}),
        ("{0:1e3,1:-2.5E-1}", {0: 1000.0, 1: -0.25}),
    ],
)
def test_what_fastjson_writes_is_read(text, value):
    assert read_json(text.encode()) == value


def test_an_object_key_is_a_queue_only_if_it_names_one():
    assert object_key({"topic": "T", "brokerName": "b", "queueId": 1}) == QUEUE
    assert object_key({"topic": "T", "brokerName": "b", "queueId": "x"}) == (
        ("topic", "T"),
        ("brokerName", "b"),
        ("queueId", "x"),
    )
    assert object_key({"topic": "T"}) == (("topic", "T"),)


@pytest.mark.rule("W3.0c")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a":{"b":[{"c":1}]},"d":{"$ref":"$.a.b[0]"}}', {"a": {"b": [{"c": 1}]}, "d": {"c": 1}}),
        ('{"a":{0:"x"},"b":{"$ref":"$.a"}}', {"a": {0: "x"}, "b": {0: "x"}}),
        (
            '{"t":{"b-1":{"x":1}},"u":{"$ref":"$.t.b\\\\-1"}}',
            {"t": {"b-1": {"x": 1}}, "u": {"x": 1}},
        ),
        (
            '{"t":{"b.1":{"x":1}},"u":{"$ref":"$.t[\'b.1\']"}}',
            {"t": {"b.1": {"x": 1}}, "u": {"x": 1}},
        ),
        ('{"a":{0:{"x":1}},"b":{"$ref":"$.a.0"}}', {"a": {0: {"x": 1}}, "b": {"x": 1}}),
        (
            '{"y":{"k":1},"x":{"y":{"$ref":"$.y"}},"z":{"$ref":"$.x"}}',
            {"y": {"k": 1}, "x": {"y": {"k": 1}}, "z": {"y": {"k": 1}}},
        ),
    ],
)
def test_a_reference_is_replaced_by_what_it_names(text, value):
    assert read_json(text.encode()) == value


@pytest.mark.parametrize(
    "text",
    [
        '{"a":{"$ref":"$.nowhere"}}',
        '{"a":{"$ref":"$"}}',
        '{"a":{"$ref":".."}}',
        '{"a":{"$ref":"$.a"}}',
        '{"a":{"$ref":"$.b"},"b":{"$ref":"$.a"}}',
        '{"a":{"x":{"$ref":"$.b"}},"b":{"y":{"$ref":"$.a"}}}',
        '{"a":{"$ref":"$!!"},"l":[1]}',
        '{"a":{"$ref":"$.l[5]"},"l":[1]}',
        '{"a":{"$ref":"$.l.x"},"l":[1]}',
    ],
)
def test_a_reference_that_leads_nowhere_or_to_itself_stays(text):
    assert read_json(text.encode()) == json.loads(text)


def test_too_many_references_are_refused():
    data = json.dumps({"x": 1, "l": [{"$ref": "$.x"}] * 1001}).encode()
    with pytest.raises(ProtocolError, match="references"):
        read_json(data)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "a value is missing"),
        (b"{0:1", "',' is missing"),
        (b"{0 1}", "':' is missing"),
        (b"{0:1}x", "more text after the end"),
        (b"{true:1}", "a key is neither"),
        (b"{[1]:1}", "a key is neither"),
        (b"{1.5:1}", "a key is neither"),
        (b'{0:"abc', "Unterminated string"),
        (b'{0:"\\x"}', "escape"),
        (b"{0:[1,]}", "a value is missing"),
        (b"{0:\xff}", "no UTF-8"),
        (b"{0:" + b"9" * 5000 + b"}", "a number is too long"),
    ],
)
def test_garbage_is_refused_with_its_place(data, words):
    with pytest.raises(ProtocolError, match=words):
        read_json(data, "route")


def test_the_error_names_the_body_and_the_place():
    with pytest.raises(ProtocolError, match=r"route of 'x' is no JSON .* at character 3, near"):
        read_json(b"{0 1}", "route of 'x'")


@pytest.mark.rule("W3.0f")
@pytest.mark.parametrize("opening", [b"[", b'{"a":', b"{0:", b"{{"])
def test_depth_is_bounded(opening):
    with pytest.raises(ProtocolError):
        read_json(opening * 100_000)
    with pytest.raises(ProtocolError, match=f"deeper than {DEPTH_MAX}"):
        tolerant(opening * (DEPTH_MAX + 1))


@pytest.mark.rule("W3.0f")
def test_size_is_bounded(monkeypatch):
    monkeypatch.setattr(lenient_json, "DOCUMENT_BYTES_MAX", 10)
    assert read_json(b'{"a":1234}') == {"a": 1234}
    with pytest.raises(ProtocolError, match="11 bytes"):
        read_json(b'{"a":12345}')

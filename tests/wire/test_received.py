from __future__ import annotations

import pickle

import pytest

from gimbalmq.errors import ProtocolError
from gimbalmq.wire.record import decode_records, encode_record
from wire.spec_records import COMPRESSED, RECORD


@pytest.mark.parametrize(
    ("place", "value", "name", "words"),
    [
        (93, b"\x80", "topic", "its topic has 128 bytes"),
        (93, b"\x7f", "topic", "its topic has 127 bytes"),
        (103, b"\x7f\xff", "properties", "its properties do not fit"),
        (103, b"\xff\xff", "tags", "its properties do not fit"),
    ],
)
def test_a_corrupt_topic_or_properties_are_refused_when_asked_for(place, value, name, words):
    data = bytearray.fromhex(RECORD)
    data[place : place + len(value)] = value
    [message] = decode_records(data, "b")
    assert message.body == b"hello"
    with pytest.raises(ProtocolError, match=words):
        getattr(message, name)


@pytest.mark.rule("W4.2", "W5.6")
def test_a_retried_message_shows_the_topic_it_was_sent_to():
    data = encode_record(topic="%RETRY%g", body=b"", properties=b"RETRY_TOPIC\x01orders\x02")
    data += encode_record(topic="%RETRY%g", body=b"")
    data += encode_record(topic="t", body=b"", properties=b"RETRY_TOPIC\x01orders\x02")
    retried, unknown, plain = decode_records(data, "b")
    assert retried.topic == "orders"
    assert retried.record_topic == retried.queue.topic == "%RETRY%g"
    assert unknown.topic == "%RETRY%g"
    assert plain.topic == "t"


def test_properties_are_decoded_once_and_then_serve_single_lookups():
    [message] = decode_records(bytes.fromhex(RECORD), "b")
    assert message.property_value("WAIT") == "true"
    assert message.property_value("NONE") is None
    assert message.properties is message.properties
    message.properties["LOCAL"] = "set"
    assert message.property_value("LOCAL") == "set"
    assert message.tags == "TagA"


def test_a_time_stamp_beyond_the_calendar_is_refused_only_when_asked_for():
    data = encode_record(topic="t", body=b"b", born_timestamp_ms=1 << 62)
    [message] = decode_records(data, "b")
    assert message.born_timestamp_ms == 1 << 62
    with pytest.raises(ProtocolError, match="time stamp"):
        _ = message.born_at


@pytest.mark.parametrize(("record", "body"), [(RECORD, b"hello"), (COMPRESSED, b"x" * 5000)])
def test_a_message_can_be_shown_and_pickled(record, body):
    [message] = decode_records(bytes.fromhex(record), "broker-a")
    assert "TopicTest/broker-a/" in repr(message)
    assert pickle.loads(pickle.dumps(message)).body == body


def test_messages_are_equal_only_to_themselves():
    first, second = decode_records(bytes.fromhex(RECORD * 2), "b")
    assert first != second
    assert len({first, second}) == 2


def test_failures_in_this_process_count_on_top_of_those_stored():
    [message] = decode_records(encode_record(topic="t", body=b"", reconsume_times=2), "b")
    assert message.reconsume_times == 2
    message.attempts += 1
    assert message.reconsume_times == 3

from datetime import UTC, datetime

import pytest

from gimbalmq.errors import ConfigurationError
from gimbalmq.model.message import RESERVED_PROPERTIES, Message


def test_one_key_may_be_given_as_text():
    assert Message("t", b"x", keys="42").keys == ("42",)
    assert Message("t", b"x", keys=["a", "b"]).keys == ("a", "b")


def test_a_body_is_copied_into_bytes():
    body = bytearray(b"abc")
    message = Message("t", body)
    body[0] = 0
    assert message.body == b"abc"


@pytest.mark.parametrize("body", ["text", None, 7])
def test_a_body_that_is_no_bytes_is_refused_with_a_hint(body):
    with pytest.raises(ConfigurationError, match="encode"):
        Message("t", body)


@pytest.mark.rule("W4.5a")
@pytest.mark.parametrize("name", sorted(RESERVED_PROPERTIES))
def test_reserved_property_names_are_refused(name):
    with pytest.raises(ConfigurationError, match="is reserved by RocketMQ"):
        Message("t", b"x", properties={name: "1"})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"keys": 42}, "keys of a message for topic 't' is 42: give text, or a list of texts"),
        ({"keys": [42]}, "42 is int: keys, and names and values of properties, are text"),
        ({"tags": ["paid"]}, r"tags of a message for topic 't' is \['paid'\]: give text"),
        ({"tags": 7}, "tags of a message for topic 't' is 7: give text"),
        ({"properties": {"shop": 7}}, "7 is int: keys, and names and values of properties"),
        ({"properties": {7: "shop"}}, "7 is int: keys, and names and values of properties"),
        (
            {"properties": ["shop"]},
            r"properties of a message for topic 't' is \['shop'\]: give a d",
        ),
        (
            {"deliver_at": 1700000000},
            "deliver_at of a message for topic 't' is 17.*: give an aware",
        ),
    ],
)
def test_what_is_no_text_is_named_with_what_to_give(options, words):
    with pytest.raises(ConfigurationError, match=f"^{words}"):
        Message("t", b"x", **options)


@pytest.mark.rule("W4.4c")
@pytest.mark.parametrize("bad", ["a\x01b", "a\x02b"])
@pytest.mark.parametrize("place", ["name", "value", "keys", "tags", "sharding_key"])
def test_separators_of_properties_are_refused_everywhere(bad, place):
    options = {
        "name": {"properties": {bad: "1"}},
        "value": {"properties": {"p": bad}},
        "keys": {"keys": [bad]},
        "tags": {"tags": bad},
        "sharding_key": {"sharding_key": bad},
    }
    with pytest.raises(ConfigurationError, match="separates properties"):
        Message("t", b"x", **options[place])


@pytest.mark.parametrize("properties", [{"": "1"}, {"p": ""}])
def test_empty_properties_are_refused_because_brokers_drop_them(properties):
    with pytest.raises(ConfigurationError, match="leave it out"):
        Message("t", b"x", properties=properties)


@pytest.mark.parametrize("key", ["", "two words", "tab\there"])
def test_a_key_is_one_word(key):
    with pytest.raises(ConfigurationError, match="white space"):
        Message("t", b"x", keys=[key])


def test_times_need_a_zone():
    Message("t", b"x", deliver_at=datetime(2030, 1, 1, tzinfo=UTC))
    with pytest.raises(ConfigurationError, match="aware datetime"):
        Message("t", b"x", deliver_at=datetime(2030, 1, 1))  # noqa: DTZ001 - the point of the test


@pytest.mark.parametrize("key", ["order 7", "7", 7, 0, -7, 1 << 40])
def test_a_sharding_key_is_text_or_a_whole_number(key):
    assert Message("t", b"x", sharding_key=key).sharding_key == key


@pytest.mark.parametrize("key", ["", b"7", 7.0, True, ("a",)])
def test_what_is_no_sharding_key_is_refused(key):
    with pytest.raises(ConfigurationError, match="sharding_key of a message for topic 't' is"):
        Message("t", b"x", sharding_key=key)


@pytest.mark.parametrize("level", [-1, -5, "3", 2.0, True])
def test_what_is_no_delay_level_is_refused(level):
    with pytest.raises(ConfigurationError, match="delay_level of a message for topic 't' is"):
        Message("t", b"x", delay_level=level)


def test_a_message_has_a_delay_level_or_a_time_not_both():
    tomorrow = datetime(2030, 1, 1, tzinfo=UTC)
    assert Message("t", b"x", delay_level=0, deliver_at=tomorrow).deliver_at == tomorrow
    with pytest.raises(ConfigurationError, match="delay_level and deliver_at: give one of them"):
        Message("t", b"x", delay_level=3, deliver_at=tomorrow)


def test_the_text_form_hides_the_body():
    assert "secret" not in repr(Message("t", b"secret"))

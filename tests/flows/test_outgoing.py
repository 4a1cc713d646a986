import zlib
from datetime import UTC, datetime

import pytest

from gimbalmq.errors import ConfigurationError
from gimbalmq.flows.outgoing import SendSettings, prepare
from gimbalmq.model.message import Message
from gimbalmq.wire.codes import CompressionType, SysFlag
from gimbalmq.wire.names import SEND_FORBIDDEN_TOPICS
from gimbalmq.wire.properties import parse_properties

SETTINGS = SendSettings()


def properties_of(message):
    return parse_properties(prepare(message, "ID", SETTINGS).properties)


@pytest.mark.rule("W4.5b")
@pytest.mark.parametrize(
    ("delay", "as_property"),
    [
        ({"delay_level": 3}, {"DELAY": "3"}),
        (
            {"deliver_at": datetime(2030, 1, 1, tzinfo=UTC)},
            {"TIMER_DELIVER_MS": "1893456000000"},
        ),
    ],
)
def test_every_option_of_a_message_travels_in_its_property(delay, as_property):
    message = Message(
        "orders",
        b"x",
        tags="paid",
        keys=["k1", "k2"],
        properties={"shop": "7"},
        sharding_key=13,
        **delay,
    )
    assert properties_of(message) == {
        "UNIQ_KEY": "ID",
        "WAIT": "true",
        "TAGS": "paid",
        "KEYS": "k1 k2",
        "__SHARDINGKEY": "13",
        "shop": "7",
        **as_property,
    }


def test_a_plain_message_has_only_its_id_and_the_wait_flag():
    assert properties_of(Message("orders", b"x")) == {"UNIQ_KEY": "ID", "WAIT": "true"}


@pytest.mark.rule("B7.8d")
@pytest.mark.parametrize(("size", "compressed"), [(4095, False), (4096, True)])
def test_a_large_body_is_compressed(size, compressed):
    body = b"x" * size
    outgoing = prepare(Message("orders", body), "ID", SETTINGS)
    if compressed:
        assert outgoing.sys_flag == SysFlag.COMPRESSED | CompressionType.ZLIB
        assert zlib.decompress(outgoing.body) == body
        assert outgoing.body == zlib.compress(body, 5)
    else:
        assert (outgoing.body, outgoing.sys_flag) == (body, 0)


@pytest.mark.rule("B7.8c", "W8a")
@pytest.mark.parametrize(
    ("body", "complaint"), [(b"", "is empty"), (b"x" * 101, "has 101 bytes; the limit is 100")]
)
def test_an_empty_or_too_large_body_is_refused_before_anything_is_sent(body, complaint):
    with pytest.raises(ConfigurationError, match=complaint):
        prepare(Message("orders", body), "ID", SendSettings(max_message_size=100))


def test_the_limit_counts_the_body_before_compression():
    prepare(Message("orders", b"x" * 100), "ID", SendSettings(max_message_size=100))


@pytest.mark.rule("B7.8b")
@pytest.mark.parametrize("topic", sorted(SEND_FORBIDDEN_TOPICS))
def test_topics_of_the_broker_are_refused(topic):
    with pytest.raises(ConfigurationError, match="belongs to the broker"):
        prepare(Message(topic, b"x"), "ID", SETTINGS)


@pytest.mark.rule("B7.8a")
def test_a_topic_name_that_brokers_refuse_is_refused_here():
    with pytest.raises(ConfigurationError, match="two words"):
        prepare(Message("two words", b"x"), "ID", SETTINGS)


def test_properties_that_do_not_fit_are_refused_by_their_size_in_bytes():
    fits = {"p": "x" * 32_700}
    prepare(Message("orders", b"x", properties=fits), "ID", SETTINGS)
    with pytest.raises(ConfigurationError, match="put large values into the body"):
        prepare(Message("orders", b"x", properties={"p": "ü" * 32_700}), "ID", SETTINGS)

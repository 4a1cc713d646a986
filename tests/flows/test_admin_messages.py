import pytest

from flows.script import Script, ok, refusal
from flows.test_admin import route, servers
from gimbalmq.errors import BrokerError, ConfigurationError, OffsetError, TopicNotFoundError
from gimbalmq.flows.admin_messages import find_by_id, find_by_key
from gimbalmq.model.route import BrokerSet
from gimbalmq.wire.bodies import ClusterInfo, encode_cluster, encode_route, encode_topic_list
from gimbalmq.wire.codes import RequestCode as R
from gimbalmq.wire.ids import format_offset_id
from gimbalmq.wire.record import encode_record

PLACE = format_offset_id("127.0.0.1", 10911, 1024)
UNIQUE = "0A000007125B4E1A2B0047B760000000"
ROUTE = ok(encode_route(route()))
NONE = refusal(22)
CLUSTER = ok(
    encode_cluster(
        ClusterInfo({"broker-a": BrokerSet("broker-a", "main", {0: "127.0.0.1:10911"})}, {})
    )
)


def stored(body, at_ms=0, **properties):
    text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
    return encode_record(
        topic="orders", body=body, properties=text.encode(), store_timestamp_ms=at_ms
    )


def by_id(*answers, which=UNIQUE, topic="orders"):
    script = Script(CLUSTER, *answers)
    return script.run(find_by_id(servers(), which, 3.0, topic=topic)), script


@pytest.mark.rule("W2.5d")
def test_an_id_with_the_address_of_a_broker_is_looked_up_there():
    message, script = by_id(ok(stored(b"x")), which=PLACE)
    assert (message.body, message.broker) == (b"x", "broker-a")
    asked = script.calls[1]
    assert (asked.address, asked.command.code) == ("127.0.0.1:10911", R.VIEW_MESSAGE_BY_ID)
    assert asked.command.fields["offset"] == "1024"


@pytest.mark.parametrize("answer", [refusal(1, "find message by the offset failed"), ok()])
def test_a_place_without_a_message_is_told(answer):
    with pytest.raises(OffsetError, match="'broker-a' has no message 7F0000010"):
        by_id(answer, which=PLACE)


def test_other_refusals_stay_what_they_are():
    with pytest.raises(BrokerError, match="VIEW_MESSAGE_BY_ID"):
        by_id(refusal(16), which=PLACE)
    with pytest.raises(BrokerError, match="QUERY_MESSAGE"):
        by_id(ROUTE, refusal(16))


@pytest.mark.rule("W2.5d")
@pytest.mark.parametrize("written", [UNIQUE, UNIQUE.lower()])
def test_any_other_id_is_looked_up_at_every_broker_of_the_topic(written):
    other, wanted = stored(b"other", UNIQ_KEY="F" * 32), stored(b"x", UNIQ_KEY=UNIQUE)
    message, script = by_id(ROUTE, NONE, ok(other + wanted), which=written)
    assert message.body == b"x"
    assert [call.address for call in script.calls[2:]] == ["a:1", "b:1"]
    fields = script.calls[2].command.fields
    assert (fields["key"], fields["_UNIQUE_KEY_QUERY"], fields["topic"]) == (
        UNIQUE,
        "true",
        "orders",
    )


def test_without_a_topic_every_topic_is_asked_and_vanished_ones_are_passed_over():
    topics = ok(encode_topic_list(["gone", "orders", "payments"]))
    found = ok(stored(b"x", UNIQ_KEY=UNIQUE))
    message, script = by_id(topics, CLUSTER, refusal(17), ROUTE, found, NONE, topic=None)
    assert message.body == b"x"
    assert len(script.calls) == 7


def test_an_id_that_nobody_knows_is_told():
    with pytest.raises(OffsetError, match=r"no message with id 0A00.* in topic 'orders'"):
        by_id(ROUTE, NONE, NONE)
    with pytest.raises(OffsetError, match="in the 1 topics of the cluster"):
        by_id(ok(encode_topic_list(["orders"])), CLUSTER, ROUTE, NONE, NONE, topic=None)
    with pytest.raises(TopicNotFoundError):
        by_id(refusal(17))
    with pytest.raises(ConfigurationError, match="'42' is no offset message id"):
        Script().run(find_by_id(servers(), "42", 3.0))


@pytest.mark.rule("W2.5d")
def test_messages_with_a_key_come_oldest_first_and_hash_collisions_are_left_out():
    newer, older = stored(b"newer", 9, KEYS="7 42"), stored(b"older", 3, KEYS="42")
    script = Script(ROUTE, ok(newer + stored(b"collision", 5, KEYS="421")), ok(older))
    found = script.run(find_by_key(servers(), "orders", "42", 3.0))
    assert [message.body for message in found] == [b"older", b"newer"]
    assert script.calls[1].command.fields["_UNIQUE_KEY_QUERY"] == "false"


@pytest.mark.parametrize("key", ["", "two words"])
def test_what_cannot_be_a_key_is_refused(key):
    with pytest.raises(ConfigurationError, match="is no key"):
        Script().run(find_by_key(servers(), "orders", key, 3.0))

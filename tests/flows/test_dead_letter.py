import pytest

from flows.script import Script, ok, refusal
from gimbalmq.errors import TransportError
from gimbalmq.flows.dead_letter import (
    dead_letter_request,
    give_back,
    retry_request,
    revive_request,
)
from gimbalmq.model.queue import MessageQueue
from gimbalmq.wire.command import Command
from gimbalmq.wire.properties import parse_properties
from gimbalmq.wire.record import decode_records, encode_record

RETRY = MessageQueue("%RETRY%billing", "broker-b", 0)
QUEUE = MessageQueue("orders", "broker-a", 0)
WAYS = (("a:1", Command(36)), ("b:1", Command(310)), ("a:1", Command(310)))


@pytest.fixture
def message():
    """As it is delivered after a delay and two retries: DELAY and its old place still there."""
    data = encode_record(
        topic="%RETRY%billing",
        body=b"x",
        reconsume_times=2,
        properties=b"RETRY_TOPIC\x01orders\x02DELAY\x014\x02REAL_TOPIC\x01%RETRY%billing\x02"
        b"REAL_QID\x010\x02KEYS\x01k\x02ORIGIN_MESSAGE_ID\x017F00\x02",
    )
    (message,) = decode_records(data, "broker-a")
    return message


def properties(request):
    return parse_properties(request.fields["i"])


@pytest.mark.rule("W8a")
def test_a_delay_that_is_over_delays_a_dead_letter_no_more(message):
    for request in (
        dead_letter_request("billing", "broker-a", message),
        revive_request("billing", "broker-a", message),
    ):
        assert properties(request).keys().isdisjoint({"DELAY", "REAL_TOPIC", "REAL_QID"})
        assert properties(request)["KEYS"] == "k"


@pytest.mark.rule("B5.3b", "W8a")
def test_a_message_sent_anew_waits_for_the_level_of_its_next_attempt(message):
    request = retry_request(RETRY, message, delay_level=0, max_attempts=16)
    assert (request.fields["b"], request.fields["n"]) == ("%RETRY%billing", "broker-b")
    assert (request.fields["j"], request.fields["l"]) == ("3", "16")
    assert properties(request) == {
        "RETRY_TOPIC": "orders",
        "KEYS": "k",
        "ORIGIN_MESSAGE_ID": "7F00",
        "RECONSUME_TIME": "3",
        "MAX_RECONSUME_TIMES": "16",
        "DELAY": "5",
    }
    chosen = retry_request(RETRY, message, delay_level=9, max_attempts=16)
    assert properties(chosen)["DELAY"] == "9"


def test_the_first_way_that_works_is_the_last_that_is_tried():
    script = Script(refusal(1), ok())
    assert script.run(give_back(QUEUE, WAYS, 5.0)) is None
    assert [(call.address, call.command.code) for call in script.calls] == [
        ("a:1", 36),
        ("b:1", 310),
    ]


@pytest.mark.parametrize("code", [10, 11, 12])
def test_stored_with_a_warning_is_given_back(code):
    assert Script(TransportError("gone"), refusal(code)).run(give_back(QUEUE, WAYS, 5.0)) is None


def test_when_no_way_works_the_error_has_the_reason_of_each():
    script = Script(refusal(1, "full"), TransportError("gone"), refusal(2, "busy"))
    with pytest.raises(TransportError, match=r"full; then gone; then .*busy"):
        script.run(give_back(QUEUE, WAYS, 5.0))
    with pytest.raises(TransportError, match="'broker-a' has no master"):
        Script().run(give_back(QUEUE, (), 5.0))

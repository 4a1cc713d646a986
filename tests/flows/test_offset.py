import pytest

from flows.script import Script, ok, refusal
from gimbalmq.errors import BrokerError, CallTimeoutError, ProtocolError
from gimbalmq.flows.offset import (
    StartFrom,
    StartPolicy,
    hand_over,
    max_offset,
    min_offset,
    offset_at,
    start_offset,
    store_offset,
    stored_offset,
)
from gimbalmq.model.queue import MessageQueue
from gimbalmq.wire.codes import RequestCode

QUEUE = MessageQueue("orders", "broker-a", 3)
RETRY = MessageQueue("%RETRY%billing", "broker-a", 0)
NOT_FOUND = refusal(22, "not found")
LAST, FIRST = StartFrom(StartPolicy.LAST), StartFrom(StartPolicy.FIRST)
AT_NOON = StartFrom(StartPolicy.TIMESTAMP, 1_700_000_000_000)


def codes(script):
    return [call.command.code for call in script.calls]


# ---- reading -------------------------------------------------------------------------------------


@pytest.mark.rule("B5.5b")
def test_a_stored_offset_is_read():
    script = Script(ok(offset=42))
    assert script.run(stored_offset("a:1", "billing", QUEUE)) == 42
    (call,) = script.calls
    assert call.timeout_s == 5.0
    assert call.command.fields == {
        "consumerGroup": "billing", "topic": "orders", "queueId": "3", "bname": "broker-a",
    }  # fmt: skip


@pytest.mark.rule("B5.5b")
def test_not_found_is_no_offset_and_no_error():
    assert Script(NOT_FOUND).run(stored_offset("a:1", "billing", QUEUE)) is None


def test_a_negative_stored_offset_counts_as_none():
    assert Script(ok(offset=-1)).run(stored_offset("a:1", "billing", QUEUE)) is None


@pytest.mark.rule("B5.5b", "B2.10e", "B10.9")
@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (refusal(1, "disk full"), BrokerError),
        (CallTimeoutError("late"), CallTimeoutError),
        (ok(), ProtocolError),
    ],
)
@pytest.mark.parametrize("start", [LAST, FIRST, AT_NOON])
def test_pitfall_9_a_failed_query_is_raised_and_never_taken_for_an_offset(failure, kind, start):
    with pytest.raises(kind):
        Script(failure).run(start_offset("a:1", "billing", QUEUE, start))


def test_the_ends_of_a_queue_are_asked_for():
    assert Script(ok(offset=9)).run(max_offset("a:1", QUEUE)) == 9
    assert Script(ok(offset=2)).run(min_offset("a:1", QUEUE)) == 2
    script = Script(ok(offset=5))
    assert script.run(offset_at("a:1", QUEUE, 1234)) == 5
    assert script.calls[0].command.fields["timestamp"] == "1234"


# ---- where to start ------------------------------------------------------------------------------


@pytest.mark.rule("B2.10a")
@pytest.mark.parametrize("start", [LAST, FIRST, AT_NOON])
@pytest.mark.parametrize("queue", [QUEUE, RETRY])
def test_a_stored_offset_wins_over_every_policy(start, queue):
    assert Script(ok(offset=7)).run(start_offset("a:1", "billing", queue, start)) == 7


@pytest.mark.rule("B2.10h", "W8a")
def test_a_zero_for_a_young_queue_is_used_as_it_is():
    assert Script(ok(offset=0)).run(start_offset("a:1", "billing", QUEUE, LAST)) == 0


@pytest.mark.rule("B2.10b")
def test_last_starts_at_the_end():
    script = Script(NOT_FOUND, ok(offset=99))
    assert script.run(start_offset("a:1", "billing", QUEUE, LAST)) == 99
    assert codes(script) == [RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.GET_MAX_OFFSET]


@pytest.mark.rule("B2.10d")
def test_first_starts_at_zero():
    assert Script(NOT_FOUND).run(start_offset("a:1", "billing", QUEUE, FIRST)) == 0


@pytest.mark.rule("B2.10c")
@pytest.mark.parametrize("start", [LAST, FIRST])
def test_a_retry_topic_starts_at_zero(start):
    assert Script(NOT_FOUND).run(start_offset("a:1", "billing", RETRY, start)) == 0


@pytest.mark.rule("B2.10f")
def test_a_time_starts_at_the_first_message_stored_since():
    script = Script(NOT_FOUND, ok(offset=50))
    assert script.run(start_offset("a:1", "billing", QUEUE, AT_NOON)) == 50
    assert codes(script)[1] == RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
    assert script.calls[1].command.fields["timestamp"] == "1700000000000"


@pytest.mark.rule("B2.10f")
def test_with_a_time_a_retry_topic_starts_at_its_end():
    script = Script(NOT_FOUND, ok(offset=4))
    assert script.run(start_offset("a:1", "billing", RETRY, AT_NOON)) == 4
    assert codes(script)[1] == RequestCode.GET_MAX_OFFSET


# ---- writing -------------------------------------------------------------------------------------


@pytest.mark.rule("B5.5g")
def test_storing_waits_for_the_broker():
    script = Script(ok())
    script.run(store_offset("a:1", "billing", QUEUE, 12))
    (call,) = script.calls
    assert call.command.code == RequestCode.UPDATE_CONSUMER_OFFSET
    assert call.command.fields["commitOffset"] == "12"
    assert not call.command.is_oneway
    with pytest.raises(BrokerError):
        Script(refusal(1)).run(store_offset("a:1", "billing", QUEUE, 12))


@pytest.mark.rule("B10.2")
@pytest.mark.parametrize("stored", [12, 13])
def test_pitfall_2_a_hand_over_never_moves_the_stored_offset_back(stored):
    script = Script(ok(offset=stored))
    script.run(hand_over("a:1", "billing", QUEUE, 12))
    assert codes(script) == [RequestCode.QUERY_CONSUMER_OFFSET]


@pytest.mark.rule("B2.7a", "B5.5g")
def test_a_hand_over_stores_progress():
    script = Script(ok(offset=11), ok())
    script.run(hand_over("a:1", "billing", QUEUE, 12))
    assert script.calls[1].command.fields["commitOffset"] == "12"


@pytest.mark.parametrize("none", [NOT_FOUND, ok(offset=0)])
def test_a_first_offset_that_a_broker_lost_is_handed_over_again(none):
    script = Script(none, ok(), none, ok(), ok(offset=12))
    script.run(hand_over("a:1", "billing", QUEUE, 12))
    look, store = RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.UPDATE_CONSUMER_OFFSET
    assert codes(script) == [look, store, look, store, look]
    assert {script.calls[n].command.fields["commitOffset"] for n in (1, 3)} == {"12"}


def test_a_broker_that_never_shows_an_offset_is_believed_in_the_end():
    script = Script(*[NOT_FOUND, ok()] * 4)
    script.run(hand_over("a:1", "billing", QUEUE, 12))
    assert codes(script).count(RequestCode.UPDATE_CONSUMER_OFFSET) == 4


@pytest.mark.rule("B4.3d")
def test_a_forced_hand_over_stores_without_looking():
    script = Script(ok())
    script.run(hand_over("a:1", "billing", QUEUE, 3, force=True))
    assert codes(script) == [RequestCode.UPDATE_CONSUMER_OFFSET]

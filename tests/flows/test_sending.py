"""What a sending decides beyond the table of `test_send`: limits, reports, brokers that are gone."""

import pytest

from flows.script import Script, ok, refusal
from gimbalmq.errors import BrokerError, SendError, StateError, TransportError
from gimbalmq.flows.send import Attempt, Sending, SendPolicy, carry_out
from gimbalmq.model.message import SendStatus
from gimbalmq.model.queue import MessageQueue
from gimbalmq.wire.command import Command

A, B, C = (MessageQueue("orders", f"broker-{name}", 1) for name in "abc")


def sending(*queues, timeout_s=3.0, report=None, gone=(), **policy):
    targets = iter(queues)

    def next_attempt(_failed):
        queue = next(targets)
        address = "" if queue in gone else f"{queue.broker}:1"
        return Attempt(queue, address, Command(310))

    return Sending(next_attempt, "ID", SendPolicy(**policy), timeout_s, report, report)


def stored(code=0, ids="7F"):
    answer = ok(msgId=ids, queueId=1, queueOffset=5)
    answer.code = code
    return answer


@pytest.mark.rule("B7.4e")
def test_a_message_that_is_not_stored_safely_is_tried_elsewhere_on_request():
    script = Script(stored(10), stored())
    result = script.run(carry_out(sending(A, B, retry_not_store_ok=True)))
    assert (result.status, result.queue) == (SendStatus.SEND_OK, B)


@pytest.mark.rule("B7.4e")
def test_the_first_unsafe_result_is_returned_when_nothing_better_comes():
    script = Script(stored(10), TransportError("gone"), stored(12))
    result = script.run(carry_out(sending(A, B, C, retry_not_store_ok=True)))
    assert (result.status, result.queue) == (SendStatus.FLUSH_DISK_TIMEOUT, A)


@pytest.mark.rule("B7.4e")
def test_an_unsafe_result_wins_over_a_later_refusal():
    script = Script(stored(11), refusal(13))
    result = script.run(carry_out(sending(A, B, C, retry_not_store_ok=True)))
    assert result.status is SendStatus.SLAVE_NOT_AVAILABLE


@pytest.mark.rule("B7.4a")
def test_an_attempt_may_be_limited_except_the_last():
    script = Script(TransportError("a"), TransportError("b"), stored())
    script.run(carry_out(sending(A, B, C, request_timeout_s=0.5)))
    assert [call.timeout_s for call in script.calls] == [0.5, 0.5, 3.0]


@pytest.mark.rule("B7.4b")
def test_users_may_add_codes_to_the_retry_set():
    script = Script(refusal(777), stored())
    assert script.run(carry_out(sending(A, B, retry_codes=frozenset({777})))).queue == B
    with pytest.raises(SendError):
        Script(refusal(777)).run(carry_out(sending(A, B)))


def test_a_broker_without_a_master_is_a_failed_attempt():
    script = Script(stored())
    assert script.run(carry_out(sending(A, B, gone={A}))).queue == B
    with pytest.raises(
        SendError, match=r"broker-a: has no master .*; then broker-b: has no master"
    ):
        Script().run(carry_out(sending(A, B, gone={A, B}, attempts_max=2)))


def test_the_last_brokers_may_be_gone_as_well():
    with pytest.raises(SendError) as caught:
        Script(TransportError("broke")).run(carry_out(sending(A, B, C, gone={B, C})))
    assert len(caught.value.attempts) == 3


def test_a_batch_keeps_all_its_offset_ids():
    result = Script(stored(ids="7F,80")).run(carry_out(sending(A)))
    assert result.offset_message_id == "7F,80"


@pytest.mark.rule("B7.3d")
def test_every_attempt_is_reported_with_its_time_and_outcome():
    reports = []

    def report(attempt, outcome, latency_s, now_s):
        reports.append((attempt.queue.broker, type(outcome), latency_s, now_s))

    script = Script(TransportError("a"), refusal(2), stored(), call_takes_s=0.5)
    script.run(carry_out(sending(A, B, C, report=report)))
    assert reports == [
        ("broker-a", TransportError, 0.5, 1000.5),
        ("broker-b", BrokerError, 0.5, 1001.0),
        ("broker-c", Command, 0.5, 1001.5),
    ]


def test_an_error_that_is_no_failure_of_the_broker_ends_the_sending():
    one = sending(A, B)
    one.start(0.0)
    with pytest.raises(StateError, match="stopped"):
        one.answered(StateError("stopped"), 0.1)


@pytest.mark.rule("B7.4a")
def test_the_time_before_the_first_attempt_counts():
    script = Script(TransportError("a"), stored(), call_takes_s=0.5)
    script.run(carry_out(sending(A, B), since_s=script.at_s - 1.0))
    assert [call.timeout_s for call in script.calls] == [2.0, 1.5]


def test_when_finding_the_route_took_all_the_time_nothing_is_tried():
    script = Script()
    with pytest.raises(SendError, match="no time left of 3 s when its route was found") as caught:
        script.run(carry_out(sending(A, B), since_s=script.at_s - 3.0))
    assert caught.value.retryable


@pytest.mark.rule("W5.9")
def test_results_and_errors_name_the_topic_as_the_user_does_reports_as_brokers_do():
    on_the_wire = MessageQueue("shop%orders", "broker-a", 1)
    reported = []

    def attempt(_failed):
        return Attempt(on_the_wire, "a:1", Command(310))

    def report(attempt, *_):
        reported.append(attempt.queue)

    def named():
        return Sending(attempt, "ID", SendPolicy(), 3.0, report, report, "orders")

    assert Script(stored()).run(carry_out(named())).queue == A
    with pytest.raises(SendError, match="message for topic 'orders' was not sent"):
        Script(refusal(13)).run(carry_out(named()))
    assert reported == [on_the_wire, on_the_wire]

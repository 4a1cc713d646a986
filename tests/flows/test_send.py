import pytest

from flows.script import Script, ok, refusal
from gimbalmq.errors import (
    AccessDeniedError,
    CallTimeoutError,
    ProtocolError,
    SendError,
    TransportError,
)
from gimbalmq.flows.send import RETRY_CODES, Attempt, send
from gimbalmq.model.message import SendStatus
from gimbalmq.model.queue import MessageQueue
from gimbalmq.wire.command import Command

A, B, C = (MessageQueue("orders", f"broker-{name}", 1) for name in "abc")


class Targets:
    """Hands out queues in order, and remembers what it was told had failed."""

    def __init__(self, *queues):
        self._queues = iter(queues)
        self.failed = []

    def __call__(self, failed_broker):
        self.failed.append(failed_broker)
        queue = next(self._queues)
        return Attempt(queue, f"{queue.broker}:1", Command(310))


def stored(code=0, queue_id=1, offset=5):
    answer = ok(msgId="7F", queueId=queue_id, queueOffset=offset)
    answer.code = code
    return answer


def sending(targets, **options):
    options = {"message_id": "ID", "attempts_max": 3, "timeout_s": 3.0, **options}
    return send(targets, **options)


@pytest.mark.rule("W2.3a")
def test_a_stored_message_has_its_place():
    result = Script(stored()).run(sending(Targets(A)))
    assert (result.status, result.queue, result.queue_offset) == (SendStatus.SEND_OK, A, 5)
    assert (result.message_id, result.offset_message_id) == ("ID", "7F")


def test_the_broker_may_choose_another_queue():
    result = Script(stored(queue_id=3)).run(sending(Targets(A)))
    assert result.queue == MessageQueue("orders", "broker-a", 3)


@pytest.mark.rule("W2.1c", "B7.4d", "W6.4g")
@pytest.mark.parametrize(
    ("code", "status"),
    [
        (10, SendStatus.FLUSH_DISK_TIMEOUT),
        (11, SendStatus.SLAVE_NOT_AVAILABLE),
        (12, SendStatus.FLUSH_SLAVE_TIMEOUT),
    ],
)
def test_stored_with_a_warning_is_a_result_and_no_error(code, status):
    assert Script(stored(code)).run(sending(Targets(A))).status is status


@pytest.mark.rule("B7.4b")
@pytest.mark.parametrize(
    "failure",
    [TransportError("gone"), CallTimeoutError("late"), *(refusal(code) for code in RETRY_CODES)],
    ids=str,
)
def test_another_broker_is_tried_after_a_failure_that_may_be_its_own(failure):
    targets = Targets(A, B)
    script = Script(failure, stored())
    assert script.run(sending(targets)).queue == B
    assert [call.address for call in script.calls] == ["broker-a:1", "broker-b:1"]
    assert targets.failed == [None, "broker-a"]


@pytest.mark.rule("B7.4c")
def test_any_other_refusal_ends_the_send_with_its_code():
    with pytest.raises(SendError) as caught:
        Script(refusal(13, "message is illegal")).run(sending(Targets(A, B)))
    assert (caught.value.code, caught.value.retryable) == (13, False)
    assert "message is illegal" in str(caught.value)
    assert len(caught.value.attempts) == 1


@pytest.mark.rule("B7.4a", "B7.4f")
def test_the_error_names_each_broker_tried_and_why_it_failed():
    script = Script(TransportError("a is gone"), refusal(2, "busy"), TransportError("c is gone"))
    with pytest.raises(SendError) as caught:
        script.run(sending(Targets(A, B, C)))
    assert len(script.calls) == 3
    text = str(caught.value)
    assert text.startswith("message for topic 'orders' was not sent. Tried: broker-a: a is gone")
    assert "broker-b: broker-b:1 refused" in text
    assert "broker-c: c is gone" in text
    assert caught.value.retryable


@pytest.mark.parametrize(
    ("last", "retryable"),
    [(refusal(2), True), (refusal(17), False), (TransportError("gone"), True)],
)
def test_the_last_failure_says_whether_the_same_send_may_succeed_later(last, retryable):
    with pytest.raises(SendError) as caught:
        Script(refusal(16), refusal(1), last).run(sending(Targets(A, B, C)))
    assert caught.value.retryable == retryable


@pytest.mark.rule("B7.4a")
def test_all_attempts_share_one_time_limit():
    script = Script(TransportError("a"), TransportError("b"), call_takes_s=2.0)
    with pytest.raises(SendError, match="no time left of 3 s"):
        script.run(sending(Targets(A, B, C)))
    assert [call.timeout_s for call in script.calls] == [3.0, 1.0]


@pytest.mark.rule("W8a")
def test_an_answer_that_makes_no_sense_is_not_taken_for_a_stored_message():
    with pytest.raises(ProtocolError, match="msgId"):
        Script(ok()).run(sending(Targets(A)))


def test_refused_keys_are_not_tried_on_another_broker():
    script = Script(refusal(16, "check signature failed."))
    with pytest.raises(
        AccessDeniedError, match="message for topic 'orders' was not sent"
    ) as denied:
        script.run(sending(Targets(A, B)))
    assert (denied.value.code, denied.value.retryable) == (16, False)

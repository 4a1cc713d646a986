import pytest

from flows.script import Script, ok, refusal
from gimbalmq.errors import BrokerError, CallTimeoutError, TopicNotFoundError
from gimbalmq.flows.effects import call, checked_call, notify, now, sleep, together
from gimbalmq.wire.codes import RequestCode
from gimbalmq.wire.command import Command

REQUEST = Command(RequestCode.HEART_BEAT)


def test_a_call_returns_whatever_was_answered():
    answer = refusal(1)
    assert Script(answer).run(call("a:1", REQUEST, 3.0)) is answer


def test_a_call_says_where_to_what_and_for_how_long():
    script = Script(ok())
    script.run(call("a:1", REQUEST, 3.0))
    (asked,) = script.calls
    assert (asked.address, asked.command, asked.timeout_s) == ("a:1", REQUEST, 3.0)


def test_a_checked_call_raises_a_refusal_in_words():
    with pytest.raises(BrokerError) as caught:
        Script(refusal(2, "[BUSY]\n\tat Broker.java:1")).run(checked_call("a:1", REQUEST, 3.0))
    error = caught.value
    assert str(error) == "a:1 refused HEART_BEAT with code 2 (SYSTEM_BUSY): [BUSY]"
    assert (error.code, error.address, error.retryable) == (2, "a:1", True)
    assert error.remark.endswith("Broker.java:1")


@pytest.mark.rule("W2.0a", "W8a")
def test_success_is_a_matter_of_the_code_whatever_the_remark_says():
    answer = ok()
    answer.remark = "not set any response code"
    assert Script(answer).run(checked_call("a:1", REQUEST, 3.0)) is answer
    with pytest.raises(BrokerError):
        Script(refusal(1, "SUCCESS")).run(checked_call("a:1", REQUEST, 3.0))


@pytest.mark.rule("W2.1b", "W8a")
@pytest.mark.parametrize(
    ("code", "kind", "retryable"),
    [
        (17, TopicNotFoundError, False),
        (1, BrokerError, True),
        (14, BrokerError, True),
        (215, BrokerError, True),
        (16, BrokerError, False),
    ],
)
def test_a_code_gives_the_kind_of_error_that_users_see(code, kind, retryable):
    with pytest.raises(kind) as caught:
        Script(refusal(code)).run(checked_call("a:1", REQUEST, 3.0))
    assert type(caught.value) is kind
    assert (caught.value.code, caught.value.retryable) == (code, retryable)


def test_a_refusal_without_words_and_codes_of_tomorrow_are_readable():
    with pytest.raises(
        BrokerError, match=r"request 9999 with code 7777 \(unknown code\): no reason"
    ):
        Script(refusal(7777, None)).run(checked_call("a:1", Command(9999), 3.0))


def test_a_failed_connection_is_raised_where_the_flow_waits():
    with pytest.raises(CallTimeoutError, match="no answer"):
        Script(CallTimeoutError("no answer")).run(checked_call("a:1", REQUEST, 3.0))


def test_notices_pauses_and_clocks_reach_the_driver():
    script = Script()
    script.run(notify("a:1", REQUEST))
    script.run(sleep(2.5))
    instant = script.run(now())
    assert script.notified[0].command is REQUEST
    assert script.slept == [2.5]
    assert (instant.at_s, instant.wall_ms) == (1002.5, 1002500)


def test_flows_side_by_side_give_their_results_and_errors_in_order():
    flows = [checked_call("a:1", REQUEST, 3.0) for _ in range(3)]
    answers = ok(b"one"), refusal(16), ok(b"three")
    one, two, three = Script(*answers).run(together(flows))
    assert (one.body, three.body) == (b"one", b"three")
    assert isinstance(two, BrokerError)

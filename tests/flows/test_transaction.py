from datetime import UTC, datetime

import pytest

from flows.script import Script, ok, refusal
from gimbalmq.errors import BrokerError, ConfigurationError, ProtocolError
from gimbalmq.flows.transaction import (
    HALF_FLAG,
    Outcome,
    check_transactional,
    end_transaction,
    half_properties,
    half_stored,
    parse_check,
)
from gimbalmq.model.message import Message, SendResult, SendStatus
from gimbalmq.model.queue import MessageQueue
from gimbalmq.wire.command import Command
from gimbalmq.wire.properties import encode_properties
from gimbalmq.wire.record import encode_record

RESULT = SendResult(
    SendStatus.SEND_OK,
    "UNIQ",
    "7F00000100002A9F0000000000000400",
    MessageQueue("orders", "broker-a", 2),
    7,
)


def ending(outcome, **options):
    return end_transaction("a:1", "shop", half_stored(RESULT), outcome, **options)


@pytest.mark.rule("W2.3e", "W5.7b")
@pytest.mark.parametrize(("outcome", "state"), [(Outcome.COMMIT, "8"), (Outcome.ROLLBACK, "12")])
def test_an_outcome_is_told_once_with_the_place_of_the_half_message(outcome, state):
    script = Script(ok())
    script.run(ending(outcome, remark="why"))
    (call,) = script.calls
    assert call.address == "a:1"
    assert call.command.remark == "why"
    assert call.command.fields == {
        "producerGroup": "shop",
        "topic": "orders",
        "tranStateTableOffset": "7",
        "commitLogOffset": "1024",
        "commitOrRollback": state,
        "fromTransactionCheck": "false",
        "msgId": "UNIQ",
        "transactionId": "UNIQ",
        "bname": "broker-a",
    }


def test_a_refused_outcome_is_an_error_and_is_not_repeated():
    script = Script(refusal(1, "find prepared transaction message failed"))
    with pytest.raises(BrokerError, match="find prepared"):
        script.run(ending(Outcome.COMMIT))
    assert len(script.calls) == 1


@pytest.mark.rule("W5.7b")
def test_nobody_answers_that_the_outcome_is_unknown():
    script = Script()
    script.run(ending(Outcome.UNKNOWN))
    assert script.calls == []
    (told,) = script.notified
    assert told.command.fields["commitOrRollback"] == "0"
    assert told.command.is_oneway


@pytest.mark.rule("W2.3e", "W8a")
def test_a_question_is_answered_with_its_own_offsets():
    properties = {"UNIQ_KEY": "UNIQ", **half_properties("shop")}
    record = encode_record(
        topic="orders", body=b"paid", properties=encode_properties(properties), queue_offset=9
    )
    fields = {"tranStateTableOffset": "9", "commitLogOffset": "2048", "msgId": "UNIQ"}
    check = parse_check(Command(39, fields, record), "broker-a")
    assert (check.group, check.message.body, check.message.topic) == ("shop", b"paid", "orders")
    half = check.half
    assert (half.queue_offset, half.physical_offset, half.from_check) == (9, 2048, True)
    assert (half.broker, half.message_id, half.transaction_id) == ("broker-a", "UNIQ", "UNIQ")


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        (b"", {}),
        (encode_record(topic="orders", body=b"x"), {}),
        (
            encode_record(topic="t", body=b"x", properties=b"PGROUP\x01g\x02"),
            {"tranStateTableOffset": "1"},
        ),
    ],
    ids=["no record", "no group", "no offset"],
)
def test_a_question_that_cannot_be_answered_is_refused(body, fields):
    with pytest.raises(ProtocolError, match="transaction check"):
        parse_check(Command(39, fields, body), "broker-a")


@pytest.mark.parametrize(
    "delay", [{"delay_level": 2}, {"deliver_at": datetime(2030, 1, 1, tzinfo=UTC)}]
)
def test_a_delay_inside_a_transaction_is_refused(delay):
    with pytest.raises(ConfigurationError, match="delay"):
        check_transactional(Message("orders", b"x", **delay))
    check_transactional(Message("orders", b"x"))


def test_half_messages_are_marked_by_flag_and_properties():
    assert HALF_FLAG == 4
    assert half_properties("shop") == {"TRAN_MSG": "true", "PGROUP": "shop"}

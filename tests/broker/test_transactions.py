from __future__ import annotations

import pytest

from gimbalmq.wire.codes import RequestCode
from gimbalmq.wire.ids import parse_offset_id
from gimbalmq.wire.record import decode_records

COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
HALF = "TRAN_MSG\x01true\x02PGROUP\x01shop\x02UNIQ_KEY\x01ID\x02"


def prepare(desk, body=b"half"):
    answer = desk.send(body=body, properties=HALF, queue=1, sys_flag=4)
    assert answer.code == 0
    assert answer.fields["queueId"] == "1"
    assert answer.fields["transactionId"] == "ID"
    place = parse_offset_id(answer.fields["msgId"]).offset
    return {
        "tranStateTableOffset": answer.fields["queueOffset"],
        "commitLogOffset": str(place),
        "producerGroup": "shop",
        "msgId": "ID",
    }


def end(desk, half, decision, **more):
    fields = {**half, "commitOrRollback": str(decision), **more}
    return desk.ask(desk.channel(), RequestCode.END_TRANSACTION, fields)


def checks(desk, channel):
    return desk.pushed(channel, RequestCode.CHECK_TRANSACTION_STATE)


@pytest.mark.rule("W5.7a")
def test_a_half_message_is_seen_only_when_it_is_committed(desk):
    half = prepare(desk)
    assert desk.messages(queue=1) == []
    assert end(desk, half, COMMIT).code == 0
    (message,) = desk.messages(queue=1)
    assert message.body == b"half"
    assert message.sys_flag & 0xC == 8
    assert message.prepared_transaction_offset == int(half["commitLogOffset"])
    assert message.properties["TRAN_MSG"] == "true"
    assert message.properties["PGROUP"] == "shop"
    assert not {"REAL_TOPIC", "REAL_QID"} & message.properties.keys()


@pytest.mark.rule("W5.7a")
def test_a_half_message_that_is_rolled_back_is_never_seen(desk):
    assert end(desk, prepare(desk), ROLLBACK).code == 0
    desk.advance(120_000, 10_000)
    assert desk.messages(queue=1) == []


@pytest.mark.rule("W5.7a")
def test_not_knowing_changes_nothing_and_is_not_answered(desk):
    half = prepare(desk)
    assert end(desk, half, UNKNOWN) is None
    assert end(desk, half, COMMIT).code == 0


@pytest.mark.rule("W5.7a")
@pytest.mark.parametrize(
    "wrong",
    [{"producerGroup": "other"}, {"tranStateTableOffset": "9"}, {"commitLogOffset": "99999"}],
)
def test_a_decision_about_something_else_is_refused(desk, wrong):
    assert end(desk, prepare(desk), COMMIT, **wrong).code == 1
    assert desk.messages(queue=1) == []


@pytest.mark.rule("W2.3", "W8b")
@pytest.mark.parametrize(("faithful", "code", "count"), [(False, 604, 1), (True, 0, 2)])
def test_a_second_decision_is_refused_unless_java_is_to_be_followed(
    make_desk, faithful, code, count
):
    desk = make_desk(faithful=faithful)
    desk.topic("orders")
    half = prepare(desk)
    end(desk, half, COMMIT)
    assert end(desk, half, COMMIT).code == code
    assert len(desk.messages(queue=1)) == count


@pytest.mark.rule("W5.7a")
def test_an_open_half_message_is_asked_about_and_the_answer_decides(desk):
    producer = desk.channel()
    desk.heartbeat(producer, "producer", producers=("shop",))
    half = prepare(desk)
    desk.advance(29_000, 1_000)
    assert checks(desk, producer) == []
    desk.advance(2_000, 1_000)
    (check,) = checks(desk, producer)
    assert check.is_oneway
    assert check.fields["msgId"] == "ID"
    assert check.fields["commitLogOffset"] != half["commitLogOffset"]
    (shown,) = decode_records(check.body, "b")
    assert (shown.record_topic, shown.queue_id, shown.body) == ("orders", 1, b"half")
    assert shown.properties["TRANSACTION_CHECK_TIMES"] == "1"
    again = {name: check.fields[name] for name in ("tranStateTableOffset", "commitLogOffset")}
    assert end(desk, half | again, COMMIT, fromTransactionCheck="true").code == 0
    assert [message.body for message in desk.messages(queue=1)] == [b"half"]
    desk.heartbeat(producer, "producer", producers=("shop",))
    desk.advance(60_000, 1_000)
    assert checks(desk, producer) == []


@pytest.mark.rule("W5.7a")
def test_a_half_message_that_nobody_decides_is_given_up(make_desk):
    desk = make_desk(transaction_checks_max=2, transaction_check_ms=10_000, channel_life_ms=10**9)
    desk.topic("orders")
    producer = desk.channel()
    desk.heartbeat(producer, "producer", producers=("shop",))
    prepare(desk)
    desk.advance(60_000, 1_000)
    assert len(checks(desk, producer)) == 2
    assert desk.messages(queue=1) == []
    assert [one.body for one in desk.messages("TRANS_CHECK_MAX_TIME_TOPIC")] == [b"half"]


@pytest.mark.rule("W5.7a")
def test_a_restart_knows_which_half_messages_are_open(desk):
    first, second = prepare(desk, b"one"), prepare(desk, b"two")
    end(desk, first, ROLLBACK)
    desk.restart(clean=False)
    producer = desk.channel()
    desk.heartbeat(producer, "producer", producers=("shop",))
    desk.advance(31_000, 1_000)
    (check,) = checks(desk, producer)
    assert decode_records(check.body, "b")[0].body == b"two"
    assert end(desk, second, COMMIT).code == 604  # it was asked about again: other offsets count


@pytest.mark.rule("W5.7a")
def test_a_producer_that_is_away_is_asked_when_it_is_back(desk):
    prepare(desk)
    desk.advance(61_000, 1_000)
    producer = desk.channel()
    desk.heartbeat(producer, "producer", producers=("shop",))
    desk.advance(31_000, 1_000)
    assert len(checks(desk, producer)) == 1


@pytest.mark.rule("W5.6b", "W5.7a")
def test_the_delay_of_a_half_message_counts_from_its_commit(desk):
    answer = desk.send(properties=HALF + "DELAY\x011\x02", queue=1)
    half = {
        "tranStateTableOffset": answer.fields["queueOffset"],
        "commitLogOffset": str(parse_offset_id(answer.fields["msgId"]).offset),
        "producerGroup": "shop",
    }
    desk.advance(5_000)
    end(desk, half, COMMIT)
    assert desk.messages(queue=1) == []
    desk.advance(1_000)
    assert len(desk.messages(queue=1)) == 1

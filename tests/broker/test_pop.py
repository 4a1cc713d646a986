from __future__ import annotations

import pytest

from gimbalmq.broker.store import StoreError
from gimbalmq.wire import bodies
from gimbalmq.wire.codes import RequestCode
from gimbalmq.wire.pop import PopHandle, parse_counts, parse_offsets, parse_starts
from gimbalmq.wire.record import decode_records

pytestmark = pytest.mark.rule("W2.7")


def pop_fields(desk, **more):
    fields = {
        "consumerGroup": "billing",
        "topic": "orders",
        "queueId": "-1",
        "maxMsgNums": "32",
        "invisibleTime": "10000",
        "pollTime": "0",
        "bornTime": str(desk.now_ms),
        "initMode": "0",
    }
    return fields | {name: str(value) for name, value in more.items()}


def pop(desk, channel=None, **more):
    return desk.ask(channel or desk.channel(), RequestCode.POP_MESSAGE, pop_fields(desk, **more))


def popped(answer):
    assert answer.code == 0, answer.remark
    return decode_records(answer.body, "broker-a")


def handles(answer):
    """What a client makes of an answer: the handle of each message."""
    starts = parse_starts(answer.fields["startOffsetInfo"])
    made = []
    for (retry, queue_id), offsets in parse_offsets(answer.fields["msgOffsetInfo"]).items():
        made += [
            PopHandle(
                starts[retry, queue_id],
                int(answer.fields["popTime"]),
                int(answer.fields["invisibleTime"]),
                int(answer.fields["reviveQid"]),
                retry,
                "broker-a",
                queue_id,
                offset,
            )
            for offset in offsets
        ]
    return made


def ack(desk, handle, topic="orders", code=RequestCode.ACK_MESSAGE, **more):
    fields = {
        "consumerGroup": "billing",
        "topic": topic,
        "queueId": str(handle.queue_id),
        "extraInfo": str(handle),
        "offset": str(handle.queue_offset),
        **more,
    }
    return desk.ask(desk.channel(), code, fields)


def test_popped_messages_are_hidden_and_gone_when_acknowledged(desk):
    for number in range(4):
        desk.send(queue=number, body=b"%d" % number)
    answer = pop(desk)
    assert sorted(message.body for message in popped(answer)) == [b"0", b"1", b"2", b"3"]
    assert pop(desk).code == 210
    for handle in handles(answer):
        assert ack(desk, handle).code == 0
    desk.advance(60_000, 1_000)
    assert pop(desk).code == 210
    assert desk.committed(queue=2).fields == {"offset": "1"}


def test_a_message_that_is_not_acknowledged_comes_back_under_its_topic(desk):
    desk.send(body=b"again")
    first = pop(desk)
    desk.advance(10_000)
    second = pop(desk)
    (message,) = popped(second)
    assert message.record_topic == "orders"
    assert message.reconsume_times == 1
    assert message.properties["ORIGIN_GROUP"] == "billing"
    handle = PopHandle.parse(message.properties["POP_CK"])
    assert handle.retry == "1"
    assert "%RETRY%billing_orders" in desk.machine.topics.topics
    assert ack(desk, handles(first)[0]).code == 0  # too late, and harmless
    assert ack(desk, handle, "%RETRY%billing_orders").code == 0
    desk.advance(60_000, 1_000)
    assert pop(desk).code == 210


@pytest.mark.rule("W8b")
def test_a_retry_topic_may_be_longer_than_its_first_length_byte_can_say(desk):
    topic, group = "t" * 60, "g" * 80
    desk.topic(topic, 1)
    desk.send(topic, body=b"again")
    pop(desk, topic=topic, consumerGroup=group)
    desk.advance(10_000)
    retry = f"%RETRY%{group}_{topic}"
    assert len(retry) > 127
    assert desk.bodies(retry) == [b"again"]
    desk.restart()
    assert desk.bodies(retry) == [b"again"]


def test_the_groups_offset_stays_below_what_is_out(desk):
    for number in range(3):
        desk.send(body=b"%d" % number)
    answer = pop(desk)
    first, second, third = handles(answer)
    ack(desk, second)
    ack(desk, third)
    assert desk.committed().fields == {"offset": "0"}
    desk.restart()
    assert [message.body for message in popped(pop(desk))] == [b"0", b"1", b"2"]
    ack(desk, first)


def test_acknowledging_in_a_batch(desk):
    for _ in range(3):
        desk.send(queue=1)
    handle = handles(pop(desk))[0]
    acks = bodies.encode_batch_ack(
        "broker-a",
        [
            bodies.BatchAck(
                "billing", "orders", "0", 0, 1, 0, handle.pop_time, handle.invisible_time, (0, 2)
            )
        ],
    )
    assert desk.ask(desk.channel(), RequestCode.BATCH_ACK_MESSAGE, body=acks).code == 0
    assert desk.committed(queue=1).fields == {"offset": "1"}


def test_the_time_that_a_message_is_hidden_can_be_changed(desk):
    desk.send()
    (handle,) = handles(pop(desk))
    code = RequestCode.CHANGE_MESSAGE_INVISIBLETIME
    answer = ack(desk, handle, code=code, invisibleTime="60000")
    assert answer.fields["invisibleTime"] == "60000"
    desk.advance(30_000, 1_000)
    assert pop(desk).code == 210
    desk.advance(31_000, 1_000)
    assert len(popped(pop(desk))) == 1


def test_a_pop_waits_for_messages(desk):
    channel = desk.channel()
    assert pop(desk, channel, pollTime=15_000) is None
    desk.send(body=b"now")
    ((where, answer),) = desk.sent
    assert where is channel
    assert popped(answer)[0].body == b"now"


def test_a_pop_that_waited_in_vain_says_so(desk):
    assert pop(desk, pollTime=3_000) is None
    desk.advance(5_000)
    ((_, answer),) = desk.sent
    assert answer.code == 210
    assert {"popTime", "invisibleTime", "reviveQid", "restNum"} <= answer.fields.keys()


def test_a_waiting_pop_gets_what_comes_back(desk):
    desk.send(body=b"again")
    pop(desk, invisibleTime=2_000)
    assert pop(desk, pollTime=15_000) is None
    desk.advance(3_000)
    ((_, answer),) = desk.sent
    assert popped(answer)[0].reconsume_times == 1


@pytest.mark.rule("W2.0c")
def test_a_waiting_pop_that_cannot_be_served_is_told_so_and_the_sender_is_not(desk, monkeypatch):
    def unreadable(*_, **__):
        raise StoreError("the device failed")

    pop(desk, pollTime=15_000)
    monkeypatch.setattr(desk.store, "read", unreadable)
    assert desk.send().code == 0
    ((_, answer),) = desk.sent
    assert (answer.code, answer.remark) == (14, "the device failed")


def test_waiting_pops_go_with_their_connection(desk):
    channel = desk.channel()
    pop(desk, channel, pollTime=15_000)
    desk.lose(channel)
    desk.send()
    assert desk.sent == []


@pytest.mark.rule("W8b")
def test_pops_that_cannot_be_are_refused(desk):
    assert pop(desk, topic="none").code == 17
    assert pop(desk, queueId=9).code == 29
    assert pop(desk, maxMsgNums=33).code == 29
    assert pop(desk, consumerGroup="").code == 1


@pytest.mark.rule("W8b")
def test_a_pop_whose_clock_is_too_far_behind_is_refused(desk):
    desk.send()
    assert pop(desk, bornTime=desk.now_ms - 501).code == 210
    assert pop(desk, bornTime=desk.now_ms - 500).code == 0


def test_a_new_group_may_start_at_the_end(desk):
    desk.send()
    assert pop(desk, initMode=1).code == 210
    desk.send(body=b"new")
    assert [message.body for message in popped(pop(desk))] == [b"new"]


def test_tags_filter_pops(desk):
    desk.send(properties="TAGS\x01a\x02", body=b"a")
    desk.send(properties="TAGS\x01b\x02", body=b"b")
    assert [message.body for message in popped(pop(desk, exp="b", expType="TAG"))] == [b"b"]


def test_popping_in_order_hands_out_nothing_before_the_last_is_done(desk):
    for number in range(4):
        desk.send(queue=1, body=b"%d" % number)
    first = pop(desk, order="true", maxMsgNums=2, queueId=1)
    assert first.fields["reviveQid"] == "999"
    assert [message.body for message in popped(first)] == [b"0", b"1"]
    assert pop(desk, order="true", queueId=1).code == 210
    ack(desk, handles(first)[0])
    desk.advance(10_000)
    again = pop(desk, order="true", maxMsgNums=2, queueId=1)
    assert [message.body for message in popped(again)] == [b"1", b"2"]
    assert parse_counts(again.fields["orderCountInfo"]) == {("0", 1, 1): 1, ("0", 1, 2): 0}
    for handle in handles(again):
        ack(desk, handle)
    assert [message.body for message in popped(pop(desk, order="true", queueId=1))] == [b"3"]


def test_acknowledging_what_cannot_be(desk):
    desk.send()
    (handle,) = handles(pop(desk))
    wrong_queue = PopHandle(0, 1, 1, 0, "0", "broker-a", 9, 0)
    assert ack(desk, wrong_queue).code == 13
    outside = PopHandle(0, 1, 1, 0, "0", "broker-a", 0, 99)
    assert ack(desk, outside).code == 208
    assert ack(desk, handle, extraInfo="junk").code == 1
    assert ack(desk, handle).code == 0
    assert ack(desk, handle).code == 0


def test_peeking_takes_nothing(desk):
    desk.send(body=b"here")
    for _ in range(2):
        fields = pop_fields(desk)
        answer = desk.ask(desk.channel(), RequestCode.PEEK_MESSAGE, fields)
        assert [message.body for message in popped(answer)] == [b"here"]
    fields = pop_fields(desk, topic="TBW102")
    assert desk.ask(desk.channel(), RequestCode.PEEK_MESSAGE, fields).code == 19


def test_a_notification_tells_that_there_is_something(desk):
    code = RequestCode.NOTIFICATION
    channel = desk.channel()
    assert desk.ask(channel, code, pop_fields(desk, pollTime=10_000)) is None
    fields = pop_fields(desk)
    answer = desk.ask(desk.channel(), RequestCode.POLLING_INFO, fields)
    assert answer.fields == {"pollingNum": "1"}
    desk.send()
    ((_, answer),) = desk.sent
    assert answer.fields["hasMsg"] == "true"
    desk.sent.clear()
    assert desk.ask(channel, code, pop_fields(desk)).fields["hasMsg"] == "true"


@pytest.mark.rule("W8b")
def test_only_so_many_pops_may_wait(make_desk):
    desk = make_desk(parked_max=2)
    desk.topic("orders", 4)
    assert [pop(desk, pollTime=15_000) for _ in range(2)] == [None, None]
    assert pop(desk, pollTime=15_000).code == 209

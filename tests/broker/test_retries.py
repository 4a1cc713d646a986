"""Send-back, dead letters, delay levels and timers."""

from __future__ import annotations

import pytest

from broker.desk import START_MS
from gimbalmq.core.delays import DEFAULT_DELAY_LEVELS_MS
from gimbalmq.wire.bodies import GroupConfig, encode_group_config
from gimbalmq.wire.codes import RequestCode
from gimbalmq.wire.headers import query_message_request, send_back_request
from gimbalmq.wire.record import decode_records


def send_back(desk, message, **given):
    request = send_back_request(
        group="billing", broker="broker-a", physical_offset=message.physical_offset, **given
    )
    return desk.ask(desk.channel(), request)


@pytest.mark.rule("B5.3e", "W5.6a")
def test_a_message_handed_back_comes_again_after_ten_seconds(desk):
    desk.send(body=b"again", properties="UNIQ_KEY\x01ID\x02")
    (first,) = desk.messages()
    assert send_back(desk, first).code == 0
    desk.advance(9_500)
    assert desk.messages("%RETRY%billing") == []
    desk.advance(500)
    (again,) = desk.messages("%RETRY%billing")
    assert again.body == b"again"
    assert again.topic == "orders"
    assert again.reconsume_times == 1
    assert again.properties["RETRY_TOPIC"] == "orders"
    assert again.properties["ORIGIN_MESSAGE_ID"] == first.offset_message_id
    assert again.properties["DELAY"] == "3"
    assert again.properties["REAL_TOPIC"] == "%RETRY%billing"
    assert again.message_id == "ID"
    assert again.born_timestamp_ms == first.born_timestamp_ms


@pytest.mark.rule("B5.3e", "W5.6a")
def test_each_failure_waits_a_level_longer_and_keeps_its_origin(desk):
    desk.send()
    (message,) = desk.messages()
    origin = message.offset_message_id
    for times in range(3):
        send_back(desk, message)
        desk.advance(DEFAULT_DELAY_LEVELS_MS[2 + times], 5_000)
        message = desk.messages("%RETRY%billing")[-1]
        assert message.reconsume_times == times + 1
        assert message.properties["DELAY"] == str(3 + times)
        assert message.properties["ORIGIN_MESSAGE_ID"] == origin
        assert message.topic == "orders"


@pytest.mark.rule("B5.3e", "W5.6a")
@pytest.mark.parametrize("given", [{"delay_level": -1}, {"max_reconsume_times": 0}])
def test_a_message_that_is_given_up_is_a_dead_letter_at_once(desk, given):
    desk.send(body=b"dead")
    send_back(desk, desk.messages()[0], **given)
    (dead,) = desk.messages("%DLQ%billing")
    assert (dead.body, dead.reconsume_times, dead.properties["DELAY"]) == (b"dead", 1, "0")
    assert desk.machine.topics.topics["%DLQ%billing"].perm == 6


@pytest.mark.rule("B5.3e", "W5.6c")
@pytest.mark.parametrize(
    ("properties", "wait_ms"),
    [("TIMER_DELAY_SEC\x013\x02", 3_000), ("DELAY\x011\x02TIMER_DELAY_SEC\x0160\x02", 1_000)],
)
def test_a_dead_letter_does_not_wait_for_the_timer_that_it_had(desk, properties, wait_ms):
    desk.send(properties=properties)
    desk.advance(wait_ms)
    send_back(desk, desk.messages()[0], delay_level=-1)
    assert len(desk.messages("%DLQ%billing")) == 1


@pytest.mark.rule("B5.3e")
@pytest.mark.parametrize(("version", "dead"), [(120, False), (121, True)])
def test_only_clients_from_3_4_9_on_say_how_often_is_too_often(desk, version, dead):
    desk.send()
    request = send_back_request(
        group="billing",
        broker="broker-a",
        physical_offset=desk.messages()[0].physical_offset,
        max_reconsume_times=0,
    )
    request.version = version
    desk.ask(desk.channel(), request)
    desk.advance(10_000)
    assert len(desk.messages("%DLQ%billing")) == dead
    assert len(desk.messages("%RETRY%billing")) == (not dead)


@pytest.mark.rule("B5.3e", "W5.6a")
def test_a_chosen_delay_level_is_kept(desk):
    desk.send()
    send_back(desk, desk.messages()[0], delay_level=1)
    desk.advance(1_000)
    assert len(desk.messages("%RETRY%billing")) == 1


@pytest.mark.rule("B5.3e")
def test_handing_back_what_is_not_there_is_an_error_and_makes_the_group(desk):
    request = send_back_request(group="billing", broker="broker-a", physical_offset=999)
    answer = desk.ask(desk.channel(), request)
    assert (answer.code, answer.remark) == (1, "look message by offset failed, 999")
    assert "%RETRY%billing" in desk.machine.topics.topics


@pytest.mark.rule("B5.3e")
def test_a_group_without_retry_queues_drops_what_comes_back(desk):
    desk.ask(
        desk.channel(),
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        body=encode_group_config(GroupConfig("billing", retry_queues=0)),
    )
    desk.send()
    assert send_back(desk, desk.messages()[0]).code == 0
    desk.advance(20_000)
    assert desk.pull(topic="%RETRY%billing").code == 17


@pytest.mark.rule("W5.6b", "W8b")
@pytest.mark.parametrize(("level", "wait_ms"), [("1", 1_000), ("2", 5_000), ("99", 7_200_000)])
def test_a_delayed_message_appears_when_its_level_is_over(desk, level, wait_ms):
    answer = desk.send(properties=f"DELAY\x01{level}\x02", queue=1)
    assert answer.fields["queueId"] == "1"
    desk.advance(wait_ms - 10, 60_000)
    assert desk.messages(queue=1) == []
    desk.advance(10)
    (message,) = desk.messages(queue=1)
    assert message.properties["REAL_TOPIC"] == "orders"
    assert message.properties["REAL_QID"] == "1"
    assert message.properties["DELAY"] == level
    assert message.store_timestamp_ms == START_MS + wait_ms


@pytest.mark.rule("W5.6b")
def test_of_several_delayed_messages_each_waits_for_its_own_time(desk):
    for body in (b"first", b"second"):
        desk.send(properties="DELAY\x012\x02", body=body)
        desk.advance(2_000)
    desk.advance(1_000)
    assert desk.bodies() == [b"first"]
    desk.advance(2_000)
    assert desk.bodies() == [b"first", b"second"]


@pytest.mark.rule("W5.6b")
def test_no_delay_and_no_number(desk):
    assert desk.send(properties="DELAY\x010\x02").code == 0
    assert len(desk.messages()) == 1
    assert desk.send(properties="DELAY\x01soon\x02").code == 1


@pytest.mark.rule("W5.3", "W5.6b")
def test_a_delivered_message_wakes_held_pulls(desk):
    desk.send(properties="DELAY\x011\x02")
    channel = desk.channel()
    number = desk.hold(channel, desk.pull_command(sys_flag=6, suspend_timeout_ms=15_000))
    desk.advance(1_000)
    assert desk.answer(channel, number).code == 0


@pytest.mark.rule("W5.6b")
def test_delays_go_on_after_a_restart_and_deliver_once(desk):
    for number in range(3):
        desk.send(properties="DELAY\x011\x02", body=b"%d" % number)
    desk.advance(1_000)
    desk.send(properties="DELAY\x011\x02", body=b"3")
    desk.restart()
    desk.advance(1_000)
    assert desk.bodies() == [b"0", b"1", b"2", b"3"]


@pytest.mark.rule("W5.6c")
@pytest.mark.parametrize(
    ("properties", "wait_ms"),
    [
        ("TIMER_DELAY_SEC\x013\x02", 3_000),
        ("TIMER_DELAY_MS\x012500\x02", 2_000),
        (f"TIMER_DELIVER_MS\x01{START_MS + 60_000}\x02", 60_000),
    ],
)
def test_a_timer_delivers_when_it_is_due(desk, properties, wait_ms):
    assert "recallHandle" in desk.send(properties=properties).fields
    desk.advance(wait_ms - 1, 5_000)
    assert desk.messages() == []
    desk.advance(1)
    (message,) = desk.messages()
    assert message.properties["TIMER_OUT_MS"] == str(START_MS + wait_ms)
    assert message.properties["REAL_TOPIC"] == "orders"


@pytest.mark.rule("W5.6c")
def test_timers_deliver_in_the_order_of_their_times(desk):
    for seconds in (5, 1, 3):
        desk.send(properties=f"TIMER_DELAY_SEC\x01{seconds}\x02", body=b"%d" % seconds)
    desk.advance(2_000)
    desk.restart()
    desk.advance(10_000)
    assert desk.bodies() == [b"1", b"3", b"5"]


@pytest.mark.rule("W5.6c")
def test_timers_that_are_due_too_far_or_no_number(desk):
    assert desk.send(properties=f"TIMER_DELIVER_MS\x01{START_MS - 1}\x02").code == 0
    assert len(desk.messages()) == 1
    assert desk.send(properties="TIMER_DELAY_SEC\x01260000\x02").code == 13
    assert desk.send(properties="TIMER_DELAY_SEC\x01soon\x02").code == 13


@pytest.mark.rule("W2.3")
def test_a_timer_can_be_recalled_where_that_is_allowed(make_desk, desk):
    handle = desk.send(properties="TIMER_DELAY_SEC\x013\x02").fields["recallHandle"]
    fields = {"topic": "orders", "recallHandle": handle}
    assert desk.ask(desk.channel(), RequestCode.RECALL_MESSAGE, fields).code == 16
    other = make_desk("other", recall=True)
    other.topic("orders")
    answer = other.send(properties="TIMER_DELAY_SEC\x013\x02UNIQ_KEY\x01ID\x02")
    fields = {"topic": "orders", "recallHandle": answer.fields["recallHandle"]}
    answer = other.ask(other.channel(), RequestCode.RECALL_MESSAGE, fields)
    assert answer.fields == {"msgId": "ID"}
    other.advance(5_000)
    assert other.messages() == []
    assert other.ask(other.channel(), RequestCode.RECALL_MESSAGE, fields).code == 604


@pytest.mark.rule("W2.5c")
def test_messages_are_found_by_place_and_by_key(desk):
    desk.send(properties="KEYS\x01red blue\x02UNIQ_KEY\x01ID\x02", body=b"found")
    (message,) = desk.messages()
    channel = desk.channel()
    fields = {"offset": str(message.physical_offset)}
    answer = desk.ask(channel, RequestCode.VIEW_MESSAGE_BY_ID, fields)
    assert decode_records(answer.body, "b")[0].body == b"found"
    for offset in (message.physical_offset + 1, -1, 10**9):
        answer = desk.ask(channel, RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(offset)})
        assert answer.code == 1
    for key, code in (("red", 0), ("blue", 0), ("ID", 0), ("green", 22)):
        request = query_message_request(
            broker="broker-a", topic="orders", key=key, begin_ms=0, end_ms=desk.now_ms
        )
        answer = desk.ask(channel, request)
        assert answer.code == code
        assert {"indexLastUpdateTimestamp", "indexLastUpdatePhyoffset"} <= answer.fields.keys()
    request = query_message_request(
        broker="b", topic="orders", key="red", begin_ms=0, end_ms=desk.now_ms, max_messages=0
    )
    assert desk.ask(channel, request).code == 22


@pytest.mark.rule("W2.2")
def test_delay_offsets_are_shown(desk):
    desk.send(properties="DELAY\x011\x02")
    desk.advance(1_000)
    answer = desk.ask(desk.channel(), RequestCode.GET_ALL_DELAY_OFFSET)
    assert b'"1":1' in answer.body

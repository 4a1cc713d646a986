from __future__ import annotations

import pytest

from gimbalmq.model.queue import MessageQueue
from gimbalmq.wire.batch import BatchEntry, encode_batch
from gimbalmq.wire.bodies import GroupConfig, encode_group_config
from gimbalmq.wire.codes import RequestCode
from gimbalmq.wire.command import FLAG_ONEWAY
from gimbalmq.wire.headers import send_batch_request
from gimbalmq.wire.ids import parse_offset_id
from gimbalmq.wire.record import decode_records

QUEUE = MessageQueue("orders", "broker-a", 1)
#: The one-letter names of the newer forms of a send.
SHORT = {
    "b": "topic",
    "e": "queueId",
    "f": "sysFlag",
    "g": "bornTimestamp",
    "h": "flag",
    "i": "properties",
}


@pytest.mark.rule("W2.3f", "W5.1", "W6.3")
def test_a_send_is_stored_and_answered_in_full(desk):
    channel = desk.channel()
    answer = desk.send(
        properties="TAGS\x01a\x02UNIQ_KEY\x01ID\x02", queue=2, channel=channel, flag=7
    )
    (message,) = desk.messages(queue=2)
    assert answer.code == 0
    assert answer.fields == {
        "msgId": message.offset_message_id,
        "queueId": "2",
        "queueOffset": "0",
        "transactionId": "ID",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }
    assert (message.body, message.flag, message.tags) == (b"hello", 7, "a")
    assert message.born_host == channel.address
    assert message.store_host == "127.0.0.1:10911"
    assert message.properties["CLUSTER"] == "DefaultCluster"


@pytest.mark.rule("W2.3f", "W8b")
@pytest.mark.parametrize(
    ("code", "properties"),
    [
        (RequestCode.SEND_MESSAGE, ""),
        (RequestCode.SEND_MESSAGE_V2, ""),
        (RequestCode.SEND_MESSAGE_V2, "DELAY\x011\x02"),
        (RequestCode.SEND_MESSAGE_V2, "TIMER_DELAY_SEC\x015\x02"),
        (RequestCode.SEND_MESSAGE_V2, "TRAN_MSG\x01true\x02PGROUP\x01shop\x02"),
        (RequestCode.SEND_BATCH_MESSAGE, ""),
        (RequestCode.SEND_REPLY_MESSAGE, "REPLY_TO_CLIENT\x01asker\x02"),
        (RequestCode.SEND_REPLY_MESSAGE_V2, "REPLY_TO_CLIENT\x01asker\x02"),
    ],
)
def test_every_kind_of_send_is_answered_with_what_javas_client_relies_on(desk, code, properties):
    desk.heartbeat(desk.channel(), "asker", producers=("shop",))
    fields = {"topic": "orders", "queueId": "2", "sysFlag": "0", "bornTimestamp": "5", "flag": "0"}
    fields["properties"] = properties
    batch = code == RequestCode.SEND_BATCH_MESSAGE
    if code not in {RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE}:
        fields = {short: fields[name] for short, name in SHORT.items()} | {"m": str(batch).lower()}
    body = encode_batch([BatchEntry(b"x", b"a\x01b\x02")]) if batch else b"x"
    for offset in (0, 1):
        answer = desk.ask(desk.channel(), code, fields, body)
        assert answer.code == 0, answer.remark
        assert (answer.fields["queueId"], answer.fields["queueOffset"]) == ("2", str(offset))
        assert parse_offset_id(answer.fields["msgId"]).port == 10911
        assert (answer.fields["MSG_REGION"], answer.fields["TRACE_ON"]) == ("DefaultRegion", "true")


@pytest.mark.rule("W8b")
@pytest.mark.parametrize("name", [None, "broker-a", "broker-b"])
def test_a_request_may_leave_out_the_name_of_the_broker(desk, name):
    fields = {"topic": "orders", "queueId": "0", "sysFlag": "0", "bornTimestamp": "5", "flag": "0"}
    if name is not None:
        fields["bname"] = name
    assert desk.ask(desk.channel(), RequestCode.SEND_MESSAGE, fields, b"x").code == 0
    fields = {"topic": "orders", "queueId": "0", "consumerGroup": "billing", "queueOffset": "0"}
    fields |= {"maxMsgNums": "1", "sysFlag": "4"} | ({} if name is None else {"bname": name})
    assert desk.ask(desk.channel(), RequestCode.PULL_MESSAGE, fields).code == 0


@pytest.mark.rule("W8b")
@pytest.mark.parametrize("last", ["\x02", ""])
def test_properties_are_read_with_and_without_their_last_mark(desk, last):
    desk.send(properties=f"KEYS\x01\x02a\x011\x02TAGS\x01paid{last}")
    (message,) = desk.messages()
    assert (message.tags, message.properties["a"]) == ("paid", "1")
    assert "KEYS" not in message.properties
    assert message.properties["CLUSTER"] == "DefaultCluster"
    assert desk.pull(expression="paid").code == 0


@pytest.mark.rule("W8b")
def test_a_message_id_finds_its_message_after_a_restart(desk):
    place = parse_offset_id(desk.send(body=b"kept").fields["msgId"])
    assert (place.host, place.port) == ("127.0.0.1", 10911)
    desk.restart(clean=False)
    desk.send(body=b"later")
    fields = {"offset": str(place.offset)}
    answer = desk.ask(desk.channel(), RequestCode.VIEW_MESSAGE_BY_ID, fields)
    (message,) = decode_records(answer.body, "broker-a")
    assert message.body == b"kept"
    assert (message.physical_offset, message.store_host) == (place.offset, "127.0.0.1:10911")


@pytest.mark.rule("W5.1")
def test_the_first_form_of_a_send_says_the_same(desk):
    fields = {
        "producerGroup": "shop",
        "topic": "orders",
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": "0",
        "sysFlag": "0",
        "bornTimestamp": "5",
        "flag": "0",
        "properties": "KEYS\x01k\x02",
    }
    assert desk.ask(desk.channel(), RequestCode.SEND_MESSAGE, fields, b"v1").code == 0
    (message,) = desk.messages()
    assert (message.body, message.keys, message.born_timestamp_ms) == (b"v1", ("k",), 5)


@pytest.mark.rule("W2.0c")
@pytest.mark.parametrize("name", ["topic", "queueId", "sysFlag", "bornTimestamp", "flag"])
def test_a_send_that_lacks_what_is_needed_is_refused(desk, name):
    fields = {"topic": "orders", "queueId": "0", "sysFlag": "0", "bornTimestamp": "5", "flag": "0"}
    assert desk.ask(desk.channel(), RequestCode.SEND_MESSAGE, fields, b"x").code == 0
    del fields[name]
    answer = desk.ask(desk.channel(), RequestCode.SEND_MESSAGE, fields, b"x")
    assert answer.code == 1
    assert set(answer.fields) == {"MSG_REGION", "TRACE_ON"}


@pytest.mark.rule("W5.1", "W4.2")
def test_a_message_without_properties_gets_an_id(desk):
    answer = desk.send()
    (message,) = desk.messages()
    assert message.properties["UNIQ_KEY"] == answer.fields["transactionId"]
    assert len(message.message_id) == 32


@pytest.mark.rule("W4.5")
def test_what_must_not_be_stored_is_dropped(desk):
    desk.send(properties="POP_CK\x01x\x02__RMQ.TRANSIENT.a\x011\x02a\x01b\x02CLUSTER\x01fake\x02")
    (message,) = desk.messages()
    assert message.properties["a"] == "b"
    assert message.properties["CLUSTER"] == "DefaultCluster"
    assert not {"POP_CK", "__RMQ.TRANSIENT.a"} & message.properties.keys()


@pytest.mark.rule("W5.1")
@pytest.mark.parametrize(
    ("topic", "queue", "code"),
    [
        ("orders", 4, 29),
        ("SCHEDULE_TOPIC_XXXX", 0, 16),
        ("RMQ_SYS_TRANS_HALF_TOPIC", 0, 16),
        ("bad topic", 0, 29),
        ("x" * 128, 0, 29),
    ],
)
def test_sends_to_where_nothing_may_go_are_refused(desk, topic, queue, code):
    answer = desk.send(topic, queue=queue)
    assert answer.code == code
    assert answer.remark
    assert set(answer.fields) == {"MSG_REGION", "TRACE_ON"}


@pytest.mark.rule("W5.1", "W8b")
def test_too_large_or_empty_messages_are_refused(make_desk):
    desk = make_desk(body_bytes_max=10)
    assert desk.send("auto", b"x" * 11).code == 13
    assert desk.send("auto", b"x", properties="a\x01" + "y" * 32_767 + "\x02").code == 13
    assert desk.send("auto", b"").code == 1
    assert desk.send("auto", b"x" * 10).code == 0


@pytest.mark.rule("W2.3")
def test_a_negative_queue_lets_the_broker_choose(desk):
    chosen = {int(desk.send(queue=-1).fields["queueId"]) for _ in range(40)}
    assert chosen == {0, 1, 2, 3}


@pytest.mark.rule("W5.4")
@pytest.mark.parametrize(("asked", "made"), [(4, 4), (20, 8), (1, 1)])
def test_an_unknown_topic_is_made_from_the_template_and_announced(desk, asked, made):
    assert desk.send("auto", default_topic_queues=asked).code == 0
    config = desk.machine.topics.topics["auto"]
    assert (config.read_queues, config.write_queues, config.perm) == (made, made, 6)
    assert desk.announced == 1


@pytest.mark.rule("W5.4")
def test_without_auto_creation_an_unknown_topic_is_refused(make_desk):
    desk = make_desk(auto_create_topic=False)
    assert desk.send("auto").code == 17
    assert "TBW102" not in desk.machine.topics.topics


@pytest.mark.rule("W2.3f", "W4.8", "W8b")
def test_a_batch_is_stored_message_by_message(desk):
    body = encode_batch(
        [BatchEntry(b"m%d" % number, b"UNIQ_KEY\x01%d\x02" % number, number) for number in range(3)]
    )
    request = send_batch_request(
        group="shop",
        queue=QUEUE,
        body=body,
        born_timestamp_ms=1,
        # Java 5.x gives the batch an id, which 4.9 brokers then give to each of its messages.
        properties="UNIQ_KEY\x01BATCH\x02",
    )
    answer = desk.ask(desk.channel(), request)
    assert answer.fields["transactionId"] == "BATCH"
    messages = desk.messages(queue=1)
    assert [message.body for message in messages] == [b"m0", b"m1", b"m2"]
    assert [message.message_id for message in messages] == ["0", "1", "2"]
    assert [message.flag for message in messages] == [0, 1, 2]
    assert answer.fields["msgId"].split(",") == [one.offset_message_id for one in messages]
    assert answer.fields["queueOffset"] == "0"


@pytest.mark.rule("W2.3", "W4.8")
def test_batches_that_cannot_be_are_refused(desk):
    def send(body, properties="", topic="orders"):
        request = send_batch_request(
            group="shop",
            queue=MessageQueue(topic, "broker-a", 0),
            body=body,
            born_timestamp_ms=1,
            properties=properties,
        )
        return desk.ask(desk.channel(), request).code

    good = encode_batch([BatchEntry(b"x", b"a\x01b\x02")])
    assert send(good, "DELAY\x011\x02") == 13
    assert send(b"no batch") == 1
    assert send(good, topic="%RETRY%billing") == 13
    assert desk.messages() == []


@pytest.mark.rule("W1.4", "W2.3")
def test_a_one_way_send_is_stored_and_not_answered(desk):
    effects = desk.machine.handle(one_way(desk), desk.channel(), desk.now_ms)
    assert effects == []
    assert desk.bodies() == [b"quiet"]


def one_way(desk):
    from gimbalmq.wire.headers import send_request

    request = send_request(
        group="shop",
        queue=MessageQueue("orders", "broker-a", 0),
        body=b"quiet",
        properties="",
        born_timestamp_ms=desk.now_ms,
    )
    request.flag = FLAG_ONEWAY
    return request


@pytest.mark.rule("W2.3")
def test_a_reply_is_stored_and_pushed_to_who_asked(desk):
    asker = desk.channel()
    desk.heartbeat(asker, "asker", producers=("shop",))
    answer = desk.send(
        "DefaultCluster_REPLY_TOPIC",
        b"answer",
        properties="REPLY_TO_CLIENT\x01asker\x02CORRELATION_ID\x01c\x02",
        reply=True,
    )
    assert answer.code == 0
    (pushed,) = desk.pushed(asker)
    assert pushed.code == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
    assert pushed.body == b"answer"
    assert "CORRELATION_ID\x01c" in pushed.fields["properties"]
    assert desk.bodies("DefaultCluster_REPLY_TOPIC") == [b"answer"]


@pytest.mark.rule("W2.3")
def test_a_reply_to_nobody_is_stored_and_refused(desk):
    answer = desk.send(
        "DefaultCluster_REPLY_TOPIC", properties="REPLY_TO_CLIENT\x01gone\x02", reply=True
    )
    assert answer.code == 1
    assert "channel of <gone> not found" in answer.remark
    assert parse_offset_id(answer.fields["msgId"]).port == 10911


@pytest.mark.rule("B5.3e")
@pytest.mark.parametrize(
    ("times", "limit", "dead"), [(3, 3, False), (4, 3, True), (17, None, True)]
)
def test_a_retry_that_a_client_sends_itself_ends_as_a_dead_letter(desk, times, limit, dead):
    desk.send("%RETRY%billing", reconsume_times=times, max_reconsume_times=limit)
    assert len(desk.messages("%DLQ%billing")) == dead
    assert len(desk.messages("%RETRY%billing")) == (not dead)


@pytest.mark.rule("B5.3e")
def test_a_retry_of_a_group_that_holds_locks_is_a_dead_letter_at_once(desk):
    desk.lock(desk.channel(), "one", 0)
    desk.send("%RETRY%billing", properties="DELAY\x013\x02", reconsume_times=1)
    assert len(desk.messages("%DLQ%billing")) == 1


def test_the_number_of_topics_is_bounded(make_desk):
    desk = make_desk(topics_max=20)
    codes = [desk.send(f"auto-{number}").code for number in range(20)]
    assert codes[0] == 0
    assert codes[-1] == 1
    assert len(desk.machine.topics.topics) == 20


def test_the_number_of_groups_is_bounded(make_desk):
    desk = make_desk(groups_max=10)
    codes = [
        desk.ask(
            desk.channel(),
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
            body=encode_group_config(GroupConfig(f"g{number}")),
        ).code
        for number in range(5)
    ]
    assert codes[-1] == 1

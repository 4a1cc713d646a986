from __future__ import annotations

import pytest

from gimbalmq.errors import ProtocolError
from gimbalmq.model.queue import MessageQueue
from gimbalmq.wire import headers
from gimbalmq.wire.codes import PullFlag, RequestCode
from gimbalmq.wire.command import Command
from gimbalmq.wire.header_fields import parse_fields, request_fields

QUEUE = MessageQueue("orders", "broker-a", 3)

REQUESTS = {
    "route": headers.route_request("orders"),
    "send": headers.send_request(
        group="g", queue=QUEUE, body=b"b", properties="TAGS\x01a\x02", born_timestamp_ms=5
    ),
    "batch": headers.send_batch_request(group="g", queue=QUEUE, body=b"b", born_timestamp_ms=5),
    "pull": headers.pull_request(group="g", queue=QUEUE, offset=7, sys_flag=PullFlag.SUSPEND),
    "query offset": headers.query_offset_request("g", QUEUE, zero_if_absent=False),
    "update offset": headers.update_offset_request("g", QUEUE, 9),
    "max": headers.max_offset_request(QUEUE),
    "min": headers.min_offset_request(QUEUE),
    "earliest": headers.earliest_time_request(QUEUE),
    "search": headers.search_offset_request(QUEUE, 11, boundary="UPPER"),
    "heartbeat": headers.heartbeat_request("broker-a", b"{}"),
    "unregister": headers.unregister_request(
        "broker-a", "id", producer_group="p", consumer_group="c"
    ),
    "consumer list": headers.consumer_list_request("broker-a", "g"),
    "lock": headers.lock_request("broker-a", b"{}"),
    "unlock": headers.unlock_request("broker-a", b"{}"),
    "send back": headers.send_back_request(
        group="g", broker="broker-a", physical_offset=12, topic="orders", message_id="id"
    ),
    "end transaction": headers.end_transaction_request(
        group="g",
        broker="broker-a",
        topic="orders",
        state=8,
        queue_offset=1,
        physical_offset=2,
        message_id="id",
    ),
    "view": headers.view_message_request("broker-a", 12, topic="orders"),
    "query message": headers.query_message_request(
        broker="broker-a", topic="orders", key="k", begin_ms=0, end_ms=9
    ),
}


@pytest.mark.rule("W2.0", "W2.3", "W2.4a", "W2.5a", "W2.6a")
@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_has_every_field_that_java_requires_and_no_unknown_one(name):
    command = REQUESTS[name]
    specs = request_fields(RequestCode(command.code))
    parse_fields(specs, command.fields, strict=True)
    # A view names the broker for the proxy's sake; the key query's mark is in no header class.
    assert set(command.fields) - set(specs) <= {"bname", "_UNIQUE_KEY_QUERY"}
    assert all(type(value) is str for value in command.fields.values())


@pytest.mark.rule("W2.0", "W6.4", "W2.0b", "W8a")
@pytest.mark.parametrize("name", [name for name in REQUESTS if name != "route"])
def test_every_request_to_a_broker_names_the_broker(name):
    fields = REQUESTS[name].fields
    assert fields.get("bname", fields.get("n")) == "broker-a"


@pytest.mark.rule("W1.6", "W3.1")
def test_a_route_is_asked_for_in_standard_json():
    assert REQUESTS["route"].fields == {"topic": "orders", "acceptStandardJsonOnly": "true"}


@pytest.mark.rule("W2.3")
def test_a_send_carries_its_values_under_letters():
    send = headers.send_request(
        group="g",
        queue=QUEUE,
        body=b"body",
        properties="p",
        born_timestamp_ms=5,
        sys_flag=1,
        flag=2,
        default_topic="D",
        default_topic_queues=8,
        reconsume_times=4,
        max_reconsume_times=6,
        reply=True,
    )
    assert send.code == RequestCode.SEND_REPLY_MESSAGE_V2
    assert "".join(sorted(send.fields)) == "abcdefghijklmn"
    assert [send.fields[letter] for letter in "abcdefghijklmn"] == (
        ["g", "orders", "D", "8", "3", "1", "5", "2", "p", "4", "false", "6", "false", "broker-a"]
    )
    assert send.body == b"body"


@pytest.mark.rule("W2.3")
def test_a_batch_says_that_it_is_one_in_code_and_field():
    batch = REQUESTS["batch"]
    assert batch.code == RequestCode.SEND_BATCH_MESSAGE
    assert batch.fields["m"] == "true"
    assert batch.fields["i"] == ""


@pytest.mark.rule("W2.4a")
def test_a_pull_can_carry_its_own_subscription():
    pull = headers.pull_request(
        group="g",
        queue=QUEUE,
        offset=7,
        sys_flag=PullFlag.SUSPEND | PullFlag.SUBSCRIPTION,
        max_messages=16,
        commit_offset=5,
        suspend_timeout_ms=15_000,
        expression="a || b",
        expression_type="TAG",
        subscription_version_ms=99,
        lite=True,
    )
    assert pull.code == RequestCode.LITE_PULL_MESSAGE
    assert pull.fields == {
        "consumerGroup": "g",
        "topic": "orders",
        "queueId": "3",
        "queueOffset": "7",
        "maxMsgNums": "16",
        "sysFlag": "6",
        "commitOffset": "5",
        "suspendTimeoutMillis": "15000",
        "subVersion": "99",
        "bname": "broker-a",
        "subscription": "a || b",
        "expressionType": "TAG",
    }


def test_requests_that_nobody_waits_for_are_oneway():
    assert headers.update_offset_request("g", QUEUE, 1, oneway=True).is_oneway
    assert headers.unlock_request("b", b"", oneway=True).is_oneway
    assert REQUESTS["end transaction"].is_oneway
    assert not REQUESTS["update offset"].is_oneway


@pytest.mark.rule("W2.3")
def test_a_send_answer_is_read():
    answer = Command(
        0,
        {
            "msgId": "A,B",
            "queueId": "3",
            "queueOffset": "5",
            "transactionId": "T",
            "recallHandle": "R",
            "MSG_REGION": "here",
            "TRACE_ON": "false",
        },
    )
    assert headers.parse_send_response(answer) == headers.SendResponse(
        ("A", "B"), 3, 5, "T", "R", "here", trace_on=False
    )
    old = Command(0, {"msgId": "A", "queueId": "3", "queueOffset": "5"})
    assert headers.parse_send_response(old) == headers.SendResponse(("A",), 3, 5)


def test_a_pull_is_moved_to_another_place_as_if_made_anew():
    parts = {"group": "g", "queue": QUEUE, "sys_flag": PullFlag.SUBSCRIPTION, "expression": "*"}
    request = headers.pull_request(offset=7, **parts)
    headers.set_pull_place(request, 1 << 40, 5)
    assert request == headers.pull_request(offset=1 << 40, max_messages=5, **parts)


@pytest.mark.rule("W2.4b")
def test_a_pull_answer_is_read():
    fields = {
        "nextBeginOffset": "9",
        "minOffset": "1",
        "maxOffset": "20",
        "suggestWhichBrokerId": "0",
    }
    assert headers.parse_pull_response(Command(19, fields)) == headers.PullResponse(9, 1, 20, 0)
    moved = headers.parse_pull_response(Command(0, {**fields, "offsetDelta": "100"}))
    assert moved.offset_delta == 100


@pytest.mark.rule("W2.5a")
def test_offsets_and_times_are_read():
    assert headers.parse_offset(Command(0, {"offset": "-1"})) == -1
    assert headers.parse_timestamp(Command(0, {"timestamp": "5"})) == 5


@pytest.mark.parametrize(
    ("parse", "fields", "missing"),
    [
        (headers.parse_send_response, {"queueId": "3", "queueOffset": "5"}, "msgId"),
        (headers.parse_send_response, {"msgId": "A", "queueOffset": "5"}, "queueId"),
        (headers.parse_send_response, {"msgId": "A", "queueId": "x"}, "queueId"),
        (headers.parse_pull_response, {"minOffset": "1"}, "nextBeginOffset"),
        (headers.parse_offset, {}, "offset"),
    ],
)
def test_a_missing_field_is_a_protocol_error_that_shows_the_remark(parse, fields, missing):
    with pytest.raises(ProtocolError, match=missing) as caught:
        parse(Command(0, fields, remark="because"))
    assert "because" in str(caught.value)

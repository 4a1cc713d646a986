"""What a request must not lack: its sender is told so, and never left waiting."""

from __future__ import annotations

import pytest

from gimbalmq.wire.codes import RequestCode
from gimbalmq.wire.ids import parse_offset_id

C = RequestCode

#: Fields that a request cannot do without, and the code of the answer when they are missing.
NEEDED = {
    (C.SEND_MESSAGE, 1): "topic queueId sysFlag bornTimestamp flag",
    (C.SEND_MESSAGE_V2, 1): "b e f g h",
    (C.SEND_REPLY_MESSAGE_V2, 1): "b e f g h",
    (C.PULL_MESSAGE, 1): "consumerGroup topic queueId queueOffset maxMsgNums sysFlag",
    (C.LITE_PULL_MESSAGE, 1): "consumerGroup topic queueId queueOffset maxMsgNums sysFlag",
    (C.POP_MESSAGE, 1): "consumerGroup topic",
    (C.QUERY_CONSUMER_OFFSET, 1): "topic queueId",
    (C.UPDATE_CONSUMER_OFFSET, 29): "queueId commitOffset",
    (C.UPDATE_CONSUMER_OFFSET, 26): "consumerGroup",
    (C.SEARCH_OFFSET_BY_TIMESTAMP, 1): "topic queueId timestamp",
    (C.GET_MAX_OFFSET, 1): "topic queueId",
    (C.GET_MIN_OFFSET, 1): "topic queueId",
    (C.GET_EARLIEST_MSG_STORETIME, 1): "topic queueId",
    (C.QUERY_MESSAGE, 1): "maxNum beginTimestamp endTimestamp",
    (C.VIEW_MESSAGE_BY_ID, 1): "offset",
    (C.CONSUMER_SEND_MSG_BACK, 1): "offset group delayLevel",
    (C.END_TRANSACTION, 1): "producerGroup tranStateTableOffset commitLogOffset commitOrRollback",
    (C.UPDATE_AND_CREATE_TOPIC, 1): "topic readQueueNums writeQueueNums perm topicFilterType",
    (C.GET_CONSUMER_LIST_BY_GROUP, 1): "consumerGroup",
}
CASES = [(code, name, told) for (code, told), names in NEEDED.items() for name in names.split()]
TEXTS = frozenset({"b", "topic", "group", "consumerGroup", "producerGroup", "topicFilterType"})


@pytest.fixture
def whole(desk):
    """A request of each kind that lacks nothing, about something that is there."""
    desk.heartbeat(desk.channel(), "one", "billing", producers=("shop",))
    stored = desk.send(properties="KEYS\x01k\x02")
    half = desk.send(properties="TRAN_MSG\x01true\x02PGROUP\x01shop\x02")
    desk.commit(0)
    place = str(parse_offset_id(stored.fields["msgId"]).offset)
    queue = {"topic": "orders", "queueId": "0"}
    send = queue | {"sysFlag": "0", "bornTimestamp": "5", "flag": "0"}
    short = {"b": "orders", "e": "0", "f": "0", "g": "5", "h": "0"}
    reply = {"i": "REPLY_TO_CLIENT\x01one\x02"}
    group = {"consumerGroup": "billing"}
    pull = queue | group | {"queueOffset": "0", "maxMsgNums": "1", "sysFlag": "4"}
    times = {"beginTimestamp": "0", "endTimestamp": str(desk.now_ms)}
    return {
        C.SEND_MESSAGE: send,
        C.SEND_MESSAGE_V2: short,
        C.SEND_REPLY_MESSAGE_V2: short | reply,
        C.PULL_MESSAGE: pull,
        C.LITE_PULL_MESSAGE: pull,
        C.POP_MESSAGE: queue | group | {"maxMsgNums": "1", "invisibleTime": "1000"},
        C.QUERY_CONSUMER_OFFSET: queue | group,
        C.UPDATE_CONSUMER_OFFSET: queue | group | {"commitOffset": "1"},
        C.SEARCH_OFFSET_BY_TIMESTAMP: queue | {"timestamp": "0"},
        C.GET_MAX_OFFSET: queue,
        C.GET_MIN_OFFSET: queue,
        C.GET_EARLIEST_MSG_STORETIME: queue,
        C.QUERY_MESSAGE: {"topic": "orders", "key": "k", "maxNum": "1", **times},
        C.VIEW_MESSAGE_BY_ID: {"offset": place},
        C.CONSUMER_SEND_MSG_BACK: {"offset": place, "group": "billing", "delayLevel": "0"},
        C.END_TRANSACTION: {
            "producerGroup": "shop",
            "tranStateTableOffset": half.fields["queueOffset"],
            "commitLogOffset": str(parse_offset_id(half.fields["msgId"]).offset),
            "commitOrRollback": "8",
        },
        C.UPDATE_AND_CREATE_TOPIC: {
            "topic": "made",
            "readQueueNums": "1",
            "writeQueueNums": "1",
            "perm": "6",
            "topicFilterType": "SINGLE_TAG",
        },
        C.GET_CONSUMER_LIST_BY_GROUP: group,
    }


def code_of(desk, code, fields):
    answer = desk.ask(desk.channel(), code, fields, b"x")
    assert answer is not None, "no answer"
    return answer.code


@pytest.mark.rule("W2.0c")
@pytest.mark.parametrize("code", sorted({code for code, _ in NEEDED}))
def test_a_request_that_lacks_nothing_is_done(desk, whole, code):
    assert code_of(desk, code, whole[code]) == 0


@pytest.mark.rule("W2.0c")
@pytest.mark.parametrize(("code", "name", "told"), CASES)
def test_a_request_that_lacks_what_it_needs_is_answered_with_an_error(
    desk, whole, code, name, told
):
    fields = dict(whole[code])
    del fields[name]
    assert code_of(desk, code, fields) == told


@pytest.mark.rule("W2.0c")
@pytest.mark.parametrize(("code", "name", "told"), [one for one in CASES if one[1] not in TEXTS])
def test_what_is_no_number_is_missing(desk, whole, code, name, told):
    for text in ("", "soon", "9" * 30):
        assert code_of(desk, code, whole[code] | {name: text}) == told

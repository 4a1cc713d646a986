from __future__ import annotations

import pytest

from gimbalmq.model.queue import MessageQueue
from gimbalmq.wire import bodies
from gimbalmq.wire.codes import PullFlag, RequestCode


@pytest.mark.rule("B8.4a", "W2.5c", "W5.5a")
@pytest.mark.parametrize("offset", [5, 3, 99])
def test_a_commit_overwrites_whatever_was_there(desk, offset):
    desk.commit(4)
    assert desk.commit(offset).code == 0
    assert desk.committed().fields == {"offset": str(offset)}


@pytest.mark.rule("W2.5c")
def test_a_negative_commit_reads_back_as_none(desk):
    desk.commit(-1)
    assert desk.committed().code == 22


@pytest.mark.rule("W2.5c")
def test_a_commit_needs_a_known_topic_and_whole_fields(make_desk):
    desk = make_desk(auto_create_group=False)
    desk.topic("orders")
    assert desk.commit(1).code == 26
    desk.ask(
        desk.channel(),
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        body=bodies.encode_group_config(bodies.GroupConfig("billing")),
    )
    assert desk.commit(1, topic="none").code == 17
    fields = {"consumerGroup": "billing", "topic": "orders"}
    assert desk.ask(desk.channel(), RequestCode.UPDATE_CONSUMER_OFFSET, fields).code == 29
    assert desk.commit(1).code == 0


@pytest.mark.rule("W2.5c", "W5.5a", "W8b")
def test_a_group_without_offset_starts_at_zero_only_in_a_young_queue(desk):
    assert desk.committed().code == 22
    desk.send()
    assert desk.committed().fields == {"offset": "0"}
    assert desk.committed(setZeroIfNotFound="false").code == 22


@pytest.mark.rule("W2.5c", "W5.5a")
def test_a_group_without_offset_in_a_queue_that_has_lost_messages_has_none(aged_desk):
    assert aged_desk.committed().code == 22
    aged_desk.commit(3)
    assert aged_desk.committed().fields == {"offset": "3"}


@pytest.mark.rule("W2.5c")
def test_an_unknown_queue_is_an_empty_one(desk):
    where = {"topic": "none", "queueId": "7", "timestamp": "0"}
    for code, told in (
        (RequestCode.GET_MAX_OFFSET, {"offset": "0"}),
        (RequestCode.GET_MIN_OFFSET, {"offset": "0"}),
        (RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, {"offset": "0"}),
        (RequestCode.GET_EARLIEST_MSG_STORETIME, {"timestamp": "-1"}),
    ):
        answer = desk.ask(desk.channel(), code, where)
        assert (answer.code, answer.fields) == (0, told)


@pytest.mark.rule("W2.5c")
def test_bounds_and_times_of_a_queue(desk):
    channel = desk.channel()
    where = {"topic": "orders", "queueId": "0"}

    def ask(code, **more):
        answer = desk.ask(channel, code, {**where, **more})
        assert answer.code == 0
        (value,) = answer.fields.values()
        return int(value)

    assert ask(RequestCode.GET_MAX_OFFSET) == 0
    assert ask(RequestCode.GET_EARLIEST_MSG_STORETIME) == -1
    start = desk.now_ms
    for _ in range(3):
        desk.send()
        desk.now_ms += 1000
    assert ask(RequestCode.GET_MAX_OFFSET) == 3
    assert ask(RequestCode.GET_MIN_OFFSET) == 0
    assert ask(RequestCode.GET_EARLIEST_MSG_STORETIME) == start
    search = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
    assert ask(search, timestamp=str(start + 500)) == 1
    assert ask(search, timestamp=str(start + 500), boundaryType="upper") == 0
    assert ask(search, timestamp=str(start + 9000)) == 3
    assert ask(search, timestamp="0") == 0
    assert desk.ask(channel, RequestCode.GET_MAX_OFFSET, {"topic": "orders"}).code == 1


def reset(desk, **more):
    fields = {"topic": "orders", "group": "billing", "timestamp": "-1", "isForce": "true", **more}
    return desk.ask(desk.channel(), RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields)


@pytest.mark.rule("B5.6b", "W2.9b", "W5.5b")
def test_a_reset_waits_for_the_next_pull_and_voids_commits_until_then(desk):
    desk.heartbeat(desk.channel(), "one", "billing")
    for _ in range(5):
        desk.send()
    desk.commit(5)
    answer = reset(desk, timestamp="0")
    queues = {MessageQueue("orders", "broker-a", number): 0 for number in range(4)}
    assert bodies.decode_reset_offsets(answer.body) == queues
    answer = desk.commit(4)
    assert (answer.code, answer.remark) == (0, "Offset has been previously reset")
    assert desk.committed().fields == {"offset": "0"}
    # Nor does a commit count that comes with the pull.
    flags = int(PullFlag.SUBSCRIPTION | PullFlag.COMMIT_OFFSET)
    answer = desk.pull(5, sys_flag=flags, commit_offset=5)
    assert (answer.code, answer.remark) == (21, "OFFSET_RESET")
    assert answer.fields["nextBeginOffset"] == "0"
    assert desk.committed().fields == {"offset": "0"}
    assert desk.pull(5).code == 19
    desk.commit(1)
    assert desk.committed().fields == {"offset": "1"}


@pytest.mark.rule("B5.6b", "W5.5b")
def test_a_held_pull_learns_of_a_reset_when_it_ends(desk):
    desk.send()
    channel = desk.channel()
    flags = int(PullFlag.SUBSCRIPTION | PullFlag.SUSPEND)
    number = desk.hold(channel, desk.pull_command(1, sys_flag=flags, suspend_timeout_ms=10_000))
    reset(desk, timestamp="0")
    assert desk.answer(channel, number) is None
    desk.advance(10_000)
    assert desk.answer(channel, number).code == 21


@pytest.mark.rule("W2.9b")
def test_one_queue_may_be_reset_to_an_offset(desk):
    desk.heartbeat(desk.channel(), "one", "billing")
    for _ in range(5):
        desk.send()
    answer = reset(desk, queueId="0", offset="3")
    table = bodies.decode_reset_offsets(answer.body)
    assert table == {MessageQueue("orders", "broker-a", 0): 3}
    assert reset(desk, queueId="0", offset="9").code == 29
    assert reset(desk, queueId="9", offset="0").code == 29


@pytest.mark.rule("W2.9b")
def test_a_reset_needs_a_known_group_and_topic(desk):
    assert reset(desk).code == 26
    desk.heartbeat(desk.channel(), "one", "billing")
    assert reset(desk, topic="none").code == 17
    assert reset(desk).code == 0


@pytest.mark.rule("B8.4a", "W2.9b")
def test_offsets_are_saved_at_an_interval_and_outlive_the_process(desk):
    desk.commit(3)
    desk.advance(5_000)
    desk.commit(4)
    desk.restart(clean=False)
    assert desk.committed().fields == {"offset": "3"}
    desk.commit(5)
    desk.restart()
    assert desk.committed().fields == {"offset": "5"}
    answer = desk.ask(desk.channel(), RequestCode.GET_ALL_CONSUMER_OFFSET)
    assert bodies.decode_consumer_offsets(answer.body) == {("orders", "billing"): {0: 5}}


@pytest.mark.rule("W2.2")
def test_a_group_may_get_the_offsets_of_another(desk):
    desk.commit(3)
    fields = {"srcGroup": "billing", "destGroup": "audit", "topic": "orders"}
    assert desk.ask(desk.channel(), RequestCode.CLONE_GROUP_OFFSET, fields).code == 0
    assert desk.committed(group="audit").fields == {"offset": "3"}

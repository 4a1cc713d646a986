from __future__ import annotations

import pytest

from broker.desk import sql
from gimbalmq.broker.store import StoreError
from gimbalmq.wire.bodies import GroupConfig, encode_group_config
from gimbalmq.wire.codes import PullFlag, RequestCode
from gimbalmq.wire.record import decode_records
from gimbalmq.wire.subscription import parse_tags

SUSPEND = int(PullFlag.SUBSCRIPTION | PullFlag.SUSPEND)


def outcome(answer):
    return answer.code, int(answer.fields["nextBeginOffset"])


@pytest.mark.rule("W2.4c", "W5.2", "W8b")
def test_a_pull_gives_records_from_its_offset_on(desk):
    for number in range(5):
        desk.send(body=b"m%d" % number)
    answer = desk.pull(2)
    assert answer.code == 0
    assert answer.remark == "FOUND"
    assert [message.body for message in decode_records(answer.body, "b")] == [b"m2", b"m3", b"m4"]
    assert answer.fields == {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": "5",
        "minOffset": "0",
        "maxOffset": "5",
        "topicSysFlag": "0",
        "groupSysFlag": "0",
    }


@pytest.mark.rule("W2.4c", "W8b")
def test_each_of_the_four_codes_carries_the_four_offsets(desk):
    def told(answer):
        names = ("suggestWhichBrokerId", "nextBeginOffset", "minOffset", "maxOffset")
        return answer.code, *(int(answer.fields[name]) for name in names)

    for _ in range(3):
        desk.send(properties="TAGS\x01a\x02")
    assert told(desk.pull(1)) == (0, 0, 3, 0, 3)
    assert told(desk.pull(3)) == (19, 0, 3, 0, 3)
    assert told(desk.pull(1, expression="b")) == (20, 0, 3, 0, 3)
    assert told(desk.pull(9)) == (21, 0, 3, 0, 3)
    assert told(desk.pull(9, queue=1)) == (21, 0, 0, 0, 0)
    fields = {"topic": "orders", "group": "billing", "timestamp": "0", "isForce": "true"}
    desk.ask(desk.channel(), RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields)
    assert told(desk.pull(3)) == (21, 0, 0, 0, 3)
    channel = desk.channel()
    number = desk.hold(channel, desk.pull_command(3, sys_flag=SUSPEND, suspend_timeout_ms=7_000))
    desk.advance(10_000)
    assert told(desk.answer(channel, number)) == (19, 0, 3, 0, 3)


@pytest.mark.rule("B4.4b", "W5.2")
def test_an_offset_before_the_first_message_is_answered_with_that_of_the_first(aged_desk):
    minimum, maximum = aged_desk.store.bounds("orders", 0)
    assert outcome(aged_desk.pull(minimum - 1)) == (21, minimum)
    assert outcome(aged_desk.pull(0)) == (21, minimum)
    assert outcome(aged_desk.pull(maximum + 1)) == (21, maximum)
    assert aged_desk.pull(minimum).code == 0


@pytest.mark.rule("B4.4b", "W5.2")
def test_offsets_out_of_range_are_answered_with_where_to_go_on(desk):
    assert outcome(desk.pull(0)) == (19, 0)
    assert outcome(desk.pull(3)) == (21, 0)
    desk.send()
    desk.send()
    assert outcome(desk.pull(2)) == (19, 2)
    assert outcome(desk.pull(9)) == (21, 2)
    assert outcome(desk.pull(-1)) == (21, 0)


@pytest.mark.rule("B4.4c", "W5.2")
def test_a_pull_is_bounded_in_number_and_size(desk):
    for _ in range(40):
        desk.send(body=b"x" * 100)
    assert len(decode_records(desk.pull(max_messages=50).body, "b")) == 32
    assert len(decode_records(desk.pull(max_messages=0).body, "b")) == 1
    for _ in range(30):
        desk.send(queue=1, body=b"x" * 20_000)
    answer = desk.pull(queue=1)
    assert len(answer.body) <= 256 * 1024
    assert 12 <= len(decode_records(answer.body, "b")) <= 13
    desk.send(queue=2, body=b"x" * 1_000_000)
    assert len(decode_records(desk.pull(queue=2).body, "b")) == 1


@pytest.mark.rule("B4.4a", "W5.2")
def test_the_checks_come_in_javas_order(make_desk):
    """Everything is wrong with the pull at first; then one thing after the other is mended."""
    desk = make_desk(auto_create_group=False)
    member = desk.channel()

    def told(queue=7, version_ms=6, sys_flag=0, **given):
        answer = desk.pull(
            queue=queue, sys_flag=sys_flag, subscription_version_ms=version_ms, **given
        )
        return answer.code, answer.fields

    def group(*, enabled, broadcast):
        config = GroupConfig("billing", consume_enable=enabled, consume_broadcast_enable=broadcast)
        desk.ask(
            desk.channel(),
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
            body=encode_group_config(config),
        )

    assert told() == (26, {})
    group(enabled=False, broadcast=False)
    assert told() == (16, {"forbiddenType": "2"})
    group(enabled=True, broadcast=False)
    assert told() == (17, {})
    desk.topic("orders", 4, perm=2)
    assert told() == (16, {"forbiddenType": "3"})
    desk.topic("orders", 4)
    assert told() == (29, {})
    assert told(queue=-1) == (29, {})
    assert told(queue=4) == (29, {})
    assert told(queue=3, expression="||", sys_flag=4) == (23, {})
    assert told(queue=3) == (24, {})
    desk.heartbeat(member, "one", "billing", topics=("other",), message_model="BROADCASTING")
    assert told(queue=3) == (16, {"forbiddenType": "4"})
    group(enabled=True, broadcast=True)
    assert told(queue=3) == (24, {})
    desk.heartbeat(member, "one", "billing", subscriptions=(sql("orders", "a <", 5),))
    assert told(queue=3) == (25, {})
    assert told(queue=3, version_ms=5) == (27, {})
    desk.heartbeat(member, "one", "billing", version_ms=6)
    assert told(queue=3)[0] == 19


@pytest.mark.rule("W3.3", "W5.2")
def test_tags_filter_by_their_hash(desk):
    for tag in ("a", "b", "", "a"):
        desk.send(properties=f"TAGS\x01{tag}\x02" if tag else "", body=tag.encode() or b"none")
    assert pulled(desk.pull(expression="a")) == [b"a", b"a"]
    assert pulled(desk.pull(expression="a || b")) == [b"a", b"b", b"a"]
    assert outcome(desk.pull(expression="zzz")) == (20, 4)
    desk.heartbeat(desk.channel(), "one", "billing", subscriptions=(parse_tags("orders", "b", 1),))
    # The registered subscription counts, not what the pull says.
    assert pulled(desk.pull(sys_flag=0, expression="a")) == [b"b"]


@pytest.mark.rule("W8b")
@pytest.mark.parametrize("tag", ["Aa", "BB"])
def test_tags_with_the_same_hash_in_java_are_the_same_to_the_broker(desk, tag):
    for stored in ("Aa", "BB", "Bb"):
        desk.send(properties=f"TAGS\x01{stored}\x02", body=stored.encode())
    assert pulled(desk.pull(expression=tag)) == [b"Aa", b"BB"]
    channel = desk.channel()
    request = desk.pull_command(3, expression=tag, sys_flag=SUSPEND, suspend_timeout_ms=9_000)
    number = desk.hold(channel, request)
    desk.send(properties="TAGS\x01BB\x02", body=b"woken")
    assert pulled(desk.answer(channel, number)) == [b"woken"]


def pulled(answer):
    assert answer.code == 0, answer.remark
    return [message.body for message in decode_records(answer.body, "b")]


@pytest.mark.rule("W5.2")
def test_sql_filters_by_properties(desk):
    for number in range(4):
        desk.send(properties=f"a\x01{number}\x02", body=b"%d" % number)
    assert pulled(desk.pull(expression="a > 1", expression_type="SQL92")) == [b"2", b"3"]
    one = desk.channel()
    desk.heartbeat(one, "one", "billing", subscriptions=(sql("orders", "a < 1"),))
    assert pulled(desk.pull(sys_flag=0)) == [b"0"]
    desk.heartbeat(one, "one", "billing", subscriptions=(sql("orders", "a <", 2),))
    assert desk.pull(sys_flag=0).code == 27


@pytest.mark.rule("W2.4", "W8b")
@pytest.mark.parametrize(("faithful", "code"), [(False, 23), (True, 0)])
def test_sql_that_cannot_be_read_is_refused_unless_java_is_to_be_followed(
    make_desk, faithful, code
):
    desk = make_desk(faithful=faithful)
    desk.topic("orders")
    desk.send()
    assert desk.pull(expression="a >", expression_type="SQL92").code == code
    assert desk.pull(expression="a", expression_type="XPATH").code == code


@pytest.mark.rule("W5.2", "B4.4")
def test_a_filtering_pull_scans_only_so_far(make_desk):
    desk = make_desk(pull_scan_max=10)
    desk.topic("orders")
    for _ in range(25):
        desk.send(properties="TAGS\x01a\x02")
    assert outcome(desk.pull(expression="b")) == (20, 10)


@pytest.mark.rule("W5.2")
def test_a_pull_commits_the_offset_that_it_carries_once(desk):
    flags = SUSPEND | PullFlag.COMMIT_OFFSET
    channel = desk.channel()
    request = desk.pull_command(sys_flag=flags, commit_offset=7, suspend_timeout_ms=10_000)
    number = desk.hold(channel, request)
    assert desk.committed().fields["offset"] == "7"
    desk.commit(9)
    desk.send()
    assert desk.answer(channel, number).code == 0
    assert desk.committed().fields["offset"] == "9"


@pytest.mark.rule("B4.4d", "W5.3")
def test_a_held_pull_is_answered_by_the_message_that_it_wants(desk):
    channel = desk.channel()
    number = desk.hold(
        channel, desk.pull_command(expression="a", sys_flag=SUSPEND, suspend_timeout_ms=15_000)
    )
    desk.send(queue=1, properties="TAGS\x01a\x02")
    desk.send(properties="TAGS\x01b\x02")
    assert desk.answer(channel, number) is None
    desk.send(properties="TAGS\x01a\x02", body=b"wanted")
    assert pulled(desk.answer(channel, number)) == [b"wanted"]


@pytest.mark.rule("W5.3")
def test_the_sweep_answers_a_held_pull_that_got_only_what_it_does_not_want(desk):
    channel = desk.channel()
    number = desk.hold(
        channel, desk.pull_command(expression="a", sys_flag=SUSPEND, suspend_timeout_ms=15_000)
    )
    desk.send(properties="TAGS\x01b\x02")
    desk.advance(5_000)
    assert outcome(desk.answer(channel, number)) == (20, 1)


@pytest.mark.rule("B4.4d", "W5.3")
def test_a_held_pull_ends_by_itself_when_nothing_comes(desk):
    channel = desk.channel()
    number = desk.hold(channel, desk.pull_command(sys_flag=SUSPEND, suspend_timeout_ms=7_000))
    desk.advance(5_000)
    assert desk.answer(channel, number) is None
    desk.advance(5_000)
    assert outcome(desk.answer(channel, number)) == (19, 0)


@pytest.mark.rule("W5.3", "W6.3")
def test_a_held_pull_does_not_hold_up_its_connection(desk):
    channel = desk.channel()
    desk.hold(channel, desk.pull_command(sys_flag=SUSPEND, suspend_timeout_ms=7_000))
    assert desk.heartbeat(channel, "one", "billing").code == 0


@pytest.mark.rule("W5.3")
def test_held_pulls_go_with_their_connection(desk):
    channel = desk.channel()
    desk.hold(channel, desk.pull_command(sys_flag=SUSPEND, suspend_timeout_ms=7_000))
    desk.lose(channel)
    desk.send()
    assert desk.sent == []


@pytest.mark.rule("W2.0c")
def test_a_held_pull_that_cannot_be_served_is_told_so_and_the_sender_is_not(desk, monkeypatch):
    def unreadable(*_, **__):
        raise StoreError("the device failed")

    channel = desk.channel()
    number = desk.hold(channel, desk.pull_command(sys_flag=SUSPEND, suspend_timeout_ms=7_000))
    monkeypatch.setattr(desk.store, "read", unreadable)
    assert desk.send().code == 0
    answer = desk.answer(channel, number)
    assert (answer.code, answer.remark) == (14, "the device failed")


def test_the_number_of_held_pulls_is_bounded(make_desk):
    desk = make_desk(parked_max=2)
    desk.topic("orders")
    for _ in range(2):
        desk.hold(desk.channel(), desk.pull_command(sys_flag=SUSPEND, suspend_timeout_ms=7_000))
    request = desk.pull_command(sys_flag=SUSPEND, suspend_timeout_ms=7_000)
    assert desk.ask(desk.channel(), request).code == 19


@pytest.mark.rule("W2.4")
def test_lite_pulls_are_answered_alike(desk):
    desk.send()
    assert desk.ask(desk.channel(), desk.pull_command(lite=True)).code == 0

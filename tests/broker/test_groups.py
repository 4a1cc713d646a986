from __future__ import annotations

import pytest

from gimbalmq.wire import bodies
from gimbalmq.wire.codes import RequestCode
from gimbalmq.wire.headers import send_back_request
from gimbalmq.wire.subscription import parse_tags


@pytest.mark.rule("B8.1b", "W2.6e", "W5.10")
def test_a_heartbeat_makes_a_member_and_tells_all_including_the_newcomer(desk):
    one, two = desk.channel(), desk.channel()
    desk.heartbeat(one, "one", "billing")
    assert desk.noticed(one) == ["billing"]
    desk.heartbeat(two, "two", "billing")
    assert desk.noticed(one) == ["billing"]
    assert desk.noticed(two) == ["billing"]
    assert desk.members("billing") == ["one", "two"]


@pytest.mark.rule("B8.1b", "W5.10")
def test_a_repeated_heartbeat_tells_nobody(desk):
    one = desk.channel()
    desk.heartbeat(one, "one", "billing")
    desk.noticed(one)
    desk.heartbeat(one, "one", "billing")
    desk.heartbeat(one, "one", "billing", version_ms=2)
    assert desk.noticed(one) == []


@pytest.mark.rule("B8.1a", "W5.10")
def test_another_client_id_on_a_known_connection_shows_but_tells_nobody(desk):
    one = desk.channel()
    desk.heartbeat(one, "one", "billing")
    desk.noticed(one)
    desk.heartbeat(one, "other", "billing")
    assert desk.noticed(one) == []
    assert desk.members("billing") == ["other"]


@pytest.mark.rule("B8.1a", "W2.6e")
def test_a_client_id_on_two_connections_is_listed_twice(desk):
    desk.heartbeat(desk.channel(), "one", "billing")
    desk.heartbeat(desk.channel(), "one", "billing")
    assert desk.members("billing") == ["one", "one"]


@pytest.mark.rule("B8.1g", "W2.6e")
def test_a_group_without_members_has_no_list(desk):
    answer = desk.ask(
        desk.channel(), RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "nobody"}
    )
    assert (answer.code, answer.remark) == (1, "no consumer for this group, nobody")


@pytest.mark.rule("B8.1b", "B8.1c", "W5.10")
def test_topics_that_the_newest_heartbeat_lacks_are_dropped_and_told(desk):
    one = desk.channel()
    desk.heartbeat(one, "one", "billing", topics=("orders", "refunds"))
    desk.noticed(one)
    desk.heartbeat(one, "one", "billing", topics=("orders",))
    assert desk.noticed(one) == ["billing"]
    desk.heartbeat(one, "one", "billing", topics=("orders", "new"))
    assert desk.noticed(one) == ["billing"]
    assert set(subscriptions(desk)) == {"orders", "new"}


@pytest.mark.rule("B8.1c")
def test_a_subscription_is_replaced_only_by_a_higher_version(desk):
    one = desk.channel()
    for expression, version, expected in (("a", 5, "a"), ("b", 5, "a"), ("c", 6, "c")):
        desk.heartbeat(
            one, "one", "billing", subscriptions=(parse_tags("orders", expression, version),)
        )
        assert subscriptions(desk)["orders"].expression == expected


def subscriptions(desk, group="billing"):
    answer = desk.ask(
        desk.channel(), RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": group}
    )
    return bodies.decode_consumer_connection(answer.body).subscriptions


@pytest.mark.rule("B8.1f")
def test_broadcasting_groups_are_not_told(desk):
    one = desk.channel()
    others = [desk.channel() for _ in range(3)]
    for number, channel in enumerate((one, *others)):
        desk.heartbeat(channel, str(number), "billing", message_model="BROADCASTING")
    fields = {"clientID": "1", "consumerGroup": "billing"}
    desk.ask(others[0], RequestCode.UNREGISTER_CLIENT, fields)
    desk.lose(others[1])
    desk.advance(100_000, 5_000)
    desk.heartbeat(one, "0", "billing", message_model="BROADCASTING")
    desk.advance(40_000, 5_000)
    assert desk.members("billing") == ["0"]
    assert desk.noticed(one) == []


@pytest.mark.rule("B8.1", "B8.5")
def test_a_group_can_be_told_nothing_by_its_setting(desk):
    config = bodies.GroupConfig("billing", notify_consumer_ids_changed_enable=False)
    desk.ask(
        desk.channel(),
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        body=bodies.encode_group_config(config),
    )
    one = desk.channel()
    desk.heartbeat(one, "one", "billing")
    assert desk.noticed(one) == []


@pytest.mark.rule("B8.1", "W5.4")
def test_the_first_heartbeat_makes_the_retry_topic_and_announces_it(desk):
    config = bodies.GroupConfig("billing", retry_queues=3)
    desk.ask(
        desk.channel(),
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        body=bodies.encode_group_config(config),
    )
    desk.heartbeat(desk.channel(), "one", "billing", "audit")
    topics = desk.machine.topics.topics
    assert topics["%RETRY%billing"].read_queues == 3
    assert topics["%RETRY%audit"].read_queues == 1
    assert topics["%RETRY%audit"].perm == 6
    assert desk.announced == 1


#: Of 5.5.0, as it writes it.
DEFAULTS = (
    b'{"attributes":{},"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":true,'
    b'"consumeFromMinEnable":true,"consumeMessageOrderly":false,"consumeTimeoutMinute":15,'
    b'"groupName":"billing","groupRetryPolicy":{"type":"CUSTOMIZED"},"groupSysFlag":0,'
    b'"notifyConsumerIdsChangedEnable":true,"retryMaxTimes":16,"retryQueueNums":1,'
    b'"whichBrokerWhenConsumeSlowly":1}'
)


@pytest.mark.rule("B8.5a")
@pytest.mark.parametrize(
    "use",
    [
        lambda desk: desk.heartbeat(desk.channel(), "one", "billing"),
        lambda desk: desk.pull(),
        lambda desk: desk.ask(
            desk.channel(),
            send_back_request(group="billing", broker="broker-a", physical_offset=9),
        ),
        lambda desk: desk.ask(
            desk.channel(), RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "billing"}
        ),
    ],
    ids=["heartbeat", "pull", "send-back", "look"],
)
def test_a_group_is_made_when_it_is_needed_with_javas_defaults(desk, use):
    def listed():
        answer = desk.ask(desk.channel(), RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        return bodies.decode_group_table(answer.body).groups

    assert "billing" not in listed()
    use(desk)
    assert bodies.encode_group_config(listed()["billing"]) == DEFAULTS
    desk.restart(clean=False)
    assert "billing" in listed()


@pytest.mark.rule("B8.5")
def test_a_group_that_may_not_be_made_is_ignored(make_desk):
    desk = make_desk(auto_create_group=False)
    assert desk.heartbeat(desk.channel(), "one", "billing").code == 0
    assert desk.members("billing") is None


@pytest.mark.rule("B8.1d", "W2.6e")
def test_unregistering_takes_the_connection_out_whatever_id_it_gives(desk):
    one, two = desk.channel(), desk.channel()
    desk.heartbeat(one, "one", "billing")
    desk.heartbeat(two, "two", "billing")
    desk.noticed(one)
    fields = {"clientID": "one", "consumerGroup": "billing"}
    assert desk.ask(two, RequestCode.UNREGISTER_CLIENT, fields).code == 0
    assert desk.members("billing") == ["one"]
    assert desk.noticed(one) == ["billing"]


@pytest.mark.rule("B8.1", "W2.6e")
def test_anybody_can_make_a_group_rebalance_by_unregistering(desk):
    one = desk.channel()
    desk.heartbeat(one, "one", "billing")
    desk.noticed(one)
    fields = {"clientID": "stranger", "consumerGroup": "billing"}
    assert desk.ask(desk.channel(), RequestCode.UNREGISTER_CLIENT, fields).code == 0
    assert desk.noticed(one) == ["billing"]


@pytest.mark.rule("B8.1d")
def test_a_closed_connection_leaves_all_its_groups_and_the_others_are_told(desk):
    one, two = desk.channel(), desk.channel()
    desk.heartbeat(one, "one", "billing", "audit")
    desk.heartbeat(two, "two", "billing", "audit")
    desk.noticed(one)
    desk.lose(two)
    assert sorted(desk.noticed(one)) == ["audit", "billing"]
    assert desk.members("audit") == ["one"]


@pytest.mark.rule("B8.1e", "W1.7")
@pytest.mark.parametrize(("faithful", "told"), [(False, ["billing"]), (True, [])])
def test_a_silent_member_is_closed_by_the_scan(make_desk, faithful, told):
    desk = make_desk(faithful=faithful)
    silent, alive = desk.channel(), desk.channel()
    desk.heartbeat(silent, "silent", "billing")
    desk.advance(60_000, 5_000)
    desk.heartbeat(alive, "alive", "billing")
    desk.noticed(alive)
    desk.advance(60_000, 5_000)
    assert desk.closed == []
    desk.advance(10_000, 5_000)
    assert desk.closed == [silent]
    assert desk.members("billing") == ["alive"]
    assert desk.noticed(alive) == told


@pytest.mark.rule("B8.2a", "W6.2")
def test_the_second_form_of_the_heartbeat_keeps_the_subscriptions(desk):
    one = desk.channel()
    answer = desk.heartbeat(one, "one", "billing", fingerprint=7)
    assert answer.fields["IS_SUPPORT_HEART_BEAT_V2"] == "true"
    assert answer.fields["IS_SUB_CHANGE"] == "false"
    answer = desk.heartbeat(
        one, "one", "billing", topics=(), fingerprint=7, without_subscriptions=True
    )
    assert answer.fields["IS_SUB_CHANGE"] == "false"
    assert set(subscriptions(desk)) == {"orders"}
    answer = desk.heartbeat(one, "one", "billing", fingerprint=8)
    assert answer.fields["IS_SUB_CHANGE"] == "true"


@pytest.mark.rule("B8.2a", "W6.2")
@pytest.mark.parametrize(("faithful", "asked"), [(False, "true"), (True, "false")])
def test_subscriptions_that_the_broker_has_lost_are_asked_for(make_desk, faithful, asked):
    desk = make_desk(faithful=faithful)
    short = {"topics": (), "fingerprint": 7, "without_subscriptions": True}
    one = desk.channel()
    desk.heartbeat(one, "one", "billing", fingerprint=7)
    # The broker forgets its members when it restarts; they go on as if nothing had happened.
    desk.restart()
    assert desk.heartbeat(one, "one", "billing", **short).fields["IS_SUB_CHANGE"] == asked
    assert desk.heartbeat(one, "one", "billing", fingerprint=7).fields["IS_SUB_CHANGE"] == "false"
    assert desk.heartbeat(one, "one", "billing", **short).fields["IS_SUB_CHANGE"] == "false"
    assert set(subscriptions(desk)) == {"orders"}


@pytest.mark.rule("W6.2")
def test_the_first_form_of_the_heartbeat_gets_both_flags(desk):
    answer = desk.heartbeat(desk.channel(), "one", "billing")
    assert answer.fields == {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"}
    assert answer.version >= 232


@pytest.mark.rule("W2.9b", "W3.4")
def test_connections_are_shown_as_they_registered(desk):
    one = desk.channel()
    desk.heartbeat(one, "one", "billing", producers=("shop",))
    answer = desk.ask(one, RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "billing"})
    (member,) = bodies.decode_consumer_connection(answer.body).connections
    assert (member.client_id, member.address) == ("one", one.address)
    answer = desk.ask(one, RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "shop"})
    assert bodies.decode_producer_connection(answer.body) == (member,)


@pytest.mark.rule("W2.9b")
def test_groups_that_are_not_there_have_no_connections(desk):
    one = desk.channel()
    fields = {"consumerGroup": "nobody", "producerGroup": "nobody"}
    assert desk.ask(one, RequestCode.GET_CONSUMER_CONNECTION_LIST, fields).code == 206
    assert desk.ask(one, RequestCode.GET_PRODUCER_CONNECTION_LIST, fields).code == 1


@pytest.mark.rule("W2.6e")
@pytest.mark.parametrize(
    ("kind", "expression", "code"),
    [("TAG", "a", 0), ("SQL92", "a > 1", 0), ("SQL92", "a >", 23), ("XPATH", "/a", 23)],
)
def test_expressions_are_checked_on_request(desk, kind, expression, code):
    from gimbalmq.wire.subscription import SubscriptionData

    wanted = SubscriptionData("orders", expression, expression_type=kind)
    body = bodies.encode_check_client("one", "billing", wanted)
    assert desk.ask(desk.channel(), RequestCode.CHECK_CLIENT_CONFIG, body=body).code == code


def test_a_heartbeat_that_is_no_json_costs_its_sender_an_error_and_nobody_else_anything(desk):
    assert desk.ask(desk.channel(), RequestCode.HEART_BEAT, body=b"\xff{").code == 1
    assert desk.heartbeat(desk.channel(), "one", "billing").code == 0

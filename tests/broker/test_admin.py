"""Topics, groups, statistics, settings, and what is passed on to clients."""

from __future__ import annotations

import msgspec
import pytest

from gimbalmq.model.queue import MessageQueue
from gimbalmq.wire import bodies
from gimbalmq.wire.codes import RequestCode
from gimbalmq.wire.record import decode_records


def queue(number, topic="orders"):
    return MessageQueue(topic, "broker-a", number)


@pytest.mark.rule("W2.9b", "W3.5a")
def test_topics_are_made_changed_shown_and_deleted(desk):
    channel = desk.channel()
    desk.topic("made", 3, attributes="+message.type=FIFO")
    answer = desk.ask(channel, RequestCode.GET_TOPIC_CONFIG, {"topic": "made"})
    config = bodies.decode_topic_config(answer.body)
    assert (config.read_queues, config.attributes) == (3, {"message.type": "FIFO"})
    desk.topic("made", 5, attributes="-message.type")
    table = bodies.decode_topic_table(desk.ask(channel, RequestCode.GET_ALL_TOPIC_CONFIG).body)
    assert table.topics["made"].write_queues == 5
    assert table.topics["made"].attributes == {}
    assert desk.announced == 2
    desk.send("made")
    desk.commit(1, topic="made")
    assert desk.ask(channel, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "made"}).code == 0
    assert desk.ask(channel, RequestCode.GET_TOPIC_CONFIG, {"topic": "made"}).code == 17
    assert desk.store.bounds("made", 0) == (0, 0)
    assert desk.committed("made").code == 22
    assert desk.ask(channel, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "made"}).code == 0


@pytest.mark.rule("W2.9b")
@pytest.mark.parametrize("topic", ["TBW102", "SCHEDULE_TOPIC_XXXX", "broker-a", "bad topic"])
def test_system_topics_and_bad_names_are_refused(desk, topic):
    fields = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": "1",
        "writeQueueNums": "1",
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "order": "false",
    }
    assert desk.ask(desk.channel(), RequestCode.UPDATE_AND_CREATE_TOPIC, fields).code == 29
    assert desk.ask(desk.channel(), RequestCode.DELETE_TOPIC_IN_BROKER, fields).code == 29


@pytest.mark.rule("W2.9b")
def test_attributes_that_cannot_be_read_are_refused(desk):
    fields = {
        "topic": "made",
        "readQueueNums": "1",
        "writeQueueNums": "1",
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "attributes": "message.type",
    }
    assert desk.ask(desk.channel(), RequestCode.UPDATE_AND_CREATE_TOPIC, fields).code == 1


@pytest.mark.rule("W5.4")
def test_a_new_broker_has_the_system_topics(desk):
    topics = desk.machine.topics.topics
    assert {"TBW102", "SELF_TEST_TOPIC", "DefaultCluster", "broker-a", "OFFSET_MOVED_EVENT"} <= set(
        topics
    )
    assert (topics["TBW102"].perm, topics["TBW102"].read_queues) == (7, 8)
    assert topics["SCHEDULE_TOPIC_XXXX"].read_queues == 18
    answer = desk.ask(desk.channel(), RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
    assert "orders" not in bodies.decode_topic_list(answer.body)


@pytest.mark.rule("W8b")
def test_even_a_new_broker_registers_more_than_one_topic(make_desk):
    # The first registration of a broker with a single topic is refused by name servers of 5.x.
    assert len(make_desk(auto_create_topic=False).machine.topics.topics) > 1


@pytest.mark.rule("W2.9b")
def test_topics_can_be_had_in_parts(desk):
    whole = list(desk.machine.topics.topics)
    fields = {"topicSeq": "2", "maxTopicNum": "3"}
    answer = desk.ask(desk.channel(), RequestCode.GET_ALL_TOPIC_CONFIG, fields)
    assert answer.fields == {"totalTopicNum": str(len(whole))}
    assert list(bodies.decode_topic_table(answer.body).topics) == sorted(whole[2:5])


@pytest.mark.rule("W2.9b")
def test_groups_can_be_had_in_parts(desk):
    code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
    whole = bodies.decode_group_table(desk.ask(desk.channel(), code).body).groups
    parts = []
    for first in range(0, len(whole), 3):
        fields = {"groupSeq": str(first), "maxGroupNum": "3"}
        answer = desk.ask(desk.channel(), code, fields)
        assert answer.fields == {"totalGroupNum": str(len(whole))}
        parts.append(list(bodies.decode_group_table(answer.body).groups))
    assert len(parts) > 1
    assert [len(part) for part in parts[:-1]] == [3] * (len(parts) - 1)
    assert sorted(name for part in parts for name in part) == sorted(whole)


@pytest.mark.rule("W2.9b", "W3.5")
def test_groups_are_made_shown_and_deleted(desk):
    channel = desk.channel()
    config = bodies.GroupConfig("audit", retry_max_times=3)
    body = bodies.encode_group_config(config)
    assert desk.ask(channel, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body).code == 0
    answer = desk.ask(channel, RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "audit"})
    assert bodies.decode_group_config(answer.body) == config
    desk.commit(3, group="audit")
    desk.restart()
    answer = desk.ask(channel, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    assert bodies.decode_group_table(answer.body).groups["audit"].retry_max_times == 3
    fields = {"groupName": "audit", "cleanOffset": "true"}
    desk.ask(channel, RequestCode.DELETE_SUBSCRIPTIONGROUP, fields)
    answer = desk.ask(channel, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    assert "audit" not in bodies.decode_group_table(answer.body).groups
    assert desk.committed(group="audit").code == 22


@pytest.mark.rule("B8.5a", "W2.9b")
def test_an_unknown_group_is_made_when_it_is_asked_for(desk):
    answer = desk.ask(desk.channel(), RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "new"})
    assert bodies.decode_group_config(answer.body).retry_max_times == 16


@pytest.mark.rule("W2.9b", "W3.6", "W8b")
def test_topic_and_consume_statistics(desk):
    channel = desk.channel()
    for _ in range(3):
        desk.send(queue=1)
    desk.commit(2, queue=1)
    answer = desk.ask(channel, RequestCode.GET_TOPIC_STATS_INFO, {"topic": "orders"})
    stats = bodies.decode_topic_stats(answer.body).queues
    assert len(stats) == 4
    assert stats[queue(1)].max_offset == 3
    assert stats[queue(1)].last_update_timestamp == desk.now_ms
    answer = desk.ask(channel, RequestCode.GET_CONSUME_STATS, {"consumerGroup": "billing"})
    one_queue = answer.body
    progress = bodies.decode_consume_stats(answer.body).queues[queue(1)]
    assert (progress.broker_offset, progress.consumer_offset) == (3, 2)
    assert progress.last_timestamp == desk.now_ms
    answer = desk.ask(channel, RequestCode.GET_CONSUME_STATS, {"consumerGroup": "nobody"})
    assert bodies.decode_consume_stats(answer.body).queues == {}
    assert desk.ask(channel, RequestCode.GET_TOPIC_STATS_INFO, {"topic": "none"}).code == 17
    # Tables of queues have the queue itself as key, which every release of Java reads.
    assert b'{"brokerName":"broker-a","queueId":1,"topic":"orders"}:{"brokerOffset":3' in one_queue
    answer = desk.ask(channel, RequestCode.GET_BROKER_CONSUME_STATS, {"isOrder": "false"})
    assert b'"billing"' in answer.body


@pytest.mark.rule("W2.9b")
def test_consume_statistics_may_be_limited_to_some_topics(desk):
    for topic in ("made", "refunds"):
        desk.topic(topic, 1)
    for topic in ("orders", "made", "refunds"):
        desk.commit(0, topic=topic)

    def topics(**fields):
        fields["consumerGroup"] = "billing"
        answer = desk.ask(desk.channel(), RequestCode.GET_CONSUME_STATS, fields)
        return {one.topic for one in bodies.decode_consume_stats(answer.body).queues}

    assert topics() == {"orders", "made", "refunds"}
    assert topics(topic="made") == {"made"}
    assert topics(topicList="made;refunds;") == {"made", "refunds"}


@pytest.mark.rule("W2.9b")
def test_who_consumes_what(desk):
    channel = desk.channel()
    desk.heartbeat(channel, "one", "billing")
    desk.commit(1, group="audit")
    answer = desk.ask(channel, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": "orders"})
    assert bodies.decode_group_list(answer.body) == ("audit", "billing")
    answer = desk.ask(channel, RequestCode.QUERY_TOPICS_BY_CONSUMER, {"group": "audit"})
    assert bodies.decode_topic_list(answer.body) == ("orders",)
    fields = {"group": "billing", "topic": "orders"}
    answer = desk.ask(channel, RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, fields)
    assert b'"subString":"*"' in answer.body
    desk.send()
    fields = {"group": "audit", "topic": "orders"}
    answer = desk.ask(channel, RequestCode.QUERY_CONSUME_TIME_SPAN, fields)
    assert len(msgspec.json.decode(answer.body)["consumeTimeSpanSet"]) == 4
    fields = {"topic": "orders", "queueId": "0", "index": "0", "count": "5"}
    answer = desk.ask(channel, RequestCode.QUERY_CONSUME_QUEUE, fields)
    assert msgspec.json.decode(answer.body)["maxQueueIndex"] == 1


@pytest.mark.rule("W2.9b")
def test_the_broker_shows_and_changes_its_settings(desk):
    channel = desk.channel()
    answer = desk.ask(channel, RequestCode.GET_BROKER_CONFIG)
    assert b"brokerName=broker-a\n" in answer.body
    assert "version" in answer.fields
    body = b"autoCreateTopicEnable=false\nunheardOf=1\n"
    answer = desk.ask(channel, RequestCode.UPDATE_BROKER_CONFIG, body=body)
    assert answer.code == 0
    assert "unheardOf" in answer.remark
    assert b"autoCreateTopicEnable=false\n" in desk.ask(channel, RequestCode.GET_BROKER_CONFIG).body
    assert desk.send("unknown").code == 17
    wrong = desk.ask(channel, RequestCode.UPDATE_BROKER_CONFIG, body=b"maxMessageSize=x\n")
    assert wrong.code == 29


@pytest.mark.rule("W2.9b")
def test_the_broker_shows_how_it_runs(desk):
    desk.send()
    answer = desk.ask(desk.channel(), RequestCode.GET_BROKER_RUNTIME_INFO)
    table = bodies.decode_kv_table(answer.body)
    assert table["msgPutTotalTodayNow"] == "1"
    assert table["bootTimestamp"] == str(desk.now_ms)
    assert int(table["commitLogMaxOffset"]) > 0


@pytest.mark.rule("W2.2", "W6.3", "W8b")
def test_unknown_codes_are_answered(desk):
    answer = desk.ask(desk.channel(), 31_337)
    assert (answer.code, answer.remark) == (3, " request type 31337 not supported")


@pytest.mark.rule("W2.6e", "W8b")
def test_questions_about_a_client_are_passed_on_and_back(desk):
    admin, client = desk.channel(), desk.channel()
    desk.heartbeat(client, "one", "billing")
    desk.pushed(client)
    fields = {"consumerGroup": "billing", "clientId": "one", "jstackEnable": "false"}
    assert desk.ask(admin, RequestCode.GET_CONSUMER_RUNNING_INFO, fields) is None
    (asked,) = desk.pushed(client)
    assert asked.code == RequestCode.GET_CONSUMER_RUNNING_INFO
    assert asked.fields == fields
    assert not asked.is_oneway
    desk.reply(client, asked, remark="not set any response code", body=b"{}")
    ((where, answer),) = desk.sent
    assert where is admin
    assert (answer.code, answer.remark) == (0, "not set any response code")
    assert answer.body == b"{}"


@pytest.mark.rule("W2.6e")
def test_a_client_that_is_not_there_or_does_not_answer(desk):
    admin, client = desk.channel(), desk.channel()
    fields = {"consumerGroup": "billing", "clientId": "one"}
    answer = desk.ask(admin, RequestCode.GET_CONSUMER_RUNNING_INFO, fields)
    assert (answer.code, answer.remark) == (1, "The Consumer <billing> <one> not online")
    desk.heartbeat(client, "one", "billing")
    desk.pushed(client)
    assert desk.ask(admin, RequestCode.GET_CONSUMER_RUNNING_INFO, fields) is None
    desk.pushed(client)
    desk.advance(6_000)
    ((_, answer),) = desk.sent
    assert answer.code == 207


@pytest.mark.rule("W2.6e")
def test_a_message_is_given_to_a_client_by_hand(desk):
    admin, client = desk.channel(), desk.channel()
    desk.heartbeat(client, "one", "billing")
    desk.pushed(client)
    message_id = desk.send(body=b"this").fields["msgId"]
    fields = {"consumerGroup": "billing", "clientId": "one", "msgId": message_id}
    assert desk.ask(admin, RequestCode.CONSUME_MESSAGE_DIRECTLY, fields) is None
    (asked,) = desk.pushed(client)
    assert decode_records(asked.body, "b")[0].body == b"this"


STATUS = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS


@pytest.fixture
def members(desk):
    """Two connected members of a group, by client id."""
    clients = {name: desk.channel() for name in ("one", "two")}
    for name, channel in clients.items():
        desk.heartbeat(channel, name, "billing")
    for channel in clients.values():
        desk.pushed(channel)
    return clients


def gathered(desk, admin):
    """The status that an administrator was told."""
    ((where, answer),) = desk.sent
    assert where is admin
    assert answer.code == 0
    return bodies.decode_consumer_status(answer.body).clients


def status(number):
    return bodies.encode_consumer_status(bodies.ConsumerStatus({queue(number): 7}))


@pytest.mark.rule("W2.6e", "W2.9b", "W8b")
def test_the_status_of_all_clients_is_gathered(desk, members):
    admin = desk.channel()
    assert desk.ask(admin, STATUS, {"topic": "orders", "group": "billing"}) is None
    for number, channel in enumerate(members.values()):
        (asked,) = desk.pushed(channel)
        assert asked.code == RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
        # What a client says beside its code decides nothing.
        desk.reply(channel, asked, remark="not set any response code", body=status(number))
    assert gathered(desk, admin) == {"one": {queue(0): 7}, "two": {queue(1): 7}}
    assert desk.ask(admin, STATUS, {"topic": "orders", "group": "nobody"}).code == 1


@pytest.mark.rule("W2.9b")
def test_the_status_of_one_client_is_asked_for_by_its_id(desk, members):
    admin = desk.channel()
    fields = {"topic": "orders", "group": "billing", "clientAddr": "two"}
    assert desk.ask(admin, STATUS, fields) is None
    assert desk.pushed(members["one"]) == []
    (asked,) = desk.pushed(members["two"])
    desk.reply(members["two"], asked, body=status(1))
    assert gathered(desk, admin) == {"two": {queue(1): 7}}


@pytest.mark.rule("W2.0c")
def test_a_client_that_tells_nonsense_of_its_status_is_left_out(desk, members):
    admin = desk.channel()
    assert desk.ask(admin, STATUS, {"topic": "orders", "group": "billing"}) is None
    (asked,) = desk.pushed(members["one"])
    desk.reply(members["one"], asked, body=b"no json")
    (asked,) = desk.pushed(members["two"])
    desk.reply(members["two"], asked, body=status(1))
    assert gathered(desk, admin) == {"two": {queue(1): 7}}


@pytest.mark.rule("W2.0c")
def test_a_question_for_the_status_is_answered_however_many_members_there_are(desk):
    admin = desk.channel()
    for number in range(1_001):
        # Broadcasting, so that not each of them is told of each.
        desk.heartbeat(desk.channel(), str(number), "billing", message_model="BROADCASTING")
    assert desk.ask(admin, STATUS, {"topic": "orders", "group": "billing"}) is None
    desk.sent.clear()
    desk.advance(6_000)
    assert gathered(desk, admin) == {}

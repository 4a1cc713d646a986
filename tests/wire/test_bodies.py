from __future__ import annotations

import json
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gimbalmq.errors import ConfigurationError, ProtocolError
from gimbalmq.model.queue import MessageQueue
from gimbalmq.model.route import BrokerSet, QueueData, TopicRoute
from gimbalmq.wire import bodies
from gimbalmq.wire.subscription import parse_tags

QUEUE = MessageQueue("T", "b", 1)
QUEUE_TEXT = b'{"brokerName":"b","queueId":1,"topic":"T"}'

names = st.text(min_size=1, max_size=6)
queues = st.builds(MessageQueue, names, names, st.integers(0, 99))
offsets = st.integers(-1, (1 << 63) - 1)

ROUTE = TopicRoute(
    "T",
    (BrokerSet("b", "c", {0: "h:1", 1: "h:2"}),),
    (QueueData("b", 4, 8, 6),),
    "b:4",
)


@pytest.mark.rule("W3.1a")
def test_a_route_is_written_with_quoted_keys_and_read_in_both_forms():
    text = bodies.encode_route(ROUTE)
    assert json.loads(text)["brokerDatas"][0]["brokerAddrs"] == {"0": "h:1", "1": "h:2"}
    assert bodies.decode_route("T", text) == ROUTE
    bare = text.replace(b'"0":', b"0:").replace(b'"1":', b"1:")
    assert bodies.decode_route("T", bare) == ROUTE


def test_a_route_without_members_is_empty():
    assert bodies.decode_route("T", b"{}") == TopicRoute("T", (), ())
    assert bodies.decode_route("T", b'{"brokerDatas":null}') == TopicRoute("T", (), ())
    assert bodies.decode_route("T", b"") == TopicRoute("T", (), ())


@pytest.mark.parametrize(
    "text", [b"[]", b'{"brokerDatas":5}', b'{"queueDatas":[{"perm":"x"}]}', b"<html>"]
)
def test_a_route_that_is_none_names_the_topic(text):
    with pytest.raises(ProtocolError, match="route of topic 'T'"):
        bodies.decode_route("T", text)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_route_or_a_protocol_error(data):
    try:
        bodies.decode_route("T", data)
    except ProtocolError:
        return


@pytest.mark.rule("W3.4b")
def test_a_cluster_survives():
    info = bodies.ClusterInfo({"b": ROUTE.brokers[0]}, {"c": ("b",)})
    assert bodies.decode_cluster(bodies.encode_cluster(info)) == info
    assert (
        bodies.decode_broker_members(bodies.encode_broker_members(ROUTE.brokers[0]))
        == (ROUTE.brokers[0])
    )


@pytest.mark.rule("W2.6a", "W3.2", "W3.3d")
def test_a_heartbeat_has_the_shape_of_javas():
    heartbeat = bodies.HeartbeatData(
        "1.2.3.4@55",
        (bodies.ConsumerData("CG", subscriptions=(parse_tags("TopicTest", "TagA || TagB", 17),)),),
        ("PG",),
    )
    text = bodies.encode_heartbeat(heartbeat)
    assert text == (
        b'{"clientID":"1.2.3.4@55","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET",'
        b'"consumeType":"CONSUME_PASSIVELY","groupName":"CG","messageModel":"CLUSTERING",'
        b'"subscriptionDataSet":[{"classFilterMode":false,"codeSet":[2598919,2598920],'
        b'"expressionType":"TAG","subString":"TagA || TagB","subVersion":17,'
        b'"tagsSet":["TagA","TagB"],"topic":"TopicTest"}],"unitMode":false}],'
        b'"heartbeatFingerprint":0,"producerDataSet":[{"groupName":"PG"}],"withoutSub":false}'
    )
    assert bodies.decode_heartbeat(text) == heartbeat


@pytest.mark.rule("W6.2", "W7.8")
def test_the_fingerprint_ignores_what_changes_by_itself():
    consumer = bodies.ConsumerData(
        "CG", subscriptions=(parse_tags("TopicTest", "TagA || TagB", 1_700_000_000_000),)
    )
    first = bodies.encode_heartbeat(bodies.HeartbeatData("1.2.3.4@55", (consumer,), ("PG",)))
    assert bodies.heartbeat_fingerprint(first) == 808946106
    later = bodies.ConsumerData("CG", subscriptions=(parse_tags("TopicTest", "TagA || TagB", 5),))
    second = bodies.HeartbeatData("x", (later,), ("PG",), 7, without_subscriptions=True)
    assert bodies.heartbeat_fingerprint(bodies.encode_heartbeat(second)) == 808946106
    other = bodies.HeartbeatData("1.2.3.4@55", (), ("PG",))
    assert bodies.heartbeat_fingerprint(bodies.encode_heartbeat(other)) != 808946106


@pytest.mark.rule("W2.6")
def test_a_member_without_an_id_is_left_out_of_the_list():
    assert bodies.decode_consumer_list(b'{"consumerIdList":["a",null,"b","a"]}') == ("a", "b", "a")
    assert bodies.decode_consumer_list(b"{}") == ()
    assert bodies.encode_consumer_list(["a"]) == b'{"consumerIdList":["a"]}'


@pytest.mark.rule("W3.4a")
def test_locks_survive_and_keep_javas_capitals():
    lock = bodies.LockBody("g", "id", (QUEUE,))
    text = bodies.encode_lock(lock)
    assert text == (
        b'{"clientId":"id","consumerGroup":"g","mqSet":['
        + QUEUE_TEXT
        + b'],"onlyThisBroker":false}'
    )
    assert bodies.decode_lock(text) == lock
    assert bodies.decode_lock(b"{}") == bodies.LockBody("", "", ())
    assert bodies.encode_locked([QUEUE]) == b'{"lockOKMQSet":[' + QUEUE_TEXT + b"]}"
    assert bodies.decode_locked(bodies.encode_locked([QUEUE])) == {QUEUE}
    with pytest.raises(ProtocolError, match="where a queue must stand"):
        bodies.decode_locked(b'{"lockOKMQSet":[5]}')


@pytest.mark.rule("W3.0e", "W3.6")
@given(st.dictionaries(queues, offsets, max_size=4))
def test_maps_keyed_by_queues_survive_in_the_native_form(table):
    text = bodies.encode_reset_offsets(table)
    assert bodies.decode_reset_offsets(text) == table
    assert bodies.decode_offset_file(bodies.encode_offset_file(table)) == table
    status = bodies.ConsumerStatus(table, {"id": table})
    assert bodies.decode_consumer_status(bodies.encode_consumer_status(status)) == status


@pytest.mark.rule("W3.0b", "W3.0e")
def test_a_queue_as_key_is_written_as_javas_object_and_read_in_quotes_too():
    assert bodies.encode_reset_offsets({QUEUE: 9}) == b'{"offsetTable":{' + QUEUE_TEXT + b":9}}"
    quoted = json.dumps({"offsetTable": {QUEUE_TEXT.decode(): 9}}).encode()
    assert bodies.decode_reset_offsets(quoted) == {QUEUE: 9}


@pytest.mark.rule("W2.6")
def test_new_offsets_come_as_a_list_when_a_cpp_tool_asked():
    text = b'{"offsetTable":[{"brokerName":"b","queueId":1,"topic":"T","offset":9}]}'
    assert bodies.decode_reset_offsets(text) == {QUEUE: 9}
    with pytest.raises(ProtocolError, match="reset offsets"):
        bodies.decode_reset_offsets(b'{"offsetTable":7}')


@pytest.mark.rule("W3.6")
def test_stats_survive():
    stats = bodies.ConsumeStats({QUEUE: bodies.QueueProgress(5, 3, 4, 99)}, 1.5)
    assert bodies.decode_consume_stats(bodies.encode_consume_stats(stats)) == stats
    topic = bodies.TopicStats({QUEUE: bodies.QueueRange(0, 5, 99)}, 0.5)
    assert bodies.decode_topic_stats(bodies.encode_topic_stats(topic)) == topic
    assert bodies.decode_consume_stats(b"{}") == bodies.ConsumeStats({})


def test_all_offsets_of_a_broker_survive():
    table = {("T", "g"): {0: 12, 1: 7}, ("%RETRY%g", "g@x"): {0: 1}}
    assert bodies.decode_consumer_offsets(bodies.encode_consumer_offsets(table)) == table


@pytest.mark.rule("W3.5a", "W3.5b")
@pytest.mark.parametrize("version", [403, 513])
@pytest.mark.parametrize("compressed", [False, True])
def test_a_registration_survives(version, compressed):
    attributes = {"message.type": "FIFO"} if version == 513 else {}
    table = bodies.TopicConfigTable(
        {
            "orders": bodies.TopicConfig("orders", 4, 8, attributes=attributes),
            "%RETRY%g": bodies.TopicConfig("%RETRY%g", 1, 1, filter_type="MULTI_TAG"),
        },
        bodies.DataVersion(5, 6),
    )
    text = bodies.encode_registration(table, compressed=compressed, version=version)
    assert bodies.decode_registration(text, compressed=compressed) == table


def test_a_registration_without_body_is_empty():
    assert bodies.decode_registration(b"") == bodies.TopicConfigTable()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00\x00",
        b"\x00\x00\x00\x09{}",
        b"\x00\x00\x00\x02{}\x00\x00\x00\x01",
        b"\x00\x00\x00\x02{}\x00\x00\x00\x01\x00\x00\x00\x03T 1",
        b"\x00\x00\x00\x02{}\x7f\xff\xff\xff",
    ],
)
def test_a_compressed_registration_that_is_cut_off_is_refused(content):
    with pytest.raises(ProtocolError):
        bodies.decode_registration(zlib.compress(content), compressed=True)


@pytest.mark.rule("W3.5a")
def test_configurations_survive():
    topic = bodies.TopicConfig("T", 4, 4, order=True)
    assert bodies.decode_topic_config(bodies.encode_topic_config(topic)) == topic
    group = bodies.GroupConfig("g", retry_max_times=3)
    assert bodies.decode_group_config(bodies.encode_group_config(group)) == group
    table = bodies.GroupConfigTable({"g": group}, bodies.DataVersion(1, 2, 3))
    assert bodies.decode_group_table(bodies.encode_group_table(table)) == table
    topics = bodies.TopicConfigTable({"T": topic})
    assert bodies.decode_topic_table(bodies.encode_topic_table(topics)) == topics


@pytest.mark.rule("W3.4a")
def test_lists_and_tables_survive():
    assert bodies.decode_topic_list(bodies.encode_topic_list(["T"])) == ("T",)
    assert bodies.decode_group_list(bodies.encode_group_list(["g"])) == ("g",)
    assert bodies.decode_kv_table(bodies.encode_kv_table({"k": "v"})) == {"k": "v"}


@pytest.mark.rule("W3.4b")
def test_connections_survive():
    member = bodies.ClientConnection("id", "1.2.3.4:5", "PYTHON", 479)
    group = bodies.ConsumerConnection(
        (member,), {"T": parse_tags("T", "a", 1)}, "CONSUME_PASSIVELY", "CLUSTERING"
    )
    text = bodies.encode_consumer_connection(group)
    assert bodies.decode_consumer_connection(text) == group
    assert bodies.decode_producer_connection(bodies.encode_producer_connection([member])) == (
        member,
    )


@pytest.mark.rule("W3.8")
def test_running_info_survives_and_leaves_out_what_is_absent():
    info = bodies.RunningInfo(
        {"PROP_CONSUME_TYPE": "CONSUME_PASSIVELY"},
        (parse_tags("T", "*", 1),),
        {QUEUE: bodies.QueueInfo(commit_offset=7, dropped=True)},
        {QUEUE: bodies.PopQueueInfo(2)},
        {"T": bodies.ConsumeStatus(1.0, consume_failed_count=3)},
    )
    text = bodies.encode_running_info(info)
    assert b"jstack" not in text
    assert b'"droped":true' in text
    assert bodies.decode_running_info(text) == info


def test_a_consume_result_leaves_out_an_absent_remark():
    result = bodies.ConsumeResult("CR_LATER", spent_ms=3)
    text = bodies.encode_consume_result(result)
    assert b"remark" not in text
    assert bodies.decode_consume_result(text) == result


@pytest.mark.rule("W2.7")
def test_no_opinion_about_an_assignment_is_not_an_empty_one():
    assert bodies.decode_assignments(b"{}") is None
    assert bodies.decode_assignments(b'{"messageQueueAssignments":[]}') == ()
    assert bodies.encode_assignments(None) == b"{}"
    assignments = (bodies.Assignment(QUEUE, "POP", {"k": "v"}), bodies.Assignment(QUEUE))
    assert bodies.decode_assignments(bodies.encode_assignments(assignments)) == assignments
    query = bodies.AssignmentQuery("T", "g", "id")
    assert bodies.decode_assignment_query(bodies.encode_assignment_query(query)) == query
    mode = bodies.RequestMode("T", "g", "POP")
    assert bodies.decode_request_mode(bodies.encode_request_mode(mode)) == mode


@pytest.mark.rule("W2.7", "W7.8")
def test_acknowledged_offsets_are_bits_from_the_start_on():
    ack = bodies.BatchAck("g", "T", "0", 5, 1, 2, 3, 4, (5, 14))
    text = bodies.encode_batch_ack("b", [ack])
    assert b'"b":"AQI="' in text
    assert bodies.decode_batch_ack(text) == ("b", (ack,))
    with pytest.raises(ProtocolError, match="base64"):
        bodies.decode_batch_ack(b'{"acks":[{"b":"!"}]}')
    with pytest.raises(ConfigurationError, match="starts at 5"):
        bodies.encode_batch_ack("b", [bodies.BatchAck("g", "T", "0", 5, 1, 2, 3, 4, (4,))])


def test_a_client_check_carries_the_subscription():
    subscription = parse_tags("T", "a", 1)
    assert (
        bodies.decode_check_client(bodies.encode_check_client("id", "g", subscription))
        == subscription
    )
    with pytest.raises(ProtocolError, match="client check"):
        bodies.decode_check_client(b"{}")


@pytest.mark.parametrize("text", ["", "T", "T 1 2 x SINGLE_TAG", "T 1 2 3"])
def test_what_is_no_topic_on_one_line_is_refused(text):
    with pytest.raises(ProtocolError, match="no topic config"):
        bodies.parse_topic_config(text)

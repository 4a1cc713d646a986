import pytest

from flows.script import Script, ok, refusal
from gimbalmq.errors import ConfigurationError, TopicNotFoundError, TransportError
from gimbalmq.flows.admin import (
    broker_address,
    create_topic,
    delete_topic,
    fetch_topic_stats,
    list_topics,
    master_addresses,
)
from gimbalmq.flows.route import NameServers
from gimbalmq.model.queue import MessageQueue
from gimbalmq.model.route import BrokerSet, QueueData, TopicRoute
from gimbalmq.wire.bodies import (
    ClusterInfo,
    QueueRange,
    TopicStats,
    encode_cluster,
    encode_route,
    encode_topic_list,
    encode_topic_stats,
)
from gimbalmq.wire.codes import RequestCode as R

SETS = {
    "broker-a": BrokerSet("broker-a", "main", {0: "a:1"}),
    "broker-b": BrokerSet("broker-b", "main", {0: "b:1", 1: "b:2"}),
}
INFO = ClusterInfo(SETS, {"main": ("broker-a", "broker-b")})
CLUSTER = ok(encode_cluster(INFO))


def servers(*addresses):
    return NameServers(addresses or ("n:1",))


def route(topic="orders", brokers=("broker-a", "broker-b"), queues=4, perm=6):
    return TopicRoute(
        topic,
        tuple(SETS[name] for name in brokers),
        tuple(QueueData(name, queues, queues, perm) for name in brokers),
    )


def making(nameservers, topic="orders", **options):
    options = {"queues": 4, "brokers": None, "perm": 6, "order": False, **options}
    return create_topic(nameservers, topic, timeout_s=3.0, **options)


def test_topics_are_listed_without_what_rocketmq_made_itself():
    topics = [
        *("payments", "orders", "TBW102", "rmq_sys_wheel_timer", "%RETRY%g", "%DLQ%g"),
        *("main", "main_REPLY_TOPIC", "broker-a", "SCHEDULE_TOPIC_XXXX"),
    ]
    listed = ok(encode_topic_list(topics))
    assert Script(listed, CLUSTER).run(list_topics(servers(), 3.0)) == ("orders", "payments")
    assert Script(listed).run(list_topics(servers(), 3.0, internal=True)) == tuple(sorted(topics))


@pytest.mark.rule("W2.9a")
def test_a_topic_is_made_on_every_master_and_waited_for():
    only_a = ok(encode_route(route(brokers=("broker-a",))))
    script = Script(CLUSTER, ok(), ok(), refusal(17), only_a, ok(encode_route(route())))
    assert script.run(making(servers())) == route()
    assert script.asked[:3] == [
        ("n:1", R.GET_BROKER_CLUSTER_INFO),
        ("a:1", R.UPDATE_AND_CREATE_TOPIC),
        ("b:1", R.UPDATE_AND_CREATE_TOPIC),
    ]
    assert script.calls[1].command.fields == {
        "topic": "orders",
        "defaultTopic": "TBW102",
        "readQueueNums": "4",
        "writeQueueNums": "4",
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
        "bname": "broker-a",
    }
    assert len(script.slept) == 2


def test_a_changed_topic_is_waited_for_until_the_route_shows_the_change():
    old, new = ok(encode_route(route(queues=2))), ok(encode_route(route(queues=4)))
    script = Script(CLUSTER, ok(), ok(), old, new)
    assert script.run(making(servers())) == route(queues=4)
    assert len(script.slept) == 1


def test_an_ordered_topic_has_its_queues_written_down_at_every_name_server():
    script = Script(CLUSTER, ok(), ok(encode_route(route())), ok(), ok())
    script.run(making(servers("n:1", "n:2"), brokers=["broker-b"], order=True))
    assert script.asked[-2:] == [("n:1", R.PUT_KV_CONFIG), ("n:2", R.PUT_KV_CONFIG)]
    assert script.calls[-1].command.fields == {
        "namespace": "ORDER_TOPIC_CONFIG",
        "key": "orders",
        "value": "broker-a:4;broker-b:4",
    }
    assert script.calls[1].command.fields["order"] == "true"


def test_a_route_that_never_shows_the_topic_is_an_error_in_time():
    script = Script(CLUSTER, ok(), *[refusal(17)] * 61, call_takes_s=0.45)
    with pytest.raises(TransportError, match="does not show it on broker-a after 30 s"):
        script.run(making(servers(), brokers=["broker-a"]))


@pytest.mark.parametrize(
    ("topic", "options", "complaint"),
    [
        ("no topic", {}, "is no topic name"),
        ("TBW102", {}, "belongs to RocketMQ itself"),
        ("orders", {"queues": 0}, "queues is 0"),
        ("orders", {"perm": 7}, "perm is 7"),
    ],
)
def test_what_brokers_would_take_and_nobody_could_use_is_refused(topic, options, complaint):
    with pytest.raises(ConfigurationError, match=complaint):
        Script().run(making(servers(), topic, **options))


def test_changes_go_to_masters_only_and_unknown_brokers_are_named():
    assert master_addresses(INFO, ["broker-b"]) == (("broker-b", "b:1"),)
    with pytest.raises(ConfigurationError, match=r"no broker 'broker-x'.*broker-a, broker-b"):
        master_addresses(INFO, ["broker-x"])
    with pytest.raises(ConfigurationError, match="name one at least"):
        master_addresses(INFO, [])
    with pytest.raises(ConfigurationError, match="the cluster has no broker"):
        master_addresses(ClusterInfo({}, {}))
    orphan = BrokerSet("broker-c", "main", {1: "c:2"})
    with pytest.raises(TransportError, match="no master at the moment"):
        master_addresses(ClusterInfo({"broker-c": orphan}, {}))
    assert broker_address(orphan) == "c:2"
    with pytest.raises(TransportError, match="no living process"):
        broker_address(BrokerSet("broker-c", "main", {}))


@pytest.mark.rule("W2.9a")
def test_a_topic_is_removed_from_brokers_and_from_every_name_server():
    script = Script(ok(encode_route(route())), CLUSTER, *[ok()] * 6)
    script.run(delete_topic(servers("n:1", "n:2"), "orders", 3.0))
    assert script.asked[2:] == [
        ("a:1", R.DELETE_TOPIC_IN_BROKER),
        ("b:1", R.DELETE_TOPIC_IN_BROKER),
        ("n:1", R.DELETE_TOPIC_IN_NAMESRV),
        ("n:2", R.DELETE_TOPIC_IN_NAMESRV),
        ("n:1", R.DELETE_KV_CONFIG),
        ("n:2", R.DELETE_KV_CONFIG),
    ]


def test_only_existing_topics_of_users_are_removed():
    with pytest.raises(TopicNotFoundError):
        Script(refusal(17)).run(delete_topic(servers(), "orders", 3.0))
    with pytest.raises(ConfigurationError, match="leave it alone"):
        Script().run(delete_topic(servers(), "SCHEDULE_TOPIC_XXXX", 3.0))


def test_what_queues_hold_is_put_together_from_all_brokers():
    parts = [
        TopicStats({MessageQueue("orders", name, 0): QueueRange(1, 5, 9)}, 1.5) for name in SETS
    ]
    script = Script(*(ok(encode_topic_stats(part)) for part in parts))
    stats = script.run(fetch_topic_stats(route(), 3.0))
    assert stats == TopicStats(parts[0].queues | parts[1].queues, 3.0)
    assert [call.address for call in script.calls] == ["a:1", "b:1"]

from __future__ import annotations

import itertools
import zlib

import pytest

from gimbalmq.broker.documents import KeptInMemory
from gimbalmq.broker.effects import Channel, Close
from gimbalmq.broker.nameserver import NameServerMachine
from gimbalmq.wire import bodies
from gimbalmq.wire.bodies import DataVersion, TopicConfig, TopicConfigTable
from gimbalmq.wire.codes import RequestCode
from gimbalmq.wire.command import Command

START_MS = 1_700_000_000_000


class Registry:
    """A name server machine with a clock in hand."""

    def __init__(self, documents=None):
        self.machine = NameServerMachine(documents)
        self.now_ms = START_MS
        self.numbers = itertools.count(1)

    def channel(self):
        return Channel(next(self.numbers), "127.0.0.1", 1)

    def ask(self, code, fields=None, body=b"", channel=None, **given):
        request = Command(code, dict(fields or {}), body, 1, **given)
        (effect,) = self.machine.handle(request, channel or self.channel(), self.now_ms)
        return effect.command

    def register(self, name="broker-a", address="127.0.0.1:1", topics=("orders",), **given):
        counter = given.pop("counter", 1)
        compressed = given.pop("compressed", False)
        channel = given.pop("channel", None)
        table = TopicConfigTable(
            {topic: TopicConfig(topic, 4, 4) for topic in topics}, DataVersion(1, counter)
        )
        body = bodies.encode_registration(table, compressed=compressed)
        fields = {
            "brokerName": name,
            "brokerAddr": address,
            "clusterName": given.pop("cluster", "DefaultCluster"),
            "haServerAddr": f"{address}0",
            "brokerId": str(given.pop("broker_id", 0)),
            "compressed": "true" if compressed else "false",
            "bodyCrc32": str(zlib.crc32(body) & 0x7FFFFFFF),
        }
        fields |= {key: str(value) for key, value in given.items()}
        return self.ask(RequestCode.REGISTER_BROKER, fields, body, channel)

    def route(self, topic="orders"):
        answer = self.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
        return None if answer.code else bodies.decode_route(topic, answer.body)

    def brokers(self, topic="orders"):
        route = self.route(topic)
        return None if route is None else {one.name: one.addresses for one in route.brokers}

    def topics(self, code=RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, **fields):
        return sorted(bodies.decode_topic_list(self.ask(code, fields).body))


@pytest.fixture
def registry():
    return Registry()


@pytest.mark.rule("B8.7b", "W2.8b", "W3.1", "W3.5b")
@pytest.mark.parametrize("compressed", [False, True])
def test_a_registration_gives_its_topics_a_route(registry, compressed):
    registry.register(compressed=compressed)
    route = registry.route()
    assert [(one.broker, one.read_queues, one.perm) for one in route.queues] == [("broker-a", 4, 6)]
    assert registry.brokers() == {"broker-a": {0: "127.0.0.1:1"}}


@pytest.mark.rule("B8.7b", "W2.8b")
def test_an_unknown_topic_has_no_route(registry):
    assert registry.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "none"}).code == 17


@pytest.mark.rule("W2.8b")
def test_a_wrong_checksum_is_refused_and_none_is_not_checked(registry):
    answer = registry.register(bodyCrc32=5)
    assert (answer.code, answer.remark) == (1, "crc32 not match")
    assert registry.register(bodyCrc32=0).code == 0


@pytest.mark.rule("W2.0c", "W2.8b")
@pytest.mark.parametrize("missing", ["brokerName", "brokerAddr", "clusterName", "brokerId"])
def test_a_registration_that_lacks_what_is_needed_is_refused(registry, missing):
    assert registry.register(**{missing: ""}).code == 1
    assert registry.route() is None


@pytest.mark.rule("W2.8b", "W8b")
def test_a_topic_that_is_no_longer_listed_keeps_its_route_until_it_is_deleted(registry):
    registry.register(topics=("orders", "refunds"))
    registry.register(topics=("refunds",), counter=2)
    assert registry.topics() == ["orders", "refunds"]
    registry.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": "orders"})
    assert registry.topics() == ["refunds"]


@pytest.mark.rule("B8.7a", "W2.8b")
def test_topics_are_taken_only_with_a_new_data_version(registry):
    registry.register(topics=("orders",))
    registry.register(topics=("orders", "more"))
    assert registry.topics() == ["orders"]
    registry.register(topics=("orders", "more"), counter=2)
    assert registry.topics() == ["more", "orders"]


@pytest.mark.rule("B8.7a", "B8.7b", "W2.8b")
def test_a_slave_learns_its_master_and_stays_when_the_master_goes(registry):
    channel = registry.channel()
    registry.register(channel=channel)
    answer = registry.register(address="127.0.0.1:2", broker_id=1, topics=("ignored",))
    assert answer.fields["masterAddr"] == "127.0.0.1:1"
    assert answer.fields["haServerAddr"] == "127.0.0.1:10"
    assert registry.topics() == ["orders"]
    registry.machine.channel_closed(channel, registry.now_ms)
    assert registry.brokers() == {"broker-a": {1: "127.0.0.1:2"}}


@pytest.mark.rule("B8.7a", "W2.8b")
def test_a_closed_connection_takes_its_broker_and_queues_away(registry):
    one, two = registry.channel(), registry.channel()
    registry.register(channel=one)
    registry.register("broker-b", "127.0.0.1:2", ("orders", "other"), channel=two)
    registry.machine.channel_closed(two, registry.now_ms)
    assert registry.topics() == ["orders"]
    assert list(registry.brokers()) == ["broker-a"]


@pytest.mark.rule("W2.8b")
def test_unregistering_takes_a_broker_away(registry):
    registry.register()
    fields = {"brokerName": "broker-a", "brokerAddr": "127.0.0.1:1"}
    fields |= {"clusterName": "DefaultCluster", "brokerId": "0"}
    registry.ask(RequestCode.UNREGISTER_BROKER, fields)
    assert registry.route() is None


@pytest.mark.rule("B8.7a", "W2.8b")
@pytest.mark.parametrize(
    ("given", "life_ms"), [({}, 120_000), ({"heartbeatTimeoutMillis": 10_000}, 10_000)]
)
def test_a_silent_broker_is_dropped_and_its_connection_closed(registry, given, life_ms):
    channel = registry.channel()
    registry.register(channel=channel, **given)
    assert registry.machine.tick(START_MS + life_ms) == []
    assert registry.route() is not None
    (effect,) = registry.machine.tick(START_MS + life_ms + 5_000)
    assert isinstance(effect, Close)
    assert effect.channel is channel
    assert registry.route() is None


@pytest.mark.rule("W2.8b")
@pytest.mark.parametrize("code", [RequestCode.BROKER_HEARTBEAT, RequestCode.QUERY_DATA_VERSION])
def test_other_signs_of_life_keep_a_broker(registry, code):
    registry.register()
    registry.now_ms += 100_000
    fields = {"brokerName": "broker-a", "brokerAddr": "127.0.0.1:1"}
    fields |= {"clusterName": "DefaultCluster", "brokerId": "0"}
    registry.ask(code, fields, bodies.encode_data_version(DataVersion(1, 1)))
    assert registry.machine.tick(START_MS + 130_000) == []


@pytest.mark.rule("B8.7a", "W2.8b")
def test_a_broker_asks_whether_its_version_is_known(registry):
    registry.register()
    fields = {"brokerName": "broker-a", "brokerAddr": "127.0.0.1:1"}
    fields |= {"clusterName": "DefaultCluster", "brokerId": "0"}
    for counter, changed in ((1, "false"), (2, "true")):
        version = bodies.encode_data_version(DataVersion(1, counter))
        answer = registry.ask(RequestCode.QUERY_DATA_VERSION, fields, version)
        assert answer.fields == {"changed": changed}
        assert bodies.decode_data_version(answer.body) == DataVersion(1, 1)


@pytest.mark.rule("B8.7b", "W2.8b")
def test_a_broker_that_comes_back_elsewhere_takes_its_old_place(registry):
    registry.register()
    registry.register(address="127.0.0.1:9", counter=2)
    assert registry.brokers() == {"broker-a": {0: "127.0.0.1:9"}}


@pytest.mark.rule("W2.8b", "W3.4")
def test_the_cluster_lists_its_brokers(registry):
    registry.register()
    registry.register("broker-b", "127.0.0.1:2", cluster="other")
    info = bodies.decode_cluster(registry.ask(RequestCode.GET_BROKER_CLUSTER_INFO).body)
    assert info.clusters == {"DefaultCluster": ("broker-a",), "other": ("broker-b",)}
    assert info.brokers["broker-b"].master == "127.0.0.1:2"
    assert registry.topics(RequestCode.GET_TOPICS_BY_CLUSTER, cluster="other") == ["orders"]
    names = registry.topics(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
    assert names == ["DefaultCluster", "broker-a", "broker-b", "other"]


@pytest.mark.rule("W2.8b")
def test_topics_are_listed_by_their_flags(registry):
    flags = {"plain": 0, "unit": 1, "sub": 2, "both": 3}
    topics = {name: TopicConfig(name, sys_flag=flag) for name, flag in flags.items()}
    body = bodies.encode_registration(TopicConfigTable(topics, DataVersion(1, 1)))
    fields = {"brokerName": "broker-a", "brokerAddr": "127.0.0.1:1", "brokerId": "0"}
    registry.ask(RequestCode.REGISTER_BROKER, fields | {"clusterName": "c"}, body)
    assert registry.topics(RequestCode.GET_UNIT_TOPIC_LIST) == ["both", "unit"]
    assert registry.topics(RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST) == ["both", "sub"]
    assert registry.topics(RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST) == ["sub"]


@pytest.mark.rule("W2.8b")
def test_members_of_a_broker_set(registry):
    registry.register()
    fields = {"clusterName": "DefaultCluster", "brokerName": "broker-a"}
    answer = registry.ask(RequestCode.GET_BROKER_MEMBER_GROUP, fields)
    assert bodies.decode_broker_members(answer.body).addresses == {0: "127.0.0.1:1"}


@pytest.mark.rule("W2.8b")
def test_deleting_a_topic_may_be_limited_to_a_cluster(registry):
    registry.register()
    registry.register("broker-b", "127.0.0.1:2", cluster="other")
    fields = {"topic": "orders", "clusterName": "other"}
    registry.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, fields)
    assert list(registry.brokers()) == ["broker-a"]


@pytest.mark.rule("W2.8b")
def test_write_permission_is_taken_and_given_back(registry):
    registry.register(topics=("orders", "refunds"))
    answer = registry.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "broker-a"})
    assert answer.fields == {"wipeTopicCount": "2"}
    assert registry.route().queues[0].perm == 4
    answer = registry.ask(RequestCode.ADD_WRITE_PERM_OF_BROKER, {"brokerName": "broker-a"})
    assert answer.fields == {"addTopicCount": "2"}
    assert registry.route().queues[0].perm == 6


@pytest.mark.rule("W2.8b")
def test_a_route_may_be_registered_for_known_brokers(registry):
    registry.register()
    from gimbalmq.model.route import QueueData, TopicRoute

    queues = (QueueData("broker-a", 2, 2, 6), QueueData("stranger", 2, 2, 6))
    body = bodies.encode_route(TopicRoute("made", (), queues))
    registry.ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV, {"topic": "made"}, body)
    assert list(registry.brokers("made")) == ["broker-a"]


@pytest.mark.rule("W2.8b")
def test_key_values_are_kept_and_order_configuration_reaches_routes():
    documents = KeptInMemory()
    registry = Registry(documents)
    entry = {"namespace": "ORDER_TOPIC_CONFIG", "key": "orders", "value": "broker-a:4"}
    registry.ask(RequestCode.PUT_KV_CONFIG, entry)
    again = Registry(documents)
    assert again.ask(RequestCode.GET_KV_CONFIG, entry).fields == {"value": "broker-a:4"}
    answer = again.register()
    assert bodies.decode_kv_table(answer.body) == {"orders": "broker-a:4"}
    assert again.route().order_conf == "broker-a:4"
    answer = again.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": "ORDER_TOPIC_CONFIG"})
    assert bodies.decode_kv_table(answer.body) == {"orders": "broker-a:4"}
    again.ask(RequestCode.DELETE_KV_CONFIG, entry)
    assert again.ask(RequestCode.GET_KV_CONFIG, entry).code == 22
    assert again.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": "none"}).code == 22


@pytest.mark.rule("W2.2")
def test_settings_are_text(registry):
    registry.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=b"a=1\n#no=2\n")
    assert b"a=1\n" in registry.ask(RequestCode.GET_NAMESRV_CONFIG).body


@pytest.mark.rule("W1.4", "W2.2", "W8b")
def test_unknown_codes_are_answered_and_one_way_requests_are_not(registry):
    answer = registry.ask(999)
    assert (answer.code, answer.remark) == (3, " request type 999 not supported")
    request = Command(999, opaque=1, flag=2)
    assert registry.machine.handle(request, registry.channel(), START_MS) == []


def test_bodies_that_are_no_registration_are_refused(registry):
    assert registry.register(bodyCrc32=0, compressed="true").code in {0, 1}
    fields = {"brokerName": "b", "brokerAddr": "a:1", "clusterName": "c", "brokerId": "0"}
    fields |= {"haServerAddr": "", "compressed": "true"}
    assert registry.ask(RequestCode.REGISTER_BROKER, fields, b"no zlib").code == 1

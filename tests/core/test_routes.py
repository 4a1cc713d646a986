import pytest

from gimbalmq.core.routes import RouteTable
from gimbalmq.model.queue import MessageQueue
from gimbalmq.model.route import BrokerSet, QueueData, TopicRoute

A = BrokerSet("broker-a", "c", {0: "a:1", 1: "a-slave:1"})
B = BrokerSet("broker-b", "c", {1: "b-slave:1"})


def route(topic, *brokers, queues=4):
    return TopicRoute(
        topic, brokers, tuple(QueueData(one.name, queues, queues, 6) for one in brokers)
    )


@pytest.fixture
def table():
    return RouteTable()


def test_a_route_is_news_once(table):
    assert table.learn(route("orders", A))
    assert not table.learn(route("orders", A))
    assert table.learn(route("orders", A, queues=8))
    assert table.route("orders") == route("orders", A, queues=8)


def test_an_unknown_topic_has_no_route(table):
    assert table.route("orders") is None


def test_a_forgotten_topic_is_gone_and_forgetting_twice_is_harmless(table):
    table.learn(route("orders", A))
    table.forget("orders")
    table.forget("orders")
    assert list(table) == []


def test_a_broker_is_looked_for_in_the_topics_own_route_first(table):
    moved = BrokerSet("broker-a", "c", {0: "new:1"})
    table.learn(route("orders", A))
    table.learn(route("refunds", moved))
    assert table.broker("broker-a", topic="refunds") == moved
    assert table.broker("broker-a", topic="orders") == A
    assert table.broker("broker-a", topic="unknown") in (A, moved)
    assert table.broker("nobody") is None


def test_a_queue_without_a_master_has_no_master_address(table):
    table.learn(route("orders", A, B))
    assert table.master(MessageQueue("orders", "broker-a", 0)) == "a:1"
    assert table.master(MessageQueue("orders", "broker-b", 0)) is None
    assert table.master(MessageQueue("orders", "nobody", 0)) is None


def test_every_address_is_listed_with_its_set_and_id(table):
    table.learn(route("orders", A))
    table.learn(route("refunds", A, B))
    assert table.addresses() == {
        "a:1": ("broker-a", 0),
        "a-slave:1": ("broker-a", 1),
        "b-slave:1": ("broker-b", 1),
    }


@pytest.mark.parametrize(
    ("broker", "advised", "place"),
    [
        (A, 0, ("a:1", True)),
        (A, 1, ("a-slave:1", False)),
        # The next one after the advised one, else the first there is.
        (BrokerSet("broker-a", "c", {0: "a:1", 3: "third:1"}), 2, ("third:1", False)),
        (A, 7, ("a:1", True)),
        (BrokerSet("broker-a", "c", {1: "a-slave:1"}), 0, ("a-slave:1", False)),
        (BrokerSet("broker-a", "c", {}), 0, None),
    ],
)
def test_a_pull_goes_where_it_was_advised_to_or_to_the_next_best_place(
    table, broker, advised, place
):
    table.learn(route("orders", broker))
    assert table.pull_place(MessageQueue("orders", "broker-a", 0), advised) == place


def test_a_queue_of_an_unknown_broker_is_pulled_from_nowhere(table):
    assert table.pull_place(MessageQueue("orders", "broker-a", 0), 0) is None


def test_a_queue_is_pulled_from_where_the_newest_route_says(table):
    queue = MessageQueue("orders", "broker-a", 0)
    table.learn(route("orders", BrokerSet("broker-a", "c", {0: "old:1", 1: "slave:1"})))
    assert table.pull_place(queue, 0) == table.pull_place(queue, 0) == ("old:1", True)
    assert table.pull_place(queue, 1) == ("slave:1", False)
    table.learn(route("orders", BrokerSet("broker-a", "c", {0: "new:1"})))
    assert table.pull_place(queue, 0) == table.pull_place(queue, 1) == ("new:1", True)
    table.forget("orders")
    assert table.pull_place(queue, 0) is None


def test_one_address_of_each_broker_set_comes_in_the_order_of_their_names(table):
    table.learn(route("orders", B))
    table.learn(route("refunds", A, B))
    table.learn(route("unasked", BrokerSet("broker-0", "c", {0: "0:1"})))
    asked = table.any_addresses(["orders", "refunds", "unknown"])
    assert asked == [("broker-a", "a:1"), ("broker-b", "b-slave:1")]

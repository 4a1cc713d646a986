import pytest

from gimbalmq.core.publish import PublishInfo
from gimbalmq.model.route import BrokerSet, QueueData, TopicRoute

A = BrokerSet("broker-a", "c", {0: "127.0.0.1:1", 1: "127.0.0.1:2"})
B = BrokerSet("broker-b", "c", {0: "127.0.0.1:3"})
NO_MASTER = BrokerSet("broker-n", "c", {1: "127.0.0.1:4"})


def info(*data, order_conf="", brokers=(B, A, NO_MASTER)):
    return PublishInfo.of(TopicRoute("t", brokers, tuple(data), order_conf))


def test_queues_are_listed_by_broker_and_number_with_where_they_are():
    found = info(QueueData("broker-b", 4, 1, 6), QueueData("broker-a", 4, 2, 6))
    assert [queue.path for queue in found.queues] == [
        "t/broker-a/0",
        "t/broker-a/1",
        "t/broker-b/0",
    ]
    assert found.write_queues == {"broker-a": 2, "broker-b": 1}
    assert found.masters == {"broker-a": "127.0.0.1:1", "broker-b": "127.0.0.1:3"}


@pytest.mark.parametrize(
    "data",
    [QueueData("broker-a", 4, 0, 6), QueueData("broker-a", 4, 4, 4), QueueData("broker-n", 4, 4, 6),
     QueueData("broker-x", 4, 4, 6)],
    ids=["no write queues", "read only", "no master", "no such broker"],
)  # fmt: skip
def test_a_broker_that_cannot_be_written_to_is_dropped(data):
    found = info(data)
    assert found.queues == ()
    assert found.write_queues == {}


def test_an_ordered_topic_is_sent_to_as_configured_also_where_the_broker_is_gone():
    found = info(QueueData("broker-a", 8, 8, 6), order_conf="broker-gone:2;broker-a:1")
    assert [queue.path for queue in found.queues] == [
        "t/broker-gone/0",
        "t/broker-gone/1",
        "t/broker-a/0",
    ]
    assert "broker-gone" not in found.masters

import pytest

from gimbalmq.errors import ConfigurationError
from gimbalmq.model.queue import MessageQueue
from gimbalmq.model.route import BrokerSet, QueueData, TopicRoute

READ, WRITE, BOTH = 4, 2, 6


def broker(name, *ids):
    return BrokerSet(name, "c", {number: f"{name}-{number}:1" for number in ids})


def route(*parts, order_conf=""):
    """Parts are (broker set, read queues, write queues, permission)."""
    brokers = tuple(part[0] for part in parts)
    data = tuple(QueueData(part[0].name, *part[1:]) for part in parts)
    return TopicRoute("t", brokers, data, order_conf)


def paths(queues):
    return [queue.path for queue in queues]


@pytest.mark.rule("B0e")
def test_a_sender_sees_the_write_queues_of_writable_brokers():
    got = route((broker("a", 0), 8, 2, BOTH), (broker("b", 0), 8, 3, READ)).publish_queues()
    assert paths(got) == ["t/a/0", "t/a/1"]


@pytest.mark.rule("B0f")
def test_a_set_without_a_master_cannot_be_sent_to():
    assert route((broker("a", 1), 4, 4, BOTH)).publish_queues() == ()


@pytest.mark.rule("B0g")
def test_the_publish_list_goes_by_broker_name_and_then_number():
    got = route((broker("b", 0), 2, 2, BOTH), (broker("a", 0), 2, 2, BOTH)).publish_queues()
    assert paths(got) == ["t/a/0", "t/a/1", "t/b/0", "t/b/1"]


@pytest.mark.rule("B0h")
def test_a_reader_sees_the_read_queues_of_readable_brokers_with_or_without_a_master():
    got = route(
        (broker("a", 1), 2, 9, READ), (broker("b", 0), 1, 9, BOTH), (broker("c", 0), 9, 9, WRITE)
    ).subscribe_queues()
    assert got == {MessageQueue("t", "a", 0), MessageQueue("t", "a", 1), MessageQueue("t", "b", 0)}


@pytest.mark.rule("B0i")
def test_an_order_configuration_replaces_the_publish_list_in_its_own_order():
    got = route((broker("a", 0), 4, 4, BOTH), order_conf="b:1;a:2").publish_queues()
    assert paths(got) == ["t/b/0", "t/a/0", "t/a/1"]


@pytest.mark.parametrize("bad", ["a", "a:", ":2", "a:x"])
def test_an_order_configuration_that_makes_no_sense_is_quoted(bad):
    with pytest.raises(ConfigurationError, match="correct it on the name server"):
        route((broker("a", 0), 4, 4, BOTH), order_conf=bad).publish_queues()


@pytest.mark.rule("W3.1c")
def test_id_zero_is_the_master():
    assert broker("a", 1, 0).master == "a-0:1"
    assert broker("a", 2, 1).master is None


def test_without_a_master_the_slave_with_the_smallest_id_speaks():
    assert broker("a", 2, 1).any_address == "a-1:1"
    assert broker("a", 1, 0).any_address == "a-0:1"
    assert broker("a").any_address is None

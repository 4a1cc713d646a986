"""A producer and two consumers on one client id: what fails in one group stays there."""

import itertools
import queue

import pytest

from gimbalmq import Message, Producer, PushConsumer
from gimbalmq.broker import EmbeddedCluster
from gimbalmq.client import shared
from waiting import eventually

_numbers = itertools.count()


@pytest.fixture(scope="module")
def cluster():
    with EmbeddedCluster() as running:
        yield running


@pytest.fixture
def topic(cluster):
    name = f"orders-{next(_numbers)}"
    cluster.create_topic(name, queues=2)
    return name


class Failing:
    """A strategy that has Java's name, so that its members have the id of the others."""

    name = "AVG"

    def allocate(self, snapshot):
        raise LookupError(f"no idea who gets the queues of {snapshot.group}")


def fail(message):
    raise LookupError(f"no idea what to do with {message.body!r}")


@pytest.mark.rule("B2.2e", "B8.6a")
@pytest.mark.parametrize(
    ("options", "listener", "words"),
    [
        ({"allocation": Failing()}, print, "no idea who gets the queues of broken"),
        ({}, fail, "no idea what to do with b'one'"),
    ],
    ids=["strategy", "listener"],
)
def test_a_group_that_fails_does_not_keep_the_others_of_its_client_from_going_on(
    cluster, topic, caplog, options, listener, words
):
    names = {"nameserver": cluster.nameserver, "client_id": f"till-{next(_numbers)}"}
    soon = {"rebalance_interval_s": 0.1, "start_from": "first", **names}
    got = queue.SimpleQueue()
    broken = PushConsumer("broken", **soon, **options)
    broken.subscribe(topic, listener=listener)
    healthy = PushConsumer(f"healthy-{next(_numbers)}", **soon)
    healthy.subscribe(topic, listener=lambda message: got.put(message.body))
    with broken, healthy, Producer("shop", **names) as producer:
        (instance,) = shared._registry()._shared.values()
        assert instance.users == 3, "they share connections, heartbeats and timers"
        producer.send(Message(topic, b"one"))
        assert got.get(timeout=30.0) == b"one"
        assert eventually(lambda: words in caplog.text)
        assert len([one for one in healthy.assignment() if one.topic == topic]) == 2
        for number in range(20):
            future = producer.send_async(Message(topic, b"%d" % number))
            assert future.result(30.0).queue.topic == topic
        assert {got.get(timeout=30.0) for _ in range(20)} == {b"%d" % n for n in range(20)}

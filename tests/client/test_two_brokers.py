"""A producer with two brokers to choose from, one of which is gone, frozen or slow."""

import itertools
import time
from datetime import UTC, datetime, timedelta

import pytest

from gimbalmq import Message, Producer
from gimbalmq.broker import EmbeddedCluster
from gimbalmq.core.fault import FaultTolerance
from transport.relay import Relay
from transport.server import BlackHole
from waiting import eventually

_numbers = itertools.count()
GOOD, BAD = "broker-a", "broker-b"


@pytest.fixture(scope="module")
def cluster():
    with EmbeddedCluster(brokers=2) as running:
        yield running


@pytest.fixture
def topic(cluster):
    """A new topic with one queue on each of the two brokers."""
    name = f"orders-{next(_numbers)}"
    cluster.create_topic(name, queues=1)
    return name


@pytest.fixture
def relay(cluster):
    """The only way to the second broker."""
    with Relay(cluster.brokers[1].address) as relay:
        yield relay


def producer_by(cluster, way_to_bad, **options):
    """A producer that reaches the second broker by another way."""
    bad = cluster.brokers[1].address
    return Producer(
        "shop", nameserver=cluster.nameserver, address_map={bad: way_to_bad.address}, **options
    )


def send(producer, topic):
    return producer.send(Message(topic, b"x")).queue.broker


def send_async(producer, topic):
    return producer.send_async(Message(topic, b"x")).result(30.0).queue.broker


def failures(producer):
    """How many attempts at the second broker got no answer."""
    return sum(one.failed for one in producer.stats().brokers if one.broker == BAD)


def warm_up(producer, topic, way):
    """Send until both brokers are connected, and the next message may go to either."""
    eventually(lambda: way(producer, topic) == GOOD)
    eventually(lambda: way(producer, topic) == BAD)


both_ways = pytest.mark.parametrize("way", [send, send_async])


# ---- another broker in time ----------------------------------------------------------------------


@pytest.mark.rule("B7.4a", "B7.5a")
@both_ways
def test_a_broker_that_is_gone_without_a_word_leaves_time_for_the_other(cluster, topic, way):
    with BlackHole() as hole, producer_by(cluster, hole, fault_tolerance=True) as producer:
        while not failures(producer):
            assert way(producer, topic) == GOOD


@pytest.mark.rule("B7.5a")
def test_a_pipelined_message_that_is_lost_with_its_connection_is_stored_at_the_other_broker(
    cluster, topic, relay
):
    with producer_by(cluster, relay, timeout_s=30.0) as producer:
        warm_up(producer, topic, send_async)
        relay.freeze()
        before = relay.received
        futures = [producer.send_async(Message(topic, b"x")) for _ in range(4)]
        eventually(lambda: relay.received > before)
        assert not all(future.done() for future in futures)
        relay.close()
        assert [future.result(30.0).queue.broker for future in futures] == [GOOD] * 4


@pytest.mark.rule("B7.4a")
@both_ways
def test_an_attempt_at_a_frozen_broker_takes_no_longer_than_one_may(cluster, topic, relay, way):
    limits = {"timeout_s": 20.0, "send_msg_max_timeout_per_request_s": 0.5}
    with producer_by(cluster, relay, **limits) as producer:
        warm_up(producer, topic, way)
        relay.freeze()
        started_s = time.monotonic()
        while not failures(producer):
            assert way(producer, topic) == GOOD
        assert time.monotonic() - started_s < 10.0


def test_a_frozen_broker_leaves_time_for_a_message_with_a_time(cluster, topic, relay):
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    with producer_by(cluster, relay, timeout_s=4.0) as producer:
        good = next(queue for queue in producer.queues(topic) if queue.broker == GOOD)
        relay.freeze()
        # The brokers are asked for their versions first; the frozen one does not say its own.
        result = producer.send(Message(topic, b"x", deliver_at=tomorrow), queue=good)
        assert result.queue.broker == GOOD


# ---- keeping away --------------------------------------------------------------------------------


@pytest.mark.rule("B7.2a", "B7.2b", "B7.3a")
@both_ways
@pytest.mark.parametrize("rules", ["5.x", "4.x"])
def test_a_producer_keeps_away_from_a_slow_broker(cluster, topic, relay, way, rules):
    # Far above what the other one takes on a busy machine.
    tolerance = FaultTolerance(rules=rules, latency_s=(1.0,), isolate_s=(600.0,))
    with producer_by(cluster, relay, timeout_s=30.0, fault_tolerance=tolerance) as producer:
        warm_up(producer, topic, way)
        assert producer.brokers()[BAD].aside_s == 0.0
        relay.delay_s = 1.1
        eventually(lambda: way(producer, topic) == BAD)  # it is slow, not down
        assert producer.brokers()[BAD].aside_s > 500.0
        assert [way(producer, topic) for _ in range(10)] == [GOOD] * 10


@pytest.mark.rule("B7.2a", "B7.2b", "B7.3d")
@both_ways
@pytest.mark.parametrize("rules", ["5.x", "4.x"])
def test_a_producer_keeps_away_from_a_frozen_broker(cluster, topic, relay, way, rules):
    tolerance = FaultTolerance(rules=rules)
    with producer_by(
        cluster,
        relay,
        timeout_s=30.0,
        send_msg_max_timeout_per_request_s=1.0,
        fault_tolerance=tolerance,
    ) as producer:
        warm_up(producer, topic, way)
        relay.freeze()
        while not failures(producer):
            assert way(producer, topic) == GOOD
        assert producer.brokers()[BAD].aside_s > 0.0
        assert [way(producer, topic) for _ in range(10)] == [GOOD] * 10
        assert failures(producer) == 1, "it was not tried again"

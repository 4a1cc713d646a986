"""Broadcasting members on the embedded cluster: what they get, from when on."""

import queue

import pytest

from gimbalmq import Message, Producer, PushConsumer
from gimbalmq.broker import EmbeddedCluster
from waiting import eventually


@pytest.fixture(scope="module")
def cluster():
    with EmbeddedCluster() as cluster:
        yield cluster


@pytest.fixture
def topic(cluster, unique_name):
    name = unique_name("news")
    cluster.create_topic(name, queues=4)
    return name


@pytest.fixture
def member(cluster, topic, unique_name, tmp_path):
    group = unique_name("readers")

    def make(name):
        got = queue.SimpleQueue()
        consumer = PushConsumer(
            group,
            nameserver=cluster.nameserver,
            broadcasting=True,
            client_id=name,
            local_offset_store_dir=tmp_path,
        )
        consumer.subscribe(topic, listener=lambda message: got.put(message.body))
        return consumer, got

    return make


@pytest.mark.rule("B10.23")
def test_pitfall_23_a_member_misses_nothing_that_is_sent_once_it_has_started(
    cluster, topic, member
):
    with Producer("press", nameserver=cluster.nameserver) as producer:
        for number in range(20):
            producer.send(Message(topic, b"old %d" % number))
        consumer, got = member("ann")
        with consumer:
            # At once: whatever start() has not waited for comes too late.
            bodies = [b"new %d" % number for number in range(8)]
            for body in bodies:
                producer.send(Message(topic, body))
            assert sorted(got.get(timeout=20.0) for _ in bodies) == bodies
            assert got.empty(), "it starts at the end"


@pytest.mark.rule("B10.23", "B5.5e")
def test_pitfall_23_a_member_goes_on_where_it_was_before_its_restart(cluster, topic, member):
    with Producer("press", nameserver=cluster.nameserver) as producer:
        consumer, got = member("ann")
        with consumer:
            producer.send(Message(topic, b"first"))
            assert got.get(timeout=20.0) == b"first"
        missed = [b"missed %d" % number for number in range(8)]
        for body in missed:
            producer.send(Message(topic, body))
        consumer, got = member("ann")
        with consumer:
            assert sorted(got.get(timeout=20.0) for _ in missed) == missed
            eventually(lambda: len(consumer.assignment()) == 4)
            assert got.empty()

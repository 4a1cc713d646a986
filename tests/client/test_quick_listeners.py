"""Listeners so quick that they run on the client's own thread, and what they may do there."""

import itertools
import threading

import pytest

from gimbalmq import Message, Producer, PushConsumer
from gimbalmq.broker import EmbeddedCluster

MESSAGES = 3_000
LIMIT_S = 30.0


@pytest.fixture(scope="module")
def cluster():
    with EmbeddedCluster() as cluster:
        yield cluster


@pytest.fixture
def topic(cluster, unique_name):
    name = unique_name("orders")
    cluster.create_topic(name, queues=4)
    with Producer("shop", nameserver=cluster.nameserver) as producer:
        for first in range(0, MESSAGES, 100):
            producer.send_batch(
                [Message(name, b"%d" % number) for number in range(first, first + 100)]
            )
    return name


class Listener:
    """Notes every message; does something else once, in the middle."""

    def __init__(self, midway=lambda: None):
        self.got = []
        self.threads = set()
        self.over = threading.Event()
        self._midway = midway
        self._numbers = itertools.count(1)

    def __call__(self, message):
        self.got.append(int(message.body))
        self.threads.add(threading.current_thread().name)
        # Each number once, whichever threads come at the same time.
        if next(self._numbers) == MESSAGES // 2:
            self._midway()
        if len(self.got) == MESSAGES:
            self.over.set()


def consumer_of(cluster, topic, unique_name, listener, **options):
    consumer = PushConsumer(
        unique_name("billing"), nameserver=cluster.nameserver, start_from="first", **options
    )
    consumer.subscribe(topic, listener=listener)
    return consumer


def test_they_get_every_message_once_and_their_offsets_are_stored(cluster, topic, unique_name):
    listener = Listener()
    with consumer_of(cluster, topic, unique_name, listener) as consumer:
        assert listener.over.wait(LIMIT_S)
    assert sorted(listener.got) == list(range(MESSAGES))
    again = Listener()
    second = PushConsumer(consumer.group, nameserver=cluster.nameserver)
    second.subscribe(topic, listener=again)
    with second, Producer("shop", nameserver=cluster.nameserver) as producer:
        producer.send(Message(topic, b"9999"))
        while 9999 not in again.got:
            assert not again.over.wait(0.01)
    assert again.got == [9999], "nothing came twice"


def test_one_may_ask_and_pause_its_own_consumer(cluster, topic, unique_name):
    answers = []

    def midway():
        answers.append(len(consumer.assignment()))
        consumer.pause()
        answers.append(consumer.stats().group)
        consumer.resume()

    listener = Listener(midway)
    consumer = consumer_of(cluster, topic, unique_name, listener)
    with consumer:
        assert listener.over.wait(LIMIT_S)
    assert sorted(listener.got) == list(range(MESSAGES))
    assert answers[0] >= 4


def test_one_that_hangs_holds_up_only_its_own_message(cluster, topic, unique_name):
    go_on, hung = threading.Event(), threading.Event()

    def midway():
        hung.set()
        assert go_on.wait(LIMIT_S)

    listener = Listener(midway)
    with consumer_of(cluster, topic, unique_name, listener) as consumer:
        assert hung.wait(LIMIT_S)
        assert listener.over.wait(LIMIT_S), "all others came meanwhile"
        assert consumer.assignment(), "and the client answers"
        go_on.set()
    assert sorted(listener.got) == list(range(MESSAGES))


def test_one_may_stop_its_own_consumer(cluster, topic, unique_name):
    stopped = threading.Event()

    def midway():
        threading.Thread(target=lambda: (consumer.stop(), stopped.set())).start()

    listener = Listener(midway)
    consumer = consumer_of(cluster, topic, unique_name, listener)
    consumer.start()
    assert stopped.wait(LIMIT_S)
    assert MESSAGES // 2 <= len(listener.got) <= MESSAGES
    assert len(set(listener.got)) == len(listener.got)

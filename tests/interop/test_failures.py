"""Brokers and name servers that die and come back, under load."""

import itertools
import threading

import pytest

from gimbalmq import Message, Producer, PushConsumer

pytestmark = pytest.mark.timeout(280, func_only=True)


class Load:
    """Sends numbered messages without a pause; keeps those that a broker has stored."""

    def __init__(self, nameserver, topic, timeout_s=5.0):
        self._producer = Producer("load", nameserver=nameserver, timeout_s=timeout_s)
        self._topic = topic
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self.stored, self.failed = [], []

    def __enter__(self):
        self._producer.start()
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join(30.0)
        self._producer.stop()

    def _run(self):
        for number in itertools.count():
            if self._over.wait(0.005):
                return
            try:
                result = self._producer.send(Message(self._topic, b"%d" % number))
            except Exception as error:  # noqa: BLE001 - counted, and judged by the test
                self.failed.append(error)
            else:
                self.stored.append((number, result.queue.broker))

    def more(self, count, broker=None):
        """A condition: that many more messages were stored, on one broker or on any."""
        seen = len(self.stored)
        return lambda: sum(broker in {None, where} for _, where in self.stored[seen:]) >= count


@pytest.fixture
def consumed(rocketmq, topic, group_name):
    got = set()
    consumer = PushConsumer(group_name, nameserver=rocketmq.nameserver, start_from="first")
    consumer.subscribe(topic, listener=lambda message: got.add(int(message.body)))
    with consumer:
        yield got


@pytest.mark.rule("B7.4b", "B9d", "B10.20")
def test_a_broker_dies_and_returns_while_clients_go_on_by_themselves(
    rocketmq, topic, consumed, eventually
):
    with Load(rocketmq.nameserver, topic) as load:
        eventually(load.more(50, "broker-a"))
        try:
            rocketmq.kill("broker-a")
            eventually(load.more(100, "broker-b"))
        finally:
            rocketmq.restart("broker-a")
        eventually(load.more(20, "broker-a"), 90.0)
    assert load.failed == [], "a send that fails on one broker is tried on the other"
    eventually(lambda: consumed >= {number for number, _ in load.stored}, 90.0)


def test_a_name_server_dies_and_returns_while_messages_flow(rocketmq, topic, consumed, eventually):
    with Load(rocketmq.nameserver, topic) as load:
        eventually(load.more(50))
        try:
            rocketmq.kill("nameserver")
            eventually(load.more(100))
        finally:
            rocketmq.restart("nameserver")
        eventually(load.more(50))
    assert load.failed == []
    eventually(lambda: consumed >= {number for number, _ in load.stored})

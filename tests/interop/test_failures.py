"""Brokers and name servers that die or freeze, and come back, under load.

All of it on one cluster that no other test uses: a client's first call after such an event may fail.
"""

import contextlib
import itertools
import os
import threading
from collections import Counter
from pathlib import Path

import pytest

from gimbalmq import Message, Producer, PushConsumer
from gimbalmq.errors import SendError
from gimbalmq.testing import JavaPeer
from java_clients import LIVELY

pytestmark = pytest.mark.timeout(280, func_only=True)

#: Clients learn from a name server that a broker is back; by default they ask every 30 s.
SOON = {"poll_name_server_interval_s": 1.0}


@pytest.fixture
def cluster(breakable_rocketmq):
    return breakable_rocketmq


@pytest.fixture
def topic(cluster, topic_name):
    cluster.create_topic(topic_name, queues=4)
    return topic_name


class Load:
    """Sends numbered messages without a pause; keeps those that a broker has stored."""

    def __init__(self, nameserver, topic, timeout_s=5.0):
        self._producer = Producer("load", nameserver=nameserver, timeout_s=timeout_s, **SOON)
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


#: That clients have to a server: a consumer one, a producer one of its own and one of its caller's.
CONNECTIONS = 3


def own_threads():
    return sum(thread.name.startswith("gimbalmq-") for thread in threading.enumerate())


def holdings():
    """Our threads and this process's sockets."""
    links = (_target(path) for path in Path("/proc/self/fd").iterdir())
    return own_threads(), sum(link.startswith("socket:") for link in links)


def no_more_than(before):
    return all(now <= then for now, then in zip(holdings(), before, strict=True))


def connections(cluster):
    """How many connections this process has to each server, by its address."""
    addresses = [cluster.nameserver, *(broker.address for broker in cluster.brokers)]
    ports = {int(address.rpartition(":")[2]): address for address in addresses}
    own = {_target(path) for path in Path("/proc/self/fd").iterdir()}
    rows = map(str.split, Path("/proc/self/net/tcp").read_text("ascii").splitlines()[1:])
    remote = ((int(row[2].rpartition(":")[2], 16), f"socket:[{row[9]}]") for row in rows)
    return Counter(ports[port] for port, inode in remote if port in ports and inode in own)


def _target(path):
    try:
        return os.readlink(path)  # noqa: PTH115 - the text is no path
    except FileNotFoundError:  # closed between the listing and now
        return ""


@pytest.fixture
def flowing(cluster, topic, group_name, eventually):
    """A load and its consumer. In the end all that was stored has arrived, and nothing is left."""

    @contextlib.contextmanager
    def flow(timeout_s=5.0, **options):
        got = set()
        before = holdings()
        consumer = PushConsumer(
            group_name, nameserver=cluster.nameserver, start_from="first", **SOON, **options
        )
        consumer.subscribe(topic, listener=lambda message: got.add(int(message.body)))
        with consumer, Load(cluster.nameserver, topic, timeout_s) as load:
            eventually(load.more(50, "broker-a"))
            eventually(lambda: got)
            threads = own_threads()
            yield load
            stored = {number for number, _ in load.stored}
            eventually(lambda: got >= stored, 90.0)
            eventually(lambda: own_threads() <= threads, 30.0)
            eventually(lambda: max(connections(cluster).values()) <= CONNECTIONS, 30.0)
        eventually(lambda: no_more_than(before), 30.0)

    return flow


@pytest.mark.matrix
@pytest.mark.rule("B7.4b", "B9d", "B10.20")
def test_a_broker_dies_and_returns_while_clients_go_on_by_themselves(cluster, flowing, eventually):
    with flowing() as load:
        try:
            cluster.kill("broker-a")
            eventually(load.more(100, "broker-b"))
        finally:
            cluster.restart("broker-a")
        eventually(load.more(20, "broker-a"), 90.0)
        assert load.failed == [], "a send that fails on one broker is tried on the other"


@pytest.mark.matrix
def test_a_name_server_dies_and_returns_while_messages_flow(cluster, flowing, eventually):
    with flowing() as load:
        try:
            cluster.kill("nameserver")
            eventually(load.more(100))
        finally:
            cluster.restart("nameserver")
        eventually(load.more(50))
        assert load.failed == []


@pytest.mark.matrix
@pytest.mark.parametrize("name", ["broker-a", "nameserver"])
def test_clients_recover_by_themselves_from_a_frozen_server(cluster, flowing, eventually, name):
    timers = {"heartbeat_broker_interval_s": 1.0, "rebalance_interval_s": 2.0}
    with flowing(timeout_s=2.0, **timers) as load:
        for _ in range(2):
            cluster.pause(name)
            try:
                # While a broker is frozen, every other message waits for its time limit.
                eventually(load.more(4, "broker-b"), 60.0)
                eventually(lambda: name == "nameserver" or load.failed, 30.0)
            finally:
                cluster.resume(name)
            eventually(load.more(50, "broker-a"), 60.0)
        assert not (name == "nameserver" and load.failed), "messages flow without a name server"


# ---- producers ---------------------------------------------------------------------------------


#: Between two messages of a thread: the test is about the outage, and reads all of them back.
PAUSE_S = 0.002


class Traffic:
    """Sends numbered messages from two threads, one waiting for each, one pipelined."""

    def __init__(self, producer, topic):
        self._producer = producer
        self._topic = topic
        self._stop = threading.Event()
        self.acknowledged = {}
        self.failed = []
        self._threads = [
            threading.Thread(target=self._sync), threading.Thread(target=self._pipelined)
        ]  # fmt: skip

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        for thread in self._threads:
            thread.join(60.0)
            assert not thread.is_alive()

    def count(self, broker):
        return sum(result.queue.broker == broker for result in list(self.acknowledged.values()))

    def _sync(self):
        number = 0
        while not self._stop.wait(PAUSE_S):
            number += 1
            body = b"sync %d" % number
            try:
                self.acknowledged[body] = self._producer.send(Message(self._topic, body))
            except SendError as error:
                self.failed.append(error)

    def _pipelined(self):
        number, futures = 0, {}
        while not self._stop.wait(PAUSE_S):
            number += 1
            body = b"pipelined %d" % number
            try:
                futures[body] = self._producer.send_async(Message(self._topic, body))
            except SendError as error:
                self.failed.append(error)
        self._producer.flush(timeout_s=60.0)
        for body, future in futures.items():
            error = future.exception(0)
            if error is None:
                self.acknowledged[body] = future.result(0)
            else:
                self.failed.append(error)


@pytest.mark.matrix
@pytest.mark.rule("B7.4a", "B7.4b", "B7.4f", "B7.5a")
def test_a_killed_broker_loses_nothing_that_was_acknowledged(
    cluster, topic, group_name, unique_name, eventually, rocketmq_version
):
    options = {"timeout_s": 20.0, "retries": 5, "back_pressure_for_async_send_num": 32} | SOON
    with (
        Producer(group_name, nameserver=cluster.nameserver, **options) as producer,
        Traffic(producer, topic) as traffic,
    ):
        eventually(lambda: traffic.count("broker-a") > 50 and traffic.count("broker-b") > 50)
        cluster.kill("broker-b")
        try:
            before = traffic.count("broker-a")
            eventually(lambda: traffic.count("broker-a") > before + 100)
        finally:
            cluster.restart("broker-b")
        after = traffic.count("broker-b")
        eventually(lambda: traffic.count("broker-b") > after + 20)
    # Refusals of a broker that is just starting are final for pipelined sends, as in Java.
    assert all("broker-" in attempt for error in traffic.failed for attempt in error.attempts[:1])
    options = {"version": rocketmq_version, **LIVELY}
    with (
        JavaPeer(cluster.nameserver, **options) as java,
        java.push_consumer(unique_name("reader"), topic, report="full") as consumer,
    ):
        wanted = set(traffic.acknowledged)
        eventually(
            lambda: wanted <= {message.body for message in consumer.received()}, timeout_s=120.0
        )


def test_the_error_names_every_broker_that_was_tried(cluster, topic, group_name):
    with Producer(group_name, nameserver=cluster.nameserver, timeout_s=2.0) as producer:
        producer.send(Message(topic, b"x"))
        for broker in ("broker-a", "broker-b"):
            cluster.pause(broker)
        try:
            with pytest.raises(SendError) as caught:
                producer.send(Message(topic, b"x"), timeout_s=1.0)
            with pytest.raises(SendError, match=r"broker-a: .* did not answer"):
                producer.send(Message(topic, b"x"), queue=producer.queues(topic)[0], timeout_s=0.5)
        finally:
            for broker in ("broker-a", "broker-b"):
                cluster.resume(broker)
    assert caught.value.attempts[-1] == "no time left of 1 s"
    assert caught.value.attempts[0].startswith("broker-")

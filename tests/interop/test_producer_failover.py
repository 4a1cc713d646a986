"""A broker dies while messages are sent: nothing that was acknowledged is lost."""

import threading

import pytest

from gimbalmq import Message, Producer
from gimbalmq.errors import SendError

pytestmark = [pytest.mark.apache, pytest.mark.timeout(400)]


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
        while not self._stop.is_set():
            number += 1
            body = b"sync %d" % number
            try:
                self.acknowledged[body] = self._producer.send(Message(self._topic, body))
            except SendError as error:
                self.failed.append(error)

    def _pipelined(self):
        number, futures = 0, {}
        while not self._stop.is_set():
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
    rocketmq, java_peer, topic, group_name, unique_name, eventually
):
    options = {"timeout_s": 20.0, "retries": 5, "back_pressure_for_async_send_num": 32}
    with (
        Producer(group_name, nameserver=rocketmq.nameserver, **options) as producer,
        Traffic(producer, topic) as traffic,
    ):
        eventually(lambda: traffic.count("broker-a") > 50 and traffic.count("broker-b") > 50)
        rocketmq.kill("broker-b")
        try:
            before = traffic.count("broker-a")
            eventually(lambda: traffic.count("broker-a") > before + 100)
        finally:
            rocketmq.restart("broker-b")
        after = traffic.count("broker-b")
        eventually(lambda: traffic.count("broker-b") > after + 20)
    # Refusals of a broker that is just starting are final for pipelined sends, as in Java.
    assert all("broker-" in attempt for error in traffic.failed for attempt in error.attempts[:1])
    with java_peer.push_consumer(unique_name("reader"), topic, report="full") as consumer:
        wanted = set(traffic.acknowledged)
        eventually(
            lambda: wanted <= {message.body for message in consumer.received()}, timeout_s=120.0
        )


def test_the_error_names_every_broker_that_was_tried(rocketmq, topic, group_name):
    with Producer(group_name, nameserver=rocketmq.nameserver, timeout_s=2.0) as producer:
        producer.send(Message(topic, b"x"))
        for broker in ("broker-a", "broker-b"):
            rocketmq.pause(broker)
        try:
            with pytest.raises(SendError) as caught:
                producer.send(Message(topic, b"x"), timeout_s=1.0)
            with pytest.raises(SendError, match=r"broker-a: .* did not answer"):
                producer.send(Message(topic, b"x"), queue=producer.queues(topic)[0], timeout_s=0.5)
        finally:
            for broker in ("broker-a", "broker-b"):
                rocketmq.resume(broker)
    assert caught.value.attempts[-1] == "no time left of 1 s"
    assert caught.value.attempts[0].startswith("broker-")

"""Every way to send, read back by a Java consumer on a real broker."""

import time
from datetime import UTC, datetime, timedelta

import pytest

from gimbalmq import Message, Producer
from gimbalmq.client.batching import Batching
from gimbalmq.client.selectors import by_hash
from gimbalmq.errors import ConfigurationError

pytestmark = pytest.mark.apache

#: Patient, and never more than a busy test machine's broker takes without refusing.
PATIENT = {"timeout_s": 20.0, "back_pressure_for_async_send_num": 64}


@pytest.fixture
def producer(rocketmq, group_name):
    with Producer(group_name, nameserver=rocketmq.nameserver, **PATIENT) as producer:
        yield producer


@pytest.mark.matrix
def test_every_kind_of_send_is_read_by_java_as_it_was_sent(java_peer, producer, topic, unique_name):
    sent = {}
    sync = Message(topic, b"sync", tags="t", keys=["k1", "k2"], properties={"shop": "7"})
    sent[b"sync"] = producer.send(sync)
    sent[b"async"] = producer.send_async(Message(topic, b"async")).result(20.0)
    producer.send_oneway(Message(topic, b"oneway"))
    (batch,) = producer.send_batch([Message(topic, b"b%d" % n, tags=f"t{n}") for n in range(3)])
    big = b"compressed " * 1000
    sent[big] = producer.send(Message(topic, big))
    with java_peer.push_consumer(unique_name("reader"), topic) as consumer:
        got = {message.body: message for message in consumer.wait_received(7)}
    assert set(got) == {b"sync", b"async", b"oneway", b"b0", b"b1", b"b2", big}
    for body, result in sent.items():
        assert got[body].message_id == result.message_id
        assert (got[body].queue, got[body].queue_offset) == (result.queue, result.queue_offset)
    first = got[b"sync"]
    assert (first.tags, first.keys, first.properties["shop"]) == ("t", "k1 k2", "7")
    ids = batch.message_id.split(",")
    for number in range(3):
        one = got[b"b%d" % number]
        assert (one.message_id, one.tags) == (ids[number], f"t{number}")
        assert (one.queue, one.queue_offset) == (batch.queue, batch.queue_offset + number)


def test_a_batch_above_the_limit_arrives_whole(java_peer, producer, topic, unique_name):
    results = producer.send_batch([Message(topic, bytes([n]) * 1_000_000) for n in range(6)])
    assert len(results) == 2
    with java_peer.push_consumer(unique_name("reader"), topic) as consumer:
        got = consumer.wait_received(6)
    assert sorted(message.body[0] for message in got) == list(range(6))


@pytest.mark.matrix
def test_a_key_lands_in_the_queue_where_the_java_producer_puts_it(java_peer, producer, topic):
    keys = ["order-1", "a", "hello", "订单", "x" * 50, 7, -7, 12345678901]
    ours = [producer.send(Message(topic, b"x", sharding_key=key)).queue for key in keys]
    chosen = [producer.send(Message(topic, b"x"), selector=by_hash(key)).queue for key in keys]
    with java_peer.producer("keys") as java:
        theirs = [
            sent.queue for sent in java.send(*(Message(topic, b"x", sharding_key=k) for k in keys))
        ]
        assert list(producer.queues(topic)) == java.queues(topic)
    assert ours == chosen == theirs


@pytest.mark.matrix
def test_delays_are_kept(java_peer, producer, topic, unique_name, server_version):
    has_timers = server_version.startswith("5.")
    due = datetime.now(UTC) + timedelta(seconds=4)
    timer = Message(topic, b"timer", deliver_at=due)
    with java_peer.push_consumer(unique_name("reader"), topic) as consumer:
        producer.send(Message(topic, b"level", delay_level=2))
        if has_timers:
            producer.send(timer)
        else:  # it would be delivered at once
            with pytest.raises(
                ConfigurationError, match=r"is RocketMQ 4\.9\.5, which would deliver"
            ):
                producer.send(timer)
        received = consumer.wait_received(1 + has_timers, timeout_s=90)
    got = {message.body: message for message in received}
    level = got[b"level"]
    assert level.stored_at_ms - level.born_at_ms >= 4900
    if has_timers:
        assert got[b"timer"].stored_at_ms >= int(due.timestamp()) * 1000


def test_automatic_batches_give_every_message_its_own_place(
    java_peer, rocketmq, topic, group_name, unique_name
):
    options = {"timeout_s": 20.0, "batching": Batching(hold_s=0.05)}
    with Producer(group_name, nameserver=rocketmq.nameserver, **options) as producer:
        futures = [producer.send_async(Message(topic, b"%d" % n)) for n in range(300)]
        producer.flush(timeout_s=30.0)
        results = {b"%d" % n: future.result(0) for n, future in enumerate(futures)}
    with java_peer.push_consumer(unique_name("reader"), topic) as consumer:
        got = {message.body: message for message in consumer.wait_received(300)}
    assert got.keys() == results.keys()
    for body, result in results.items():
        one = got[body]
        assert (one.message_id, one.queue, one.queue_offset) == (
            result.message_id,
            result.queue,
            result.queue_offset,
        )


def test_an_unknown_topic_is_made_by_the_first_message(
    java_admin, producer, topic_name, eventually
):
    result = producer.send(Message(topic_name, b"first"))
    routes = eventually(lambda: topic_name in java_admin.topics() and java_admin.route(topic_name))
    assert {(one.broker, one.write_queues) for one in routes} == {(result.queue.broker, 4)}


def test_the_broker_lists_the_producer_until_it_stops(producer, topic, group_name, mqadmin):
    producer.send(Message(topic, b"x"))
    deadline = time.monotonic() + 60.0
    while producer.client_id not in (
        text := mqadmin("producerConnection", "-g", group_name, "-t", topic)
    ):
        assert time.monotonic() < deadline, text
    assert "PYTHON" in text
    producer.stop()
    text = mqadmin("producerConnection", "-g", group_name, "-t", topic)
    assert producer.client_id not in text


@pytest.mark.matrix
def test_traces_are_found_by_mqadmin(rocketmq, topic, group_name, mqadmin):
    options = {"timeout_s": 20.0, "enable_trace": True}
    with Producer(group_name, nameserver=rocketmq.nameserver, **options) as producer:
        result = producer.send(Message(topic, b"traced", tags="t", keys=["trace-key"]))
    deadline = time.monotonic() + 60.0
    while "success" not in (text := mqadmin("queryMsgTraceById", "-i", result.message_id)):
        assert time.monotonic() < deadline, text
    assert group_name in text
    assert "Pub" in text

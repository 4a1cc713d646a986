"""What one language sends, the other gets, unchanged."""

import pytest

from gimbalmq import Message, Producer, PushConsumer
from gimbalmq.model.queue import MessageQueue

pytestmark = pytest.mark.matrix

#: Below and above the size from which both clients compress.
BODIES = [b"small", bytes(range(256)), b"compress me " * 1000]


def messages(topic):
    return [
        Message(topic, body, tags="paid", keys=[f"k{number}", "all"], properties={"shop": "Zürich"})
        for number, body in enumerate(BODIES)
    ]


def consuming(rocketmq, group, topic, got, **options):
    options = {"start_from": "first", **options}
    consumer = PushConsumer(group, nameserver=rocketmq.nameserver, **options)
    consumer.subscribe(topic, listener=got.append)
    return consumer


@pytest.mark.rule("B4.3h", "W4.2b")
def test_python_gets_what_java_sends(rocketmq, java_peer, topic, group_name, eventually):
    got = []
    with consuming(rocketmq, group_name, topic, got), java_peer.producer("shop-java") as producer:
        sent = producer.send(*messages(topic))
        eventually(lambda: len(got) == len(BODIES))
    by_id = {message.message_id: message for message in got}
    for original, result in zip(messages(topic), sent, strict=True):
        message = by_id[result.message_id]
        assert (message.body, message.tags) == (original.body, "paid")
        assert (message.keys, message.topic) == (original.keys, topic)
        assert message.properties["shop"] == "Zürich"
        assert (message.queue, message.queue_offset) == (result.queue, result.queue_offset)


@pytest.mark.rule("W4.5b", "W4.7a")
def test_java_gets_what_python_sends(rocketmq, java_peer, topic, group_name):
    with (
        java_peer.push_consumer(group_name, topic) as consumer,
        Producer("shop-python", nameserver=rocketmq.nameserver) as producer,
    ):
        sent = [producer.send(message) for message in messages(topic)]
        got = {message.message_id: message for message in consumer.wait_received(len(BODIES))}
    for original, result in zip(messages(topic), sent, strict=True):
        message = got[result.message_id]
        assert (message.body, message.tags) == (original.body, "paid")
        assert message.keys == " ".join(original.keys)
        assert message.properties["shop"] == "Zürich"
        assert (message.queue, message.queue_offset) == (result.queue, result.queue_offset)


def test_both_put_a_sharding_key_into_the_same_queue(rocketmq, java_peer, topic):
    keys = ["order-1", "hello", "订单", 13, -7]
    with (
        Producer("shop-python", nameserver=rocketmq.nameserver) as python,
        java_peer.producer("shop-java") as java,
    ):
        ours = [python.send(Message(topic, b"x", sharding_key=key)).queue for key in keys]
        theirs = java.send(*(Message(topic, b"x", sharding_key=key) for key in keys))
    assert ours == [result.queue for result in theirs]


@pytest.mark.rule("B4.3b")
def test_only_the_wanted_tags_arrive(rocketmq, topic, group_name, eventually):
    got = []
    consumer = PushConsumer(group_name, nameserver=rocketmq.nameserver, start_from="first")
    consumer.subscribe(topic, tags="paid || Aa", listener=got.append)
    with consumer, Producer("shop", nameserver=rocketmq.nameserver) as producer:
        queue = MessageQueue(topic, "broker-a", 0)
        # "BB" has the hash of "Aa", so the broker lets it pass.
        for tag in ("open", "paid", "BB", "Aa", None, "paid"):
            producer.send(Message(topic, b"x", tags=tag), queue=queue)
        eventually(lambda: len(got) == 3)
    assert sorted(message.tags for message in got) == ["Aa", "paid", "paid"]


@pytest.mark.rule("B7.7a", "B7.7e")
def test_a_topic_that_does_not_exist_is_made_by_the_first_message(
    rocketmq, java_admin, topic_name, eventually
):
    with Producer("shop", nameserver=rocketmq.nameserver) as producer:
        result = producer.send(Message(topic_name, b"x"))
    (made,) = eventually(
        lambda: topic_name in java_admin.topics() and java_admin.route(topic_name), 30.0
    )
    assert (made.broker, made.write_queues) == (result.queue.broker, 4)

"""What has to work whichever way a cluster is reached; the options are what differs."""

import queue

from gimbalmq import Admin, LitePullConsumer, Message, Producer, PullConsumer, PushConsumer
from waiting import eventually


def send(nameserver, topic, body, **options):
    with Producer(
        "reaching-producer", nameserver=nameserver, timeout_s=10.0, **options
    ) as producer:
        producer.send_async(Message(topic, body)).result(10.0)
        return producer.send(Message(topic, body))


def consume(nameserver, group, topic, count, **options):
    """Messages that a push consumer gets."""
    got = queue.SimpleQueue()
    consumer = PushConsumer(group, nameserver=nameserver, start_from="first", **options)
    consumer.subscribe(topic, listener=got.put)
    with consumer:
        return [got.get(timeout=30.0) for _ in range(count)]


def poll(nameserver, group, topic, **options):
    """Messages that a lite pull consumer gets first."""
    with LitePullConsumer(group, nameserver=nameserver, start_from="first", **options) as consumer:
        consumer.subscribe(topic)
        return eventually(lambda: consumer.poll(1.0))


def pull(nameserver, group, queue_, **options):
    """Messages that a pull consumer finds at the start of a queue."""
    with PullConsumer(group, nameserver=nameserver, **options) as consumer:
        return consumer.pull(queue_, 0).messages


def round_trip(nameserver, topic, group, **options):
    """Send, consume with every kind of consumer, and look at it all."""
    sent = send(nameserver, topic, b"hello", **options)
    pushed = consume(nameserver, group, topic, 2, **options)
    assert {message.body for message in pushed} == {b"hello"}
    assert poll(nameserver, f"{group}-lite", topic, **options)[0].body == b"hello"
    assert pull(nameserver, f"{group}-pull", sent.queue, **options)[0].body == b"hello"
    with Admin(nameserver, **options) as admin:
        assert topic in admin.topics()
        assert group in admin.groups()
        assert eventually(
            lambda: sum(one.lag or 0 for one in admin.offsets(group, topic).values()) == 0
        )
        assert admin.message(sent.message_id, topic=topic).body == b"hello"
    return sent, pushed

"""Rules of brokers that our consumers rely on, as real ones keep them."""

import time
from datetime import UTC, datetime

import pytest

from gimbalmq import Admin, Message, Producer, PullConsumer, PushConsumer, RetryLater
from gimbalmq.errors import TopicNotFoundError
from gimbalmq.flows.effects import checked_call
from gimbalmq.flows.offset import max_offset
from gimbalmq.model.queue import MessageQueue
from gimbalmq.wire.headers import send_request
from gimbalmq.wire.names import dlq_topic, retry_topic
from gimbalmq.wire.properties import format_properties

pytestmark = pytest.mark.matrix


@pytest.fixture
def admin(rocketmq):
    with Admin(rocketmq.nameserver) as admin:
        yield admin


def route_of(admin, name):
    try:
        return admin.route(name)
    except TopicNotFoundError:
        return None


def stored(admin, name):
    """How many messages a topic of one queue per broker has; none when there is no such topic."""
    known = route_of(admin, name)
    brokers = () if known is None else known.brokers

    def end(broker):
        queue = MessageQueue(name, broker.name, 0)
        return admin.run(lambda _servers, _limit: max_offset(broker.master, queue))

    return sum(map(end, brokers))


def send_to_retry(admin, group, topic, body, times):
    """Put a message that was tried so often into the retry topic: nobody waits for hours here."""
    broker = admin.route(retry_topic(group)).brokers[0]
    request = send_request(
        group="CLIENT_INNER_PRODUCER",
        queue=MessageQueue(retry_topic(group), broker.name, 0),
        body=body,
        properties=format_properties({"RETRY_TOPIC": topic}),
        born_timestamp_ms=int(time.time() * 1000),
        reconsume_times=times,
        max_reconsume_times=100,
    )
    admin.run(lambda _servers, limit_s: checked_call(broker.master, request, limit_s))


@pytest.mark.rule("B5.3d")
def test_the_seventeenth_failure_goes_to_the_dead_letters(
    rocketmq, admin, topic, group_name, eventually
):
    attempts = []

    def listener(message):
        attempts.append(message.reconsume_times)
        raise ValueError("never")

    consumer = PushConsumer(group_name, nameserver=rocketmq.nameserver)
    consumer.subscribe(topic, listener=listener)
    with consumer:
        eventually(lambda: route_of(admin, retry_topic(group_name)))
        send_to_retry(admin, group_name, topic, b"fifteen", 15)
        eventually(lambda: consumer.stats().retried == 1)
        send_to_retry(admin, group_name, topic, b"sixteen", 16)
        eventually(lambda: consumer.stats().retried == 2)
        eventually(lambda: stored(admin, dlq_topic(group_name)) == 1)
    assert attempts == [15, 16]


def test_a_failed_message_of_a_group_with_leases_comes_again_and_is_not_buried(
    rocketmq, admin, topic, group_name, eventually, server_version
):
    seen = []

    def listener(message):
        seen.append((message.body, message.reconsume_times))
        if message.reconsume_times < 2:
            raise RetryLater(delay_level=1)

    consumer = PushConsumer(
        group_name, nameserver=rocketmq.nameserver, start_from="first", lease=True
    )
    consumer.subscribe(topic, listener=listener)
    with consumer, Producer("leased", nameserver=rocketmq.nameserver) as producer:
        for number, queue in enumerate(producer.queues(topic)):
            producer.send(Message(topic, b"%d" % number), queue=queue)
        eventually(lambda: {(b"%d" % number, 2) for number in range(8)} <= set(seen), 90.0)
        assert stored(admin, dlq_topic(group_name)) == 0
        # Why such a group never sends a message to its retry topic by itself, as others do when
        # their broker does not take one back.
        send_to_retry(admin, group_name, topic, b"by itself", 1)
        if server_version.startswith("5."):
            eventually(lambda: stored(admin, dlq_topic(group_name)) == 1)
        else:
            eventually(lambda: (b"by itself", 2) in seen)


@pytest.mark.rule("W2.5b")
def test_a_search_by_time_finds_what_each_release_says(
    rocketmq, server_version, admin, topic, group_name, eventually
):
    with (
        Producer("searched", nameserver=rocketmq.nameserver) as producer,
        PullConsumer(group_name, nameserver=rocketmq.nameserver) as consumer,
    ):
        queue = producer.queues(topic)[0]
        for number in range(3):
            sent = producer.send(Message(topic, b"%d" % number), queue=queue)
            assert sent.queue_offset == number
            later = datetime.now(UTC).timestamp() + 0.05
            while datetime.now(UTC).timestamp() < later:
                time.sleep(0.01)
        # A broker indexes a little later than it acknowledges.
        eventually(lambda: admin.offsets(group_name, topic)[queue].maximum == 3)
        messages = consumer.pull(queue, 0, wait_s=5.0).messages
        stored = [int(message.stored_at.timestamp() * 1000) for message in messages]
        assert len(set(stored)) == 3

        def at(timestamp_ms):
            return consumer.offset_at(queue, timestamp_ms)

        assert [at(one) for one in stored] == [0, 1, 2]
        assert at(stored[0] - 60_000) == 0
        between, after = at(stored[1] + 1), at(stored[2] + 60_000)
    if server_version.startswith("4."):
        assert (between, after) == (1, 2), "the closest"
    else:
        assert (between, after) == (2, 3), "the first at or after it, or the end"

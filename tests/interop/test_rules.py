"""Rules of brokers that our consumers rely on, as real ones keep them."""

import time
from datetime import UTC, datetime

import pytest

from gimbalmq import Admin, Message, Producer, PullConsumer, PushConsumer
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


@pytest.mark.rule("B5.3d")
def test_the_seventeenth_failure_goes_to_the_dead_letters(
    rocketmq, admin, topic, group_name, eventually
):
    attempts = []

    def listener(message):
        attempts.append(message.reconsume_times)
        raise ValueError("never")

    retry, dead = retry_topic(group_name), dlq_topic(group_name)

    def route_of(name):
        try:
            return admin.route(name)
        except TopicNotFoundError:
            return None

    def tried_before(times):
        """A message as brokers store it that was tried so often; nobody waits for hours here."""
        broker = route_of(retry).brokers[0]
        request = send_request(
            group="CLIENT_INNER_PRODUCER",
            queue=MessageQueue(retry, broker.name, 0),
            body=b"%d" % times,
            properties=format_properties({"RETRY_TOPIC": topic}),
            born_timestamp_ms=int(time.time() * 1000),
            reconsume_times=times,
            max_reconsume_times=100,
        )
        admin.run(lambda _servers, limit_s: checked_call(broker.master, request, limit_s))

    def buried():
        known = route_of(dead)
        return (
            0
            if known is None
            else sum(
                admin.run(
                    lambda _servers, _limit, one=one: max_offset(
                        one.master, MessageQueue(dead, one.name, 0)
                    )
                )
                for one in known.brokers
            )
        )

    consumer = PushConsumer(group_name, nameserver=rocketmq.nameserver)
    consumer.subscribe(topic, listener=listener)
    with consumer:
        eventually(lambda: route_of(retry))
        tried_before(15)
        eventually(lambda: consumer.stats().retried == 1)
        tried_before(16)
        eventually(lambda: consumer.stats().retried == 2)
        eventually(lambda: buried() == 1)
    assert attempts == [15, 16]


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

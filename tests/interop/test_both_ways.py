"""What one language leaves to the other: retries, dead letters, delays and traces."""

import contextlib
from datetime import UTC, datetime, timedelta

import pytest

from gimbalmq import Admin, DeadLetter, Message, Producer, PushConsumer, RetryLater
from gimbalmq.errors import TopicNotFoundError
from gimbalmq.wire.names import dlq_topic, retry_topic
from gimbalmq.wire.trace import (
    TRACE_TOPIC,
    ConsumeOutcome,
    TracedMessage,
    TraceMessageType,
    consumed_record,
    consuming_record,
    publish_record,
)

pytestmark = [pytest.mark.matrix, pytest.mark.timeout(280, func_only=True)]

#: The shortest delay of a broker: 1 s.
SHORTEST = 1


@pytest.fixture
def order(topic):
    return Message(topic, b"one book", tags="paid", keys=["42", "all"], properties={"shop": "7"})


@pytest.fixture
def producer(rocketmq):
    options = {"timeout_s": 20.0, "poll_name_server_interval_s": 1.0}
    with Producer("both-ways", nameserver=rocketmq.nameserver, **options) as producer:
        yield producer


@pytest.fixture
def consuming(rocketmq):
    """A Python member, with what it was given."""

    @contextlib.contextmanager
    def start(group, topic, refuse=None):
        got = []

        def listener(message):
            got.append(message)
            if refuse is not None:
                raise refuse

        consumer = PushConsumer(
            group,
            nameserver=rocketmq.nameserver,
            start_from="first",
            # The dead letters' topic may come after their reader.
            poll_name_server_interval_s=1.0,
        )
        consumer.subscribe(topic, listener=listener)
        with consumer:
            yield consumer, got

    return start


def told(message):
    """What a sender said, as either language shows it to a listener."""
    keys = message.keys if isinstance(message.keys, str) else " ".join(message.keys)
    return message.body, message.tags, keys, message.properties["shop"]


# ---- retries -------------------------------------------------------------------------------------


def test_a_message_that_java_refused_comes_again_in_python(
    java_peer, producer, consuming, order, group_name, eventually
):
    sent = producer.send(order)
    options = {"fail_times": 16, "retry_level": SHORTEST}
    with java_peer.push_consumer(group_name, order.topic, **options) as java:
        # From the second time on it comes from the group's retry topic.
        eventually(lambda: len(java.refused()) >= 2, 90.0)
    with consuming(group_name, order.topic) as (_, got):
        # Java's last commit is one-way: what it refused first may come once more itself.
        again, *_ = eventually(lambda: [one for one in got if one.reconsume_times], 90.0)
    assert {one.message_id for one in java.refused()} == {again.message_id} == {sent.message_id}
    assert again.topic == order.topic
    assert told(again) == told(order)


def test_a_message_that_python_refused_comes_again_in_java(
    java_peer, producer, consuming, order, group_name, eventually
):
    sent = producer.send(order)
    with consuming(group_name, order.topic, RetryLater(delay_level=SHORTEST)) as (consumer, got):
        eventually(lambda: consumer.stats().retried >= 2, 90.0)
    with java_peer.push_consumer(group_name, order.topic) as java:
        again, *_ = java.wait_received(1)
    assert {one.message_id for one in got} == {again.message_id} == {sent.message_id}
    assert again.reconsume_times >= 2
    assert (again.topic, again.queue.topic) == (order.topic, retry_topic(group_name))
    assert told(again) == told(order)


# ---- dead letters --------------------------------------------------------------------------------


def test_a_dead_letter_of_java_is_read_by_python(
    java_peer, producer, consuming, order, group_name, unique_name, eventually
):
    sent = producer.send(order)
    options = {"fail_times": 16, "max_reconsume_times": 0}
    dead = dlq_topic(group_name)
    with (
        java_peer.push_consumer(group_name, order.topic, **options) as java,
        consuming(unique_name("undertaker"), dead) as (_, got),
    ):
        (buried,) = eventually(lambda: got, 90.0)
    assert [one.message_id for one in java.refused()] == [sent.message_id]
    assert (buried.message_id, buried.properties["RETRY_TOPIC"]) == (sent.message_id, order.topic)
    assert told(buried) == told(order)


def test_a_dead_letter_of_python_is_read_by_java(
    java_peer, producer, consuming, order, group_name, unique_name, eventually
):
    sent = producer.send(order)
    dead = dlq_topic(group_name)
    with (
        consuming(group_name, order.topic, DeadLetter("no such customer")) as (_, got),
        java_peer.push_consumer(unique_name("undertaker"), dead) as java,
    ):
        (buried,) = java.wait_received(1)
    assert [one.message_id for one in got] == [sent.message_id]
    assert (buried.message_id, buried.properties["RETRY_TOPIC"]) == (sent.message_id, order.topic)
    assert told(buried) == told(order)


# ---- delays: the other direction is in test_producer_kinds ----------------------------------------


def test_python_gets_what_java_delayed_when_it_is_due(
    java_peer, consuming, topic, group_name, eventually, server_version
):
    timers = server_version.startswith("5.")
    # 4.x delivers at once, however late it is due.
    due = datetime.now(UTC) + timedelta(seconds=2 if timers else 3600)
    with consuming(group_name, topic) as (_, got), java_peer.producer("delaying") as java:
        java.send(
            Message(topic, b"level", delay_level=SHORTEST),
            Message(topic, b"timer", deliver_at=due),
        )
        eventually(lambda: len(got) == 2, 90.0)
    level, timer = sorted(got, key=lambda message: message.body)
    assert level.stored_at - level.born_at >= timedelta(seconds=0.9)
    assert timer.stored_at >= due.replace(microsecond=0) or not timers


# ---- traces: the other direction is in test_producer_kinds and test_listeners ----------------------


def test_python_finds_what_java_traced_and_would_have_written_the_same(
    rocketmq, java_peer, order, group_name, unique_name, eventually
):
    sender = unique_name("sender")
    with (
        Admin(rocketmq.nameserver) as admin,
        java_peer.producer(sender, trace=True) as producer,
        java_peer.push_consumer(group_name, order.topic, trace=True) as consumer,
    ):
        (sent,) = producer.send(order)
        consumer.wait_received(1)

        def traced():
            """The three records by their kind, each with its separator."""
            # The topic comes with the first trace.
            with contextlib.suppress(TopicNotFoundError):
                found = admin.messages(TRACE_TOPIC, sent.message_id)
                records = [text for one in found for text in one.body.decode().split("\x02")[:-1]]
                if len(records) == 3:
                    return {text.split("\x01")[0]: f"{text}\x02" for text in records}
            return None

        # Java keeps them for a while, and those of a client that stops are lost.
        found = eventually(traced, 90.0, pause_s=0.2)
    brokers = {broker.name: broker.address for broker in rocketmq.brokers}
    message = TracedMessage(order.topic, sent.message_id, "paid", "42 all", TraceMessageType.NORMAL)
    _, sent_ms, region, *_, cost_ms, _, _, _ = found["Pub"].split("\x01")
    assert found["Pub"] == publish_record(
        message,
        sent_ms=int(sent_ms),
        region=region,
        group=sender,
        store_host=brokers[sent.queue.broker],
        body_bytes=len(order.body),
        cost_ms=int(cost_ms),
        offset_message_id=sent.offset_message_id,
        success=True,
    )
    _, started_ms, region, _, request_id, *_ = found["SubBefore"].split("\x01")
    assert found["SubBefore"] == consuming_record(
        sent.message_id,
        "42 all",
        started_ms=int(started_ms),
        region=region,
        group=group_name,
        request_id=request_id,
        reconsume_times=0,
    )
    _, _, _, cost_ms, _, _, _, ended_ms, _ = found["SubAfter"].split("\x01")
    assert found["SubAfter"] == consumed_record(
        sent.message_id,
        "42 all",
        ended_ms=int(ended_ms),
        group=group_name,
        request_id=request_id,
        cost_ms=int(cost_ms),
        outcome=ConsumeOutcome.SUCCESS,
    )

"""Delivery at a time, which RocketMQ 5.x has; so not a part of the matrix of versions."""

from datetime import UTC, datetime, timedelta

from gimbalmq import Message


def test_a_message_with_a_time_arrives_at_that_time(java_peer, topic, group_name):
    due = datetime.now(UTC) + timedelta(seconds=2)
    with (
        java_peer.push_consumer(group_name, topic) as consumer,
        java_peer.producer("timed") as producer,
    ):
        producer.send(Message(topic, b"timed", deliver_at=due))
        (got,) = consumer.wait_received(1)
    assert got.stored_at_ms >= due.timestamp() * 1000 - 1000

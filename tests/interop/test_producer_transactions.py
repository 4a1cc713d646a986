"""Transactions on a real broker, read by a Java consumer."""

import threading

import pytest

from gimbalmq import Message, Producer

pytestmark = [pytest.mark.apache, pytest.mark.timeout(400)]


@pytest.mark.matrix
@pytest.mark.rule("W5.7b", "W2.3e")
def test_commit_rollback_and_the_answers_to_later_questions(
    rocketmq, java_peer, topic, group_name, unique_name, eventually
):
    later = {b"later yes" * 600: True, b"later no": False}
    # A busy broker may ask about one before it has noted its end.
    answers = later | {b"yes": True, b"no": False}
    asked, both = [], threading.Event()

    def check(message):
        asked.append((message.topic, message.body, threading.current_thread().name))
        if {body for _, body, _ in asked} >= set(later):
            both.set()
        return answers[message.body]

    with (
        Producer(
            group_name, nameserver=rocketmq.nameserver, timeout_s=20.0, check=check
        ) as producer,
        java_peer.push_consumer(unique_name("reader"), topic) as consumer,
    ):
        with producer.transaction(Message(topic, b"yes", keys=["tx"])) as transaction:
            committed = transaction.message_id
        with pytest.raises(ZeroDivisionError), producer.transaction(Message(topic, b"no")):
            _ = 1 // 0
        for body in later:
            with producer.transaction(Message(topic, body)) as transaction:
                transaction.leave()
        assert both.wait(150.0), f"asked about {[body[:9] for _, body, _ in asked]}"
        eventually(lambda: len({message.body for message in consumer.received()}) >= 2)
        got = {message.body: message for message in reversed(consumer.received())}
        assert set(got) == {b"yes", b"later yes" * 600}
        assert (got[b"yes"].message_id, got[b"yes"].keys) == (committed, "tx")
    assert {topic_asked for topic_asked, _, _ in asked} == {topic}
    assert {thread for _, _, thread in asked} == {f"gimbalmq-check-{group_name}"}

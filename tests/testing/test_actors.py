"""What each client asks its Java process for, and what it makes of the answer, without one."""

from __future__ import annotations

import datetime as dt

import msgspec
import pytest

from gimbalmq.errors import EngineError
from gimbalmq.model.message import Message
from gimbalmq.model.queue import MessageQueue
from gimbalmq.testing.actors import JavaAdmin, JavaLitePull, JavaProducer, JavaPushConsumer
from gimbalmq.testing.link import Event

QUEUE = MessageQueue("orders", "broker-a", 3)


class Process:
    """Answers what it was told to answer, and keeps what it was asked."""

    def __init__(self, answer=None):
        self.answer = answer
        self.asked = []
        self.killed = False

    def request(self, op, actor, *, timeout_s, **fields):
        self.asked.append((op, actor, fields))
        return msgspec.Raw(msgspec.json.encode(self.answer))

    def kill(self):
        self.killed = True


def report(accepted, *numbers):
    messages = [
        {
            "queue": QUEUE,
            "topic": "orders",
            "queue_offset": number,
            "message_id": f"id-{number}",
            "keys": None,
            "reconsume_times": 0,
        }
        for number in numbers
    ]
    return Event(accepted=accepted, messages=msgspec.Raw(msgspec.json.encode(messages)))


def test_leaving_a_block_closes_the_client_and_not_the_process():
    process = Process()
    with JavaAdmin(process, "a1") as admin:
        pass
    assert process.asked == [("close", "a1", {})]
    assert not process.killed
    admin.kill()
    assert process.killed


def test_a_message_is_put_with_all_that_it_has():
    process = Process([{"status": "SEND_OK", "queue": QUEUE, "queue_offset": 7}])
    moment = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    message = Message("orders", b"x", keys=["k"], tags="paid", deliver_at=moment)
    (sent,) = JavaProducer(process, "p1").send(message, queue=QUEUE)
    assert (sent.status, sent.queue, sent.queue_offset) == ("SEND_OK", QUEUE, 7)
    ((_op, _actor, fields),) = process.asked
    assert fields["mode"] == "sync"
    (put,) = fields["messages"]
    assert (put["keys"], put["tags"], put["queue"]) == (["k"], "paid", QUEUE)
    assert put["deliver_at_ms"] == int(moment.timestamp() * 1000)


def test_accepted_and_refused_messages_are_kept_apart():
    consumer = JavaPushConsumer(Process(), "c1")
    consumer.on_event(report(True, 1, 2))
    consumer.on_event(report(False, 3))
    assert [one.queue_offset for one in consumer.wait_received(2, timeout_s=0)] == [1, 2]
    assert [one.queue_offset for one in consumer.refused()] == [3]


def test_waiting_in_vain_says_what_came():
    consumer = JavaPushConsumer(Process([QUEUE]), "c1")
    consumer.on_event(report(True, 1))
    with pytest.raises(EngineError, match="1 of 2 messages"):
        consumer.wait_received(2, timeout_s=0)
    with pytest.raises(EngineError, match="orders"):
        consumer.wait_owned(lambda owned: not owned, timeout_s=0)
    assert consumer.wait_owned(lambda owned: QUEUE in owned, timeout_s=0) == {QUEUE}


def test_a_poll_may_take_as_long_as_it_waits():
    process = Process([])
    assert JavaLitePull(process, "l1").poll(timeout_s=2.5) == []
    assert process.asked == [("poll", "l1", {"timeout_ms": 2500})]


def test_offsets_come_by_queue():
    listed = [{"queue": QUEUE, "minimum": 2, "maximum": 9, "committed": 5}]
    admin = JavaAdmin(Process(listed), "a1")
    assert admin.topic_offsets("orders") == {QUEUE: (2, 9)}
    assert admin.committed("billing", "orders") == {QUEUE: 5}

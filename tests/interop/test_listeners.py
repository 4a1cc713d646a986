"""What the broker and Java's tools make of a Python consumer's listeners."""

import re
import threading
import time

import pytest

from gimbalmq import Message, Producer, PushConsumer
from gimbalmq.errors import ConfigurationError


@pytest.fixture
def send(rocketmq, topic):
    def send(*bodies):
        with Producer("listeners", nameserver=rocketmq.nameserver, timeout_s=20.0) as producer:
            return [producer.send(Message(topic, body, keys="k")) for body in bodies]

    return send


def consuming(rocketmq, group, topic, listener, **options):
    options = {"start_from": "first", **options}
    consumer = PushConsumer(group, nameserver=rocketmq.nameserver, **options)
    consumer.subscribe(topic, listener=listener)
    return consumer


@pytest.mark.rule("B3g")
def test_an_expired_message_comes_again_while_its_listener_still_has_it(
    rocketmq, topic, group_name, send, eventually
):
    (sent,) = send(b"stuck")
    leave, got = threading.Event(), []

    def listener(message):
        got.append((message.message_id, message.reconsume_times))
        if message.reconsume_times == 0:
            leave.wait(60.0)

    with consuming(rocketmq, group_name, topic, listener, consume_timeout_s=0.5) as consumer:
        eventually(lambda: len(got) == 2, 60.0)  # level 3 is 10 s
        assert consumer.stats().expired == 1
        leave.set()
    assert got == [(sent.message_id, 0), (sent.message_id, 1)]


def test_a_message_that_only_the_new_expression_wants_is_not_missed(
    rocketmq, topic, group_name, eventually
):
    """The broker holds a pull by the old one, and answers it by the new one when its time is up."""
    got = []
    consumer = PushConsumer(
        group_name,
        nameserver=rocketmq.nameserver,
        start_from="first",
        broker_suspend_max_time_s=1.0,
    )

    def listener(message):
        got.append(message.body)

    consumer.subscribe(topic, tags="paid", listener=listener)
    with consumer, Producer("shop", nameserver=rocketmq.nameserver) as producer:
        queue = producer.queues(topic)[0]
        producer.send(Message(topic, b"1", tags="paid"), queue=queue)
        eventually(lambda: got == [b"1"])
        consumer.subscribe(topic, tags="paid || sent", listener=listener)
        producer.send(Message(topic, b"2", tags="sent"), queue=queue)
        eventually(lambda: got == [b"1", b"2"], 30.0)


@pytest.mark.matrix
def test_traces_of_a_consumer_are_found_by_mqadmin(
    rocketmq, topic, group_name, send, eventually, mqadmin
):
    (sent,) = send(b"traced")
    with consuming(rocketmq, group_name, topic, lambda _m: None, enable_trace=True) as consumer:
        eventually(lambda: consumer.stats().consumed == 1)
    deadline = time.monotonic() + 90.0
    line = rf"Sub\s+{group_name}\s.*success"
    while not re.search(line, text := mqadmin("queryMsgTraceById", "-i", sent.message_id)):
        assert time.monotonic() < deadline, text


def test_an_sql_expression_is_checked_at_the_broker_before_it_is_used(rocketmq, topic, group_name):
    consumer = PushConsumer(group_name, nameserver=rocketmq.nameserver)
    consumer.subscribe(topic, sql="amount >>> 3", listener=print)
    with pytest.raises(ConfigurationError, match="amount >>> 3"):
        consumer.start()
    with consuming(rocketmq, group_name, topic, print) as running:
        with pytest.raises(ConfigurationError, match="amount >>> 4"):
            running.subscribe(topic, sql="amount >>> 4", listener=print)
        running.subscribe(topic, sql="amount > 4", listener=print)


@pytest.mark.matrix
@pytest.mark.rule("B8.2b")
def test_subscriptions_are_left_out_of_heartbeats_only_where_the_broker_remembers_them(
    rocketmq, server_version, topic, group_name, send, eventually
):
    send(b"1")
    got = []
    with consuming(
        rocketmq, group_name, topic, lambda m: got.append(m.body), use_heartbeat_v2=True
    ) as consumer:
        eventually(lambda: got == [b"1"])
        instance = consumer._membership.shared.instance
        for _ in range(3):
            beaten = threading.Event()
            consumer._membership.tell(lambda _host, done=beaten.set: instance.heartbeat(done))
            assert beaten.wait(30.0)
        understood = bool(instance.registrations._remembered)
        send(b"2")
        eventually(lambda: got == [b"1", b"2"])
    assert understood is (server_version != "4.9.5")

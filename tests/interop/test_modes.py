"""Ordered groups and broadcasting on a real broker."""

import pytest

from gimbalmq import Admin, Commit, DeadLetter, Message, Producer, PushConsumer, Rollback


@pytest.mark.rule("B5.2")
def test_a_failing_message_holds_its_ordered_queue_until_it_succeeds(
    rocketmq, topic, group_name, eventually
):
    seen = []

    def listener(message):
        seen.append((int(message.body), message.reconsume_times))
        if message.body == b"3" and message.reconsume_times < 2:
            raise ValueError("not yet")

    consumer = PushConsumer(
        group_name,
        nameserver=rocketmq.nameserver,
        start_from="first",
        ordered=True,
        suspend_current_queue_time_s=0.1,
    )
    consumer.subscribe(topic, listener=listener)
    with consumer, Producer("shop", nameserver=rocketmq.nameserver) as producer:
        queue = producer.queues(topic)[0]
        for number in range(6):
            producer.send(Message(topic, str(number).encode()), queue=queue)
        eventually(lambda: (5, 0) in seen)
    assert seen == [(0, 0), (1, 0), (2, 0), (3, 0), (3, 1), (3, 2), (4, 0), (5, 0)]


@pytest.mark.matrix
def test_a_message_that_an_ordered_group_gives_up_is_a_dead_letter(
    rocketmq, topic, group_name, unique_name, eventually
):
    seen, buried = [], []

    def listener(message):
        seen.append(message.body)
        if message.body == b"bad":
            raise DeadLetter("no use")

    consumer = PushConsumer(
        group_name, nameserver=rocketmq.nameserver, start_from="first", ordered=True
    )
    consumer.subscribe(topic, listener=listener)
    with consumer, Producer("shop", nameserver=rocketmq.nameserver) as producer:
        queue = producer.queues(topic)[0]
        for body in (b"good", b"bad", b"better"):
            producer.send(Message(topic, body), queue=queue)
        eventually(lambda: b"better" in seen)
        reader = PushConsumer(
            unique_name("reader"),
            nameserver=rocketmq.nameserver,
            start_from="first",
            # The topic may come after the reader.
            poll_name_server_interval_s=1.0,
        )
        reader.subscribe(f"%DLQ%{group_name}", listener=lambda message: buried.append(message.body))
        with reader:
            eventually(lambda: buried == [b"bad"])
    assert seen == [b"good", b"bad", b"better"]


@pytest.mark.matrix
def test_without_automatic_commit_a_rollback_delivers_again(
    rocketmq, topic, group_name, eventually
):
    seen = []

    def listener(message):
        seen.append(int(message.body))
        if message.body == b"2":
            return Commit if seen.count(2) > 1 else Rollback
        return None

    consumer = PushConsumer(
        group_name,
        nameserver=rocketmq.nameserver,
        start_from="first",
        ordered=True,
        auto_commit=False,
        suspend_current_queue_time_s=0.1,
    )
    consumer.subscribe(topic, listener=listener)
    with Producer("shop", nameserver=rocketmq.nameserver) as producer:
        queue = producer.queues(topic)[0]
        for number in range(3):
            producer.send(Message(topic, str(number).encode()), queue=queue)
        with consumer:
            eventually(lambda: seen.count(2) > 1)
    assert seen == [0, 1, 2, 0, 1, 2]


@pytest.mark.matrix
def test_every_broadcasting_member_gets_everything_and_resumes_after_a_restart(
    rocketmq, topic, group_name, eventually, tmp_path
):
    def start(name, got):
        consumer = PushConsumer(
            group_name,
            nameserver=rocketmq.nameserver,
            client_id=name,
            start_from="first",
            broadcasting=True,
            local_offset_store_dir=tmp_path,
        )
        consumer.subscribe(topic, listener=lambda message: got.append(int(message.body)))
        return consumer.start()

    with Producer("shop", nameserver=rocketmq.nameserver) as producer:
        for number in range(20):
            producer.send(Message(topic, str(number).encode()))
        got_a, got_b = [], []
        member_a, member_b = start("a", got_a), start("b", got_b)
        eventually(lambda: len(got_a) >= 20 and len(got_b) >= 20)
        member_a.stop()
        for number in range(20, 40):
            producer.send(Message(topic, str(number).encode()))
        member_a = start("a", got_a)
        eventually(lambda: len(got_a) >= 40 and len(got_b) >= 40)
        member_a.stop()
        member_b.stop()
    assert sorted(got_a) == sorted(got_b) == list(range(40))
    with Admin(rocketmq.nameserver) as admin:
        told = {one.committed or 0 for one in admin.offsets(group_name, topic).values()}
    assert told == {0}, "each member's offsets are its own"

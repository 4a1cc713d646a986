"""Offsets, retries and dead letters of Python members on real RocketMQ."""

import re
import threading
import time
from datetime import UTC, datetime, timedelta

import pytest

from gimbalmq import Admin, Message, Producer, PushConsumer
from gimbalmq.model.queue import MessageQueue
from gimbalmq.model.verdict import DeadLetter
from gimbalmq.testing.mqadmin import mqadmin_all

COUNT = 40


@pytest.fixture
def producer(rocketmq):
    with Producer("progress", nameserver=rocketmq.nameserver) as producer:
        yield producer


def send(producer, topic, count=COUNT, first=0):
    for number in range(first, first + count):
        producer.send(Message(topic, b"%d" % number))


def consuming(rocketmq, group, topic, listener, **options):
    options = {"start_from": "first", **options}
    consumer = PushConsumer(group, nameserver=rocketmq.nameserver, **options)
    consumer.subscribe(topic, listener=listener)
    return consumer


@pytest.mark.matrix
@pytest.mark.rule("B5.5a", "B5.5d", "B5.4b")
def test_a_restarted_group_goes_on_where_it_was(
    rocketmq, java_admin, producer, topic, group_name, eventually
):
    first, second = [], []
    send(producer, topic)
    with consuming(rocketmq, group_name, topic, lambda message: first.append(message.body)):
        eventually(lambda: len(first) == COUNT)
    stored = java_admin.committed(group_name, topic)
    ends = {queue: ends[1] for queue, ends in java_admin.topic_offsets(topic).items()}
    assert {queue: offset for queue, offset in stored.items() if queue.topic == topic} == ends
    send(producer, topic, first=COUNT)
    with consuming(rocketmq, group_name, topic, lambda message: second.append(message.body)):
        eventually(lambda: len(second) == COUNT)
    assert sorted(map(int, first + second)) == list(range(2 * COUNT))


@pytest.mark.matrix
@pytest.mark.rule("B5.4a")
def test_stop_lets_running_listeners_finish_and_nothing_is_lost(
    rocketmq, producer, topic, group_name, eventually
):
    started, done, leave, lock = [], [], threading.Event(), threading.Lock()

    def slow(message):
        with lock:
            started.append(int(message.body))
        leave.wait(60.0)
        with lock:
            done.append(int(message.body))

    send(producer, topic)
    consumer = consuming(rocketmq, group_name, topic, slow, workers=8).start()
    eventually(lambda: len(started) == 8)
    shared = consumer._membership.shared
    stopping = threading.Thread(target=consumer.stop)
    stopping.start()
    eventually(lambda: consumer.state == "stopping")
    shared.run(lambda: None)  # it has begun when whatever is posted later is done
    assert not done
    leave.set()
    stopping.join(60.0)
    assert consumer.state == "stopped"
    before = len(done)
    assert before == len(started) < COUNT
    with consuming(rocketmq, group_name, topic, slow, workers=20):
        eventually(lambda: len(set(done)) == COUNT)
    # One that was done behind an unfinished one of its queue may come again, no other.
    assert set(done) == set(range(COUNT))
    assert len(done) - COUNT <= before


@pytest.mark.matrix
def test_mqadmin_shows_our_members_their_offsets_and_stacks_and_has_them_consume(
    rocketmq, producer, topic, group_name, eventually, rocketmq_version
):
    got = []

    def listener(message):
        got.append(message.body)
        if message.body == b"odd" and got.count(b"odd") > 1:
            raise ValueError("once is enough")

    send(producer, topic, COUNT - 2)
    ids = [producer.send(Message(topic, body)).offset_message_id for body in (b"odd", b"even")]
    # 4.x finds a message by its id alone.
    where = ("-t", topic) if rocketmq_version.startswith("5.") else ()
    options = {"client_id": "till-1", "persist_consumer_offset_interval_s": 0.2}
    with (
        Admin(rocketmq.nameserver) as admin,
        consuming(rocketmq, group_name, topic, listener, **options) as member,
    ):
        eventually(lambda: len(got) == COUNT)
        eventually(lambda: {one.lag for one in admin.offsets(group_name, topic).values()} == {0})
        group = ("-g", group_name)
        status = ("consumerStatus", *group)
        connection, progress, summary, running, refused, consumed = mqadmin_all(
            rocketmq.nameserver,
            [
                ("consumerConnection", *group),
                ("consumerProgress", *group),
                status,
                (*status, "-i", member.client_id, "-s"),
                *(
                    ("queryMsgById", *where, "-i", one, *group, "-d", member.client_id)
                    for one in ids
                ),
            ],
            version=rocketmq_version,
            timeout_s=120.0,
        )
    assert member.client_id in connection
    assert "PYTHON" in connection
    rows = [line.split() for line in progress.splitlines() if line.startswith(topic[:30])]
    assert len(rows) == 8
    assert sum(int(row[4]) for row in rows) == COUNT
    assert re.search(r"Consume Diff Total: 0|Diff Total: 0", progress)
    assert member.client_id in summary
    assert "Same subscription in the same group of consumer" in summary
    assert "Rebalance OK" in summary
    detail, _, stacks = running.partition("#Consumer jstack#")
    assert re.search(rf"Topic: {topic}\s.*SubExpression: \*", detail)
    offsets = re.findall(rf"^{topic}\s+broker-.\s+\d\s+(\d+)\s*$", detail, re.MULTILINE)
    assert (len(offsets), sum(map(int, offsets))) == (8, COUNT)
    assert f"gimbalmq-{group_name}-0" in stacks, "a thread of its listeners"
    assert "in test_mqadmin_shows_our_members" in stacks, "the program's own threads, too"
    assert "consumeResult=CR_THROW_EXCEPTION" in refused, "and the reason is told"
    assert "consumeResult=CR_SUCCESS" in consumed
    assert got[COUNT:] == [b"odd", b"even"]


@pytest.mark.matrix
@pytest.mark.rule("B5.1c", "B5.1e", "B5.3c")
def test_a_failed_message_comes_again_and_a_hopeless_one_goes_to_the_dead_letters(
    rocketmq, java_admin, producer, topic, group_name, eventually
):
    seen = []

    def listener(message):
        seen.append((message.body, message.reconsume_times, message.topic, time.monotonic()))
        if message.body == b"hopeless":
            raise DeadLetter("no such customer")
        if message.reconsume_times == 0:
            raise ValueError("not yet")

    def stored(name):
        return sum(ends[1] for ends in java_admin.topic_offsets(name).values())

    with consuming(rocketmq, group_name, topic, listener):
        for body in (b"again", b"hopeless"):
            producer.send(Message(topic, body))
        eventually(lambda: any(times == 1 for _, times, *_ in seen), 90.0)
        dead = f"%DLQ%{group_name}"
        eventually(lambda: dead in java_admin.topics(), 60.0)
        # The topic comes before its first message.
        eventually(lambda: stored(dead) > 0)
    # A busy broker may refuse to take it back; then it comes once more from here, uncounted.
    *refused, last = (one for one in seen if one[0] == b"again")
    assert {times for _, times, *_ in refused} == {0}
    assert (last[1], last[2]) == (1, topic)
    assert 8.0 < last[3] - refused[-1][3] < 60.0
    assert not any(times for body, times, *_ in seen if body == b"hopeless")
    assert stored(dead) == 1


@pytest.mark.rule("B2.10h")
@pytest.mark.parametrize("start", ["first", "last", "time"])
def test_a_new_group_reads_a_young_queue_from_its_beginning_as_java_does(
    rocketmq, java_peer, producer, topic, unique_name, eventually, start
):
    send(producer, topic, 8)
    now = datetime.now(UTC)
    policy = {
        "first": ("first", "CONSUME_FROM_FIRST_OFFSET"),
        "last": ("last", "CONSUME_FROM_LAST_OFFSET"),
        "time": (now - timedelta(hours=1), "CONSUME_FROM_TIMESTAMP"),
    }
    ours, theirs = policy[start]
    got = []
    with (
        consuming(rocketmq, unique_name("py"), topic, got.append, start_from=ours),
        java_peer.push_consumer(unique_name("java"), topic, consume_from=theirs) as java,
    ):
        java.wait_received(8)
        eventually(lambda: len(got) == 8)


@pytest.mark.rule("B2.10a")
def test_a_stored_offset_wins_over_the_policy(
    rocketmq, java_admin, producer, topic, group_name, eventually
):
    queue = MessageQueue(topic, "broker-a", 0)
    for number in range(5):
        producer.send(Message(topic, b"%d" % number), queue=queue)
    first, again = [], []
    with consuming(rocketmq, group_name, topic, lambda message: first.append(message.body)):
        eventually(lambda: len(first) == 5)
    java_admin.commit(group_name, queue, 3)
    with consuming(rocketmq, group_name, topic, lambda message: again.append(message.body)):
        eventually(lambda: len(again) == 2)
    assert sorted(again) == [b"3", b"4"]

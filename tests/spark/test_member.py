"""Streams as members of a consumer group, beside other members, on an embedded cluster."""

from __future__ import annotations

import threading
import time

import pytest

from gimbalmq import Admin, Message, MessageQueue, Producer, PushConsumer
from gimbalmq.broker import EmbeddedCluster
from gimbalmq.errors import GimbalError
from gimbalmq.spark import stream, stream_cluster
from gimbalmq.wire.names import RETRY_PREFIX
from spark.micro_batches import Query


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(stream, "_IDLE_WAITS_S", (0.01,))
    monkeypatch.setattr(stream_cluster, "_ROUTES_AGE_S", 0.2)
    monkeypatch.setattr(stream_cluster, "_START_PATIENCE_S", 0.5)


@pytest.fixture(scope="module")
def cluster():
    with EmbeddedCluster(brokers=2) as cluster:
        yield cluster


@pytest.fixture
def topic(cluster, topic_name):
    cluster.create_topic(topic_name, queues=3)
    return topic_name


@pytest.fixture
def send(cluster, topic):
    with Producer("member-tests", nameserver=cluster.nameserver) as producer:

        def run(count):
            sent = [producer.send(Message(topic, b"%d" % n)) for n in range(count)]
            return {(r.queue, r.queue_offset) for r in sent}

        yield run


@pytest.fixture
def query(cluster, topic, group_name):
    queries = []

    def make(**options):
        given = {"nameserver": cluster.nameserver, "topic": topic, "group": group_name}
        given |= {"groupMode": "member", "startingOffsets": "earliest"}
        queries.append(Query(**(given | options)))
        return queries[-1]

    yield make
    for one in queries:
        one.stop()


@pytest.fixture
def consumer(cluster, topic, group_name):
    consumers = []

    def make(name):
        got = []
        one = PushConsumer(
            group_name, nameserver=cluster.nameserver, client_id=name, start_from="first"
        )
        one.subscribe(topic, listener=lambda message: got.append(_place(message)))
        one.start()
        one.got = got
        consumers.append(one)
        return one

    yield make
    for one in consumers:
        one.stop()


def _place(message):
    return message.queue, message.queue_offset


def places(query):
    return {(MessageQueue(t, b, q), n) for t, b, q, n in query.places}


def held(query):
    return {
        queue
        for queue in query.reader._planner._member.held()
        if not queue.topic.startswith(RETRY_PREFIX)
    }


def until(condition, *queries, timeout_s=60.0):
    """Run the queries until something holds."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it never comes to that"
        for one in queries:
            one.step()


def paths(query):
    return {path for path in query.offsets() if not path.startswith(RETRY_PREFIX)}


def test_a_member_alone_reads_everything_and_commits_it(query, send, cluster, topic, group_name):
    sent = send(30)
    job = query().start()
    until(lambda: places(job) == sent, job)
    job.step()
    with Admin(cluster.nameserver) as admin:
        known = {q.path: one.committed for q, one in admin.offsets(group_name, topic).items()}
        assert known == {path: n for path, n in job.offsets().items() if path in known}
        assert [one.client_id for one in admin.members(group_name)] == [
            job.reader._planner._member.client_id
        ]
    job.stop()
    with Admin(cluster.nameserver) as admin:
        assert admin.members(group_name) == ()


def test_two_queries_and_two_consumers_share_the_queues_and_lose_nothing(
    query, consumer, send, cluster, topic
):
    sent = send(24)
    first = query().start()
    until(lambda: places(first) == sent, first)
    people = [consumer("a-python"), consumer("z-python")]
    second = query().start()
    every = {MessageQueue(topic, b, n) for b in ("broker-a", "broker-b") for n in range(3)}

    def shares():
        mine = [people_one.assignment() for people_one in people] + [held(first), held(second)]
        return [{q for q in one if q.topic == topic} for one in mine]

    def settled():
        now = shares()
        return sum(map(len, now)) == 6 and set().union(*now) == every and all(now)

    second.step()
    until(settled, first, second)
    sent |= send(60)

    def everything():
        return places(first) | places(second) | set().union(*(p.got for p in people)) >= sent

    until(everything, first, second)
    both = (first, second)
    until(lambda: all(paths(one) == {q.path for q in held(one)} for one in both), *both)
    assert not paths(first) & paths(second)

    # Members leave, one without a word; the rest takes over what they had.
    people[0].stop()
    second.crash()
    sent |= send(60)
    until(everything, first)
    until(lambda: len(held(first)) + len(people[1].assignment() & every) == 6, first)


def test_a_lost_queue_leaves_the_map_and_comes_back_at_the_committed_offset(
    query, consumer, send, topic
):
    sent = send(12)
    job = query().start()
    until(lambda: places(job) == sent, job)
    assert len(paths(job)) == 6
    other = consumer("a-python")

    def others_share():
        return {queue for queue in other.assignment() if queue.topic == topic}

    until(lambda: len(paths(job)) == len(others_share()) == 3, job)
    more = send(30)
    theirs = {place for place in more if place[0] in others_share()}
    until(lambda: set(other.got) >= theirs and places(job) >= more - theirs, job)
    other.stop()
    until(lambda: len(paths(job)) == 6, job)
    rest = send(12)
    until(lambda: places(job) >= rest, job)
    # What the other member did was committed by it, so it does not come again.
    assert places(job) & theirs == set()
    assert len(job.places) == len(set(job.places))


def test_a_restarted_query_goes_on_where_its_group_is(query, consumer, send):
    sent = send(12)
    job = query().start()
    until(lambda: places(job) == sent, job)
    job.stop()
    other = consumer("a-python")
    theirs = send(18)
    until(lambda: set(other.got) >= theirs)
    other.stop()
    job.start()
    later = send(6)
    until(lambda: places(job) >= later, job)
    assert places(job) == sent | later


def test_a_batch_in_the_checkpoint_is_replayed_although_its_queues_are_lost(query, consumer, send):
    job = query().start()
    job.step()
    sent = send(12)
    assert job.plan()
    before = job.read(1)
    job.crash()
    other = consumer("a-python")
    until(lambda: len(set(other.got)) == len(sent))
    job.start()
    assert sorted(map(str, job.read(1))) == sorted(map(str, before))


def test_a_member_of_a_larger_group_than_queues_waits_without_any(query, consumer, send):
    # Six queues; the first six members in the order of their names get them.
    people = [consumer(f"0-{n}") for n in range(6)]
    until(lambda: all(people_one.assignment() for people_one in people))
    job = query().start()
    job.step()
    until(lambda: not held(job), job)
    send(6)
    job.step()
    assert paths(job) == set()
    for one in people[:3]:
        one.stop()
    until(lambda: paths(job) != set(), job)


def test_messages_that_others_sent_back_are_read_too(
    query, consumer, send, cluster, topic, group_name
):
    failed = threading.Event()
    other = PushConsumer(
        group_name, nameserver=cluster.nameserver, client_id="a", start_from="first"
    )

    def fail(message):
        failed.set()
        raise RuntimeError("as the test wants it")

    other.subscribe(topic, listener=fail)
    other.start()
    send(3)
    assert failed.wait(20)
    # The send-back is done when the offset is.
    deadline = time.monotonic() + 20
    with Admin(cluster.nameserver) as admin:
        while sum(one.committed or 0 for one in admin.offsets(group_name, topic).values()) < 3:
            assert time.monotonic() < deadline
            time.sleep(0.1)
    other.stop()
    job = query().start()
    retry = RETRY_PREFIX + group_name
    until(lambda: sum(row["topic"] == retry for row in job.all_rows) >= 3, job, timeout_s=60)


def test_an_unknown_topic_is_refused(query):
    with pytest.raises(GimbalError, match="option 'topic': there is no topic 'nosuch'"):
        query(topic="nosuch").start().step()


def test_available_now_ends_for_a_member_too(query, send):
    sent = send(20)
    job = query(maxOffsetsPerTrigger=7)
    job.available_now()
    assert places(job) == sent
    sent |= send(5)
    job.available_now()
    assert places(job) == sent
    assert len(job.places) == len(sent)

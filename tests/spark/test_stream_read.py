"""`spark.readStream.format("rocketmq")` in Spark itself, on embedded and on real brokers."""

from __future__ import annotations

import json
import time
from collections import Counter

import pytest
from pyspark.errors import PySparkException, StreamingQueryException

from gimbalmq import Admin, Message, MessageQueue, Producer, PushConsumer
from gimbalmq.broker import EmbeddedCluster
from gimbalmq.spark import progress_line, queue_progress
from spark.indexing import await_indexed


@pytest.fixture(scope="module")
def cluster():
    with EmbeddedCluster(brokers=2, processes=True) as running:
        yield running


@pytest.fixture
def new_topic(cluster, topic_name):
    cluster.create_topic(topic_name, queues=2)
    return topic_name


#: Until a query without news tells how it is, and how often one that runs on looks for news.
IDLE_PROGRESS = "spark.sql.streaming.noDataProgressEventInterval"
LOOK = "200 milliseconds"


@pytest.fixture
def stream(spark, tmp_path):
    """Start a query into Parquet files of the test; returns the query."""
    queries = []
    spark.conf.set(IDLE_PROGRESS, "500")

    def start(nameserver, topic, *, now=True, name="", **options):
        given = {"nameserver": nameserver, "topic": topic, "startingOffsets": "earliest"}
        frame = spark.readStream.format("rocketmq").options(**(given | options)).load()
        writer = (
            frame.writeStream.format("parquet")
            .option("path", str(tmp_path / f"out{name}"))
            .option("checkpointLocation", str(tmp_path / f"checkpoint{name}"))
        )
        trigger = {"availableNow": True} if now else {"processingTime": LOOK}
        query = writer.trigger(**trigger).start()
        queries.append(query)
        if now:
            assert query.awaitTermination(90)
        return query

    yield start
    for query in queries:
        query.stop()
    spark.conf.unset(IDLE_PROGRESS)


@pytest.fixture
def places(spark, tmp_path):
    def read(name=""):
        if not any((tmp_path / f"out{name}").glob("*.parquet")):
            return Counter()
        rows = spark.read.parquet(str(tmp_path / f"out{name}")).collect()
        return Counter((row.broker, row.queue_id, row.queue_offset) for row in rows)

    return read


def send(nameserver, topic, count):
    with Producer("stream-read", nameserver=nameserver) as producer:
        sent = [producer.send(Message(topic, b"%d" % n)) for n in range(count)]
    await_indexed(nameserver, sent)
    return Counter((r.queue.broker, r.queue.queue_id, r.queue_offset) for r in sent)


def first_line(caught):
    return str(caught.value).splitlines()[0]


def wait_until(condition, what, timeout_s=60.0):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


@pytest.mark.matrix
def test_exactly_once_into_files_over_restarts_with_more_queues(
    stream, places, cluster, new_topic, group_name, tmp_path
):
    sent = send(cluster.nameserver, new_topic, 100)
    options = {"group": group_name, "maxOffsetsPerTrigger": "40"}
    query = stream(cluster.nameserver, new_topic, **options)
    assert places() == sent
    sizes = [progress.numInputRows for progress in query.recentProgress]
    assert max(sizes) == 40
    assert sum(sizes) == 100
    told = [queue_progress(one) for one in query.recentProgress if one.numInputRows]
    assert [sum(one.lag for one in queues) for queues in told] == [60, 20, 0]
    assert [sum(one.records for one in queues) for queues in told] == [40, 40, 20]
    assert all((one.records_per_s > 0) == (one.records > 0) for queues in told for one in queues)
    cluster.create_topic(new_topic, queues=4)
    sent += send(cluster.nameserver, new_topic, 50)
    query = stream(cluster.nameserver, new_topic, **options)
    assert places() == sent
    with Admin(cluster.nameserver) as admin:
        offsets = admin.offsets(group_name, new_topic)
    assert len(offsets) == 8
    assert all(one.committed == one.maximum for one in offsets.values())
    found = queue_progress(query.lastProgress)
    assert {one.queue for one in found} == set(offsets)
    assert {one.lag for one in found} == {0}
    assert "lag 0 in 8 queues" in progress_line(query.lastProgress)
    newest = max((tmp_path / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda f: int(f.name))
    logged = json.loads(newest.read_text().splitlines()[-1])
    assert logged == {queue.path: one.maximum for queue, one in sorted(offsets.items())}


def test_a_running_query_follows_and_its_driver_leaves_the_group_when_stopped(
    stream, places, cluster, new_topic, group_name
):
    query = stream(cluster.nameserver, new_topic, now=False, group=group_name, groupMode="member")
    sent = send(cluster.nameserver, new_topic, 20)
    wait_until(lambda: query.lastProgress is not None, "no batch")
    query.processAllAvailable()
    wait_until(lambda: places() == sent, "not everything arrives")
    with Admin(cluster.nameserver) as admin:
        [member] = admin.members(group_name)
        query.stop()
        wait_until(lambda: not admin.members(group_name), f"{member.client_id} stays")
        assert sum(one.committed for one in admin.offsets(group_name, new_topic).values()) == 20


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"maxBytesPerTrigger": "much"}, "option 'maxBytesPerTrigger' is 'much', which is no size"),
        ({"topic": "nosuch"}, "option 'topic': there is no topic 'nosuch'"),
        ({"endingOffsets": "latest"}, "option 'endingOffsets' is for batch reads"),
    ],
)
def test_what_is_wrong_stands_in_the_first_line(stream, cluster, new_topic, options, text):
    with pytest.raises(PySparkException) as caught:
        stream(cluster.nameserver, **({"topic": new_topic} | options))
    assert text in first_line(caught)


@pytest.mark.parametrize("kind", ["read", "readStream"])
def test_plans_do_not_show_the_secret(spark, kind):
    options = {"nameserver": "127.0.0.1:1", "topic": "orders"}
    options |= {"accessKey": "shop", "secretKey": "s3cret-word"}
    frame = getattr(spark, kind).format("rocketmq").options(**options).load()
    execution = frame._jdf.queryExecution()
    plan = execution.analyzed().treeString() + execution.logical().treeString()
    assert "rocketmq" in plan
    assert "s3cret-word" not in plan


def test_a_group_with_members_and_lost_data_are_told_in_the_first_line(
    stream, cluster, new_topic, group_name
):
    consumer = PushConsumer(group_name, nameserver=cluster.nameserver, client_id="till-7")
    consumer.subscribe(new_topic, listener=lambda _message: None)
    consumer.start()
    try:
        with pytest.raises(StreamingQueryException) as caught:
            stream(cluster.nameserver, new_topic, group=group_name)
        assert f"group '{group_name}' has live members (till-7@" in first_line(caught)
    finally:
        consumer.stop()
    send(cluster.nameserver, new_topic, 8)
    stream(cluster.nameserver, new_topic)
    with Admin(cluster.nameserver) as admin:
        admin.delete_topic(new_topic)
    cluster.create_topic(new_topic, queues=2)
    with pytest.raises(StreamingQueryException) as caught:
        stream(cluster.nameserver, new_topic)
    assert "offset 2 was wanted, but the queue ends at 0" in first_line(caught)
    stream(cluster.nameserver, new_topic, failOnDataLoss="false")


# ---- on real RocketMQ ------------------------------------------------------------------------


@pytest.mark.matrix
def test_the_real_broker_is_read_exactly_once_and_knows_how_far(
    stream, places, apache, topic, group_name
):
    sent = send(apache.nameserver, topic, 200)
    stream(apache.nameserver, topic, group=group_name, maxOffsetsPerTrigger="90")
    apache.create_topic(topic, queues=6)
    sent += send(apache.nameserver, topic, 60)
    stream(apache.nameserver, topic, group=group_name)
    assert places() == sent
    with Admin(apache.nameserver) as admin:
        offsets = admin.offsets(group_name, topic)
    assert len(offsets) == 12
    assert {queue: one.committed for queue, one in offsets.items()} == {
        queue: one.maximum for queue, one in offsets.items()
    }


def place(message):
    return message.queue.broker, message.queue.queue_id, message.queue_offset


@pytest.mark.timeout(600)
def test_two_queries_share_a_topic_with_java_and_python_members(
    stream, places, apache, java_peer, topic, group_name
):
    options = {"now": False, "group": group_name, "groupMode": "member"}
    queries = [stream(apache.nameserver, topic, name=name, **options) for name in "ab"]
    got = []

    def python_member():
        consumer = PushConsumer(group_name, nameserver=apache.nameserver, start_from="first")
        consumer.subscribe(topic, listener=got.append)
        return consumer

    every = {
        MessageQueue(topic, broker, n) for broker in ("broker-a", "broker-b") for n in range(4)
    }

    def is_shared(*members):
        """Whether all queues are held, each by one, and every member has some."""
        held = [{one.queue for one in queue_progress(query.lastProgress)} for query in queries]
        shares = [every & share for share in (*held, *map(set, members))]
        return all(shares) and sum(map(len, shares)) == 8 and set().union(*shares) == every

    def read():
        return {*map(place, got), *places("a"), *places("b")}

    with python_member() as first:
        with python_member() as second, java_peer.push_consumer(group_name, topic) as java:
            wait_until(
                lambda: is_shared(first.assignment(), second.assignment(), java.owned()),
                "the queues are not shared out among the five",
                timeout_s=120,
            )
            sent = set(send(apache.nameserver, topic, 400))
            wait_until(lambda: read() | set(map(place, java.received())) >= sent, "one is lost")
            assert all((got, java.received(), places("a"), places("b")))
        # Two have left: their queues go to those who stay.
        wait_until(lambda: is_shared(first.assignment()), "queues stay with those who left")
        queries.pop().stop()
        wait_until(lambda: is_shared(first.assignment()), "queues stay with a query that ended")
        sent = set(send(apache.nameserver, topic, 80))
        wait_until(lambda: read() >= sent, "a message is lost after members left")

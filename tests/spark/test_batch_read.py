"""`spark.read.format("rocketmq")` on the real broker, against what Java sent and what Java sees."""

from __future__ import annotations

import datetime as dt
import time
from collections import Counter

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as f

from gimbalmq import Admin
from gimbalmq.errors import ProtocolError
from gimbalmq.flows.offset import stored_offset
from gimbalmq.model.message import Message
from gimbalmq.model.queue import MessageQueue
from gimbalmq.runtime.inline import ConnectionPool, run_inline
from gimbalmq.spark import clear_errors
from gimbalmq.spark.schema import COLUMNS
from gimbalmq.transport.blocking import BlockingConnection
from gimbalmq.wire.codes import CompressionType, SysFlag
from gimbalmq.wire.headers import send_request
from java_clients import committed
from spark.indexing import await_indexed
from waiting import eventually

#: Added by a consumer to what it received; not part of the message.
LOCAL_PROPERTIES = {"MIN_OFFSET", "MAX_OFFSET", "CONSUME_START_TIME"}


@pytest.fixture
def read(spark, apache):
    def load(default_topic, schema=None, **options):
        reader = spark.read.format("rocketmq").option("nameserver", apache.nameserver)
        for name, value in ({"topic": default_topic} | options).items():
            reader = reader if value is None else reader.option(name, value)
        return (reader.schema(schema) if schema else reader).load()

    return load


@pytest.fixture(scope="session")
def java_producer(java_peer):
    return java_peer.producer("spark-tests")


@pytest.fixture
def send(java_producer, apache):
    """Have Java send messages; returns for each where it is stored, when it can be read there."""

    def run(*messages, queue=None):
        sent = java_producer.send(*messages, queue=queue)
        assert {one.status for one in sent} == {"SEND_OK"}
        await_indexed(apache.nameserver, sent)
        return sent

    return run


def first_line(caught):
    return str(caught.value).splitlines()[0]


def path(row):
    return MessageQueue(row.topic, row.broker, row.queue_id).path


def sample(topic, count):
    """Messages of every kind: with and without tags, keys, properties; small and compressed."""
    return [
        Message(
            topic,
            f"body {n} ünïcode".encode() * (1 if n % 10 else 400),
            tags="AB"[n % 2] if n % 5 else None,
            keys=[f"key-{n}", f"again-{n}"] if n % 3 else [],
            properties={"number": str(n), "naïve": "ja ☃"} if n % 4 else None,
        )
        for n in range(count)
    ]


@pytest.mark.matrix
def test_spark_reads_exactly_what_java_sent(read, send, java_peer, topic, group_name):
    messages = sample(topic, 200)
    sent = send(*messages)
    rows = {(path(row), row.queue_offset): row for row in read(topic).collect()}
    assert len(rows) == len(sent) == 200
    assert len({row.broker for row in rows.values()}) == 2
    assert len({path(row) for row in rows.values()}) == 8
    for message, stored in zip(messages, sent, strict=True):
        row = rows[stored.queue.path, stored.queue_offset]
        assert bytes(row.body) == message.body
        assert row.tags == message.tags
        assert row.keys == (" ".join(message.keys) or None)
        assert row.message_id == stored.message_id
        assert dict(message.properties).items() <= row.properties.items()
        assert row.reconsume_times == 0
    with java_peer.push_consumer(group_name, topic) as consumer:
        seen = consumer.wait_received(200, timeout_s=90)
    assert len(seen) == 200
    for one in seen:
        row = rows[one.queue.path, one.queue_offset]
        theirs = {k: v for k, v in one.properties.items() if k not in LOCAL_PROPERTIES}
        assert row.properties == theirs
        assert bytes(row.body) == one.body
        assert row.message_id == one.message_id


@pytest.mark.matrix
def test_times_and_hosts_are_those_of_the_broker(read, send, topic):
    before_ms = int(time.time() * 1000) - 1
    send(*sample(topic, 20))
    after_ms = int(time.time() * 1000) + 1
    times = read(topic).select(
        f.unix_millis("born_timestamp").alias("born"),
        f.unix_millis("store_timestamp").alias("stored"),
        "born_host",
    )
    for row in times.collect():
        assert before_ms <= row.born <= row.stored <= after_ms
        assert row.born_host.startswith("127.0.0.1:")


@pytest.mark.matrix
def test_only_the_named_columns_are_there(read, send, topic):
    send(*sample(topic, 30))
    by_option = read(topic, columns="queue_offset, BODY")
    assert by_option.schema.simpleString() == "struct<queue_offset:bigint,body:binary>"
    by_schema = read(topic, schema="body binary, properties map<string,string>")
    assert by_schema.columns == ["body", "properties"]
    bodies = Counter(message.body for message in sample(topic, 30))
    for frame in (by_option, by_schema):
        assert Counter(bytes(row.body) for row in frame.collect()) == bodies
    assert read(topic).columns == list(COLUMNS)


def test_a_projection_and_a_condition_work_as_on_any_source(read, send, topic):
    send(*sample(topic, 30))
    frame = read(topic).where("tags = 'A'").select(f.col("properties")["number"].alias("n"))
    wanted = {m.properties.get("number") for m in sample(topic, 30) if m.tags == "A"}
    assert {row.n for row in frame.collect()} == wanted


@pytest.mark.matrix
def test_tags_are_filtered_by_the_broker(read, send, topic):
    messages = sample(topic, 60)
    send(*messages)
    for tags in ("A", "A || B", "nosuch"):
        wanted = {part.strip() for part in tags.split("||")}
        expected = Counter(m.body for m in messages if m.tags in wanted)
        frame = read(topic, tags=tags, columns="body")
        assert Counter(bytes(row.body) for row in frame.collect()) == expected


@pytest.mark.matrix
def test_sql_is_filtered_by_the_broker(read, send, topic):
    messages = sample(topic, 60)
    send(*messages)
    frame = read(topic, sql="number BETWEEN 10 AND 29", columns="body")
    expected = Counter(
        m.body for m in messages if 10 <= int(m.properties.get("number", -1)) <= 29
    )  # fmt: skip
    assert Counter(bytes(row.body) for row in frame.collect()) == expected


def test_bad_sql_is_refused_and_not_ignored(read, send, topic):
    send(*sample(topic, 3))
    with pytest.raises(PySparkException) as caught:
        read(topic, sql="number BETWEEN").count()
    assert "option 'sql' is refused by broker-a" in first_line(caught)


@pytest.mark.matrix
def test_partitions_are_split_and_packed_and_cover_everything_once(read, send, topic):
    sent = send(*sample(topic, 100))
    wanted = {(one.queue.path, one.queue_offset) for one in sent}
    for options, count in (({}, 1), ({"minPartitions": 7}, 7), ({"maxRecordsPerPartition": 9}, 12)):
        frame = read(topic, columns="topic,broker,queue_id,queue_offset", **options)
        assert frame.rdd.getNumPartitions() == count
        places = [(path(row), row.queue_offset) for row in frame.collect()]
        assert len(places) == 100
        assert set(places) == wanted


def test_a_frame_keeps_the_end_that_it_was_loaded_with(read, send, topic):
    send(*sample(topic, 10))
    frame = read(topic)
    assert frame.count() == 10
    send(*sample(topic, 5))
    assert frame.count() == 10
    assert read(topic).count() == 15


@pytest.mark.matrix
def test_offsets_cut_exactly(read, send, topic):
    queue = MessageQueue(topic, "broker-b", 2)
    send(*sample(topic, 40), queue=queue)
    every = [MessageQueue(topic, broker, n).path for broker in ("broker-a", "broker-b") for n in range(4)]  # fmt: skip
    start, end = dict.fromkeys(every, -2), dict.fromkeys(every, -1)
    start[queue.path], end[queue.path] = 11, 33
    frame = read(topic, startingOffsets=_json(start), endingOffsets=_json(end))
    assert sorted(row.queue_offset for row in frame.collect()) == list(range(11, 33))


@pytest.mark.matrix
def test_times_cut_exactly(read, send, topic):
    """Between each two batches a pause, whose middle is where the read starts and ends."""
    cuts = []
    for _ in range(3):
        send(*sample(topic, 12))
        time.sleep(0.1)
        cuts.append(int(time.time() * 1000) - 50)
    assert read(topic, startingTimestamp=cuts[0]).count() == 24
    assert read(topic, endingTimestamp=cuts[1]).count() == 24
    iso = [dt.datetime.fromtimestamp(cut / 1000, dt.UTC).isoformat() for cut in cuts]
    assert read(topic, startingTimestamp=iso[0], endingTimestamp=iso[1]).count() == 12
    assert read(topic, startingTimestamp=cuts[2]).count() == 0
    assert read(topic, endingTimestamp=0).count() == 0


@pytest.mark.matrix
def test_the_exact_time_of_a_message_starts_with_it_and_ends_before_it(read, send, topic):
    send(*sample(topic, 60))
    frame = read(topic)
    stored = [
        row.ms for row in frame.select(f.unix_millis("store_timestamp").alias("ms")).collect()
    ]
    moment = sorted(stored)[30]
    later = sum(one >= moment for one in stored)
    assert read(topic, startingTimestamp=moment).count() == later
    assert read(topic, endingTimestamp=moment).count() == 60 - later


@pytest.mark.matrix
def test_the_committed_offsets_of_a_group_split_a_topic(
    read, send, java_peer, java_admin, topic, group_name
):
    send(*sample(topic, 24))
    with java_peer.push_consumer(group_name, topic, report="brief") as consumer:
        consumer.wait_received(24, timeout_s=90)
        eventually(lambda: committed(consumer, java_admin, group_name, topic) == 24)
    send(*sample(topic, 7))
    assert read(topic, group=group_name, startingOffsets="committed").count() == 7
    assert read(topic, group=group_name, endingOffsets="committed").count() == 24


def test_reading_commits_nothing(read, send, apache, topic, group_name):
    sent = send(*sample(topic, 12))
    assert read(topic, group=group_name).count() == 12
    addresses = {broker.name: broker.address for broker in apache.brokers}
    pool = ConnectionPool()
    committed = {
        run_inline(stored_offset(addresses[one.queue.broker], group_name, one.queue), pool)
        for one in sent
    }
    pool.close()
    # Brokers say 0 for a young queue of which a group never committed anything.
    assert committed <= {None, 0}


def test_topics_by_list_and_by_pattern(read, send, apache, unique_name):
    first, second = unique_name("list"), unique_name("list")
    for name in (first, second):
        apache.create_topic(name, queues=1)
        send(*sample(name, 5))
    assert read(f"{first}, {second}").count() == 10
    frame = read(None, topicPattern=first.rpartition("-")[0] + "-.*")
    assert {row.topic for row in frame.select("topic").distinct().collect()} == {first, second}


def test_an_empty_topic_has_no_rows(read, topic):
    assert read(topic).count() == 0


def test_a_view_in_sql_takes_the_options(spark, apache, send, topic):
    send(*sample(topic, 5))
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW orders USING rocketmq "
        f"OPTIONS (nameserver '{apache.nameserver}', topic '{topic}')"
    )
    assert spark.sql("SELECT count(*) AS n FROM orders").first().n == 5


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"topc": "x"}, "unknown option 'topc': did you mean 'topic'?"),
        ({"topic": "nosuch"}, "option 'topic': there is no topic 'nosuch'"),
        ({"nameserver": "127.0.0.1:1"}, "option 'nameserver' is '127.0.0.1:1': no name server"),
        ({"startingOffsets": "soon"}, "option 'startingOffsets' is 'soon'"),
        ({"columns": "bodyy"}, "option 'columns' names the unknown column 'bodyy'"),
        ({"maxOffsetsPerTrigger": "5"}, "option 'maxOffsetsPerTrigger' is for streams"),
    ],
)
@pytest.mark.matrix
def test_what_is_wrong_stands_in_the_first_line(read, topic, options, text):
    with pytest.raises(PySparkException) as caught:
        read(topic, **options).count()
    assert text in first_line(caught)


def test_a_corrupt_body_is_told_in_one_sentence(read, apache, topic):
    with Admin(apache.nameserver) as admin:
        broker = admin.route(topic).brokers[0]
    queue = MessageQueue(topic, broker.name, 0)
    garbage = send_request(
        group="spark-tests",
        queue=queue,
        body=b"not compressed",
        properties="",
        born_timestamp_ms=0,
        sys_flag=SysFlag.COMPRESSED | CompressionType.ZLIB,
    )
    with BlockingConnection(broker.addresses[0]) as connection:
        assert connection.call(garbage, 5.0).code == 0
    with Admin(apache.nameserver) as admin:
        eventually(lambda: admin.offsets("nobody", topic)[queue].maximum == 1)
    with pytest.raises(PySparkException) as caught:
        read(topic, columns="body").collect()
    # Of what a task raises, PySpark itself writes the first line: that a Python worker said so.
    words = (
        f"cannot decode the messages of {queue.path} before offset 1: the message at queue offset 0"
    )
    assert words in str(caught.value).splitlines()[1]
    with pytest.raises(ProtocolError) as clear, clear_errors():
        read(topic, columns="body").collect()
    assert str(clear.value).startswith(words)
    assert "Options 'startingOffsets' and 'endingOffsets'" in str(clear.value).splitlines()[0]
    # The other columns can be read.
    assert read(topic, columns="queue_offset").count() == 1


def test_a_wrong_type_in_the_schema_stands_in_the_first_line(read, topic):
    with pytest.raises(PySparkException) as caught:
        read(topic, schema="body string").count()
    assert "column 'body' of the schema has type string" in first_line(caught)


def _json(offsets):
    return "{" + ", ".join(f'"{queue}": {offset}' for queue, offset in offsets.items()) + "}"

"""Batch reads while brokers lose messages, die and come back: on the real broker and on ours."""

from __future__ import annotations

import json
import re
import threading
import time
from collections import Counter

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import LongType, StructField, StructType

from gimbalmq import Admin, Message, MessageQueue, Producer
from gimbalmq.broker import EmbeddedCluster
from gimbalmq.broker.store import RetentionPolicy, StoreOptions
from gimbalmq.errors import TransportError
from gimbalmq.spark import RocketMQDataSource
from gimbalmq.spark.options import parse_read_options
from gimbalmq.spark.reading import read_batches
from gimbalmq.spark.schema import parse_columns
from gimbalmq.testing import ApacheRocketMQ, mqadmin
from spark.indexing import await_indexed
from spark.test_batch_read import first_line
from waiting import eventually

#: Small files, so that a few hundred messages of 1 KiB fill some of them.
LOG_FILE_BYTES = 64 * 1024
MESSAGES = 380
#: Until a real broker looks for expired files for the first time.
FIRST_CLEANING_S = 60
FIRST, SECOND = "broker-a", "broker-b"


class Apache:
    """The real RocketMQ; a broker's cleaner begins its work a minute after its start."""

    def __init__(self, folder, version):
        config = {
            "mappedFileSizeCommitLog": str(LOG_FILE_BYTES),
            # Everything but the newest file is expired, and is deleted when an administrator says
            # so: there is no hour 99.
            "fileReservedTime": "0",
            "deleteWhen": "99",
            "cleanResourceInterval": "500",
        }
        self.cluster = ApacheRocketMQ(
            version, brokers=2, data=folder, broker_config=config, stop_timeout_s=1.0
        )
        self._folder = folder

    def lose_the_head(self, queue):
        """What its cleaner does, done for a broker that is down: the oldest files are deleted."""
        self.cluster.kill(queue.broker)
        log = sorted(self._folder.rglob(f"{queue.broker}/**/commitlog/*"))
        assert len(log) > 3, log
        for file in log[:-2]:
            file.unlink()
        self.cluster.restart(queue.broker)


class Embedded:
    """The embedded cluster, whose retention goes by size: what comes pushes the oldest out."""

    def __init__(self, folder):
        store = StoreOptions(
            segment_bytes=LOG_FILE_BYTES,
            retention=RetentionPolicy(keep_bytes=MESSAGES * 1300),
            retention_interval_ms=50,
        )
        self.cluster = EmbeddedCluster(brokers=2, data=folder, store=store, processes=True)

    def lose_the_head(self, queue):
        send(self.cluster, queue, MESSAGES // 2)
        wait_for_retention(self.cluster, queue)


@pytest.fixture(scope="module")
def apache_engine(tmp_path_factory, rocketmq_version):
    engine = Apache(tmp_path_factory.mktemp("apache"), rocketmq_version)
    with engine.cluster:
        yield engine


@pytest.fixture
def embedded_engine(tmp_path):
    """A cluster of the test's own: what others stored would have to make room, and its own, too."""
    engine = Embedded(tmp_path)
    with engine.cluster:
        yield engine


@pytest.fixture
def cleaning_engine(tmp_path, rocketmq_version):
    """A cluster of the test's own: once told to, its brokers delete for a while."""
    engine = Apache(tmp_path, rocketmq_version)
    with engine.cluster:
        yield engine


@pytest.fixture(params=["apache", pytest.param("embedded", marks=pytest.mark.product)])
def engine(request):
    return request.getfixturevalue(f"{request.param}_engine")


@pytest.fixture
def topic(engine, topic_name):
    engine.cluster.create_topic(topic_name, queues=1)
    return topic_name


@pytest.fixture
def read(spark, engine):
    def load(topic, **options):
        reader = spark.read.format("rocketmq").options(
            nameserver=engine.cluster.nameserver,
            topic=topic,
            columns="topic,broker,queue_id,queue_offset",
            **options,
        )
        return reader.load()

    return load


def send(cluster, queue, count):
    """Fill a queue with messages of 1 KiB; returns their places."""
    with Producer("batch-faults", nameserver=cluster.nameserver) as producer:
        futures = [
            producer.send_async(Message(queue.topic, b"x" * 1024), queue=queue)
            for _ in range(count)
        ]
        sent = [one.result(30) for one in futures]
    await_indexed(cluster.nameserver, sent)
    return {(queue.broker, queue.queue_id, one.queue_offset) for one in sent}


def minimum(cluster, queue):
    with Admin(cluster.nameserver) as admin:
        return admin.offsets("batch-faults", queue.topic)[queue].minimum


def wait_for_retention(cluster, queue, timeout_s=20.0):
    """Wait until the first messages are gone, and no more of them go."""
    seen = []

    def done():
        time.sleep(0.2)
        seen.append(minimum(cluster, queue))
        return seen[-1] > 100 and seen[-4:] == seen[-1:] * 4

    eventually(done, timeout_s)


def planned(frame):
    """Have Spark plan the read, without reading; every action on the frame keeps to it."""
    frame.rdd.getNumPartitions()
    return frame


def places(rows):
    return Counter((row.broker, row.queue_id, row.queue_offset) for row in rows)


def check_loss(read, engine, topic, lose):
    """Lose the head of a queue between planning and reading, and in the middle of a read."""
    whole, cut = MessageQueue(topic, FIRST, 0), MessageQueue(topic, SECOND, 0)
    untouched = send(engine.cluster, whole, 20)
    send(engine.cluster, cut, MESSAGES)
    strict = planned(read(topic))
    parts = read(topic, failOnDataLoss="false", maxRecordsPerPartition=100)
    under_way = planned(parts).toLocalIterator()
    before = [next(under_way)]
    lose(cut)
    found = minimum(engine.cluster, cut)
    assert 100 < found < MESSAGES
    with pytest.raises(PySparkException) as caught:
        strict.collect()
    wanted = re.search(
        rf"{cut.path}: offset (\d+) was wanted, but the first one still stored is (\d+)\. "
        "Set option 'failOnDataLoss' to false",
        str(caught.value),
    )
    assert wanted, str(caught.value)
    assert (int(wanted[1]), int(wanted[2])) == (0, found)
    # The first task had ended: 20 messages of the one queue, 80 of the other.
    there = {(SECOND, 0, offset) for offset in [*range(80), *range(found, MESSAGES)]}
    assert places(before + list(under_way)) == Counter(untouched | there)
    # A frame that is read as a whole has what is left, once.
    left = planned(read(topic, failOnDataLoss="false", endingOffsets=_ends(cut, whole))).collect()
    assert places(left) == Counter(untouched | {one for one in there if one[2] >= found})


def _ends(cut, whole):
    return json.dumps({cut.path: MESSAGES, whole.path: -1})


def test_what_is_deleted_while_it_is_read_is_named_or_left_out(read, engine, topic):
    check_loss(read, engine, topic, engine.lose_the_head)


@pytest.mark.product
@pytest.mark.timeout(600)
@pytest.mark.parametrize("engine", ["cleaning"], indirect=True)
def test_what_a_real_broker_deletes_by_itself_is_named_or_left_out(
    read, engine, topic, rocketmq_version
):
    def delete_expired(queue):
        nameserver = engine.cluster.nameserver
        address = next(one.address for one in engine.cluster.brokers if one.name == queue.broker)
        mqadmin(nameserver, "deleteExpiredCommitLog", "-b", address, version=rocketmq_version)
        wait_for_retention(engine.cluster, queue, 2 * FIRST_CLEANING_S)

    check_loss(read, engine, topic, delete_expired)


class Rest(threading.Thread):
    """Goes on with a read in the background."""

    def __init__(self, rows):
        super().__init__()
        self._rows = rows
        self.found = []
        self.error = None

    def run(self):
        try:
            self.found.extend(self._rows)
        except Exception as error:  # noqa: BLE001 - the test looks at it
            self.error = error


def test_a_broker_that_dies_is_named_and_when_it_is_back_every_message_is_there_once(
    read, engine, topic
):
    cluster = engine.cluster
    queues = [MessageQueue(topic, broker, 0) for broker in (FIRST, SECOND)]
    stored = set.union(*(send(cluster, queue, 150) for queue in queues))
    under_way = planned(read(topic, maxRecordsPerPartition=100)).toLocalIterator()
    rest = Rest(under_way)
    rest.found.append(next(under_way))
    ranges = planned_here(cluster, topic)
    cluster.kill(SECOND)
    try:
        # The name server notices the closed connection.
        eventually(lambda: known_brokers(cluster, topic) == {FIRST})
        with pytest.raises(PySparkException) as caught:
            read(topic, startingOffsets=_ends(*queues)).count()
        assert f"option 'startingOffsets' names {queues[1].path}" in first_line(caught)
        assert f"The name server knows no broker '{SECOND}': is it down?" in first_line(caught)
        # Without offsets that name it, nobody can tell that a queue is missing.
        assert places(read(topic).collect()) == Counter(one for one in stored if one[0] == FIRST)
        check_task_error(cluster, topic, ranges)
        rest.start()
    finally:
        cluster.restart(SECOND)
        if rest.ident is not None:
            rest.join(120)
    assert rest.error is None, rest.error
    assert places(rest.found) == Counter(stored)
    assert places(read(topic).collect()) == Counter(stored)


def known_brokers(cluster, topic):
    with Admin(cluster.nameserver) as admin:
        return {one.name for one in admin.route(topic).brokers}


def planned_here(cluster, topic):
    """The ranges of a read, as its tasks get them."""
    options = CaseInsensitiveDict({"nameserver": cluster.nameserver, "topic": topic})
    reader = RocketMQDataSource(options).reader(
        StructType([StructField("queue_offset", LongType())])
    )
    return [one for part in reader.partitions() for one in part.ranges]


def check_task_error(cluster, topic, ranges):
    """The words of a task that was planned before the broker died, and lost its patience."""
    options = parse_read_options({"nameserver": cluster.nameserver, "topic": topic})
    words = (
        rf"cannot read {topic}/{SECOND}/0 from {SECOND} \(127\.0\.0\.1:\d+\): no progress for 1 s"
    )
    with pytest.raises(TransportError, match=words):
        list(read_batches(ranges, options, parse_columns("queue_offset"), patience_s=1.0))

"""Streaming into Parquet while driver, executors, their workers and a broker are killed, under load."""

from __future__ import annotations

import itertools
import json
import re
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from gimbalmq import Admin, Message, Producer
from gimbalmq.broker import EmbeddedCluster
from gimbalmq.errors import GimbalError
from spark.standalone import Session, kill

JOB = Path(__file__).with_name("stream_job.py")
_BATCH = re.compile(r"^batch \d+: ", re.MULTILINE)
#: Longer than a read waits for a broker before its task fails and is tried again.
LONG_OUTAGE_S = 40


class Load:
    """Sends all the time; what was acknowledged is known by its key."""

    def __init__(self, nameserver, topic):
        self.acknowledged = set()
        self._nameserver, self._topic = nameserver, topic
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        number = 0
        with Producer("load", nameserver=self._nameserver, timeout_s=1.0, retries=0) as producer:
            while not self._over.wait(0.005):
                number += 1
                try:
                    producer.send(Message(self._topic, b"x" * 100, keys=f"key-{number}"))
                except GimbalError:
                    continue  # not acknowledged: it may be stored or not
                self.acknowledged.add(f"key-{number}")

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()


class Job:
    """The streaming job; started again and again on the same folder."""

    def __init__(self, nameserver, topic, folder, config):
        script = [sys.executable, str(JOB), nameserver, topic, str(folder)]
        self._command = [*script, json.dumps(config)]
        self._folder = folder
        self.session = None

    def start(self):
        self.session = Session(self._command, self._folder / "job.log")

    def kill(self):
        """Driver, Java and Python, at once."""
        if self.session is not None:
            self.session.kill()
            self.session = None

    def kill_workers(self):
        """Kill the Python processes that read in the driver's own Java; returns how many."""
        return sum(map(kill, self.session.members(b"pyspark.daemon")))

    def batches(self):
        return len(_BATCH.findall(self.session.words()))

    def wait_for_batches(self, count, timeout_s=240):
        wanted, deadline = self.batches() + count, time.monotonic() + timeout_s
        while self.batches() < wanted:
            self._go_on(deadline)

    def finish(self, timeout_s=300):
        (self._folder / "finish").touch()
        deadline = time.monotonic() + timeout_s
        while self.session.process.poll() != 0:
            self._go_on(deadline)
        self.kill()

    def _go_on(self, deadline):
        if self.session.process.poll() is not None:
            self.start()  # it failed, as jobs do; whoever runs it starts it again
        assert time.monotonic() < deadline, self.session.words()
        time.sleep(0.05)


@pytest.fixture
def cluster(tmp_path):
    with EmbeddedCluster(brokers=2, data=tmp_path / "data", processes=True) as running:
        yield running


def fail_driver(job):
    job.kill()
    job.start()


def fail_broker(cluster, outage_s):
    cluster.kill("broker-b")
    # A batch that is under way needs it, and waits for it; the following ones do without.
    time.sleep(outage_s)
    cluster.restart("broker-b")


def kill_one(find, timeout_s=120):
    """Kill the first of the processes that are found, as soon as there is one."""
    deadline = time.monotonic() + timeout_s
    while not any(map(kill, find()[:1])):
        assert time.monotonic() < deadline, "there is nothing to kill"
        time.sleep(0.05)


def break_in_turn(cluster, topic, job, breakers, rounds):
    """Run the job to its end while things break; returns the keys that brokers acknowledged."""
    try:
        with Load(cluster.nameserver, topic) as load:
            job.start()
            for _, fail in zip(range(rounds), itertools.cycle(breakers), strict=False):
                job.wait_for_batches(2)
                fail()
            job.wait_for_batches(1)
        job.finish()
    finally:
        job.kill()
    return load.acknowledged


def check(spark, cluster, topic, folder, acknowledged):
    """Every stored message is in the files exactly once, and the group was told."""
    with Admin(cluster.nameserver) as admin:
        offsets = admin.offsets("stream-job", topic)
    stored = Counter(
        (queue.broker, queue.queue_id, offset)
        for queue, one in offsets.items()
        for offset in range(one.minimum, one.maximum)
    )
    assert all(one.committed == one.maximum for one in offsets.values())
    rows = spark.read.parquet(str(folder / "out")).collect()
    assert Counter((row.broker, row.queue_id, row.queue_offset) for row in rows) == stored
    assert acknowledged <= {row["keys"] for row in rows}
    assert len(acknowledged) > 100
    return len(rows)


@pytest.mark.timeout(900)
def test_every_stored_message_is_in_the_files_exactly_once(spark, cluster, topic_name, tmp_path):
    cluster.create_topic(topic_name, queues=2)
    # A task is tried again when its worker dies, as on a cluster.
    job = Job(cluster.nameserver, topic_name, tmp_path, {"spark.master": "local[2,4]"})
    breakers = [lambda: fail_driver(job), lambda: fail_broker(cluster, 2), job.kill_workers]
    acknowledged = break_in_turn(cluster, topic_name, job, breakers, 3)
    check(spark, cluster, topic_name, tmp_path, acknowledged)


@pytest.mark.timeout(7200)
@pytest.mark.parametrize(
    ("rounds", "outage_s"),
    [
        pytest.param(4, 8, marks=pytest.mark.product),
        pytest.param(20, LONG_OUTAGE_S, marks=pytest.mark.soak),
    ],
)
def test_on_a_cluster_every_stored_message_is_in_the_files_exactly_once(
    spark, standalone, cluster, topic_name, tmp_path, record_property, rounds, outage_s
):
    cluster.create_topic(topic_name, queues=2)
    job = Job(cluster.nameserver, topic_name, tmp_path, standalone.settings())
    breakers = [
        lambda: fail_driver(job),
        lambda: kill_one(standalone.executors),
        lambda: fail_broker(cluster, outage_s),
        lambda: kill_one(standalone.python_workers),
    ]
    acknowledged = break_in_turn(cluster, topic_name, job, breakers, rounds)
    rows = check(spark, cluster, topic_name, tmp_path, acknowledged)
    record_property("rounds", rounds)
    record_property("outage_s", outage_s)
    record_property("messages", rows)

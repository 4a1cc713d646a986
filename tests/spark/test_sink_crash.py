"""Writing on a cluster while executors, their workers, a broker and the driver are killed."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest

from gimbalmq import Admin
from gimbalmq.broker import EmbeddedCluster
from gimbalmq.spark import deduplicated
from spark.standalone import Session
from spark.test_stream_crash import fail_broker, kill_one

JOB = Path(__file__).with_name("sink_job.py")
TASKS = 20


def stored(cluster, topic):
    with Admin(cluster.nameserver) as admin:
        return sum(one.maximum for one in admin.offsets("sink-watch", topic).values())


def wait_for_rows(job, cluster, topic, count, timeout_s=600):
    deadline = time.monotonic() + timeout_s
    while stored(cluster, topic) < count:
        assert job.process.poll() is None, job.words()
        assert time.monotonic() < deadline, job.words()
        time.sleep(0.05)


@pytest.mark.timeout(7200)
@pytest.mark.parametrize(
    ("rows", "rate"),
    [
        pytest.param(50_000, 3_000, marks=pytest.mark.product),
        pytest.param(1_000_000, 20_000, marks=pytest.mark.soak),
    ],
)
def test_no_row_is_lost_and_copies_are_told_apart(
    spark, standalone, topic_name, tmp_path, record_property, rows, rate
):
    """The rate gives every kill something that is under way."""
    with EmbeddedCluster(brokers=2, data=tmp_path / "data", processes=True) as cluster:
        cluster.create_topic(topic_name, queues=4)
        config = json.dumps(standalone.settings())
        arguments = [cluster.nameserver, topic_name, str(rows), str(TASKS), str(rate), config]
        command = [sys.executable, str(JOB), *arguments]
        job = Session(command, tmp_path / "job.log")
        try:
            kills = [
                lambda: kill_one(standalone.executors),
                lambda: fail_broker(cluster, 5),
                lambda: kill_one(standalone.python_workers),
                job.kill,
            ]
            for number, fail in enumerate(kills, 1):
                wait_for_rows(job, cluster, topic_name, number * rows // 6)
                fail()
            job = Session(command, tmp_path / "job.log")
            assert job.process.wait(timeout=1800) == 0, job.words()
        finally:
            job.kill()
        reader = spark.read.format("rocketmq").option("nameserver", cluster.nameserver)
        read = reader.option("topic", topic_name).load()
        once = deduplicated(read)
        assert once.count() == rows
        assert once.select("body").distinct().count() == rows
        copies = read.count() - rows
    assert copies > 0  # the killed job had written something
    record_property("rows", rows)
    record_property("copies", copies)

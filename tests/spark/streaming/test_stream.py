"""The stream reader: starts, limits, batches, the group, tasks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from gimbalmq import Admin, Message, MessageQueue, Producer, PushConsumer
from gimbalmq.broker import EmbeddedCluster
from gimbalmq.broker.access import Account
from gimbalmq.errors import (
    GimbalError,
    StateError,
)
from spark.micro_batches import Query, exactly, stream_reader
from waiting import eventually

# ---- start, replay, end ----------------------------------------------------------------------


def test_everything_is_read_once_over_several_runs(query, send, topic):
    job = query(topic)
    sent = send(topic, 50)
    job.available_now()
    exactly(job, sent)
    sent |= send(topic, 30)
    job.available_now()
    exactly(job, sent)
    assert job.available_now() == 0


def test_the_first_batch_pins_the_start_and_reads_nothing(query, send, topic):
    before, job = send(topic, 8), query(topic, startingOffsets="latest").start()
    assert job.reader.initialOffset() == {"@": "latest"}
    assert job.step()
    assert job.all_rows == []
    assert sum(job.offsets().values()) == len(before)
    later = send(topic, 5)
    job.crash()
    job.rows.clear()  # as if batch 0 was never committed
    job.start()
    while job.step():
        pass
    exactly(job, later)


def test_a_replayed_batch_is_identical_whatever_came_meanwhile(query, send, cluster, topic):
    job = query(topic, maxOffsetsPerTrigger=20).start()
    send(topic, 60)
    job.step(), job.step()
    assert job.plan()
    first = job.read(2)
    assert len(first) == 20
    job.crash()
    send(topic, 10)
    cluster.create_topic(topic, queues=3)
    job.start(maxOffsetsPerTrigger=7, minPartitions=5)
    assert sorted(map(str, job.read(2))) == sorted(map(str, first))


def test_offsets_are_sorted_and_an_idle_query_answers_with_its_start(query, send, topic):
    job = query(topic).start()
    send(topic, 6)
    while job.step():
        pass
    assert list(job.offsets()) == sorted(job.offsets())
    assert not job.plan()
    assert job.reader.reportLatestOffset() == job.offsets()


@pytest.mark.parametrize("start", ["timestamp", "offsets", "committed"])
def test_every_start_is_understood(query, send, topic, group_name, cluster, start):
    send(topic, 8)
    queues = [MessageQueue(topic, broker, n) for broker in ("broker-a", "broker-b") for n in (0, 1)]
    options = {"startingOffsets": json.dumps({queue.path: 2 for queue in queues})}
    if start == "timestamp":
        options = {"startingOffsets": None, "startingTimestamp": int(time.time() * 1000) + 1}
        eventually(lambda: time.time() * 1000 > options["startingTimestamp"])
    if start == "committed":
        query(topic, group=group_name).available_now()
        options = {"startingOffsets": "committed", "group": group_name}
    later = send(topic, 4)
    job = query(topic, **options)
    job.options = {name: value for name, value in job.options.items() if value is not None}
    job.available_now()
    exactly(job, later)


def test_trigger_once_takes_everything_in_spite_of_limits(query, send, topic):
    job = query(topic, maxOffsetsPerTrigger=5).start()
    job.step()
    sent = send(topic, 20)
    end = job.reader.latestOffset(job.offsets(), ReadAllAvailable())
    assert sum(end.values()) == len(sent)


# ---- limits ----------------------------------------------------------------------------------


def test_batches_keep_to_the_maximum(query, send, topic):
    job = query(topic, maxOffsetsPerTrigger=12)
    sent = send(topic, 40)
    job.available_now()
    assert [len(rows) for rows in job.rows] == [0, 12, 12, 12, 4]
    exactly(job, sent)


def test_bytes_limit_a_batch_by_an_estimate(query, send, topic):
    job = query(topic, maxBytesPerTrigger="20k")
    sent = send(topic, 40, size=2000)
    job.available_now()
    sizes = [len(rows) for rows in job.rows[1:]]
    assert max(sizes) <= 10
    assert min(sizes[:-1]) >= 6
    exactly(job, sent)


def test_a_minimum_waits_for_more_but_not_for_ever(query, send, topic):
    job = query(topic, minOffsetsPerTrigger=10, maxTriggerDelay="1h").start()
    job.step()
    send(topic, 3)
    assert job.step(), "nothing was read before, so nothing is waited for"
    send(topic, 9)
    assert not job.step()
    send(topic, 1)
    assert job.step()
    assert len(job.rows[-1]) == 10
    send(topic, 1)
    assert not job.step()
    job.reader._planner._last_batch_s -= 3600
    assert job.step()


def test_a_query_that_ends_does_not_wait_for_a_minimum(query, send, topic):
    job = query(topic, minOffsetsPerTrigger=1000, maxOffsetsPerTrigger=1000)
    sent = send(topic, 7)
    job.available_now()
    exactly(job, sent)
    sent |= send(topic, 2)
    job.available_now()
    exactly(job, sent)


def test_available_now_ends_at_what_was_stored_when_it_started(query, send, cluster, topic):
    job = query(topic, maxOffsetsPerTrigger=4).start()
    sent = send(topic, 10)
    job.reader.prepareForTriggerAvailableNow()
    cluster.create_topic(topic, queues=4)
    for _ in range(4):
        send(topic, 9)
        job.step()
    while job.step():
        pass
    exactly(job, sent)


# ---- the group -------------------------------------------------------------------------------


def committed(cluster, group, topic):
    with Admin(cluster.nameserver) as admin:
        return {queue.path: one.committed for queue, one in admin.offsets(group, topic).items()}


def test_the_group_is_told_of_every_batch_the_last_one_included(
    query, send, cluster, topic, group_name
):
    job = query(topic, group=group_name, maxOffsetsPerTrigger=8)
    send(topic, 20)
    job.available_now()
    assert committed(cluster, group_name, topic) == job.offsets()


def test_nothing_is_committed_when_told_so(query, send, cluster, topic, group_name):
    send(topic, 8)
    query(topic, group=group_name, commitOffsets="false").available_now()
    assert set(committed(cluster, group_name, topic).values()) <= {None, 0}


def test_a_group_with_live_members_is_refused_by_name(query, cluster, topic, group_name):
    consumer = PushConsumer(group_name, nameserver=cluster.nameserver, client_id="till-7")
    consumer.subscribe(topic, listener=lambda _message: None)
    consumer.start()
    try:
        job = query(topic, group=group_name)
        with pytest.raises(
            StateError, match=r"option 'group': group '.*' has live members \(till-7@"
        ):
            job.available_now()
    finally:
        consumer.stop()
    job.stop()
    job.available_now()


# ---- tasks -----------------------------------------------------------------------------------


def test_small_queues_share_a_task_and_options_split(query, send, topic):
    sent = send(topic, 40)
    for options, tasks in (({}, 1), ({"minPartitions": 3}, 3), ({"maxRecordsPerPartition": 9}, 5)):
        job = query(topic, **options).start()
        job.step()
        assert job.plan()
        parts = job.reader.partitions(job.offsets(0), job.offsets(1))
        assert len(parts) == tasks
        job.rows.append(job.read(1))
        exactly(job, sent)


def test_a_reader_that_plans_is_not_pickled_and_stops_twice():
    reader = stream_reader(nameserver="127.0.0.1:1", topic="orders")
    assert reader.reportLatestOffset() is None
    reader.stop()
    reader.stop()


#: What Spark's runner does around a reader, and the signal with which Spark ends it.
RUNNER = """
import os, signal, sys, time
import pyspark.worker_util
from spark.micro_batches import stream_reader

reader = stream_reader(nameserver="127.0.0.1:1", topic="orders")
planner = reader._planning()
close = planner.close
planner.close = lambda: (close(), print("closed", flush=True))
try:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(60)
finally:
    reader.stop()
    print("reported to nobody")
"""


def test_a_reader_that_spark_ends_closes_first():
    variables = dict(os.environ, PYTHONPATH=str(Path(__file__).parents[2]))
    done = subprocess.run(
        [sys.executable, "-c", RUNNER], env=variables, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (-signal.SIGTERM, "closed\n"), done.stderr


# ---- access ----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["exclusive", "member"])
def test_a_stream_with_keys_reads_and_never_shows_the_secret(topic_name, group_name, caplog, mode):
    caplog.set_level("DEBUG")
    keys = {"access_key": "shop", "secret_key": "s3cret-word"}
    with EmbeddedCluster(accounts=[Account(admin=True, **keys)]) as cluster:
        cluster.create_topic(topic_name, queues=1)
        with Producer("p", nameserver=cluster.nameserver, **keys) as producer:
            for _ in range(5):
                producer.send(Message(topic_name, b"x"))
        options = {"nameserver": cluster.nameserver, "topic": topic_name, "group": group_name}
        options |= {"startingOffsets": "earliest", "groupMode": mode}
        with Query(**options, accessKey="shop", secretKey="s3cret-word") as job:
            job.available_now()
            assert len(job.all_rows) == 5
            job.start()
            shown = repr((job.reader, job.reader._options, job.log, vars(job.reader)))
        with Query(**options, accessKey="shop", secretKey="wr0ng-word") as job:
            with pytest.raises(GimbalError, match="secret key does not belong") as caught:
                job.available_now()
            shown += str(caught.value)
        with Query(**options) as job, pytest.raises(GimbalError, match="asks for keys"):
            job.available_now()
    for text in (shown, caplog.text):
        assert "s3cret-word" not in text
        assert "wr0ng-word" not in text

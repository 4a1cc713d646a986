"""The stream reader on an embedded cluster, driven as Spark drives it; see `micro_batches`."""

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
from gimbalmq.broker.store import RetentionPolicy, StoreOptions
from gimbalmq.errors import (
    ConfigurationError,
    GimbalError,
    OffsetError,
    StateError,
    TransportError,
)
from gimbalmq.spark import stream, stream_planner
from spark.micro_batches import Query, stream_reader


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(stream, "_IDLE_WAITS_S", (0.01,))
    monkeypatch.setattr(stream_planner, "_ROUTES_AGE_S", 0.0)
    monkeypatch.setattr(stream_planner, "_START_PATIENCE_S", 0.5)
    monkeypatch.setattr(stream_planner, "_REPLAY_PATIENCE_S", 0.5)


@pytest.fixture(scope="module")
def shared_cluster():
    with EmbeddedCluster(brokers=2) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared_cluster):
    """Left as it was found: two brokers, running."""
    return shared_cluster


@pytest.fixture
def topic(cluster, topic_name):
    cluster.create_topic(topic_name, queues=2)
    return topic_name


@pytest.fixture
def send(cluster):
    def run(topic, count, *, queue=None, tags=None, size=0):
        # A new one each time: tests change queues and brokers under it.
        with Producer("stream-tests", nameserver=cluster.nameserver) as producer:
            queues = [queue] if queue else producer.queues(topic)
            sent = [
                producer.send(
                    Message(topic, f"{n}".encode().ljust(size, b"."), tags=tags),
                    queue=queues[n % len(queues)],
                )
                for n in range(count)
            ]
        return {(r.queue.topic, r.queue.broker, r.queue.queue_id, r.queue_offset) for r in sent}

    return run


@pytest.fixture
def query(cluster):
    queries = []

    def make(default_topic, **options):
        given = {"nameserver": cluster.nameserver, "startingOffsets": "earliest"}
        given["topic"] = default_topic
        queries.append(Query(**(given | options)))
        return queries[-1]

    yield make
    for one in queries:
        one.stop()


def wait_until(condition, what, timeout_s=20.0):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def exactly(query, sent):
    assert len(query.places) == len(set(query.places))
    assert set(query.places) == sent


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
        wait_until(lambda: time.time() * 1000 > options["startingTimestamp"], "no time passes")
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


# ---- queues come and go ----------------------------------------------------------------------


def test_new_queues_and_topics_of_a_pattern_are_picked_up(query, send, cluster, unique_name):
    first, second = unique_name("pattern"), unique_name("pattern")
    cluster.create_topic(first, queues=1)
    job = query(None, topicPattern=first.rpartition("-")[0] + "-.*")
    del job.options["topic"]
    job.start()
    sent = send(first, 4)
    while job.step():
        pass
    exactly(job, sent)
    cluster.create_topic(first, queues=3)
    cluster.create_topic(second, queues=1)
    sent |= send(first, 12) | send(second, 4)
    while job.step():
        pass
    exactly(job, sent)


def test_a_restart_with_more_queues_reads_all_of_them(query, send, cluster, topic):
    job = query(topic)
    sent = send(topic, 8)
    job.available_now()
    cluster.create_topic(topic, queues=5)
    sent |= send(topic, 30)
    job.available_now()
    exactly(job, sent)
    assert len(job.offsets()) == 10


def test_a_removed_queue_that_was_read_leaves_the_map(query, send, cluster, topic):
    job = query(topic)
    sent = send(topic, 8)
    job.available_now()
    cluster.create_topic(topic, queues=1)
    sent |= send(topic, 4)
    job.available_now()
    exactly(job, sent)
    assert list(job.offsets()) == [f"{topic}/broker-a/0", f"{topic}/broker-b/0"]


def test_a_removed_queue_with_unread_messages_is_a_loss(query, send, cluster, topic):
    job = query(topic)
    job.available_now()
    lost = MessageQueue(topic, "broker-b", 1)
    send(topic, 3, queue=lost)
    cluster.create_topic(topic, queues=1)
    with pytest.raises(
        OffsetError, match=f"{lost.path}: offset 0 was wanted, but the queue is gon"
    ):
        job.available_now()
    job.available_now(failOnDataLoss="false")
    assert lost.path not in job.offsets()


# ---- loss ------------------------------------------------------------------------------------


@pytest.mark.parametrize("fail", [True, False])
def test_a_topic_that_was_deleted_and_made_again(query, send, cluster, topic, fail):
    job = query(topic)
    old = send(topic, 12)
    job.available_now()
    with Admin(cluster.nameserver) as admin:
        admin.delete_topic(topic)
        cluster.create_topic(topic, queues=2)
    new = send(topic, 4)
    if fail:
        with pytest.raises(OffsetError, match=r"offset 3 was wanted, but the queue ends at 1"):
            job.available_now()
        return
    job.available_now(failOnDataLoss="false")
    assert len(job.places) == len(old) + len(new)
    assert set(job.places[len(old) :]) == new


@pytest.mark.parametrize("fail", [True, False])
def test_a_topic_that_was_deleted(query, send, cluster, topic, unique_name, fail):
    other = unique_name("other")
    cluster.create_topic(other, queues=1)
    job = query(f"{topic},{other}").start()
    sent = send(topic, 4) | send(other, 4)
    while job.step():
        pass
    with Admin(cluster.nameserver) as admin:
        admin.delete_topic(topic)
    sent |= send(other, 2)
    job.stop()
    job.start(failOnDataLoss=str(fail).lower())
    if fail:
        with pytest.raises(OffsetError, match="the queue is gone"):
            job.step()
        return
    while job.step():
        pass
    exactly(job, sent)
    assert {path.partition("/")[0] for path in job.offsets()} == {other}


@pytest.mark.parametrize("fail", [True, False])
def test_retention_that_overtakes_the_query(topic_name, fail):
    store = StoreOptions(
        segment_bytes=4096,
        retention=RetentionPolicy(keep_bytes=16_000),
        retention_interval_ms=20,
    )
    with (
        EmbeddedCluster(store=store) as cluster,
        Query(
            nameserver=cluster.nameserver, topic=topic_name, failOnDataLoss=str(fail).lower()
        ) as job,
    ):
        cluster.create_topic(topic_name, queues=1)
        queue = MessageQueue(topic_name, "broker-a", 0)
        job.start(startingOffsets="earliest", maxOffsetsPerTrigger=5)
        with (
            Producer("p", nameserver=cluster.nameserver) as producer,
            Admin(cluster.nameserver) as admin,
        ):
            for _ in range(10):
                producer.send(Message(topic_name, b"x" * 500))
            job.step(), job.step()
            assert len(job.all_rows) == 5
            for _ in range(100):
                producer.send(Message(topic_name, b"x" * 500))
            first = lambda: admin.offsets("g", topic_name)[queue].minimum  # noqa: E731
            wait_until(lambda: first() > 10, "nothing is deleted")
            if fail:
                with pytest.raises(
                    OffsetError, match="offset 5 was wanted, but the first one still"
                ):
                    job.step()
                return
            while job.step():
                pass
            minimum = first()
        offsets = [row["queue_offset"] for row in job.all_rows]
        assert offsets[:5] == [0, 1, 2, 3, 4]
        assert offsets[5:] == list(range(offsets[5], 110))
        assert 10 < offsets[5] <= minimum


# ---- brokers away ----------------------------------------------------------------------------


def test_one_broker_down_the_others_go_on(query, send, cluster, topic, caplog):
    job = query(topic).start()
    sent = send(topic, 8)
    while job.step():
        pass
    cluster.kill("broker-b")
    try:
        for number in range(2):
            sent |= send(topic, 3, queue=MessageQueue(topic, "broker-a", number))
        while job.step():
            pass
        exactly(job, sent)
        assert "broker 'broker-b' is away" in caplog.text
        assert f"{topic}/broker-b/0" in job.offsets()
    finally:
        cluster.restart("broker-b")
    sent |= send(topic, 8)
    wait_until(lambda: not job.step() and set(job.places) == sent, "the broker is never read again")
    exactly(job, sent)
    assert "broker 'broker-b' is back" in caplog.text


def test_a_batch_that_needs_a_broker_that_stays_away_says_so(query, send, topic, cluster):
    job = query(topic).start()
    job.step()
    send(topic, 8)
    assert job.plan()
    job.crash()
    cluster.kill("broker-b")
    try:
        job.start()
        with pytest.raises(GimbalError, match=r"a batch needs .* broker 'broker-b' has been away"):
            job.step()
    finally:
        cluster.restart("broker-b")


def test_a_broker_that_was_missing_at_the_start_is_read_from_its_first_message(
    query, send, topic, cluster
):
    sent = send(topic, 8)
    job = query(topic, startingOffsets="latest").start()
    cluster.kill("broker-b")
    try:
        job.step()
        assert {path.split("/")[1] for path in job.offsets()} == {"broker-a"}
    finally:
        cluster.restart("broker-b")
    while job.step():
        pass
    exactly(job, {place for place in sent if place[1] == "broker-b"})


def test_planning_survives_the_name_server(query, send, cluster, topic, caplog):
    job = query(topic).start()
    job.step()
    sent = send(topic, 4)
    while job.step():
        pass
    assert job.plan() is False
    sent |= send(topic, 4)
    cluster.kill("nameserver")
    try:
        while job.step():
            pass
        exactly(job, sent)
        assert "going on with the routes of before" in caplog.text
    finally:
        cluster.restart("nameserver")


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"nameserver": "127.0.0.1:1"}, TransportError, "option 'nameserver' is '127.0.0.1:1': no"),
        ({"topic": "nosuch"}, GimbalError, "option 'topic': there is no topic 'nosuch'"),
        ({"sql": "a BETWEEN"}, ConfigurationError, "option 'sql' is refused by broker-a"),
        ({"group": "g", "nameserver": "127.0.0.1:1"}, TransportError, "option 'nameserver' is"),
    ],
)
def test_what_only_the_cluster_knows_is_said_in_the_words_of_the_options(
    query, topic, options, error, text
):
    with pytest.raises(error, match=text):
        query(topic, **options).available_now()


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
    variables = dict(os.environ, PYTHONPATH=str(Path(__file__).parents[1]))
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

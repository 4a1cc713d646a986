"""Every pipeline on an embedded cluster, as the command line runs it."""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter

import pytest
from pyspark.sql import functions as f

from gimbalmq import Admin, Message, Producer, PullConsumer, PushConsumer
from gimbalmq.broker import EmbeddedCluster
from gimbalmq.client.events import EVENTS_TOPIC, read_topic
from gimbalmq.core.history import RebalanceEvent, encode_event, moves_of
from gimbalmq.errors import ConfigurationError, TopicNotFoundError
from gimbalmq.spark.pipelines import find_pipeline
from gimbalmq.spark.pipelines.settings import parse_options
from gimbalmq.spark.pipelines.weights import latest_weights


@pytest.fixture(scope="module")
def cluster():
    with EmbeddedCluster(brokers=2, processes=True) as running:
        yield running


@pytest.fixture
def topic(cluster, topic_name):
    cluster.create_topic(topic_name, queues=2)
    return topic_name


@pytest.fixture
def send(cluster):
    def run(topic, bodies, **parts):
        with Producer("pipeline-tests", nameserver=cluster.nameserver) as producer:
            for future in [producer.send_async(Message(topic, b, **parts)) for b in bodies]:
                future.result()

    return run


@pytest.fixture
def run(spark, cluster):
    told = []

    def start(name, **given):
        module = find_pipeline(name).load()
        options = parse_options(module.Options, {"nameserver": cluster.nameserver, **given})
        return module.run(spark, options, told.append)

    start.told = told
    return start


def numbered(first, last):
    return [f"{number:06}".encode() for number in range(first, last)]


def test_an_archive_holds_every_message_once_over_two_runs(spark, topic, send, run, tmp_path):
    path = str(tmp_path / "archive")
    send(topic, numbered(0, 500))
    first = run("archive", topic=topic, path=path, fileRecords="100", filesPerBatch="2")
    send(topic, numbered(500, 700))
    second = run("archive", topic=topic, path=path, fileRecords="100", filesPerBatch="2")
    assert (first.facts["added"], second.facts["added"]) == (500, 200)
    assert second.facts["messages"] == 700
    archived = spark.read.parquet(path)
    assert sorted(bytes(r.body) for r in archived.collect()) == numbered(0, 700)
    sizes = archived.groupBy(f.input_file_name()).count().collect()
    assert max(row["count"] for row in sizes) <= 100
    dates = {row["date"] for row in second.tables["days"]}
    assert dates <= {str(dt.datetime.now(dt.UTC).date() - dt.timedelta(days=n)) for n in (0, 1)}
    assert any("lag" in line for line in run.told)


@pytest.mark.product
@pytest.mark.timeout(600)
def test_an_archive_that_is_killed_goes_on_without_loss_or_copies(
    spark, cluster, topic, send, tmp_path
):
    path = tmp_path / "archive"
    send(topic, numbered(0, 3000))
    options = {"topic": topic, "path": path, "fileRecords": 500, "filesPerBatch": 1}
    command = [sys.executable, "-c", "from gimbalmq.cli.main import main; main()"]
    command += ["pipeline", "run", "archive", "--json", "--nameserver", cluster.nameserver]
    for name, value in options.items():
        command += ["--option", f"{name}={value}"]
    log = tmp_path / "log"
    with log.open("wb") as errors:
        victim = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True
        )
    deadline = time.monotonic() + 240
    # The first batch says where to start; what is told of the others comes once a second, and late.
    while sum(1 for _ in (path / "_checkpoint" / "commits").glob("[0-9]*")) < 3:
        assert victim.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)
    # The whole family: the command, Spark's JVM and its workers.
    os.killpg(victim.pid, signal.SIGKILL)
    victim.wait()
    before = spark.read.parquet(str(path)).count()
    assert 0 < before < 3000
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["facts"]["messages"] == 3000
    bodies = Counter(bytes(row.body) for row in spark.read.parquet(str(path)).collect())
    assert bodies == Counter(numbered(0, 3000))


def test_messages_are_transformed_by_sql(spark, cluster, topic, send, run, unique_name, tmp_path):
    target = unique_name("paid")
    cluster.create_topic(target, queues=2)
    send(topic, [b'{"id": 1}', b'{"id": 2}'], tags="paid")
    send(topic, [b'{"id": 3}'], tags="open")
    report = run(
        "transform",
        topic=topic,
        to=target,
        checkpoint=str(tmp_path / "state"),
        sql="select get_json_object(text, '$.id') as body, tags from messages where tags = 'paid'",
    )
    assert report.facts["read"] == 3
    reader = spark.read.format("rocketmq").option("nameserver", cluster.nameserver)
    rows = reader.option("topic", target).load().collect()
    assert sorted((bytes(row.body), row.tags) for row in rows) == [(b"1", "paid"), (b"2", "paid")]


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ({"sql": "select text as value from messages"}, "column 'value' is no part of a message"),
        ({"sql": "select 'x' as body"}, "does not read the stream"),
        ({}, "give one of the options 'sql' and 'sqlFile'"),
        ({"sqlFile": "/nowhere.sql"}, "/nowhere.sql cannot be read"),
    ],
)
def test_a_transformation_that_cannot_be_is_refused(run, topic, tmp_path, given, part):
    with pytest.raises(ConfigurationError) as caught:
        run("transform", topic=topic, to="elsewhere", checkpoint=str(tmp_path / "s"), **given)
    assert part in str(caught.value)


def test_a_load_profile_finds_skew_and_publishes_weights(cluster, topic, run, tmp_path):
    with Producer("loaders", nameserver=cluster.nameserver) as producer:
        queues = producer.queues(topic)
        for queue, count in zip(queues, (70, 10, 10, 10), strict=True):
            for _ in range(count):
                producer.send(Message(topic, b"x" * 10, keys=[f"k{count}"]), queue=queue)
    page = tmp_path / "load.html"
    report = run("load-profile", topic=topic, publish="true", html=str(page), groupSizes="2")
    assert report.facts["messages"] == 100
    assert report.facts["bytes"] == 1000
    assert report.facts["skew"] == 2.8
    assert report.tables["keys"][0] == {"keys": "k70", "messages": 70, "bytes": 700, "share": 0.7}
    assert len(report.picture.splitlines()) == 4
    assert topic in page.read_text()
    run("load-profile", topic=topic, publish="true")
    latest = latest_weights(topic, nameserver=cluster.nameserver)
    assert (latest.version, latest.topic) == (2, topic)
    assert latest.weights == {
        queue.path: weight for queue, weight in zip(queues, (2.8, 0.4, 0.4, 0.4), strict=True)
    }


def test_group_health_sees_lag_and_moves(cluster, topic, send, run, group_name, tmp_path):
    send(topic, numbered(0, 40))
    history = tmp_path / "looks.jsonl"
    options = {"group": group_name, "history": str(history), "looks": "1"}

    def member():
        consumer = PushConsumer(group_name, nameserver=cluster.nameserver)
        consumer.subscribe(topic, listener=lambda _message: None)
        return consumer

    def wait_owned(*shares):
        """Wait until the members have so many queues of the topic each, and commit nothing more."""
        deadline = time.monotonic() + 30
        with Admin(cluster.nameserver) as admin:
            while True:
                held = admin.assignments(group_name).values()
                if sorted(sum(q.topic == topic for q in share) for share in held) == list(shares):
                    return
                assert time.monotonic() < deadline, held
                time.sleep(0.1)

    with member():
        wait_owned(4)
        run("group-health", **options)
        with member():
            wait_owned(2, 2)
            report = run("group-health", **options)
    assert report.facts["looks"] == 2
    assert report.facts["moves"] == 2
    assert [row["members"] for row in report.tables["looks"]] == [1, 2]
    assert report.facts["fairness_min"] == 1.0
    assert len(report.tables["queues"]) == 4


def test_group_health_hears_of_rebalances_from_the_members(
    cluster, topic, run, group_name, tmp_path
):
    """One queue goes there and back between two looks, which therefore miss it."""
    options = {"group": group_name, "history": str(tmp_path / "looks.jsonl"), "looks": "1"}
    log = tmp_path / "rebalances.jsonl"

    def tell(at_ms, member, **queues):
        queues = dict.fromkeys(queues, (f"{topic}/broker-a/0",))
        event = RebalanceEvent(at_ms, group_name, member, "NOTICE", "AVG", 2, **queues)
        with log.open("ab") as file:
            file.write(encode_event(event) + b"\n")

    tell(0, "ann", acquired=1)
    tell(61_000, "ann", revoked=1)
    tell(61_500, "bob", acquired=1)
    tell(62_000, "bob", revoked=1)
    tell(64_000, "ann", acquired=1)
    consumer = PushConsumer(group_name, nameserver=cluster.nameserver)
    consumer.subscribe(topic, listener=lambda _message: None)
    with consumer:
        report = run("group-health", events=str(log), **options)
    assert report.facts["moves"] == 0
    assert report.facts["rebalances"] == 5
    assert (report.facts["rebalance_moves"], report.facts["rebalance_pause_s"]) == (2, 2.5)
    assert report.facts["rebalance_pause_s_max"] == 2.0
    assert [(row["taken"], row["moves"]) for row in report.tables["rebalances"]] == [(1, 0), (0, 2)]
    assert report.tables["rebalanced_queues"] == [
        {"queue": f"{topic}/broker-a/0", "moves": 2, "pause_s": 2.5, "pause_s_max": 2.0}
    ]


def test_group_health_reads_the_topic_that_members_tell(cluster, topic, run, group_name, tmp_path):
    options = {"group": group_name, "history": str(tmp_path / "looks.jsonl"), "looks": "1"}

    def member():
        consumer = PushConsumer(group_name, nameserver=cluster.nameserver, events=EVENTS_TOPIC)
        consumer.subscribe(topic, listener=lambda _message: None)
        return consumer

    def told():
        with Admin(cluster.nameserver) as admin:
            try:
                return list(moves_of(read_topic(admin, group_name)))
            except TopicNotFoundError:
                return []

    def moved():
        """How many queues were given by one and taken by another: both have told of them."""
        return sum(None not in {move.before, move.after} for move in told())

    cluster.create_topic(EVENTS_TOPIC, queues=1)
    with member():
        wait_until(lambda: len(told()) >= 4, "the first member tells of no queues")
        with member():
            wait_until(lambda: moved() >= 2, "the members tell of no move")
            report = run("group-health", **options)
    assert report.facts["rebalance_moves"] >= 2
    assert sum(row["moves"] for row in report.tables["rebalances"]) >= 2
    assert any("rebalances told by members in GIMBALMQ_EVENTS" in line for line in run.told)
    plain = run("group-health", events="none", **options)
    assert "rebalances" not in plain.tables


def wait_until(condition, what, timeout_s=60):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def test_a_time_range_is_replayed_and_a_dry_run_writes_nothing(
    spark, cluster, topic, send, run, unique_name
):
    target = unique_name("again")
    cluster.create_topic(target, queues=1)
    send(topic, numbered(0, 50), tags="a", keys=["k"])
    now = int(time.time() * 1000)
    options = {
        "topic": topic,
        "to": target,
        "startingTimestamp": str(now - 600_000),
        "endingTimestamp": str(now + 600_000),
    }
    dry = run("replay", dryRun="true", **options)
    assert (dry.facts["messages"], dry.facts["written"]) == (50, 0)
    assert stored(cluster, target) == []
    done = run("replay", rate="200", **options)
    assert done.facts["written"] == 50
    messages = stored(cluster, target)
    assert sorted(m.body for m in messages) == numbered(0, 50)
    assert {(m.tags, m.keys) for m in messages} == {("a", ("k",))}


def test_dead_letters_go_back_where_they_came_from(cluster, topic, send, run, group_name):
    send(topic, [b"poison"], tags="a")
    with pytest.raises(ConfigurationError, match="one of the options 'topic' and 'deadLettersOf'"):
        run("replay", topic=topic, deadLettersOf=group_name)

    def refuse(_message):
        raise RuntimeError("refused")

    consumer = PushConsumer(
        group_name,
        nameserver=cluster.nameserver,
        start_from="first",
        max_reconsume_times=0,
    )
    consumer.subscribe(topic, listener=refuse)
    deadline = time.monotonic() + 30
    with consumer, Admin(cluster.nameserver) as admin:
        while f"%DLQ%{group_name}" not in admin.topics(internal=True):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        while not stored(cluster, f"%DLQ%{group_name}"):
            assert time.monotonic() < deadline
            time.sleep(0.1)
    report = run("replay", deadLettersOf=group_name)
    assert report.tables["targets"] == [{"topic": topic, "messages": 1}]
    assert [(m.body, m.tags) for m in stored(cluster, topic)] == [(b"poison", "a")] * 2


def stored(cluster, topic):
    found = []
    with PullConsumer("readers", nameserver=cluster.nameserver) as consumer:
        for queue in consumer.queues(topic):
            offset, end = consumer.bounds(queue)
            while offset < end:
                result = consumer.pull(queue, offset)
                found += result.messages
                offset = result.next_offset
    return found

"""What a stream makes of a cluster that changes: queues, topics, brokers, options, lost data."""

from __future__ import annotations

import pytest

from gimbalmq import Admin, Message, MessageQueue, Producer
from gimbalmq.broker import EmbeddedCluster
from gimbalmq.broker.store import RetentionPolicy, StoreOptions
from gimbalmq.errors import (
    ConfigurationError,
    GimbalError,
    OffsetError,
    TransportError,
)
from gimbalmq.spark import stream_cluster
from spark.micro_batches import Query, exactly
from waiting import eventually

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


def test_a_topic_that_was_deleted_is_missed_by_a_query_that_ends(
    query, send, cluster, topic, unique_name, monkeypatch
):
    """Its end is looked for before its checkpoint is known; those routes do not explain it."""
    monkeypatch.setattr(stream_cluster, "_ROUTES_AGE_S", 60.0)
    other = unique_name("other")
    cluster.create_topic(other, queues=1)
    job = query(f"{topic},{other}")
    send(topic, 4), send(other, 4)
    job.available_now()
    with Admin(cluster.nameserver) as admin:
        admin.delete_topic(topic)
    with pytest.raises(OffsetError, match="the queue is gone"):
        job.available_now()


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
            eventually(lambda: first() > 10)
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


# ---- other options after a restart -----------------------------------------------------------


def test_a_topic_that_is_no_longer_asked_for_is_not_read_and_keeps_its_offsets(
    query, send, cluster, topic, unique_name, caplog
):
    other = unique_name("other")
    cluster.create_topic(other, queues=2)
    job = query(topic)
    sent = send(topic, 8)
    job.available_now()
    before = job.offsets()
    unread = send(topic, 4)
    sent |= send(other, 6)
    job.start(topic=other)
    while job.step():
        pass
    exactly(job, sent)
    assert before.items() <= job.offsets().items()
    assert f"topic '{topic}' is in the checkpoint and no longer asked for" in caplog.text
    assert "is away" not in caplog.text
    # Asked for again, it goes on where it was.
    job.start(topic=f"{topic},{other}")
    while job.step():
        pass
    exactly(job, sent | unread)


def test_a_batch_is_repeated_also_when_its_topic_is_no_longer_asked_for(
    query, send, cluster, topic, unique_name
):
    other = unique_name("other")
    cluster.create_topic(other, queues=2)
    job = query(topic)
    job.start()
    sent = send(topic, 8)
    job.step()
    assert job.plan()
    job.crash()
    job.start(topic=other)
    unread = send(topic, 4)
    sent |= send(other, 6)
    while job.step():
        pass
    exactly(job, sent)
    assert not unread & set(job.places)


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
    eventually(lambda: not job.step() and set(job.places) == sent)
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

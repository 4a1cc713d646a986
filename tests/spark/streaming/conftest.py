"""Stream readers on an embedded cluster, driven as Spark drives them; see `micro_batches`."""

from __future__ import annotations

import pytest

from gimbalmq import Message, Producer
from gimbalmq.broker import EmbeddedCluster
from gimbalmq.spark import stream, stream_cluster
from spark.micro_batches import Query


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(stream, "_IDLE_WAITS_S", (0.01,))
    monkeypatch.setattr(stream_cluster, "_ROUTES_AGE_S", 0.0)
    monkeypatch.setattr(stream_cluster, "_START_PATIENCE_S", 0.5)
    monkeypatch.setattr(stream_cluster, "_REPLAY_PATIENCE_S", 0.5)


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

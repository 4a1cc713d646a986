from __future__ import annotations

import asyncio
import threading
import urllib.request

import pytest

from aio.conftest import until
from gimbalmq import Admin, FaultTolerance, Message, Probe, Producer, PushConsumer, aio, metrics
from gimbalmq.broker import EmbeddedCluster
from gimbalmq.errors import SendError, StateError
from gimbalmq.telemetry.catalogue import CATALOGUE
from waiting import eventually


@pytest.fixture(scope="module")
def cluster():
    with EmbeddedCluster(1) as cluster:
        yield cluster


def values(text) -> dict[str, float]:
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_a_consumer_tells_lag_moves_and_what_came_of_messages(cluster, topic_name, group_name):
    with Admin(cluster.nameserver) as admin:
        admin.create_topic(topic_name, queues=2)
    got = []
    consumer = PushConsumer(group_name, nameserver=cluster.nameserver, start_from="first")
    consumer.subscribe(topic_name, listener=got.append)
    label = f'group="{group_name}"'
    with (
        consumer,
        Producer("makers", nameserver=cluster.nameserver) as producer,
        metrics.serve(0) as endpoint,
    ):
        for number in range(10):
            producer.send(Message(topic_name, str(number).encode()))
        wanted = f'gimbalmq_consumer_messages_total{{{label},outcome="consumed"}}'

        def scraped():
            """What Prometheus sees when all is consumed, and no rebalance came meanwhile."""
            before = consumer.stats().rebalances
            with urllib.request.urlopen(f"http://{endpoint.address}/metrics") as answer:
                seen = values(answer.read().decode())
            quiet = consumer.stats().rebalances == before
            return (seen, before) if quiet and seen.get(wanted) == 10 else None

        seen, rebalances = eventually(scraped)
        assert seen[f"gimbalmq_consumer_ready{{{label}}}"] == 1
        assert seen[f"gimbalmq_consumer_hung_listeners{{{label}}}"] == 0
        assert seen[f"gimbalmq_consumer_outlived_locks_total{{{label}}}"] == 0
        assert seen[f'gimbalmq_consumer_moves_total{{{label},direction="acquired"}}'] >= 2
        by_trigger = {
            name: count for name, count in seen.items()
            if name.startswith(f"gimbalmq_consumer_rebalances_total{{{label},trigger=")
        }  # fmt: skip
        assert by_trigger[f'gimbalmq_consumer_rebalances_total{{{label},trigger="start"}}'] >= 1
        assert by_trigger[f'gimbalmq_consumer_rebalances_total{{{label},trigger="weights"}}'] == 0
        assert sum(by_trigger.values()) == rebalances
        stats = consumer.stats()
        assert sum(stats.rebalances_by_trigger.values()) == stats.rebalances
        broker = cluster.brokers[0].name
        for number in range(2):
            queue = f'{label},topic="{topic_name}",broker="{broker}",queue="{number}"'
            assert seen[f"gimbalmq_consumer_lag_messages{{{queue}}}"] >= 0
            assert seen[f"gimbalmq_consumer_pause_seconds{{{queue}}}"] >= 0
        sends = f'group="makers",broker="{broker}"'
        assert seen[f"gimbalmq_producer_send_seconds_count{{{sends}}}"] == 10
        assert seen[f'gimbalmq_producer_attempts_total{{{sends},outcome="stored"}}'] == 10
        assert seen[f"gimbalmq_producer_isolated{{{sends}}}"] == 0
    assert label not in metrics.text(), "a consumer that has stopped is gone"


def test_only_metrics_of_the_catalogue_are_exposed(cluster, topic_name):
    with Producer("makers", nameserver=cluster.nameserver) as producer:
        producer.send(Message(topic_name, b"x"))
        known = {metric.name: metric for metric in CATALOGUE}
        assert all(known[one.metric.name] == one.metric for one in metrics.collect())


@pytest.mark.parametrize("tolerance", [False, FaultTolerance()])
def test_a_producer_counts_every_way_to_send(cluster, topic_name, tolerance):
    with Producer("makers", nameserver=cluster.nameserver, fault_tolerance=tolerance) as producer:
        producer.send(Message(topic_name, b"plain"))
        producer.send(Message(topic_name, b"keyed", sharding_key="k"))
        producer.send_async(Message(topic_name, b"later")).result(10)
        producer.send_async(Message(topic_name, b"later", sharding_key="k")).result(10)
        producer.send_batch([Message(topic_name, b"a"), Message(topic_name, b"b")])
        producer.flush()
        stats = producer.stats()
    (broker,) = stats.brokers
    assert (broker.stored, broker.refused, broker.failed) == (5, 0, 0)
    assert broker.latency_s is not None
    assert 0 < broker.latency_s < 5
    assert (stats.in_flight, stats.in_flight_bytes) == (0, 0)


def test_a_broker_that_is_gone_is_counted_and_isolated(unique_name):
    topic = unique_name("orders")
    with (
        EmbeddedCluster(1) as cluster,
        Producer(
            "makers", nameserver=cluster.nameserver, fault_tolerance=True, retries=1, timeout_s=2.0
        ) as producer,
    ):
        producer.send(Message(topic, b"x"))
        name = cluster.brokers[0].name
        cluster.kill(name)
        with pytest.raises(SendError):
            producer.send(Message(topic, b"x"))
        (broker,) = producer.stats().brokers
        assert broker.stored == 1
        assert broker.failed >= 1
        assert broker.isolated_s > 0
        seen = values(metrics.text())
        assert seen[f'gimbalmq_producer_isolated{{group="makers",broker="{name}"}}'] == 1


def test_a_producer_that_does_not_run_has_no_numbers(cluster):
    with pytest.raises(StateError, match="not running"):
        Producer("makers", nameserver=cluster.nameserver).stats()


# ---- on an event loop ------------------------------------------------------------------------


async def no_work(_message):
    """A listener."""


def test_clients_on_a_loop_are_measured_from_there_and_from_other_threads(
    cluster, topic_name, group_name
):
    label, broker = f'group="{group_name}"', cluster.brokers[0].name
    consumed = f'gimbalmq_consumer_messages_total{{{label},outcome="consumed"}}'

    async def main():
        consumer = aio.PushConsumer(group_name, nameserver=cluster.nameserver, start_from="first")
        consumer.subscribe(topic_name, listener=no_work)
        async with aio.Producer("loop-makers", nameserver=cluster.nameserver) as producer:
            for number in range(5):
                await producer.send(Message(topic_name, str(number).encode()))
            async with consumer:
                await until(lambda: values(metrics.text()).get(consumed) == 5, 30.0)
                return values(await asyncio.to_thread(metrics.text)), producer

    seen, producer = asyncio.run(main())
    assert seen[consumed] == 5
    assert seen[f"gimbalmq_consumer_live{{{label}}}"] == 1
    stored = f'group="loop-makers",broker="{broker}",outcome="stored"'
    assert seen[f"gimbalmq_producer_attempts_total{{{stored}}}"] == 5
    assert label not in metrics.text(), "a consumer that has stopped is gone"
    assert "loop-makers" not in metrics.text()
    with pytest.raises(StateError, match="not running"):
        producer.from_thread(producer.stats)


def test_a_consumer_whose_loop_does_not_answer_is_not_live(cluster, topic_name, group_name):
    async def main():
        consumer = aio.PushConsumer(group_name, nameserver=cluster.nameserver)
        consumer.subscribe(topic_name, listener=no_work)
        seen, looked = [], threading.Event()

        def look():
            seen.append(values(metrics.text()))
            looked.set()

        async with consumer:
            thread = threading.Thread(target=look)
            thread.start()
            assert looked.wait(20), "the loop is held up until the other thread has looked"
            thread.join()
        return seen[0]

    seen = asyncio.run(main())
    assert seen[f'gimbalmq_consumer_live{{group="{group_name}"}}'] == 0
    assert seen[f'gimbalmq_consumer_ready{{group="{group_name}"}}'] == 0


def test_nothing_more_is_asked_of_a_consumer_whose_own_thread_does_not_answer(monkeypatch):
    consumer = PushConsumer("billing", nameserver="127.0.0.1:1")
    dead = Probe(False, False, ("no answer",), answered=False)
    monkeypatch.setattr(consumer, "probe", lambda: dead)
    monkeypatch.setattr(consumer, "stats", lambda: pytest.fail("it would wait for long"))
    monkeypatch.setattr(metrics, "running", lambda: [consumer])
    assert 'gimbalmq_consumer_live{group="billing"} 0\n' in metrics.text()

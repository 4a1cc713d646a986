"""The sink without Spark: what a task does, against an embedded cluster that breaks."""

from __future__ import annotations

import threading
import time
from collections import Counter

import pyarrow as pa
import pytest

from gimbalmq import Producer, PullConsumer
from gimbalmq.broker import EmbeddedCluster
from gimbalmq.broker.access import Account
from gimbalmq.broker.settings import BrokerSettings
from gimbalmq.core.selection import queue_by_key
from gimbalmq.errors import GimbalError, SendError, TopicNotFoundError
from gimbalmq.spark.ids import ROW_ID_PROPERTY
from gimbalmq.spark.sink import _write
from gimbalmq.spark.sink_sending import Courier, discard_producer, producer_for
from gimbalmq.spark.write_columns import layout_of
from gimbalmq.spark.write_options import parse_write_options
from spark.test_write_columns import fields


@pytest.fixture(scope="module")
def cluster():
    with EmbeddedCluster(brokers=2) as running:
        yield running


@pytest.fixture
def write(cluster, topic_name):
    """Write as one task; returns how many rows were acknowledged."""
    cluster.create_topic(topic_name, queues=4)
    used = []

    def run(columns, kinds, nameserver=cluster.nameserver, topic=topic_name, **given):
        options = parse_write_options({"nameserver": nameserver, "topic": topic, **given})
        used.append(options)
        layout = layout_of(
            fields(*(f"{name} {kind}" for name, kind in kinds.items())),
            id_column=options.id_column,
            topic=topic,
        )
        return _write(iter([pa.record_batch(columns)]), options, layout).rows

    yield run
    for options in used:
        discard_producer(options)


@pytest.fixture
def stored(cluster, topic_name):
    """Every message of the topic, by queue."""

    def run():
        found = {}
        with PullConsumer("readers", nameserver=cluster.nameserver) as consumer:
            for queue in consumer.queues(topic_name):
                found[queue], (offset, end) = [], consumer.bounds(queue)
                while offset < end:
                    result = consumer.pull(queue, offset)
                    found[queue] += result.messages
                    offset = result.next_offset
        return found

    return run


def test_every_row_is_stored_once_and_spread_over_all_queues(write, stored):
    bodies = [f"row {number}".encode() for number in range(5000)]
    assert write({"body": bodies}, {"body": "binary"}) == 5000
    found = stored()
    assert Counter(m.body for queue in found.values() for m in queue) == Counter(bodies)
    counts = [len(queue) for queue in found.values()]
    assert len(counts) == 8
    assert min(counts) > 0


def test_ids_are_unique_and_in_a_property(write, stored):
    write(
        {"body": [b"a", b"b"], "id": ["x", "y"]}, {"body": "binary", "id": "string"}, idColumn="id"
    )
    messages = [m for queue in stored().values() for m in queue]
    assert {m.body: m.properties[ROW_ID_PROPERTY] for m in messages} == {b"a": "x", b"b": "y"}
    assert len({m.message_id for m in messages}) == 2


def test_keys_find_their_queue_in_order(write, stored, cluster, topic_name):
    keys = [f"order-{number % 31}" for number in range(3000)]
    write(
        {"body": [str(n) for n in range(3000)], "sharding_key": keys},
        {"body": "string", "sharding_key": "string"},
        maxInFlight="100",
    )
    with Producer("lookers", nameserver=cluster.nameserver) as producer:
        queues = producer.queues(topic_name)
    for queue, messages in stored().items():
        numbers = [int(message.body) for message in messages]
        assert numbers == sorted(numbers)
        assert {queue_by_key(queues, keys[number]) for number in numbers} <= {queue}


def test_delays_and_batches_go_together(write, stored):
    columns = {
        "body": ["now", "later", "x" * 9000],
        "delay_level": pa.array([None, 1, None], pa.int32()),
    }
    assert write(columns, {"body": "string", "delay_level": "int"}) == 3
    assert {m.body[:5] for queue in stored().values() for m in queue} == {b"now", b"xxxxx"}


def test_a_rate_is_kept(write, stored):
    started = time.monotonic()
    write(
        {"body": [str(number) for number in range(100)]}, {"body": "string"}, maxRowsPerSecond="100"
    )
    # The first quarter leaves at once.
    assert time.monotonic() - started >= 0.7
    assert sum(map(len, stored().values())) == 100


def test_an_unknown_topic_is_named(write, cluster):
    with (
        EmbeddedCluster(settings=BrokerSettings(auto_create_topic=False)) as strict,
        pytest.raises(TopicNotFoundError, match="'nowhere'"),
    ):
        write({"body": ["x"]}, {"body": "string"}, strict.nameserver, "nowhere")


def test_a_broker_that_dies_and_comes_back_loses_nothing(write, topic_name):
    with EmbeddedCluster(brokers=2, processes=True) as breakable:
        breakable.create_topic(topic_name, queues=2)
        rows = [f"{number}".ljust(500) for number in range(20_000)]
        mended = threading.Thread(target=kill_and_restart, args=(breakable,))
        mended.start()
        try:
            written = 0
            while mended.is_alive():
                written += write({"body": rows[:2000]}, {"body": "string"}, breakable.nameserver)
        finally:
            mended.join()
        with PullConsumer("readers", nameserver=breakable.nameserver) as consumer:
            ends = [consumer.bounds(queue)[1] for queue in consumer.queues(topic_name)]
        assert sum(ends) >= written


def kill_and_restart(cluster):
    time.sleep(0.2)  # the load is under way by then, or starts on one broker: both must work
    cluster.kill("broker-a")
    cluster.restart("broker-a")


def test_rows_that_no_broker_takes_are_named_with_the_broker(write, topic_name):
    with EmbeddedCluster(brokers=1, processes=True) as gone:
        gone.create_topic(topic_name, queues=1)
        options = parse_write_options({"nameserver": gone.nameserver, "topic": topic_name})
        producer = producer_for(options)
        producer.queues(topic_name)
        gone.kill("broker-a")
        try:
            courier = Courier(producer, "partition 5", patience_s=0.0)
            [parcel] = parcels_of(topic_name, producer)
            courier.send(parcel)
            with pytest.raises(SendError) as caught:
                courier.finish()
        finally:
            discard_producer(options)
    text = str(caught.value)
    assert text.startswith("2 rows from 0 to 1 (ids ")
    assert "of partition 5 not written" in text
    assert "broker-a" in text


def test_the_row_of_a_batch_that_is_refused_is_found(write, topic_name):
    # The broker takes less than the client would send.
    with EmbeddedCluster(settings=BrokerSettings(body_bytes_max=2000)) as small:
        small.create_topic(topic_name, queues=1)
        with pytest.raises(GimbalError) as caught:
            write(
                {"body": ["a" * 100, "b" * 3000, "c"], "id": ["x", "y", "z"]},
                {"body": "string", "id": "string"},
                small.nameserver,
                idColumn="id",
            )
    assert str(caught.value).startswith("row 1 (id y) of the task not written to topic")


def parcels_of(topic, producer):
    from gimbalmq.spark.sink_parcels import ParcelCutter
    from spark.test_rows import encode

    cutter = ParcelCutter(producer.queues, in_flight_max=100)
    yield from cutter.cut(encode({"body": ["a", "b"]}, topic=topic), 0)


def test_a_guarded_cluster_takes_rows_that_are_signed_and_names_who_was_refused(write, topic_name):
    account = Account(access_key="ann", secret_key="right-secret", admin=True)
    with EmbeddedCluster(accounts=[account]) as guarded:
        guarded.create_topic(topic_name, queues=1)
        columns, kinds, keys = {"body": ["x"]}, {"body": "string"}, {"accessKey": "ann"}
        assert write(columns, kinds, guarded.nameserver, secretKey="right-secret", **keys) == 1
        started = time.monotonic()
        with pytest.raises(GimbalError) as caught:
            write(columns, kinds, guarded.nameserver, secretKey="wrong-secret", **keys)
    assert "'ann'" in str(caught.value)
    assert "wrong-secret" not in str(caught.value)
    # Waiting would not make the key right.
    assert time.monotonic() - started < 15

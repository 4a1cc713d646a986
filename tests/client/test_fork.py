"""What a forked child makes of its parent's clients: a clear word, and no harm to the parent."""

import os

import pytest

from gimbalmq import Admin, LitePullConsumer, Message, Producer, PullConsumer, PushConsumer
from gimbalmq.broker import EmbeddedCluster
from waiting import eventually

pytestmark = pytest.mark.filterwarnings(
    "ignore:This process .* is multi-threaded:DeprecationWarning"
)


@pytest.fixture(scope="module")
def cluster():
    with EmbeddedCluster() as cluster:
        cluster.create_topic("orders", queues=2)
        yield cluster


def told_in_a_child(action):
    """What an action returns or raises in a forked child, as text."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            told = repr(action())
        except BaseException as error:  # noqa: BLE001 - all of it is to be told
            told = f"{type(error).__name__}: {error}"
        os.write(writer, told.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as words:
        told = words.read()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    return told


def running(cluster, kind, group):
    consumer = kind(group, nameserver=cluster.nameserver)
    if kind is PushConsumer:
        consumer.subscribe("orders", listener=lambda message: None)
    elif kind is LitePullConsumer:
        consumer.subscribe("orders")
    return consumer


@pytest.mark.parametrize(
    ("kind", "question"),
    [
        (PushConsumer, lambda consumer: consumer.assignment()),
        (PushConsumer, lambda consumer: consumer.stats()),
        (PushConsumer, lambda consumer: consumer.pause()),
        (PushConsumer, lambda consumer: consumer.check_sql("orders", "a > 1")),
        (LitePullConsumer, lambda consumer: consumer.poll(0.0)),
        (LitePullConsumer, lambda consumer: consumer.commit()),
        (PullConsumer, lambda consumer: consumer.queues("orders")),
    ],
)
def test_a_consumer_of_the_parent_says_so_at_once(cluster, unique_name, kind, question):
    group = unique_name("group")
    with running(cluster, kind, group) as consumer:
        told = told_in_a_child(lambda: question(consumer))
        assert told == (
            f"StateError: the consumer of group '{group}' was started in process {os.getpid()}: "
            "make one in each process"
        )
        assert consumer.state == "running"


@pytest.mark.parametrize("kind", [PushConsumer, LitePullConsumer, PullConsumer])
def test_a_child_that_stops_it_neither_waits_nor_takes_the_parent_out_of_its_group(
    cluster, unique_name, kind
):
    group = unique_name("group")
    with running(cluster, kind, group) as consumer, Admin(cluster.nameserver) as admin:
        if kind is PullConsumer:
            consumer.subscribe("orders")
        eventually(lambda: len(admin.members(group)) == 1)
        assert told_in_a_child(consumer.stop) == "None"
        assert told_in_a_child(lambda: consumer.probe().live) == "False"
        assert [one.client_id for one in admin.members(group)] == [consumer.client_id]


def test_a_child_asks_over_connections_of_its_own(cluster):
    with Producer("shop", nameserver=cluster.nameserver) as producer:
        producer.send(Message("orders", b"one book"))
    with Admin(cluster.nameserver) as admin:
        before = admin.topics()
        pool = admin._pool
        assert told_in_a_child(lambda: (admin.topics() == before, admin._pool is pool)) == (
            "(True, False)"
        )
        assert admin.topics() == before
        assert admin._pool is pool

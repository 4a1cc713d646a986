"""Consumers that keep the history of their group, in a file or in a topic."""

from pathlib import Path

import pytest

from gimbalmq import Admin, LitePullConsumer, PullConsumer, PushConsumer
from gimbalmq.broker import EmbeddedCluster
from gimbalmq.client.events import EventLog, event_place, read_log, read_topic
from gimbalmq.errors import ConfigurationError
from waiting import eventually


@pytest.fixture(scope="module")
def cluster():
    with EmbeddedCluster() as cluster:
        cluster.create_topic("orders", queues=2)
        yield cluster


@pytest.fixture
def group(unique_name):
    return unique_name("billing")


def two_members(cluster, group, **options):
    """A second member comes and goes; returns the id of the first."""
    first, second = (
        PushConsumer(group, nameserver=cluster.nameserver, **options) for _ in range(2)
    )
    for one in (first, second):
        one.subscribe("orders", listener=print)

    def held(consumer):
        return sum(queue.topic == "orders" for queue in consumer.assignment())

    with first:
        eventually(lambda: held(first) == 2)
        with second:
            eventually(lambda: held(first) == held(second) == 1)
        eventually(lambda: held(first) == 2)
    return first.client_id


def of_orders(event):
    return any(queue.startswith("orders/") for queue in (*event.acquired, *event.revoked))


def changes(events, member):
    return [
        (len(event.acquired), len(event.revoked))
        for event in events
        if event.client_id == member and of_orders(event)
    ]


@pytest.mark.parametrize("kind", [str, Path])
def test_a_member_writes_its_rebalances_to_a_file(cluster, group, tmp_path, kind):
    log = tmp_path / "events.jsonl"
    member = two_members(cluster, group, events=kind(log))
    events = read_log(log, group)
    assert changes(events, member) == [(2, 0), (0, 1), (1, 0), (0, 2)]
    told = [
        (change.acquired, event.trigger if event.trigger == "STOP" else "")
        for event in events
        if event.client_id == member and not event.decides
        for change in event.moves
        if change.queue.startswith("orders/") and change.pause_s >= 0 and change.reason
    ]
    came, went, stopped = (True, ""), (False, ""), (False, "STOP")
    assert told == [came, came, went, came, stopped, stopped], "and how long each queue paused"


@pytest.mark.parametrize("namespace", [None, "shop"])
def test_a_member_sends_its_rebalances_to_a_topic(cluster, group, unique_name, namespace):
    topic = unique_name("history")
    options = {} if namespace is None else {"namespace": namespace}
    with Admin(cluster.nameserver, **options) as admin:
        admin.create_topic(topic, queues=1)
        if namespace is not None:
            admin.create_topic("orders", queues=2)
        member = two_members(cluster, group, events=topic, **options)
        found = eventually(
            lambda: (
                len(changes(read_topic(admin, group, topic), member)) == 4
                and read_topic(admin, group, topic)
            )
        )
    assert changes(found, member) == [(2, 0), (0, 1), (1, 0), (0, 2)]


@pytest.mark.parametrize("kind", [PullConsumer, LitePullConsumer])
def test_members_of_other_kinds_keep_their_history_when_asked_to(cluster, group, tmp_path, kind):
    log = tmp_path / "events.jsonl"
    consumer = kind(group, nameserver=cluster.nameserver)
    keeper = EventLog(log, consumer.client_id)
    consumer.on_rebalance(keeper)
    if kind is LitePullConsumer:
        consumer.on_moved(keeper)
    consumer.subscribe("orders")
    with consumer:
        eventually(
            lambda: log.exists() and len(read_log(log, group)) == 1 + (kind is not PullConsumer)
        )
    events = read_log(log, group)
    assert changes(events, consumer.client_id) == [(2, 0), (0, 2)]
    decided = [event for event in events if event.decides]
    assert [{change.reason for change in event.moves} for event in decided] == [
        {"newly assigned to this member"},
        {"stop"},
    ]


@pytest.mark.parametrize(
    ("events", "place"),
    [
        ("GIMBALMQ_EVENTS", "GIMBALMQ_EVENTS"),
        ("events.jsonl", Path("events.jsonl")),
        ("logs/events", Path("logs/events")),
        (Path("events"), Path("events")),
    ],
)
def test_a_text_that_can_be_a_topic_is_one(events, place):
    assert event_place(events) == place


def test_an_empty_place_is_refused():
    with pytest.raises(ConfigurationError, match="give a file, or the name of a topic"):
        PushConsumer("billing", nameserver="127.0.0.1:1", events="")

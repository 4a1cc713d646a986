import itertools
from datetime import UTC, datetime, timedelta

import pytest

from gimbalmq import Admin, Message, MessageQueue, Producer, PushConsumer
from gimbalmq.broker import EmbeddedCluster
from gimbalmq.errors import (
    ConfigurationError,
    OffsetError,
    StateError,
    TopicNotFoundError,
    TransportError,
)
from transport.server import closed_port
from waiting import eventually

names = (f"name-{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def cluster():
    with EmbeddedCluster(2) as cluster:
        yield cluster


@pytest.fixture
def admin(cluster):
    with Admin(cluster.nameserver) as admin:
        yield admin


@pytest.fixture
def topic(admin):
    name = next(names)
    admin.create_topic(name, queues=2)
    return name


@pytest.fixture
def group():
    return next(names)


@pytest.fixture
def sent(cluster, topic):
    with Producer("shop", nameserver=cluster.nameserver) as producer:
        return [
            producer.send(Message(topic, b"%d" % number, keys=[f"k{number % 4}"], tags=tag))
            for number, tag in enumerate(["paid", "open"] * 4)
        ]


def consuming(cluster, group, topic, got):
    options = {"start_from": "first", "persist_consumer_offset_interval_s": 0.1}
    consumer = PushConsumer(group, nameserver=cluster.nameserver, **options)
    consumer.subscribe(topic, listener=got.append)
    return consumer


def test_a_topic_is_made_listed_and_removed(admin):
    name = next(names)
    route = admin.create_topic(name, queues=3, brokers=["broker-b"])
    assert route == admin.route(name)
    assert route.subscribe_queues() == {MessageQueue(name, "broker-b", one) for one in range(3)}
    assert name in admin.topics()
    assert "TBW102" not in admin.topics()
    assert "TBW102" in admin.topics(internal=True)
    assert admin.topic_stats(name).queues.keys() == route.subscribe_queues()
    admin.delete_topic(name)
    assert name not in admin.topics()
    with pytest.raises(TopicNotFoundError):
        admin.route(name)


def test_a_group_is_seen_from_its_first_member_to_its_last_commit(
    cluster, admin, topic, group, sent
):
    got = []
    assert admin.members(group) == ()
    assert {one.committed for one in admin.offsets(group, topic).values()} == {None}
    with consuming(cluster, group, topic, got) as member:
        eventually(lambda: len(got) == len(sent))
        assert group in admin.groups()
        assert [one.client_id for one in admin.members(group)] == [member.client_id]
        # Asked again: the retry queue may have come between the two questions.
        eventually(lambda: admin.assignments(group) == {member.client_id: member.assignment()})
        assert admin.group(group).topics == {topic, f"%RETRY%{group}"}
    offsets = admin.offsets(group, topic)
    assert {one.lag for one in offsets.values()} == {0}
    assert sum(one.committed for one in offsets.values()) == len(sent)
    stats = admin.consume_stats(group, topic).queues
    assert {queue: one.consumer_offset for queue, one in stats.items()} == {
        queue: one.committed for queue, one in offsets.items()
    }


def test_a_group_is_moved_to_ends_times_and_offsets(cluster, admin, topic, group, sent):
    got = []
    with consuming(cluster, group, topic, got):
        eventually(lambda: len(got) == len(sent))
    ends = {queue: one.maximum for queue, one in admin.offsets(group, topic).items()}
    now = datetime.now(UTC)
    first = next(iter(ends))
    for to, expected in [
        ("earliest", dict.fromkeys(ends, 0)),
        ("latest", ends),
        (now - timedelta(hours=1), dict.fromkeys(ends, 0)),
        (now + timedelta(hours=1), ends),
        ({first: 1}, {first: 1}),
    ]:
        assert admin.reset(group, topic, to) == expected
        stored = {queue: one.committed for queue, one in admin.offsets(group, topic).items()}
        assert stored == stored | expected


@pytest.mark.parametrize("to", ["yesterday", datetime(2026, 1, 1), 5, None])  # noqa: DTZ001 - refused
def test_a_wrong_target_is_refused_with_what_to_give(admin, topic, group, to):
    with pytest.raises(ConfigurationError, match="give 'earliest', 'latest', a datetime with"):
        admin.reset(group, topic, to)


def test_a_message_is_found_by_its_ids_and_keys(admin, topic, sent):
    assert admin.message(sent[5].offset_message_id).body == b"5"
    assert admin.message(sent[5].message_id).body == b"5"
    assert admin.message(sent[5].message_id, topic=topic).queue == sent[5].queue
    assert admin.message((topic, "k1")).body == b"5"
    assert {one.body for one in admin.messages(topic, "k1")} == {b"1", b"5"}
    with pytest.raises(OffsetError, match="no message with key 'k9'"):
        admin.message((topic, "k9"))


def test_a_tail_reads_what_is_stored_and_then_what_comes(cluster, admin, topic, sent):
    stored = admin.tail(topic, start_from="first", follow=False)
    assert sorted(one.body for one in stored) == [b"%d" % number for number in range(8)]
    paid = admin.tail(topic, tags="paid", start_from="first", follow=False)
    assert {one.tags for one in paid} == {"paid"}
    assert list(admin.tail(topic, start_from="last", follow=False)) == []
    assert list(admin.tail(topic, start_from=datetime.now(UTC), follow=False)) == []
    coming = admin.tail(topic, poll_interval_s=0.01)
    with Producer("shop", nameserver=cluster.nameserver) as producer:
        for number in range(3):
            producer.send(Message(topic, b"new-%d" % number))
    assert {next(coming).body for _ in range(3)} == {b"new-0", b"new-1", b"new-2"}
    assert admin.members("TOOLS_CONSUMER") == ()


def test_a_tail_finds_queues_that_the_topic_got_later(cluster, admin, topic, monkeypatch):
    monkeypatch.setattr("gimbalmq.client.tailing._ROUTE_INTERVAL_S", 0.0)
    coming = admin.tail(topic, poll_interval_s=0.01)
    admin.create_topic(topic, queues=3)
    with Producer("shop", nameserver=cluster.nameserver) as producer:
        producer.send(Message(topic, b"late"), queue=MessageQueue(topic, "broker-a", 2))
    assert next(coming).body == b"late"


def test_wrong_arguments_of_a_tail_are_told_at_once(admin, topic):
    with pytest.raises(ConfigurationError, match="start_from"):
        admin.tail(topic, start_from="yesterday")
    with pytest.raises(ConfigurationError, match="poll_interval_s"):
        admin.tail(topic, poll_interval_s=0)
    with pytest.raises(TopicNotFoundError):
        admin.tail("no-such-topic")


def test_wrong_names_and_options_are_refused_before_anyone_is_asked():
    with Admin("127.0.0.1:1") as admin:
        for ask in (admin.members, admin.assignments, admin.consume_stats):
            with pytest.raises(ConfigurationError, match="no group name"):
                ask("no group")
    with pytest.raises(ConfigurationError, match="timeout_s"):
        Admin("127.0.0.1:1", timeout_s=0)


def test_the_name_server_comes_from_the_environment(cluster, monkeypatch):
    monkeypatch.setenv("NAMESRV_ADDR", cluster.nameserver)
    with Admin() as admin:
        assert isinstance(admin.topics(), tuple)
    monkeypatch.delenv("NAMESRV_ADDR")
    with pytest.raises(ConfigurationError, match="NAMESRV_ADDR"):
        Admin()


def test_a_name_server_that_is_not_there_is_told(cluster):
    gone = f"127.0.0.1:{closed_port()}"
    with Admin(gone) as admin, pytest.raises(TransportError, match="no name server could be asked"):
        admin.topics()
    with Admin(f"{gone};{cluster.nameserver}") as admin:
        assert isinstance(admin.topics(), tuple)


def test_after_closing_nothing_more_is_asked(cluster):
    admin = Admin(cluster.nameserver)
    admin.topics()
    admin.close()
    admin.close()
    with pytest.raises(StateError, match="stopped"):
        admin.topics()

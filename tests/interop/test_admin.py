"""What Admin says about real RocketMQ, held against RocketMQ's own tools and against the members."""

import re
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta

import pytest

from gimbalmq import Admin, Message, MessageQueue, Producer, PushConsumer, balance
from gimbalmq.errors import BrokerError, OffsetError, StateError, TopicNotFoundError

COUNT = 40


@pytest.fixture
def admin(rocketmq):
    with Admin(rocketmq.nameserver) as admin:
        yield admin


@pytest.fixture
def producer(rocketmq):
    with Producer("admin-test", nameserver=rocketmq.nameserver) as producer:
        yield producer


def send(producer, topic, count=COUNT):
    return [
        producer.send(Message(topic, b"%d" % number, keys=[f"key-{number}"]))
        for number in range(count)
    ]


def consuming(rocketmq, group, topic, listener, **options):
    options = {"start_from": "first", "persist_consumer_offset_interval_s": 0.2, **options}
    consumer = PushConsumer(group, nameserver=rocketmq.nameserver, **options)
    consumer.subscribe(topic, listener=listener)
    return consumer


def progress_rows(text, topic):
    """Broker offset and consumer offset by queue, from the table of mqadmin."""
    rows = (line.split() for line in text.splitlines() if line.startswith(topic[:30]))
    return {MessageQueue(topic, row[1], int(row[2])): (int(row[3]), int(row[4])) for row in rows}


@pytest.mark.rule("W2.9a")
def test_topics_are_made_changed_and_removed_as_java_sees_them(admin, java_admin, topic_name):
    route = admin.create_topic(topic_name, queues=3)
    assert {(data.broker, data.write_queues) for data in route.queues} == {
        ("broker-a", 3),
        ("broker-b", 3),
    }
    assert {(one.broker, one.write_queues) for one in java_admin.route(topic_name)} == {
        ("broker-a", 3),
        ("broker-b", 3),
    }
    admin.create_topic(topic_name, queues=5, brokers=["broker-b"], perm=4, order=True)
    changed = {
        data.broker: (data.read_queues, data.perm) for data in admin.route(topic_name).queues
    }
    assert changed == {"broker-a": (3, 6), "broker-b": (5, 4)}
    assert topic_name in admin.topics()
    assert set(admin.topics()) < set(admin.topics(internal=True)) == set(java_admin.topics())
    admin.delete_topic(topic_name)
    assert topic_name not in java_admin.topics()
    with pytest.raises(TopicNotFoundError):
        admin.route(topic_name)
    with pytest.raises(TopicNotFoundError):
        admin.delete_topic(topic_name)


@pytest.mark.matrix
@pytest.mark.rule("W2.9a")
def test_members_owners_and_lag_are_what_members_and_mqadmin_say(
    rocketmq, admin, java_peer, producer, topic, group_name, eventually, mqadmin, rocketmq_version
):
    got, group = [], group_name
    send(producer, topic)
    with ExitStack() as stack:
        ours = [
            stack.enter_context(
                consuming(rocketmq, group, topic, got.append, client_id=f"till-{one}")
            )
            for one in range(2)
        ]
        java = stack.enter_context(java_peer.push_consumer(group, topic))

        def settled():
            held = [*(one.assignment() for one in ours), java.owned()]
            queues = [queue for share in held for queue in share if queue.topic == topic]
            return all(held) and len(queues) == len(set(queues)) == 8

        eventually(settled)
        assert group in admin.groups()
        members = {member.client_id: member for member in admin.members(group)}
        assert members.keys() == {java.client_id, *(one.client_id for one in ours)}
        assert (members[java.client_id].language, members[java.client_id].strategy) == (
            "JAVA",
            None,
        )
        assert members[java.client_id].version == rocketmq_version
        assert {
            (members[one.client_id].language, members[one.client_id].strategy) for one in ours
        } == {("PYTHON", "AVG")}

        def told_alike():
            # Asked again when a retry queue came between the questions.
            held = {one.client_id: one.assignment() for one in ours}
            return admin.assignments(group) == held | {java.client_id: java.owned()}

        eventually(told_alike)

        def finished():
            # What moved to another member before it was committed may have come twice.
            return len({message.body for message in (*got, *java.received())}) == COUNT

        eventually(finished)

        def committed():
            # Java commits one-way, and counts a message only when its listener has returned.
            java.persist()
            return {one.lag for one in admin.offsets(group, topic).values()} == {0}

        eventually(committed)
    # A heartbeat of Java's that meets its leaving counts until its connection is gone.
    eventually(lambda: admin.members(group) == ())
    assert admin.assignments(group) == {}
    send(producer, topic, 12)

    def twelve_behind():
        # The broker indexes a little later than it acknowledges.
        offsets = admin.offsets(group, topic)
        return offsets if sum(one.lag for one in offsets.values()) == 12 else None

    offsets = eventually(twelve_behind)
    text = mqadmin("consumerProgress", "-g", group)
    seen = {queue: (one.maximum, one.committed) for queue, one in offsets.items()}
    assert seen == progress_rows(text, topic)
    assert re.search(r"Diff Total: 12\b", text)
    stats = admin.consume_stats(group).queues
    assert {queue: (one.broker_offset, one.consumer_offset) for queue, one in stats.items()
            if queue.topic == topic} == seen  # fmt: skip


def test_nothing_committed_is_unknown_and_not_zero(admin, producer, topic, group_name, eventually):
    send(producer, topic, 8)
    offsets = admin.offsets(group_name, topic)
    assert len(offsets) == 8
    assert {(one.committed, one.lag) for one in offsets.values()} == {(None, None)}

    eventually(lambda: indexed(admin, topic) == 8)


def indexed(admin, topic):
    """How many messages can be read; a broker indexes a little later than it acknowledges."""
    return sum(one.maximum - one.minimum for one in admin.offsets("nobody", topic).values())


@pytest.mark.rule("W2.5d")
def test_messages_are_found_by_both_ids_and_by_key(admin, java_peer, producer, topic, eventually):
    sent = send(producer, topic, 3)
    (java_sent,) = java_peer.producer("admin-test-java").send(
        Message(topic, b"from java", keys=["key-1"])
    )
    eventually(lambda: len(admin.messages(topic, "key-1")) == 2)
    eventually(lambda: all(admin.messages(topic, f"key-{number}") for number in range(3)))
    assert [one.body for one in admin.messages(topic, "key-1")] == [b"1", b"from java"]
    assert admin.message((topic, "key-1")).message_id == java_sent.message_id
    for number, result in enumerate(sent):
        assert admin.message(result.offset_message_id).body == b"%d" % number
        assert admin.message(result.message_id).queue_offset == result.queue_offset
        assert admin.message(result.message_id, topic=topic).queue == result.queue
    with pytest.raises(OffsetError, match="no message with key 'nobody'"):
        admin.message((topic, "nobody"))
    gone = sent[0].offset_message_id[:16] + "00000000FFFFFFF0"
    with pytest.raises(OffsetError, match="has no message"):
        admin.message(gone)
    with pytest.raises(OffsetError, match="not indexed yet"):
        admin.message("0" * 32)


def test_a_topic_is_read_beside_its_consumers(admin, producer, topic, eventually):
    send(producer, topic, 20)
    eventually(lambda: indexed(admin, topic) == 20)
    read = [int(one.body) for one in admin.tail(topic, start_from="first", follow=False)]
    assert sorted(read) == list(range(20))
    following = admin.tail(topic, start_from="last")
    producer.send(Message(topic, b"new"))
    assert next(following).body == b"new"


@pytest.mark.matrix
@pytest.mark.rule("W2.9a")
def test_a_group_without_members_is_moved_and_goes_on_there(
    rocketmq, admin, producer, topic, group_name, eventually, server_version
):
    got = []
    send(producer, topic)
    with consuming(rocketmq, group_name, topic, lambda message: got.append(int(message.body))):
        eventually(lambda: len(got) == COUNT)
    between = datetime.now(UTC) + timedelta(seconds=1)
    ends = {queue: one.maximum for queue, one in admin.offsets(group_name, topic).items()}
    queue = next(queue for queue in ends if ends[queue] > 1)
    for target, expected in [
        ("earliest", dict.fromkeys(ends, 0)),
        ("latest", ends),
        ({queue: 1}, {queue: 1}),
    ]:
        assert admin.reset(group_name, topic, target) == expected
        committed = {one: it.committed for one, it in admin.offsets(group_name, topic).items()}
        assert committed | expected == committed
    moved = admin.reset(group_name, topic, between)
    # 4.x goes to the message that is closest to the time: the last one.
    slack = 0 if server_version.startswith("5") else 1
    assert all(ends[queue] - moved[queue] in {0, slack} for queue in ends)
    with pytest.raises(OffsetError, match="is not stored"):
        admin.reset(group_name, topic, {queue: ends[queue] + 1})
    admin.reset(group_name, topic, "earliest")
    again = []
    with consuming(rocketmq, group_name, topic, lambda message: again.append(int(message.body))):
        eventually(lambda: set(again) == set(range(COUNT)))


@pytest.mark.matrix
@pytest.mark.timeout(200, func_only=True)
def test_running_members_follow_a_reset(
    rocketmq, admin, producer, topic, group_name, eventually, server_version
):
    got = []
    send(producer, topic)
    with consuming(rocketmq, group_name, topic, lambda message: got.append(int(message.body))):
        eventually(lambda: len(got) == COUNT)
        eventually(lambda: {one.lag for one in admin.offsets(group_name, topic).values()} == {0})
        if not server_version.startswith("5"):
            queue = next(iter(admin.offsets(group_name, topic)))
            with pytest.raises(StateError, match="stop the members first"):
                admin.reset(group_name, topic, {queue: 0})
        admin.reset(group_name, topic, "earliest")
        eventually(lambda: len(got) >= 2 * COUNT, 120.0)
    assert sorted(set(got)) == list(range(COUNT))


def test_a_refusal_says_who_and_why(admin, topic):
    with pytest.raises(TopicNotFoundError, match="topic 'no-such-topic' does not exist, says"):
        admin.offsets("nobody", "no-such-topic")
    assert issubclass(TopicNotFoundError, BrokerError)
    assert admin.members("no-such-group") == ()


@pytest.mark.matrix
def test_a_queue_is_explained_by_members_and_java_judged_by_what_it_holds(
    rocketmq, admin, java_peer, topic, unique_name, eventually
):
    zoned = balance.strategy(
        "ZONED", zone_of_queue="prefix:-", zone_of_member=lambda _: "broker", zones_version="1"
    )
    group = unique_name("group")

    def explained(queues):
        """Every queue's explanation, when all members know of each other."""
        found = {queue: admin.explain(group, queue) for queue in queues}
        return not any(one.differences for one in found.values()) and found

    with ExitStack() as stack:
        ours = [
            stack.enter_context(
                consuming(rocketmq, group, topic, lambda _: None, client_id=name, allocation=zoned)
            )
            for name in ("ann", "bob")
        ]
        queues = admin.route(topic).subscribe_queues()
        found = eventually(lambda: explained(queues))
        for queue, one in found.items():
            owner = next(it.client_id for it in ours if queue in it.assignment())
            assert (one.owner, one.holders, one.rule) == (owner, (owner,), zoned.name)
            assert one.data["zone"] == "broker"
        java = stack.enter_context(java_peer.push_consumer(group, topic))
        eventually(java.owned)
        found = eventually(lambda: explained(queues))
        assert {one.rule for one in found.values()} == {"AVG"}
        assert all(java.client_id in one.fallback for one in found.values())
        assert {queue for queue, one in found.items() if one.owner == java.client_id} <= set(
            java.owned()
        )
        without = admin.explain(group, min(queues), without=[java.client_id]).without
        assert without.strategy == zoned.name
        for one in ours:
            one.stop()
        eventually(lambda: {one for one in java.owned() if one.topic == topic} == set(queues))
        one = eventually(lambda: (it := admin.explain(group, min(queues))).holders and it)
        assert (one.owner, one.holders, one.told_by) == (java.client_id, (java.client_id,), None)
        assert "they hold what AVG gives" in one.sentence

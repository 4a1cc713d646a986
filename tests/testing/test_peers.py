"""Java against Java through the peers: what they report must be true before ours is held against it."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from gimbalmq.errors import BrokerError, EngineError
from gimbalmq.model.message import Message
from gimbalmq.model.queue import MessageQueue
from waiting import eventually

pytestmark = pytest.mark.product


def _own(topic):
    return lambda queue: queue.topic == topic


def test_what_a_java_producer_sends_a_java_consumer_gets_unchanged(java_peer, topic, group_name):
    sent = Message(
        topic, bytes(range(256)), tags="paid", keys=["k1", "k2"], properties={"shop": "Zürich"}
    )
    with java_peer.push_consumer(group_name, topic) as consumer:
        with java_peer.producer("round-trip") as producer:
            (result,) = producer.send(sent)
        (got,) = consumer.wait_received(1)
    assert result.status == "SEND_OK"
    assert (got.queue, got.queue_offset) == (result.queue, result.queue_offset)
    assert (got.body, got.tags, got.keys) == (sent.body, "paid", "k1 k2")
    assert got.properties["shop"] == "Zürich"
    assert got.message_id == result.message_id


def test_every_way_of_sending_delivers_every_message_once(java_peer, topic, group_name):
    queue = MessageQueue(topic, "broker-b", 2)
    with (
        java_peer.push_consumer(group_name, topic, batch_size=8) as consumer,
        java_peer.producer("ways") as producer,
    ):
        producer.send(*(Message(topic, b"sync-%d" % i) for i in range(3)))
        answers = producer.send_async(*(Message(topic, b"async-%d" % i) for i in range(40)))
        producer.send_oneway(*(Message(topic, b"oneway-%d" % i) for i in range(3)))
        batch = producer.send_batch(*(Message(topic, b"batch-%d" % i) for i in range(5)))
        (placed,) = producer.send(Message(topic, b"placed"), queue=queue)
        got = consumer.wait_received(52)
    assert {answer.status for answer in answers} == {"SEND_OK"}
    assert batch.message_id is not None
    assert len(batch.message_id.split(",")) == 5
    assert placed.queue == queue
    counted = Counter(message.body.split(b"-")[0] for message in got)
    assert counted == {b"sync": 3, b"async": 40, b"oneway": 3, b"batch": 5, b"placed": 1}


def test_equal_sharding_keys_share_a_queue_and_keep_their_order(java_peer, topic, group_name):
    messages = [Message(topic, b"%d" % i, sharding_key=f"order-{i % 3}") for i in range(30)]
    with (
        java_peer.push_consumer(group_name, topic, ordered=True) as consumer,
        java_peer.producer("sharded") as producer,
    ):
        producer.send(*messages)
        got = consumer.wait_received(30)
    for key in range(3):
        mine = [message for message in got if int(message.body) % 3 == key]
        assert len({message.queue for message in mine}) == 1
        assert [int(message.body) for message in mine] == list(range(key, 30, 3))


def test_a_whole_number_is_hashed_as_java_hashes_an_integer(java_peer, topic):
    with java_peer.producer("numbered") as producer:
        (sent,) = producer.send(Message(topic, b"x", sharding_key=13))
        queues = producer.queues(topic)
    assert sent.queue is not None
    assert sent.queue in queues
    # Integer.hashCode is the number itself; the order of the queues is the route's.
    assert sent.queue == queues[13 % len(queues)]


def _settled(members, topic, sizes, timeout_s=60.0):
    """The queues of the topic that each member holds, once their numbers are `sizes`."""
    deadline = time.monotonic() + timeout_s
    while True:
        shares = [set(filter(_own(topic), member.owned())) for member in members]
        # While members have not heard of each other yet, the numbers may be right by chance.
        if sorted(map(len, shares)) == sizes and len(set.union(*shares)) == sum(sizes):
            return shares
        assert time.monotonic() < deadline, shares
        time.sleep(0.1)


def test_members_of_one_process_share_the_queues(java_peer, topic, group_name):
    every = {MessageQueue(topic, f"broker-{b}", number) for b in "ab" for number in range(4)}
    members = [
        java_peer.push_consumer(group_name, topic, allocation="AVG_BY_CIRCLE") for _ in range(3)
    ]
    assert set.union(*_settled(members, topic, [2, 3, 3])) == every
    members[0].stop()
    assert set.union(*_settled(members[1:], topic, [4, 4])) == every
    for member in members[1:]:
        member.stop()


@pytest.mark.parametrize(
    "allocation", ["CONSISTENT_HASH", "MACHINE_ROOM_NEARBY-AVG", "CONFIG", "MACHINE_ROOM"]
)
def test_other_strategies_of_java_can_be_chosen(java_peer, topic, group_name, allocation):
    fixed = [MessageQueue(topic, "broker-a", 1)]
    options = {
        "CONSISTENT_HASH": {"virtual_nodes": 20},
        "CONFIG": {"fixed_queues": fixed},
        "MACHINE_ROOM": {"rooms": ["room1"]},
    }
    expected = {"CONSISTENT_HASH": 8, "MACHINE_ROOM_NEARBY-AVG": 8, "CONFIG": 1, "MACHINE_ROOM": 0}
    with java_peer.push_consumer(
        group_name, topic, allocation=allocation, **options.get(allocation, {})
    ) as consumer:
        consumer.wait_owned(lambda owned: sum(map(_own(topic), owned)) == expected[allocation])


def test_a_killed_member_loses_its_queues_to_the_others(
    new_java_peer, java_peer, topic, group_name
):
    survivor = java_peer.push_consumer(group_name, topic)
    victim = new_java_peer().push_consumer(group_name, topic)
    survivor.wait_owned(lambda owned: sum(map(_own(topic), owned)) == 4)
    victim.kill()
    survivor.wait_owned(lambda owned: sum(map(_own(topic), owned)) == 8)
    with pytest.raises(EngineError, match="ended"):
        victim.owned()
    survivor.stop()


def test_a_refused_message_comes_again_from_the_retry_queue(java_peer, topic, group_name):
    with (
        java_peer.push_consumer(group_name, topic, fail_times=1) as consumer,
        java_peer.producer("retry") as producer,
    ):
        producer.send(Message(topic, b"again"))
        (got,) = consumer.wait_received(1, timeout_s=90)
        (first,) = consumer.refused()
    assert (first.reconsume_times, got.reconsume_times) == (0, 1)
    assert (got.topic, got.queue.topic) == (topic, f"%RETRY%{group_name}")


def test_a_delayed_message_arrives_later(java_peer, topic, group_name):
    with (
        java_peer.push_consumer(group_name, topic) as consumer,
        java_peer.producer("delay") as producer,
    ):
        producer.send(Message(topic, b"later", delay_level=1))
        (got,) = consumer.wait_received(1)
    assert got.stored_at_ms - got.born_at_ms >= 900


def test_only_committed_transactions_are_delivered(java_peer, topic, group_name):
    with (
        java_peer.push_consumer(group_name, topic) as consumer,
        java_peer.producer("tx-" + group_name, transactional=True) as producer,
    ):
        # A busy broker may ask about one before it has noted its end.
        (rolled,) = producer.send_in_transaction(
            Message(topic, b"no"), outcome="ROLLBACK", check_answer="ROLLBACK"
        )
        (kept,) = producer.send_in_transaction(Message(topic, b"yes"), outcome="COMMIT")
        got = consumer.wait_received(1)
    assert (rolled.outcome, kept.outcome) == ("ROLLBACK_MESSAGE", "COMMIT_MESSAGE")
    assert [message.body for message in got] == [b"yes"]


def test_a_lite_pull_consumer_reads_what_it_is_assigned_from_where_it_is_told(
    java_peer, java_admin, topic, group_name
):
    queue = MessageQueue(topic, "broker-a", 0)
    with java_peer.producer("lite") as producer:
        producer.send(*(Message(topic, b"%d" % i) for i in range(5)), queue=queue)
    with java_peer.lite_pull(group_name) as consumer:
        assert queue in consumer.queues(topic)
        consumer.assign([queue])
        consumer.seek(queue, 2)
        got = []
        for _ in range(45):  # a pull from before the seek may wait 20 s at the broker
            got += consumer.poll(1.0)
            if got and got[-1].body == b"4":
                break
        consumer.commit()
    # Java may hand out what it had fetched between the two calls, then goes on from there.
    assert [message.body for message in got][-3:] == [b"2", b"3", b"4"]
    assert {message.queue for message in got} == {queue}
    assert java_admin.topic_offsets(topic)[queue] == (0, 5)


def make_offsets(admin, group, queue):
    """Have a broker note a first offset of the group alone: of two at once it may lose one."""
    admin.commit(group, queue, 0)


def test_the_administrator_sees_topics_members_and_offsets(
    java_peer, java_admin, group_name, topic
):
    java_admin.create_topic(topic, queues=4)
    with (
        java_peer.push_consumer(group_name, topic, drain_ms=60_000) as consumer,
        java_peer.producer("admin-test") as producer,
    ):
        consumer.wait_owned(lambda owned: sum(map(_own(topic), owned)) == 8)
        (sent,) = producer.send(Message(topic, b"x"))
        consumer.wait_received(1)
        make_offsets(java_admin, group_name, sent.queue)
        (member,) = java_admin.members(group_name)
        # Asked again when a retry queue came between the questions.
        eventually(lambda: java_admin.owned(group_name, consumer.client_id) == consumer.owned())
    assert topic in java_admin.topics()
    assert {route.broker for route in java_admin.route(topic)} == {"broker-a", "broker-b"}
    assert (member.client_id, member.language) == (consumer.client_id, "JAVA")
    # A clean stop commits, and does not wait for the broker to take the offset in.
    eventually(lambda: java_admin.committed(group_name, topic)[sent.queue] == 1)


def test_a_stop_that_drains_commits_what_its_listeners_had(
    java_peer, java_admin, group_name, topic
):
    options = {"sleep_ms": 1000, "drain_ms": 60_000}
    with (
        java_peer.push_consumer(group_name, topic, **options) as consumer,
        java_peer.producer("drain-test") as producer,
    ):
        (sent,) = producer.send(Message(topic, b"x"))
        consumer.wait_received(1)  # told before the listener sleeps
        make_offsets(java_admin, group_name, sent.queue)
    eventually(lambda: java_admin.committed(group_name, topic)[sent.queue] == 1)


def test_a_deleted_topic_has_no_route(java_admin, topic):
    java_admin.delete_topic(topic)
    with pytest.raises(BrokerError) as caught:
        java_admin.route(topic)
    assert caught.value.code == 17


def test_a_raw_call_returns_what_the_server_said(java_admin, apache):
    answer = java_admin.call(apache.nameserver, 105, {"topic": "no-such-topic"})
    assert answer.code == 17
    assert "no-such-topic" in (answer.remark or "")
    assert java_admin.call(apache.brokers[0].address, 26).body


def test_a_refusal_of_the_broker_keeps_its_code(java_admin, java_peer, topic, group_name):
    with java_peer.push_consumer(group_name, topic) as consumer:
        consumer.wait_owned(bool)  # so a broker has heard of it

    def refusal():
        try:
            java_admin.members(group_name)
        except BrokerError as error:
            return error
        return None  # a heartbeat met its leaving, and counts until its connection is gone

    assert eventually(refusal).code == 206


def test_a_frozen_peer_does_not_answer_until_it_is_resumed(new_java_peer):
    peer = new_java_peer()
    admin = peer.admin()
    peer.pause()
    with pytest.raises(EngineError, match=r"no answer to 'topics' within 0\.2 s"):
        peer.request("topics", admin._name, timeout_s=0.2)
    peer.resume()
    assert admin.topics()

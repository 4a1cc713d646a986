"""Unmodified Java clients and tools against the embedded cluster."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from gimbalmq.broker import Account, BrokerSettings, EmbeddedCluster
from gimbalmq.broker.hosts import LoopHost
from gimbalmq.broker.plans import BrokerPlan
from gimbalmq.broker.ports import PortClaims, listen
from gimbalmq.broker.store import StoreOptions
from gimbalmq.errors import GimbalError
from gimbalmq.model.message import Message
from gimbalmq.model.queue import MessageQueue
from gimbalmq.testing import JavaPeer
from gimbalmq.testing.classes import class_path
from gimbalmq.testing.mqadmin import mqadmin_all
from gimbalmq.testing.servers import ServerFactory
from gimbalmq.transport.blocking import BlockingConnection
from gimbalmq.wire.bodies import decode_route
from gimbalmq.wire.headers import route_request
from java_clients import LIVELY, committed
from waiting import eventually

pytestmark = pytest.mark.matrix

#: Short times, so that retries, delays and checks need seconds and not minutes.
QUICK = BrokerSettings(
    delay_levels_ms=(200,) * 18,
    transaction_timeout_ms=500,
    transaction_check_ms=1_000,
)


@pytest.fixture(scope="module")
def cluster(rocketmq_version):
    with EmbeddedCluster(2, settings=QUICK) as running:
        yield running


@pytest.fixture(scope="module")
def peer(cluster, rocketmq_version):
    running = JavaPeer(cluster.nameserver, version=rocketmq_version, **LIVELY).start()
    yield running
    # The cluster goes, too: nobody needs the good-bye of each client, which takes seconds.
    running.kill()


@pytest.fixture
def orders(cluster, topic_name):
    cluster.create_topic(topic_name, queues=4)
    return topic_name


def bodies_of(received):
    return sorted(message.body for message in received)


@pytest.mark.rule("W6.1", "W6.3")
def test_every_way_of_sending_reaches_a_push_consumer(peer, orders, group_name):
    consumer = peer.push_consumer(group_name, orders)
    producer = peer.producer("shop")
    sent = producer.send(*(Message(orders, b"sync-%d" % n, keys=[str(n)]) for n in range(10)))
    sent += producer.send_async(*(Message(orders, b"async-%d" % n) for n in range(10)))
    producer.send_oneway(Message(orders, b"oneway"))
    sent.append(producer.send_batch(*(Message(orders, b"batch-%d" % n) for n in range(5))))
    assert {one.status for one in sent} == {"SEND_OK"}
    received = consumer.wait_received(26)
    expected = [b"%s-%d" % (kind, n) for kind in (b"sync", b"async") for n in range(10)]
    expected += [b"oneway", *(b"batch-%d" % n for n in range(5))]
    assert bodies_of(received) == sorted(expected)
    ids = {message.message_id for message in received if message.body.startswith(b"sync")}
    assert ids == {one.message_id for one in sent[:10]}


@pytest.mark.rule("W5.4", "W6.1")
def test_an_unknown_topic_comes_about_by_the_first_send(peer, topic_name, group_name):
    (sent,) = peer.producer("shop").send(Message(topic_name, b"first"))
    assert sent.status == "SEND_OK"
    consumer = peer.push_consumer(group_name, topic_name)
    assert bodies_of(consumer.wait_received(1)) == [b"first"]


@pytest.mark.rule("W2.6e", "W6.1")
def test_an_ordered_consumer_gets_each_queue_in_order(peer, orders, group_name):
    producer = peer.producer("shop")
    queue = MessageQueue(orders, "broker-a", 2)
    producer.send(*(Message(orders, b"%03d" % n) for n in range(50)), queue=queue)
    consumer = peer.push_consumer(group_name, orders, ordered=True)
    received = consumer.wait_received(50)
    assert [message.body for message in received] == [b"%03d" % n for n in range(50)]


@pytest.mark.rule("W6.1", "W3.3")
def test_tags_and_sql_select(peer, orders, group_name):
    tagged = peer.push_consumer(f"{group_name}-tags", orders, tags="red || blue")
    selected = peer.push_consumer(f"{group_name}-sql", orders, sql="size > 2 AND tone IS NOT NULL")
    producer = peer.producer("shop")
    for number, tag in enumerate(("red", "green", "blue", "red")):
        properties = {"size": str(number)} | ({"tone": "dark"} if number > 1 else {})
        producer.send(Message(orders, b"%d" % number, tags=tag, properties=properties))
    assert bodies_of(tagged.wait_received(3)) == [b"0", b"2", b"3"]
    assert bodies_of(selected.wait_received(1)) == [b"3"]


@pytest.mark.rule("W6.1")
def test_broadcasting_members_get_everything(peer, orders, group_name):
    members = [peer.push_consumer(group_name, orders, broadcasting=True) for _ in range(2)]
    peer.producer("shop").send(*(Message(orders, b"%d" % n) for n in range(8)))
    for member in members:
        assert bodies_of(member.wait_received(8)) == [b"%d" % n for n in range(8)]


@pytest.mark.rule("B5.3e", "W5.6a")
def test_failed_messages_come_again_and_end_as_dead_letters(cluster, peer, orders, group_name):
    consumer = peer.push_consumer(group_name, orders, fail_times=2, max_reconsume_times=3)
    peer.producer("shop").send(Message(orders, b"hard", keys=["k"]))
    (message,) = consumer.wait_received(1)
    assert message.reconsume_times == 2
    assert message.topic == orders
    assert message.queue.topic == f"%RETRY%{group_name}"
    consumer.behave(fail_times=100)
    peer.producer("shop").send(Message(orders, b"hopeless"))
    dead, admin = f"%DLQ%{group_name}", peer.admin()
    eventually(lambda: dead in admin.topics(), 90.0)
    (letter,) = peer.push_consumer(f"{group_name}-reader", dead).wait_received(1)
    assert letter.body == b"hopeless"


@pytest.mark.rule("W5.6b", "W5.6c")
def test_delayed_messages_arrive_late(peer, orders, group_name, rocketmq_version):
    consumer = peer.push_consumer(group_name, orders)
    producer = peer.producer("shop")
    producer.send(Message(orders, b"level", delay_level=3))
    consumer.wait_received(1)
    if rocketmq_version >= "5":
        later = datetime.now(UTC) + timedelta(seconds=3)
        producer.send(Message(orders, b"timer", deliver_at=later))
        timed = consumer.wait_received(2)[-1]
        assert timed.body == b"timer"
        assert timed.stored_at_ms >= int(later.timestamp() * 1000) // 1000 * 1000


@pytest.mark.rule("W5.7a")
def test_transactions_are_committed_rolled_back_and_asked_about(peer, orders, group_name):
    consumer = peer.push_consumer(group_name, orders)
    producer = peer.producer(f"{group_name}-tx", transactional=True)
    # Java says one-way how a transaction ended: a busy broker may ask before it hears of it.
    producer.send_in_transaction(
        Message(orders, b"no"), outcome="ROLLBACK", check_answer="ROLLBACK"
    )
    producer.send_in_transaction(Message(orders, b"yes"))
    producer.send_in_transaction(
        Message(orders, b"later", keys=["later"]), outcome="UNKNOWN", check_answer="COMMIT"
    )
    assert bodies_of(consumer.wait_received(2)) == [b"later", b"yes"]
    assert ("later", "COMMIT_MESSAGE") in producer.checked()


@pytest.mark.rule("W6.1")
def test_a_lite_pull_consumer_polls_and_commits(peer, orders, group_name):
    peer.producer("shop").send(*(Message(orders, b"%02d" % n) for n in range(20)))
    consumer = peer.lite_pull(group_name, orders)
    received = []
    for _ in range(30):
        received += consumer.poll(1.0)
        if len(received) >= 20:
            break
    assert bodies_of(received) == [b"%02d" % n for n in range(20)]
    consumer.commit()


@pytest.mark.rule("B8.1d", "B9")
@pytest.mark.parametrize("ordered", [False, True])
def test_three_members_share_the_queues_and_two_go_on_when_one_is_killed(
    cluster, peer, orders, group_name, ordered
):
    with JavaPeer(cluster.nameserver, version=peer.version, **LIVELY) as doomed:
        victim = doomed.push_consumer(group_name, orders, ordered=ordered)
        others = [peer.push_consumer(group_name, orders, ordered=ordered) for _ in range(2)]
        for member in (victim, *others):
            member.wait_owned(lambda owned: 2 <= count(owned, orders) <= 3)
        victim.kill()
        for member in others:
            # Its locks went with its connection: nobody waits a minute for them.
            member.wait_owned(lambda owned: count(owned, orders) == 4, timeout_s=40.0)
        for member in others:
            member.stop()


def count(owned, topic):
    return sum(queue.topic == topic for queue in owned)


@pytest.mark.rule("W2.9b", "W5.5a")
def test_offsets_are_kept_shown_and_reset(peer, orders, group_name):
    consumer = peer.push_consumer(group_name, orders)
    peer.producer("shop").send(*(Message(orders, b"%d" % n) for n in range(8)))
    consumer.wait_received(8)
    admin = peer.admin()
    eventually(lambda: committed(consumer, admin, group_name, orders) == 8)
    assert sum(high for _, high in admin.topic_offsets(orders).values()) == 8
    assert [member.client_id for member in admin.members(group_name)] == [consumer.client_id]
    assert count(admin.owned(group_name, consumer.client_id), orders) == 8
    consumer.stop()
    admin.reset(group_name, orders, timestamp_ms=0)
    again = peer.push_consumer(group_name, orders)
    assert len(again.wait_received(8)) == 8


@pytest.mark.rule("B8.7a", "W8b")
def test_our_broker_registers_with_javas_name_server(apache, tmp_path, unique_name):
    listener = listen("127.0.0.1", 0, what="the broker")
    name = unique_name("broker")
    plan = BrokerPlan(
        name=name,
        host="127.0.0.1",
        port=listener.getsockname()[1],
        folder=str(tmp_path),
        nameservers=(apache.nameserver,),
        settings=BrokerSettings(name=name),
        store=StoreOptions(),
    )
    plan.listener = listener
    host = LoopHost(30.0)
    try:
        host.start(plan)
        with BlockingConnection(apache.nameserver) as connection:

            def registered():
                answer = connection.call(route_request(name), 20.0)
                return answer if answer.code == 0 else None

            route = decode_route(name, eventually(registered).body)
        assert route.broker(name).master == plan.address
    finally:
        host.stop(name)
        host.close()


@pytest.mark.rule("B8.7a", "B8.7b", "W2.8b")
def test_javas_broker_registers_with_our_name_server(
    cluster, tmp_path, unique_name, rocketmq_version
):
    factory = ServerFactory(rocketmq_version, tmp_path, class_path(rocketmq_version))
    name = unique_name("broker")
    with PortClaims() as claims:
        port = claims.choose(also=(-2, 1))
        process = factory.broker(name, port, cluster.nameserver, {}, benchmark=False)
        process.start()
        try:
            process.wait_for_line("boot success", timeout_s=120.0)
            eventually(lambda: brokers_of(cluster, "TBW102").get(name) == f"127.0.0.1:{port}")
        finally:
            process.kill()
    eventually(lambda: name not in brokers_of(cluster, "TBW102"))


def brokers_of(cluster, topic):
    with BlockingConnection(cluster.nameserver) as connection:
        answer = connection.call(route_request(topic), 20.0)
    return {one.name: one.master for one in decode_route(topic, answer.body).brokers}


@pytest.mark.rule("W5.8b")
def test_java_clients_sign_and_get_in_or_do_not(peer, group_name):
    accounts = [
        Account(access_key="root", secret_key="root-secret", admin=True),
        Account(
            access_key="shop",
            secret_key="shop-secret",
            topics={"orders": "PUB|SUB"},
            groups={group_name: "SUB"},
        ),
    ]
    with EmbeddedCluster(accounts=accounts) as guarded:
        guarded.create_topic("orders", queues=2)
        guarded.create_topic("other", queues=2)
        options = {"version": peer.version, **LIVELY}
        with JavaPeer(guarded.nameserver, **options) as client:
            keys = {"access_key": "shop", "secret_key": "shop-secret"}
            consumer = client.push_consumer(group_name, "orders", **keys)
            client.producer("shop", **keys).send(Message("orders", b"signed"))
            assert bodies_of(consumer.wait_received(1)) == [b"signed"]
            wrong = {"access_key": "shop", "secret_key": "wrong"}
            with pytest.raises(GimbalError, match="signature"):
                client.producer("thief", **wrong).send(Message("orders", b"no"))
            with pytest.raises(GimbalError, match="no permission"):
                client.producer("shop-2", **keys).send(Message("other", b"no"))


@pytest.mark.rule("W2.9b")
def test_mqadmin_changes_topics_groups_and_offsets(cluster, peer, unique_name, group_name):
    made, broker = unique_name("made"), cluster.brokers[0].address

    def run(*commands):
        return mqadmin_all(cluster.nameserver, commands, version=peer.version, timeout_s=200.0)

    shown, sent, consumed, _, config, status = run(
        ("updateTopic", "-b", broker, "-t", made, "-r", "3", "-w", "3"),
        ("sendMessage", "-t", made, "-p", "hello"),
        ("consumeMessage", "-t", made),
        ("updateSubGroup", "-b", broker, "-g", group_name, "-q", "2"),
        ("getConsumerConfig", "-g", group_name),
        ("brokerStatus", "-b", broker),
    )
    assert f"topicName={made}, readQueueNums=3" in shown
    assert "SEND_OK" in sent
    assert "Consume ok" in consumed
    assert "retryQueueNums" in config
    assert "msgPutTotalTodayNow" in status
    consumer = peer.push_consumer(group_name, made)
    consumer.wait_received(1)
    consumer.stop()
    run(("resetOffsetByTime", "-g", group_name, "-t", made, "-s", "0"))
    again = peer.push_consumer(group_name, made)
    assert len(again.wait_received(1)) == 1
    again.stop()
    *_, listed = run(("deleteTopic", "-c", "DefaultCluster", "-t", made), ("topicList",))
    assert made not in listed

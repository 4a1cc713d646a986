"""More faults planted on running clusters, each of which the doctor has to find."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from cli.admin_stage import owned
from gimbalmq import Message, Producer
from gimbalmq.broker import EmbeddedCluster
from gimbalmq.client.admin import Admin
from gimbalmq.flows import admin_facts
from gimbalmq.flows.offset import store_offset
from gimbalmq.model.queue import MessageQueue
from gimbalmq.runtime import instance
from gimbalmq.runtime.inline import ConnectionPool, run_inline
from gimbalmq.runtime.member_answers import MemberAnswers
from gimbalmq.wire.codes import RequestCode, version_ordinal
from sharing import agreed, shared_out
from waiting import eventually


@pytest.fixture
def admin(cluster):
    with Admin(cluster.nameserver) as admin:
        yield admin


def found(admin, group, interval_s=0.5):
    return {one.code: one for one in admin.diagnose(group, interval_s=interval_s).findings}


DOUBLE = """
import sys
from gimbalmq import PushConsumer
_, nameserver, group, topic = sys.argv
consumer = PushConsumer(group, nameserver=nameserver, client_id="ann")
consumer.subscribe(topic, listener=lambda message: None)
with consumer:
    sys.stdin.read()
"""


def test_two_processes_under_one_client_id_are_found(cluster, admin, group, topic, member):
    ann = member("ann", topic)
    command = [sys.executable, "-c", DOUBLE, cluster.nameserver, group, topic]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as double:
        try:
            eventually(lambda: len(admin.members(group)) == 2)
            said = found(admin, group)["DUPLICATE_ID"]
        finally:
            double.stdin.close()
            double.wait(30)
    assert said.members == (ann.client_id,)


def test_mixed_releases_are_found(cluster, admin, group, topic, member, monkeypatch):
    plain = instance.heartbeat_request

    def older(broker, body):
        request = plain(broker, body)
        if b"old-bob" in body:
            request.version = version_ordinal("4.9.5")
        return request

    monkeypatch.setattr(instance, "heartbeat_request", older)
    members = [member(name, topic) for name in ("ann", "old-bob")]
    eventually(lambda: shared_out(admin, group, topic, members, 4))
    said = found(admin, group)
    assert said.keys() == {"MIXED_VERSIONS"}
    assert "4.9.5" in said["MIXED_VERSIONS"].message


@pytest.mark.parametrize("careful", ["lease", "ordered"])
def test_a_member_that_takes_no_locks_beside_one_that_does_is_found(
    cluster, admin, group, topic, member, careful
):
    ann, bob = member("ann", topic, **{careful: True}), member("bob", topic)
    eventually(lambda: shared_out(admin, group, topic, [ann, bob], 4))
    said = found(admin, group)
    assert said["MIXED_LOCKING"].members == (bob.client_id,)


def test_a_member_that_trusts_its_locks_longer_than_another_waits_is_found(
    cluster, admin, group, topic, member
):
    ann = member("ann", topic, lease=True)
    bob = member("bob", topic, lease=True, lock_trust_s=10.0, take_over_grace_s=12.0)
    eventually(lambda: shared_out(admin, group, topic, [ann, bob], 4))
    said = found(admin, group)
    assert said.keys() == {"UNSAFE_LOCK_TIMES"}
    assert said["UNSAFE_LOCK_TIMES"].members == (ann.client_id, bob.client_id)


def test_a_member_that_does_not_answer_is_found(cluster, admin, group, topic, member, monkeypatch):
    ann = member("ann", topic)
    eventually(lambda: len(owned(ann, topic)) == 4)
    plain = MemberAnswers.answer

    def silent(self, request, reply):
        asked = request.code == RequestCode.GET_CONSUMER_RUNNING_INFO
        return False if asked else plain(self, request, reply)

    monkeypatch.setattr(MemberAnswers, "answer", silent)
    assert found(admin, group)["MEMBER_SILENT"].members == (ann.client_id,)
    explained = admin.explain(group, MessageQueue(topic, "broker-a", 0))
    assert explained.unknown == (
        f"'{ann.client_id}' did not answer, so whether it holds the queue is not known.",
    )


def test_an_offset_that_goes_back_is_found(cluster, admin, group, topic, monkeypatch):
    queue = MessageQueue(topic, "broker-a", 0)
    address = next(broker.address for broker in cluster.brokers if broker.name == "broker-a")
    with Producer("shop", nameserver=cluster.nameserver) as producer:
        for number in range(9):
            producer.send(Message(topic, b"%d" % number), queue=queue)
    pool = ConnectionPool()

    def between_the_looks(_seconds):
        run_inline(store_offset(address, group, queue, 3), pool)
        return
        yield

    run_inline(store_offset(address, group, queue, 7), pool)
    monkeypatch.setattr(admin_facts, "sleep", between_the_looks)
    said = found(admin, group)["OFFSET_JUMPED"]
    pool.close()
    assert said.queues == (queue.path,)
    assert "went back" in said.message


def test_many_small_topics_on_one_member_are_skew(cluster, admin, group, member, unique_name):
    topics = [unique_name("small") for _ in range(6)]
    for topic in topics:
        cluster.create_topic(topic, queues=1, brokers=["broker-a"])
    members = [member(name, *topics) for name in ("ann", "bob", "cid")]
    eventually(
        lambda: (
            [len(owned(one, *topics)) for one in members] == [6, 0, 0]
            and agreed(admin, group, owned(members[0], *topics))
        )
    )
    said = found(admin, group)
    assert said["SKEW"].members == (members[0].client_id,)
    assert "CROSS_TOPIC" in said["SKEW"].action


def test_a_queue_that_is_not_let_go_is_found(cluster, admin, group, topic, member):
    end = threading.Event()
    busy = []

    def hang(message):
        busy.append(message)
        end.wait(60.0)

    ann = member("ann", topic, listener=hang, release_drain_s=30.0)
    eventually(lambda: len(owned(ann, topic)) == 4)
    with Producer("shop", nameserver=cluster.nameserver) as producer:
        for queue in owned(ann, topic):
            producer.send(Message(topic, b"slow"), queue=queue)
    eventually(lambda: len(busy) == 4)
    try:
        member("bob", topic)
        eventually(lambda: len(owned(ann, topic)) == 2)
        said = found(admin, group)["HANDOVER_LONG"]
    finally:
        end.set()
    assert said.members == (ann.client_id,)
    assert len(said.queues) == 2


def test_a_queue_with_most_of_the_lag_is_found(cluster, admin, group, topic, member):
    ann = member("ann", topic)
    eventually(lambda: len(owned(ann, topic)) == 4)
    ann.pause()
    queue = MessageQueue(topic, "broker-b", 1)
    with Producer("shop", nameserver=cluster.nameserver) as producer:
        for _ in range(12):
            producer.send_batch([Message(topic, b"x") for _ in range(100)], queue=queue)
    said = found(admin, group)["LAG_SKEW"]
    assert said.queues == (queue.path,)
    assert said.members == (ann.client_id,)


def test_a_broker_that_stands_still_is_found(group, member):
    with (
        EmbeddedCluster(2, processes=True) as cluster,
        Admin(cluster.nameserver, timeout_s=1.0) as admin,
    ):
        cluster.create_topic("orders", queues=2)
        ann = member("ann", "orders", on=cluster)
        eventually(lambda: len(owned(ann, "orders")) == 4)
        cluster.pause("broker-b")
        try:
            said = found(admin, group)["BROKER_LAGGING"]
        finally:
            cluster.resume("broker-b")
        ann.stop()
    assert "broker 'broker-b' cannot be asked" in said.message

"""Members that read their weights from a topic, on an embedded cluster."""

import pytest

from gimbalmq import (
    Admin,
    LitePullConsumer,
    Message,
    MessageQueue,
    Producer,
    PullConsumer,
    PushConsumer,
    balance,
)
from gimbalmq.broker import EmbeddedCluster
from gimbalmq.errors import ConfigurationError, ProtocolError
from gimbalmq.flows.weights import PublishedWeights, read_weights
from gimbalmq.model.weights import WEIGHTS_TOPIC, QueueWeights
from gimbalmq.wire.weights import encode_weights
from waiting import eventually

PUBLISHED = balance.strategy("WEIGHTED", weights="published")


@pytest.fixture
def cluster():
    with EmbeddedCluster(1) as cluster:
        cluster.create_topic("orders", queues=6)
        yield cluster


def member(cluster, name, **options):
    consumer = PushConsumer(
        "billing",
        nameserver=cluster.nameserver,
        client_id=name,
        allocation=PUBLISHED,
        lease=True,
        weights_interval_s=0.2,
        **options,
    )
    consumer.subscribe("orders", listener=lambda message: None)
    return consumer


def publish(cluster, heavy, version, topic="orders"):
    document = QueueWeights(version, topic, 0, {heavy.path: 5.0})
    with Producer("load-profile", nameserver=cluster.nameserver) as producer:
        producer.send(Message(WEIGHTS_TOPIC, encode_weights(document), keys=[topic]))


def test_a_group_follows_what_is_published(cluster):
    queues = [MessageQueue("orders", "broker-a", number) for number in range(6)]

    def share_of(one):
        return {queue for queue in one.assignment() if queue.topic == "orders"}

    def alone(heavy):
        shares = [share_of(one) for one in (ann, bob)]
        return {heavy} in shares and set().union(*shares) == set(queues)

    with member(cluster, "ann") as ann, member(cluster, "bob") as bob:
        eventually(lambda: sorted(len(share_of(one)) for one in (ann, bob)) == [3, 3])
        cluster.create_topic(WEIGHTS_TOPIC, queues=1)
        for version, heavy in enumerate((queues[1], queues[4]), 1):
            publish(cluster, heavy, version)
            eventually(lambda heavy=heavy: alone(heavy))
        with member(cluster, "cid") as late, Admin(cluster.nameserver) as admin:
            eventually(lambda: share_of(late))
            everybody = (ann, bob, late)
            eventually(lambda: {queues[4]} in [share_of(one) for one in everybody])
            strategies = {one.strategy for one in admin.group("billing").members}
            assert strategies == {"WEIGHTED.published"}


def test_a_weights_topic_that_was_made_again_with_as_many_documents_is_noticed(cluster):
    queues = [MessageQueue("orders", "broker-a", number) for number in range(6)]
    cluster.create_topic(WEIGHTS_TOPIC, queues=1)
    with Admin(cluster.nameserver) as admin:

        def look(known):
            return admin.run(
                lambda servers, limit_s: read_weights(
                    servers, "billing", WEIGHTS_TOPIC, known, limit_s
                )
            )

        for version in (1, 2):
            publish(cluster, queues[1], version)
        before = look(PublishedWeights())
        assert before.weights("orders") == {queues[1].path: 5.0}
        admin.delete_topic(WEIGHTS_TOPIC)
        admin.create_topic(WEIGHTS_TOPIC, queues=1)
        for version in (1, 2):
            publish(cluster, queues[4], version)
        after = look(before)
        assert after.position == before.position
        assert after.weights("orders") == {queues[4].path: 5.0}
        assert look(after) == after


def test_a_weights_topic_that_cannot_be_used_keeps_a_member_from_joining(cluster):
    cluster.create_topic(WEIGHTS_TOPIC, queues=4)
    consumer = member(cluster, "ann")
    with pytest.raises(ProtocolError, match="create it with one queue"):
        consumer.start()
    with Admin(cluster.nameserver) as admin:
        assert admin.group("billing").members == ()


@pytest.mark.parametrize("kind", [PushConsumer, LitePullConsumer, PullConsumer])
def test_without_locks_published_weights_are_refused(kind):
    with pytest.raises(ConfigurationError, match="lease=True or ordered=True"):
        kind("billing", nameserver="127.0.0.1:1", allocation=PUBLISHED)


def test_a_zone_around_published_weights_is_refused_as_well():
    zoned = balance.strategy(
        "ZONED",
        inner=PUBLISHED,
        zone_of_queue="prefix:-",
        zone_of_member="prefix:-",
    )
    with pytest.raises(ConfigurationError, match="without locks"):
        PushConsumer("billing", nameserver="127.0.0.1:1", allocation=zoned)

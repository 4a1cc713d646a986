"""What members tell each other through real brokers: who is gone, and which weights count."""

import pytest

from gimbalmq import Admin, Message, Producer, PushConsumer, balance
from gimbalmq.model.weights import QueueWeights
from gimbalmq.wire.weights import encode_weights
from interop.python_member import PythonMember
from sharing import agreed, shared_out


@pytest.mark.matrix
def test_members_that_are_killed_at_the_same_time_come_back_to_their_queues(
    rocketmq, topic, group_name, eventually
):
    members = {}

    def start(name):
        members[name] = PythonMember(
            rocketmq.nameserver,
            group_name,
            topic,
            client_id=name,
            lease=True,
            rejoin_grace_s=300.0,
        )

    def shares():
        return {
            name: {queue for queue in one.owned() if queue.topic == topic}
            for name, one in members.items()
        }

    try:
        for name in ("ann", "bob", "cid"):
            start(name)
        with Admin(rocketmq.nameserver) as admin:
            queues = admin.route(topic).subscribe_queues()

            def settled():
                held = [queue for share in shares().values() for queue in share]
                return sorted(held) == sorted(queues) and agreed(admin, group_name, queues)

            eventually(settled)
        before = shares()
        assert sorted(map(len, before.values())) == [2, 3, 3]
        for name in ("bob", "cid"):
            members.pop(name).kill()
        start("bob")  # has not seen the other one go: it asks, through a broker
        expected = {name: before[name] for name in ("ann", "bob")}
        eventually(lambda: shares() == expected, 30.0)
        start("cid")
        eventually(lambda: shares() == before, 30.0)
    finally:
        for one in members.values():
            one.kill()


@pytest.mark.matrix
def test_a_group_follows_weights_that_are_published_on_real_brokers(
    rocketmq, topic, group_name, unique_name, eventually
):
    weights_topic = unique_name("weights")
    rocketmq.create_topic(weights_topic, queues=1, brokers=[rocketmq.brokers[0].name])
    published = balance.strategy("WEIGHTED", weights="published", weights_topic=weights_topic)
    consumers = [
        PushConsumer(
            group_name,
            nameserver=rocketmq.nameserver,
            client_id=name,
            allocation=published,
            lease=True,
            weights_interval_s=0.5,
        )
        for name in ("ann", "bob")
    ]
    for consumer in consumers:
        consumer.subscribe(topic, listener=lambda message: None)

    def shares():
        return [
            frozenset(queue for queue in one.assignment() if queue.topic == topic)
            for one in consumers
        ]

    with consumers[0], consumers[1]:
        with Admin(rocketmq.nameserver) as admin:
            eventually(lambda: shared_out(admin, group_name, topic, consumers, 8))
        assert list(map(len, shares())) == [4, 4]
        heavy = next(iter(shares()[0]))
        document = QueueWeights(1, topic, 0, {heavy.path: 7.0})
        with Producer("load-profile", nameserver=rocketmq.nameserver) as producer:
            producer.send(Message(weights_topic, encode_weights(document), keys=[topic]))
        eventually(lambda: {heavy} in shares() and sum(map(len, shares())) == 8, 30.0)

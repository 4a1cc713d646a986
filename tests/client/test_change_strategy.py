"""A live group changes its strategy member by member, under load: docs/how-to/change-strategy.md."""

import itertools
import threading

import pytest

from gimbalmq import Admin, Message, Producer, PushConsumer
from gimbalmq.broker import EmbeddedCluster
from sharing import shared_out
from waiting import eventually

QUEUES = 8


@pytest.fixture(scope="module")
def cluster():
    with EmbeddedCluster(2) as cluster:
        yield cluster


class Load:
    """Sends numbers without a pause until the end of the block."""

    def __init__(self, nameserver, topic):
        self._producer = Producer("load", nameserver=nameserver)
        self._topic = topic
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load")
        self.sent = []

    def __enter__(self):
        self._producer.start()
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join(30.0)
        self._producer.stop()

    def _run(self):
        for number in itertools.count():
            if self._over.wait(0.002):
                return
            self._producer.send(Message(self._topic, b"%d" % number))
            self.sent.append(number)


@pytest.mark.parametrize(
    ("topic", "before", "after"),
    [("to-ours", "AVG", "CAPPED_HASH"), ("back", "CROSS_TOPIC", "AVG"),
     ("between-ours", "CAPPED_HASH", "CROSS_TOPIC")],
)  # fmt: skip
def test_no_message_is_lost_and_no_queue_is_left_to_nobody(cluster, topic, before, after):
    cluster.create_topic(topic, queues=QUEUES // 2)
    got, places, group = [], [], f"group-{topic}"

    def hear(message):
        got.append(int(message.body))
        # By its place: a send that is tried again may store a message twice.
        places.append((message.queue, message.queue_offset))

    def member(name, strategy):
        consumer = PushConsumer(
            group,
            nameserver=cluster.nameserver,
            client_id=name,
            allocation=strategy,
            lease=True,
            start_from="first",
        )
        consumer.subscribe(topic, listener=hear)
        return consumer.start()

    def settled():
        return shared_out(admin, group, topic, members.values(), QUEUES)

    members = {name: member(name, before) for name in ("ann", "bob", "cid")}
    try:
        with Admin(cluster.nameserver) as admin:

            def found():
                return [one.code for one in admin.diagnose(group, interval_s=0.2).findings]

            eventually(settled)
            with Load(cluster.nameserver, topic) as load:
                for name in tuple(members):
                    members.pop(name).stop()
                    members[name] = member(name, after)
                    eventually(settled)
                    mixed = ["MIXED_STRATEGIES"] if name != "cid" else []
                    # On a busy machine a queue may stand still for as long as the doctor looks.
                    eventually(lambda wanted=mixed: found() == wanted)
                    seen = len(got)
                    eventually(lambda so_far=seen: len(got) > so_far + 20)
        eventually(lambda: set(got) == set(load.sent))
        assert len(places) == len(set(places)), "with leases nothing comes twice"
    finally:
        for consumer in members.values():
            consumer.stop()

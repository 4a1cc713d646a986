"""Where a new group begins in queues whose first messages are gone, as they are after some days.

While a queue still has its first message, brokers tell a new group to begin there, whatever the
group wants (`test_progress`): only here does its policy decide.
"""

import contextlib
import math
import os
import time
from datetime import UTC, datetime

import pytest

from gimbalmq import Producer, PushConsumer
from gimbalmq.model.message import Message
from gimbalmq.testing import ApacheRocketMQ, JavaPeer
from java_clients import LIVELY

TOPIC = "old"
QUEUES = 4
COUNT = 2 * QUEUES
FILE_BYTES = 1 << 20


@pytest.fixture
def aged(rocketmq_version):
    """A cluster with queues whose first messages went with the file that had them."""
    config = {"mappedFileSizeCommitLog": str(FILE_BYTES)}
    with ApacheRocketMQ(rocketmq_version, broker_config=config) as cluster:
        cluster.create_topic(TOPIC, queues=QUEUES)
        with Producer("old-times", nameserver=cluster.nameserver) as producer:
            for _ in range(4 * QUEUES):  # seven of them fill a file, whatever is done to compress
                producer.send(Message(TOPIC, os.urandom(FILE_BYTES // 8)))
        min((cluster.folder / "broker-a" / "store" / "commitlog").iterdir()).unlink()
        cluster.restart("broker-a")
        yield cluster


def send(producer, first):
    numbers = range(first, first + COUNT)
    for number in numbers:
        producer.send(Message(TOPIC, b"%d" % number))
    return set(numbers)


def read(messages):
    """The numbers of those that have one."""
    return {int(message.body) for message in messages if message.body.isdigit()}


@pytest.mark.product
@pytest.mark.rule("B2.10b", "B2.10d", "B2.10f")
def test_a_new_group_begins_where_its_policy_says_as_java_does(
    aged, rocketmq_version, unique_name, eventually
):
    address = aged.nameserver
    with (
        Producer("old-times", nameserver=address, timeout_s=20.0) as producer,
        JavaPeer(address, version=rocketmq_version, **LIVELY) as peer,
        contextlib.ExitStack() as running,
    ):
        old = send(producer, 0)
        # Java's policy knows whole seconds, and 4.x finds the message that is closest to a time.
        start = math.ceil(time.time()) + 2
        eventually(lambda: time.time() > start)
        young = send(producer, 100)
        at = time.strftime("%Y%m%d%H%M%S", time.localtime(start))
        readers = []
        for ours, theirs, wanted in [
            ("first", "CONSUME_FROM_FIRST_OFFSET", old | young),
            (datetime.fromtimestamp(start, UTC), "CONSUME_FROM_TIMESTAMP", young),
            ("last", "CONSUME_FROM_LAST_OFFSET", set()),
        ]:
            got = []
            consumer = PushConsumer(unique_name("python"), nameserver=address, start_from=ours)
            consumer.subscribe(TOPIC, listener=got.append)
            running.enter_context(consumer)
            options = {"consume_from": theirs, "consume_timestamp": at}
            java = running.enter_context(peer.push_consumer(unique_name("java"), TOPIC, **options))
            eventually(
                lambda one=consumer: sum(q.topic == TOPIC for q in one.assignment()) == QUEUES
            )
            java.wait_owned(lambda owned: sum(queue.topic == TOPIC for queue in owned) == QUEUES)
            readers += [(got.copy, wanted), (java.received, wanted)]
        # What comes next tells where each of them is: what it left out would come before.
        last = send(producer, 200)
        eventually(lambda: all(read(one()) >= wanted | last for one, wanted in readers), 90.0)
        assert [read(one()) for one, _ in readers] == [wanted | last for _, wanted in readers]

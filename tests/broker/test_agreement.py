"""What mqadmin prints for the same actions on the real broker and on the embedded cluster.

Names, queues, offsets, lag and members must agree; rates, times, addresses and figures of the Java
virtual machine need not.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from gimbalmq.broker import EmbeddedCluster
from gimbalmq.model.message import Message
from gimbalmq.model.queue import MessageQueue
from gimbalmq.testing import JavaPeer
from gimbalmq.testing.mqadmin import mqadmin_all
from gimbalmq.wire.lenient_json import read_json
from java_clients import LIVELY, committed
from waiting import eventually

pytestmark = [pytest.mark.matrix, pytest.mark.timeout(290)]


class Seen(msgspec.Struct):
    """What the actions made, and what each command printed."""

    sent: list
    consumer: str
    producer: str
    printed: dict[str, str]


def act(cluster, version, topic, group):
    """The same on every cluster: a topic, a group, messages, a reader that is behind, commands."""

    def run(**commands):
        printed = mqadmin_all(
            cluster.nameserver, list(commands.values()), version=version, timeout_s=200.0
        )
        return dict(zip(commands, printed, strict=True))

    first = cluster.brokers[0].address
    by_topic = () if version.startswith("4.") else ("-t", topic)
    printed = run(
        update_topic=("updateTopic", "-c", "DefaultCluster", "-t", topic, "-r", "2", "-w", "2"),
        update_group=("updateSubGroup", "-c", "DefaultCluster", "-g", group, "-q", "2", "-r", "5"),
    )
    with JavaPeer(cluster.nameserver, version=version, **LIVELY) as peer:
        producer = peer.producer(f"{group}-shop", instance="shop")
        queues = [MessageQueue(topic, name, n) for name in ("broker-a", "broker-b") for n in (0, 1)]
        sent = []
        for number, queue in enumerate(queues):
            messages = [
                Message(topic, b"%d-%d" % (number, n), tags="paid", keys=[f"key-{number}-{n}"])
                for n in range(number + 1)
            ]
            sent += producer.send(*messages, queue=queue)
        consumer = peer.push_consumer(group, topic, instance="till")
        consumer.wait_received(10)
        admin = peer.admin()
        eventually(lambda: committed(consumer, admin, group, topic) == 10)
        alive = run(
            connection=("consumerConnection", "-g", group),
            producers=("producerConnection", "-g", f"{group}-shop", "-t", topic),
        )
        consumer.stop()
        sent += producer.send(*(Message(topic, b"late") for _ in range(3)), queue=queues[2])
        printed |= alive | run(
            clusters=("clusterList",),
            topics=("topicList",),
            route=("topicRoute", "-t", topic),
            status=("topicStatus", "-t", topic),
            progress=("consumerProgress", "-g", group),
            by_id=("queryMsgById", *by_topic, "-i", sent[4].offset_message_id),
            by_key=("queryMsgByKey", "-t", topic, "-k", "key-3-1"),
            by_unique_key=("queryMsgByUniqueKey", "-t", topic, "-i", sent[7].message_id),
            config=("getConsumerConfig", "-g", group),
            broker=("brokerStatus", "-b", first),
            send=("sendMessage", "-t", topic, "-p", "hello", "-b", "broker-a", "-i", "1"),
            consume=("consumeMessage", "-t", topic, "-b", "broker-a", "-i", "1", "-o", "0"),
            reset=("resetOffsetByTime", "-g", group, "-t", topic, "-s", "0"),
            progress_after_reset=("consumerProgress", "-g", group),
            delete=("deleteTopic", "-c", "DefaultCluster", "-t", topic),
            topics_after=("topicList",),
        )
        return Seen(sent, consumer.client_id, producer.client_id, printed)


@pytest.fixture(scope="module")
def both(apache, rocketmq_version):
    """What was seen on the real broker, and on ours."""
    topic, group = "agreed-orders", "agreed-billing"
    # Beside each other: most of the time is the start of Java's tools, and their waiting.
    with EmbeddedCluster(2, processes=True) as cluster, ThreadPoolExecutor(2) as threads:
        return tuple(
            threads.map(lambda one: act(one, rocketmq_version, topic, group), (apache, cluster))
        )


def masked(text, seen):
    """Without what differs from run to run: addresses, times, ids of messages."""
    for number, one in enumerate(seen.sent):
        text = text.replace(one.message_id, f"<id {number}>")
        text = text.replace(one.offset_message_id, f"<offset id {number}>")
    text = text.replace(seen.consumer, "<consumer>").replace(seen.producer, "<producer>")
    text = re.sub(r"\d{4}-\d\d-\d\d[ #T]\d\d:\d\d:\d\d([,.:]\d+)?", "<time>", text)
    text = re.sub(r"127\.0\.0\.1:\d+", "<address>", text)
    # A place in the log, which depends on what else is stored.
    return re.sub(r">@\d+", ">@<place>", text)


def words(text, begins):
    """The rows that begin with one of these words, split."""
    rows = (line.split() for line in text.splitlines())
    return sorted(row for row in rows if row and row[0].startswith(begins))


def named(text, names):
    """Values by name, of lines like `Queue ID:   1`."""
    found = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon and name.strip() in names:
            found[name.strip()] = value.strip()
    return found


def user_topics(text):
    return {line.strip() for line in text.splitlines() if line.strip().startswith("agreed")} | {
        line.strip() for line in text.splitlines() if "agreed-billing" in line
    }


MESSAGE = ("Topic", "Tags", "Keys", "Queue ID", "Queue Offset", "Reconsume Times", "System Flag")


def config_values(text):
    wanted = ("groupName", "consumeEnable", "retryQueueNums", "retryMaxTimes", "brokerId")
    return sorted(
        tuple(line.replace("=", " ").split())
        for line in text.splitlines()
        if line.startswith(wanted)
    )


def route_facts(text):
    route = read_json(text[text.index("{") : text.rindex("}") + 1].encode())
    queues = {
        (one["brokerName"], one["readQueueNums"], one["writeQueueNums"], one["perm"])
        for one in route["queueDatas"]
    }
    return queues, {(one["brokerName"], one["cluster"]) for one in route["brokerDatas"]}


def offsets_of(text):
    """Broker, queue and the two offsets after it, of topicStatus."""
    return [row[:4] for row in words(text, "broker-")]


def progress_of(text):
    # Of its empty retry queues a member has stored an offset when it stops, or has not yet.
    rows = [row for row in words(text, "agreed") if len(row) >= 6]
    total = re.findall(r"Diff Total: *(\d+)", text)
    # Columns of versions differ after the offsets; the difference is what is left of them.
    return [row[:5] for row in rows], total


FACTS = {
    "update_topic": lambda text: sorted(
        re.findall(r"topicName=[^,]+|readQueueNums=\d+|writeQueueNums=\d+|perm=\S\S", text)
    ),
    "clusters": lambda text: [row[:3] for row in words(text, "DefaultCluster")],
    "topics": user_topics,
    "topics_after": user_topics,
    "route": route_facts,
    "status": offsets_of,
    "progress": progress_of,
    "progress_after_reset": progress_of,
    "connection": lambda text: words(
        text, ("001", "ConsumeType", "MessageModel", "ConsumeFromWhere")
    ),
    "producers": lambda text: [line.strip() for line in text.splitlines() if "<producer>" in line],
    "by_id": lambda text: named(text, MESSAGE),
    "by_key": lambda text: words(text, "<id"),
    "by_unique_key": lambda text: named(text, MESSAGE),
    "config": config_values,
    "send": lambda text: [row[:3] for row in words(text, "broker-")],
    "consume": lambda text: re.findall(r"\"?(?:queueId|queueOffset)\"?[=:] ?\d+", text),
    "broker": lambda text: {
        name: name in text
        for name in (
            "msgPutTotalTodayNow",
            "msgGetTotalTodayNow",
            "brokerVersionDesc",
            "bootTimestamp",
        )
    },
}


@pytest.mark.rule("W2.8b", "W2.9b")
@pytest.mark.parametrize("command", FACTS)
def test_mqadmin_prints_the_same_for_the_same_actions(both, command):
    facts = [FACTS[command](masked(seen.printed[command], seen)) for seen in both]
    real, ours = facts
    assert real, both[0].printed[command]
    assert ours == real, (both[1].printed[command], both[0].printed[command])

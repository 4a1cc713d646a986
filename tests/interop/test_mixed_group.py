"""Java and Python members in one group on real RocketMQ, through joins, leaves and kills."""

import logging
import threading
import time
from collections import Counter

import pytest

from gimbalmq import Message, Producer, balance
from gimbalmq.model.queue import MessageQueue
from interop.python_member import PythonMember

pytestmark = [pytest.mark.matrix, pytest.mark.timeout(280, func_only=True)]

log = logging.getLogger(__name__)

MESSAGES = 10_000
CHANGES = 8
#: Now and then a Java member needs half a minute.
SETTLE_S = 60.0


class JavaMember:
    """A Java push consumer, in a process of its own."""

    def __init__(self, peer, group, topic, allocation):
        self._peer = peer
        self._consumer = peer.push_consumer(group, topic, allocation=allocation, report="brief")
        self.client_id = self._consumer.client_id
        self.owned = self._consumer.owned
        self.stop = self._consumer.stop
        self.kill = self._consumer.kill

    def numbers(self):
        return [message.keys for message in self._consumer.received()]


class Sender:
    """Sends numbered messages while members come and go: an equal part during each change."""

    def __init__(self, nameserver, topic):
        self._topic = topic
        self._allowed = threading.Semaphore(0)
        self._producer = Producer("mixed", nameserver=nameserver)
        self._thread = threading.Thread(target=self._run, name="sender", daemon=True)
        self.sent = 0
        self.failure = None

    def __enter__(self):
        self._producer.start()
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._allowed.release(MESSAGES)
        self._thread.join(60.0)
        self._producer.stop()

    def part(self):
        self._allowed.release(MESSAGES // CHANGES)

    def _run(self):
        try:
            for number in range(MESSAGES):
                self._allowed.acquire()
                self._producer.send(Message(self._topic, b"x", keys=str(number)))
                self.sent += 1
        except Exception as error:  # noqa: BLE001 - told to the test, which fails with it
            self.failure = error


class Group:
    """The live members, and everything that was ever received."""

    def __init__(self, topic, group, allocation):
        self.topic, self.name, self.allocation = topic, group, allocation
        self.live, self.ever = [], []
        self.queues = {MessageQueue(topic, f"broker-{b}", n) for b in "ab" for n in range(4)}
        self.settled_s = []

    def add(self, member):
        self.live.append(member)
        self.ever.append(member)

    def views(self):
        return {
            member.client_id: {queue for queue in member.owned() if queue.topic == self.topic}
            for member in self.live
        }

    def settle(self, what, since):
        """Every queue has one owner, and it is the one that the strategy names."""
        members = [member.client_id for member in self.live]
        shares = balance.allocate(
            self.allocation, queues=self.queues, members=members, group=self.name
        )
        wanted = {member: set(share) for member, share in shares.items()}
        deadline = time.monotonic() + SETTLE_S
        while (views := self.views()) != wanted:
            assert time.monotonic() < deadline, (what, views, wanted)
            time.sleep(0.05)
        owners = Counter(queue for owned in views.values() for queue in owned)
        assert owners == dict.fromkeys(self.queues, 1), what
        self.settled_s.append((what, round(time.monotonic() - since, 2)))

    def received(self):
        return Counter(int(key) for member in self.ever for key in member.numbers())


@pytest.mark.rule("B2.3b", "B2.3d", "B8.6c")
@pytest.mark.parametrize(
    "allocation",
    [
        "AVG",
        # test_every_strategy has these on every version, with fewer changes.
        pytest.param("AVG_BY_CIRCLE", marks=pytest.mark.product),
        pytest.param("CONSISTENT_HASH", marks=pytest.mark.product),
    ],
)
def test_members_of_both_languages_share_the_queues_through_every_change(
    rocketmq, new_java_peer, topic, group_name, allocation, eventually
):
    group = Group(topic, group_name, allocation)

    def java():
        return JavaMember(new_java_peer(), group_name, topic, allocation)

    def python():
        return PythonMember(rocketmq.nameserver, group_name, topic, allocation)

    def change(what, act):
        sender.part()
        since = time.monotonic()
        act()
        group.settle(what, since)

    def gone(member, how):
        group.live.remove(member)
        how()

    try:
        with Sender(rocketmq.nameserver, topic) as sender:
            for what, make in (
                ("java joins", java),
                ("python joins", python),
                ("second python joins", python),
                ("second java joins", java),
                ("third python joins", python),
            ):
                change(what, lambda make=make: group.add(make()))
            java1, python1, python2 = group.ever[:3]
            change("python leaves", lambda: gone(python1, python1.stop))
            change("java is killed", lambda: gone(java1, java1.kill))
            change("python is killed", lambda: gone(python2, python2.kill))
        assert sender.failure is None
        assert sender.sent == MESSAGES
        # Java may need half a minute for its first messages.
        eventually(lambda: len(group.received()) == MESSAGES, pause_s=0.5)
    finally:
        for member in group.live:
            member.kill()
    received = group.received()
    assert set(received) == set(range(MESSAGES))
    duplicates = sum(received.values()) - MESSAGES
    log.info("%s: %d delivered twice, settled: %s", allocation, duplicates, group.settled_s)

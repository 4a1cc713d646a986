"""`rejoin_grace_s` with members on threads and an embedded cluster."""

import pytest

from gimbalmq import Admin, Message, Producer, PushConsumer
from gimbalmq.broker import EmbeddedCluster
from gimbalmq.errors import ConfigurationError
from sharing import agreed
from waiting import eventually

QUEUES = 8
NAMES = ("ann", "bob", "cid")


@pytest.fixture(scope="module")
def cluster():
    with EmbeddedCluster(2) as cluster:
        yield cluster


class Group:
    """Members by name, what each of them holds, and whose queues came or went."""

    def __init__(self, cluster, topic, grace_s):
        cluster.create_topic(topic, queues=QUEUES // 2)
        self._nameserver = cluster.nameserver
        self._topic = topic
        self._grace_s = grace_s
        self.members = {}
        self.moved = []
        self.got = []

    def start(self, name):
        consumer = PushConsumer(
            f"group-{self._topic}",
            nameserver=self._nameserver,
            client_id=name,
            lease=True,
            start_from="first",
            rejoin_grace_s=self._grace_s,
        )
        consumer.subscribe(self._topic, listener=lambda message: self.got.append(message.body))
        consumer.on_rebalance(lambda report: self.moved.append((name, report.topic)))
        self.members[name] = consumer.start()

    def stop(self, name):
        self.members.pop(name).stop()

    def shares(self):
        return {
            name: {queue for queue in member.assignment() if queue.topic == self._topic}
            for name, member in self.members.items()
        }

    def settled(self):
        shares = self.shares().values()
        sizes = [len(share) for share in shares]
        return len(set().union(*shares)) == sum(sizes) == QUEUES and max(sizes) - min(sizes) <= 1

    def __enter__(self):
        for name in NAMES:
            self.start(name)
        eventually(self.settled)
        with Admin(self._nameserver) as admin:
            queues = set().union(*self.shares().values())
            eventually(lambda: agreed(admin, f"group-{self._topic}", queues) and self.settled())
        return self

    def __exit__(self, *_):
        for member in self.members.values():
            member.stop()


@pytest.mark.rule("B10.16")
def test_pitfall_16_a_rolling_restart_under_the_same_ids_moves_nothing_of_the_others(cluster):
    with (
        Group(cluster, "rolling", 60.0) as group,
        Producer("load", nameserver=cluster.nameserver) as producer,
        Admin(cluster.nameserver) as admin,
    ):
        before = group.shares()
        assert sorted(map(len, before.values())) == [2, 3, 3]
        for name in NAMES:
            group.moved.clear()
            group.stop(name)
            sent = [b"%s-%d" % (name.encode(), number) for number in range(4 * QUEUES)]
            for body in sent:
                producer.send(Message("rolling", body))
            if name == "ann":
                (found,) = eventually(lambda: (one := admin.diagnose("group-rolling",
                    interval_s=0.2).findings) and "absent" in one[0].action and one)  # fmt: skip
                assert found.code == "QUEUE_UNOWNED"
                assert found.action.startswith("'ann@gmq1-AVG+rejoin60' is absent, and its queues")
            assert group.shares() == {one: q for one, q in before.items() if one != name}
            group.start(name)
            eventually(lambda: group.shares() == before)
            eventually(lambda wanted=set(sent): wanted <= set(group.got))
            assert {who for who, topic in group.moved if topic == "rolling"} <= {name}
        assert len(group.got) == len(set(group.got)), "with leases nothing comes twice"


def test_queues_of_one_that_does_not_come_back_move_when_its_time_is_over(cluster):
    with Group(cluster, "over", 3.0) as group:
        group.stop("bob")
        assert not group.settled()
        eventually(group.settled)
        assert sorted(map(len, group.shares().values())) == [4, 4]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"client_id": "ann"}, "needs lease=True or ordered=True"),
        ({"lease": True}, "give client_id"),
        ({"client_id": "ann", "lease": True, "rejoin_grace_s": 0}, "rejoin_grace_s is 0"),
        ({"client_id": "ann", "lease": True, "rejoin_grace_s": 4000}, "from 0.001 to 3600"),
        ({"client_id": "ann", "lease": True, "broadcasting": True}, "broadcasting"),
    ],
)
def test_a_grace_time_that_cannot_work_is_refused(options, words):
    with pytest.raises(ConfigurationError, match=words):
        PushConsumer("billing", nameserver="127.0.0.1:1", **{"rejoin_grace_s": 30.0, **options})


def test_the_grace_time_stands_in_the_client_id():
    consumer = PushConsumer(
        "billing", nameserver="127.0.0.1:1", client_id="ann", ordered=True, rejoin_grace_s=2.5
    )
    assert consumer.client_id == "ann@gmq1-AVG+rejoin2.5"

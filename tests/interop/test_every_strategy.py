"""Every strategy that both languages have, in groups of both, concurrent and ordered.

Groups live beside each other, and mostly wait. One Java process and one Python process hold a
member of each, so that a kill hits all of them at the same time.
"""

import contextlib
import functools
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from gimbalmq import balance
from gimbalmq.broker import EmbeddedCluster
from gimbalmq.testing import ApacheRocketMQ, JavaPeer
from interop import rooms
from interop.crowd import join
from interop.python_member import PythonCrowd
from java_clients import LIVELY

pytestmark = [pytest.mark.matrix, pytest.mark.timeout(600, func_only=True)]

#: A broker remembers the locks of the dead for 60 s, and Java members are in no hurry.
SETTLE_S = 120.0


@pytest.fixture(scope="module")
def roomy(rocketmq_engine, rocketmq_version):
    make = (
        partial(ApacheRocketMQ, rocketmq_version)
        if rocketmq_engine == "apache"
        else partial(EmbeddedCluster, processes=True)
    )
    with make(brokers=rooms.BROKERS) as cluster:
        yield cluster


class Group:
    """Members of both languages, and what the strategy wants each of them to hold."""

    def __init__(self, nameserver, name, story, ordered):
        self._nameserver, self.name, self._ordered = nameserver, name, ordered
        self.topic = f"every-{name}-{story}"
        self._queues = rooms.queues_of(self.topic)
        self._strategy = rooms.python_strategy(name, self.topic)
        self.members = {}
        self._here = contextlib.ExitStack()
        self.failure = None

    def java_joins(self, peer, place):
        member = peer.push_consumer(
            self.topic,
            self.topic,
            allocation=self.name,
            ordered=self._ordered,
            client_ip=rooms.stem(self.name, self.topic, place),
            instance=f"java{place}",
            report="count",
            **rooms.java_options(self.name, self.topic, place),
        )
        self._joined(place, member)

    def python_joins(self, place):
        member = join(self._nameserver, self.topic, self.name, place, ordered=self._ordered)
        self._here.callback(member.stop)
        member.owned = member.assignment
        self._joined(place, member)

    def one_of_a_crowd_joins(self, crowd, place):
        options = {"ordered": self._ordered}
        self._joined(place, crowd.join(self._nameserver, self.topic, self.name, place, **options))

    def leaves(self, place):
        self.members.pop(place).stop()
        self._settle()

    def is_dead(self, place):
        del self.members[place]
        self._settle()

    def close(self):
        """End what lives in this process; the rest ends with its own."""
        self._here.close()

    def _joined(self, place, member):
        self.members[place] = member
        self._settle()

    def _settle(self):
        """Every member holds what the strategy gives it, and together they hold all queues."""
        wanted = self._wanted()
        deadline = time.monotonic() + SETTLE_S
        while (views := self._views()) != wanted:
            assert time.monotonic() < deadline, (views, wanted)
            time.sleep(0.05)
        # Of queues that are written down for a member, nobody else takes care.
        if self.name != "CONFIG" or len(self.members) == len(self._strategy.queues):
            assert sorted(queue for share in views.values() for queue in share) == self._queues

    def _wanted(self):
        if self.name == "CONFIG":
            # Java knows only the list of its own.
            lists = rooms.written(self.topic)
            return {one.client_id: set(lists[place]) for place, one in self.members.items()}
        ids = [one.client_id for one in self.members.values()]
        shares = balance.allocate(self._strategy, queues=self._queues, members=ids)
        return {one: set(share) for one, share in shares.items()}

    def _views(self):
        return {
            one.client_id: {queue for queue in one.owned() if queue.topic == self.topic}
            for one in self.members.values()
        }


def side_by_side(groups, act):
    """Done by each group; one that fails keeps its failure, and takes no further part."""
    whole = [group for group in groups if group.failure is None]
    with ThreadPoolExecutor(len(groups)) as threads:
        for group, done in [(group, threads.submit(act, group)) for group in whole]:
            group.failure = done.exception()


def come_and_go(groups, peer):
    side_by_side(groups, lambda group: group.java_joins(peer, 0))
    side_by_side(groups, lambda group: group.python_joins(1))
    side_by_side(groups, lambda group: group.python_joins(2))
    side_by_side(groups, lambda group: group.leaves(1))


def die(groups, new_peer):
    with new_peer() as victim, PythonCrowd() as crowd:
        side_by_side(groups, lambda group: group.java_joins(victim, 1))
        side_by_side(groups, lambda group: group.one_of_a_crowd_joins(crowd, 3))
        victim.kill()
        side_by_side(groups, lambda group: group.is_dead(1))
        crowd.kill()
        side_by_side(groups, lambda group: group.is_dead(3))


@pytest.fixture(scope="module")
def lived(roomy, rocketmq_version):
    """What became of a group of each strategy, by the kind of the groups."""
    new_peer = partial(JavaPeer, roomy.nameserver, version=rocketmq_version, **LIVELY)
    with new_peer() as peer, contextlib.ExitStack() as running:

        @functools.cache
        def live(kind, kills):
            story = f"{kind}-{'killed' if kills else 'left'}"
            groups = [
                Group(roomy.nameserver, name, story, kind == "ordered") for name in rooms.STRATEGIES
            ]
            for group in groups:
                roomy.create_topic(group.topic, queues=rooms.QUEUES_PER_BROKER)
                running.callback(group.close)
            come_and_go(groups, peer)
            if kills:
                die(groups, new_peer)
            side_by_side(groups, lambda group: group.leaves(0))
            return {group.name: group.failure for group in groups}

        yield live


@pytest.mark.parametrize("name", rooms.STRATEGIES)
@pytest.mark.parametrize(
    ("kind", "kills"),
    [
        pytest.param("concurrent", True, id="concurrent-killed"),
        pytest.param("ordered", False, id="ordered"),
        # A minute each until the locks of the dead are forgotten.
        pytest.param("ordered", True, id="ordered-killed", marks=pytest.mark.product),
    ],
)
def test_both_languages_agree_through_joins_leaves_and_kills(lived, kind, kills, name):
    failure = lived(kind, kills)[name]
    if failure is not None:
        raise failure

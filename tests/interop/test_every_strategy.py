"""Every strategy that both languages have, in groups of both, concurrent and ordered.

The brokers' names carry rooms in both of the ways that Java's strategies read them: the text
before `@` (MACHINE_ROOM) and the text before the first `-` (what the Java members' resolver does).
"""

import contextlib
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from gimbalmq import PushConsumer, balance
from gimbalmq.broker import EmbeddedCluster
from gimbalmq.model.queue import MessageQueue
from gimbalmq.testing import ApacheRocketMQ, JavaPeer
from java_clients import LIVELY

pytestmark = [pytest.mark.matrix, pytest.mark.timeout(200, func_only=True)]

BROKERS = ("room1@x-a", "room2@x-b")
ROOMS = ["room1", "room2"]
SETTLE_S = 60.0
MODES = ("concurrent", "ordered")
PARALLEL = 12


@pytest.fixture(scope="module")
def roomy(rocketmq_engine, rocketmq_version):
    make = (
        partial(ApacheRocketMQ, rocketmq_version)
        if rocketmq_engine == "apache"
        else partial(EmbeddedCluster, processes=True)
    )
    with (
        make(brokers=BROKERS) as cluster,
        JavaPeer(cluster.nameserver, version=rocketmq_version, **LIVELY) as java,
    ):
        yield cluster, java


def room(text):
    return text.split("-", 1)[0]


def strategies(queues, tag=""):
    """Each strategy as Python takes it, and the options with which Java makes the same one."""
    thirds = {f"room1@x-{tag}{n}": queues[n::3] for n in range(3)}
    rooms = {
        "room_of_queue": lambda queue: room(queue.broker),
        "room_of_member": room,
    }
    return {
        "AVG": (balance.strategy("AVG"), {}),
        "AVG_BY_CIRCLE": (balance.strategy("AVG_BY_CIRCLE"), {}),
        "CONSISTENT_HASH": (balance.strategy("CONSISTENT_HASH"), {}),
        "MACHINE_ROOM": (balance.strategy("MACHINE_ROOM", rooms=ROOMS), {"rooms": ROOMS}),
        "MACHINE_ROOM_NEARBY-AVG": (balance.strategy("MACHINE_ROOM_NEARBY-AVG", **rooms), {}),
        "CONFIG": (balance.strategy("CONFIG", queues=thirds), {"thirds": thirds}),
    }


class Group:
    """Members of both languages, and what the strategy wants each of them to hold."""

    def __init__(self, topic, strategy, queues):
        self._topic, self._strategy, self._queues = topic, strategy, queues
        self.members = []

    def settle(self):
        ids = [one.client_id for one in self.members]
        written = getattr(self._strategy, "queues", None)
        if written is None:
            shares = balance.allocate(self._strategy, queues=self._queues, members=ids)
        else:
            # Java knows only the list of its own; the stem, common to both, names it here.
            shares = {one: written[one.split("@gmq")[0].split("@java")[0]] for one in ids}
        wanted = {one: set(share) for one, share in shares.items()}
        deadline = time.monotonic() + SETTLE_S
        while (views := self._views()) != wanted:
            assert time.monotonic() < deadline, (views, wanted)
            time.sleep(0.05)
        return views

    def _views(self):
        return {
            one.client_id: {queue for queue in one.owned() if queue.topic == self._topic}
            for one in self.members
        }


def owning(consumer):
    consumer.owned = consumer.assignment
    return consumer


def agree_through_joins_and_leaves(roomy, name, mode):
    """One group of one strategy: two languages, three members, then two."""
    cluster, peer = roomy
    # Members of all groups live in one process each, and none shares its client id.
    tag = f"{name}-{mode}-"
    topic = group_name = f"every-{tag}".rstrip("-")
    cluster.create_topic(topic, queues=3)
    queues = sorted(MessageQueue(topic, broker, n) for broker in BROKERS for n in range(3))
    strategy, java_options = strategies(queues, tag)[name]
    thirds = java_options.pop("thirds", None)
    group = Group(topic, strategy, queues)
    with contextlib.ExitStack() as running:

        def java(number):
            stem = f"room1@x-{tag}{number}"
            fixed = {"fixed_queues": thirds[stem]} if thirds else {}
            return running.enter_context(
                peer.push_consumer(
                    group_name,
                    topic,
                    allocation=name,
                    ordered=mode == "ordered",
                    client_ip=stem,
                    instance=f"java{number}",
                    report="count",
                    **java_options,
                    **fixed,
                )
            )

        def python(stem):
            consumer = PushConsumer(
                group_name,
                nameserver=cluster.nameserver,
                allocation=strategy,
                ordered=mode == "ordered",
                client_id=stem,
            )
            consumer.subscribe(topic, listener=lambda _: None)
            return owning(running.enter_context(consumer))

        for make in (
            lambda: java(0),
            lambda: python(f"room1@x-{tag}1"),
            # With two rooms, the member in the second gets its room's queues where rooms count.
            lambda: python(f"room{1 if thirds else 2}@x-{tag}2"),
        ):
            group.members.append(make())
            views = group.settle()
        held = [queue for share in views.values() for queue in share]
        assert sorted(held) == queues, "every queue once"
        leaver = group.members.pop(1)
        leaver.stop()
        group.settle()


@pytest.fixture(scope="module")
def groups(roomy):
    """What became of each group. They live beside each other: mostly, members wait."""
    with ThreadPoolExecutor(PARALLEL) as threads:
        yield {
            (name, mode): threads.submit(agree_through_joins_and_leaves, roomy, name, mode)
            for name in strategies([])
            for mode in MODES
        }


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", strategies([]))
def test_both_languages_agree_through_joins_and_leaves(groups, name, mode):
    groups[name, mode].result()

"""Published weights in virtual time: members that read them at different times, and no two owners."""

from __future__ import annotations

import logging

import pytest

from gimbalmq.core.allocation import strategy_named
from gimbalmq.core.identity import stem_of
from gimbalmq.model.queue import MessageQueue
from gimbalmq.model.weights import WEIGHTS_TOPIC, QueueWeights
from gimbalmq.testing.checkers import check_exclusive, check_loss
from gimbalmq.testing.sim import Kind, Mode, Options
from gimbalmq.testing.sim.cast import NAMESERVERS, Cast
from gimbalmq.testing.sim.executor import ListenerHabits
from gimbalmq.testing.sim.producer import SimProducer
from gimbalmq.wire.weights import encode_weights
from simulation.stage import PLAIN

QUEUES = [
    MessageQueue("orders", broker, n) for broker in ("broker-a", "broker-b") for n in range(3)
]
#: How often members look, by clocks that are up to 5 % off, and what a pass and its locks take.
INTERVAL_S, SETTLED_S = 10.0 * 1.06, 2.0


@pytest.fixture(autouse=True)
def _quiet_logs(caplog):
    caplog.set_level(logging.CRITICAL, "gimbalmq")


def published():
    return strategy_named("WEIGHTED", {"weights": "published"})


class Weighed(Cast):
    """Three members that read weights, two brokers, a little traffic."""

    def __init__(self, mode, seed=1):
        options = Options(mode=mode, faults=(), rough_listeners=False, **PLAIN)
        super().__init__(seed, options, strategy=published)
        self.queues_each = 3
        self.brokers = [self.broker("broker-a"), self.broker("broker-b")]
        self.habits = ListenerHabits(0.01, 0.02)
        self.publisher = SimProducer(WEIGHTS_TOPIC, NAMESERVERS, self.clock(), self.network)
        self.version = 0

    def begin(self):
        self.nameserver.start()
        for broker in self.brokers:
            broker.start()
            broker.create_topic("orders", self.queues_each)
        self.brokers[0].create_topic(WEIGHTS_TOPIC, 1)
        self.world.run_until(1.0)
        for key in range(6):
            self.producer.send(key, [f"k{key}-{n}" for n in range(80)], lambda: 0.5)
        for number in range(3):
            # Each looks at another moment.
            self.world.after(number * 2.7, self.start_member)
        self.world.run_until(12.0)
        return self

    def run_for(self, seconds):
        self.world.run_until(self.world.now + seconds)

    def publish(self, heavy):
        """Another version: one queue as heavy as all others together."""
        self.version += 1
        weights = {heavy.path: 5.0}
        document = QueueWeights(self.version, "orders", 0, weights)
        body = encode_weights(document).decode()
        self.publisher.send(0, [body], lambda: 0.0)

    def shares(self):
        return {
            stem_of(one.client_id): {q.path for q in one.assignment() if q.topic == "orders"}
            for one in self.members
            if one.process.alive
        }

    def owner_of(self, queue):
        (owner,) = [who for who, paths in self.shares().items() if queue.path in paths]
        return owner

    def loss(self):
        return [one for one in check_loss(self.world.history) if not one.startswith("lost: {")]

    def unowned_s(self, since):
        """The longest time that a queue was without owner."""
        released, longest = {}, 0.0
        for line in self.world.history.of(Kind.OWNED, Kind.RELEASED):
            if line.at_s < since or not line.queue.startswith("orders/"):
                continue
            if line.kind is Kind.RELEASED:
                released[line.queue] = line.at_s
            elif line.queue in released:
                longest = max(longest, line.at_s - released.pop(line.queue))
        return longest


@pytest.mark.parametrize("mode", [Mode.ORDERED, Mode.LEASE])
def test_a_new_version_delays_queues_for_one_interval_and_gives_none_two_owners(mode):
    group = Weighed(mode).begin()
    assert sorted(map(len, group.shares().values())) == [2, 2, 2], "nothing published: all equal"
    since = group.world.now
    for heavy in (QUEUES[0], QUEUES[4], QUEUES[2]):
        group.publish(heavy)
        group.run_for(INTERVAL_S + SETTLED_S)
        shares = group.shares()
        assert sorted(map(len, shares.values())) == [1, 2, 3]
        assert shares[group.owner_of(heavy)] == {heavy.path}
        assert set().union(*shares.values()) == {queue.path for queue in QUEUES}
    assert 0.1 < group.unowned_s(since) < INTERVAL_S + SETTLED_S, "members were really apart"
    group.run_for(40.0)
    assert check_exclusive(group.world.history) == []
    assert group.loss() == []


def test_a_member_that_cannot_read_the_weights_does_not_join_and_later_does():
    group = Weighed(Mode.LEASE).begin()
    group.publish(QUEUES[0])
    group.run_for(INTERVAL_S + SETTLED_S)
    before = group.shares()
    group.members_made += 1
    group.network.cut("late@gmq1-WEIGHTED.published", "broker-a")
    late = group.start_member("late")
    group.run_for(20.0)
    assert late.assignment() == frozenset()
    assert {who: paths for who, paths in group.shares().items() if who != "late"} == before
    group.network.heal("late@gmq1-WEIGHTED.published", "broker-a")
    group.run_for(25.0)
    shares = group.shares()
    assert shares["late"], "it has read them, and has a share"
    assert set().union(*shares.values()) == {queue.path for queue in QUEUES}
    assert shares[group.owner_of(QUEUES[0])] == {QUEUES[0].path}
    assert check_exclusive(group.world.history) == []


def test_one_that_lags_keeps_what_it_has_and_shares_it_with_nobody():
    group = Weighed(Mode.LEASE).begin()
    group.publish(QUEUES[0])
    group.run_for(INTERVAL_S + SETTLED_S)
    slow = group.members[0]
    slow.process.pause()
    group.publish(QUEUES[4])
    group.run_for(2.0)
    slow.process.resume()
    group.run_for(INTERVAL_S + 3 * SETTLED_S)
    shares = group.shares()
    assert shares[group.owner_of(QUEUES[4])] == {QUEUES[4].path}
    assert check_exclusive(group.world.history) == []

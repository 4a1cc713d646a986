"""Restarts with a rejoin grace time, in virtual time: what waits, what moves, who owns."""

from __future__ import annotations

import logging

import pytest

from gimbalmq.core.identity import stem_of
from gimbalmq.testing.checkers import check_exclusive, check_loss
from gimbalmq.testing.sim import FAULTS, RESTARTS, Kind, Mode, Options, simulate
from gimbalmq.testing.sim.cast import Cast
from gimbalmq.testing.sim.executor import ListenerHabits
from simulation.stage import PLAIN

LOCKING = (Mode.ORDERED, Mode.LEASE)
GRACE_S = 20.0
MEMBERS = 4


@pytest.fixture(autouse=True)
def _quiet_logs(caplog):
    caplog.set_level(logging.CRITICAL, "gimbalmq")


class Group(Cast):
    """Four members, two brokers with three queues each, a backlog; settled at 8 s."""

    def __init__(self, mode, grace_s=GRACE_S, seed=1):
        options = Options(
            mode=mode, faults=(), rough_listeners=False, rejoin_grace_s=grace_s, **PLAIN
        )
        super().__init__(seed, options)
        self.queues_each = 3
        self.brokers = [self.broker("broker-a"), self.broker("broker-b")]
        self.habits = ListenerHabits(0.01, 0.02)

    def begin(self):
        self.nameserver.start()
        for broker in self.brokers:
            broker.start()
            broker.create_topic("orders", self.queues_each)
        self.world.run_until(1.0)
        for key in range(6):
            bodies = [f"k{key}-{n}" for n in range(80)]
            self.producer.send(key, bodies, lambda: 0.5)
        for _ in range(MEMBERS):
            self.start_member()
        self.world.run_until(8.0)
        return self

    def run_for(self, seconds):
        self.world.run_until(self.world.now + seconds)

    def shares(self):
        """Queues by the stem of who owns them; of the dead, none."""
        shares = {}
        for member in self.members:
            if member.process.alive:
                paths = {q.path for q in member.assignment() if q.topic == "orders"}
                shares.setdefault(stem_of(member.client_id), set()).update(paths)
        return shares

    def moves_since(self, at_s):
        """Queues of the topic that came and went since then, with the stem of who had them."""
        return {
            (stem_of(line.who.partition(" ")[0]), line.queue)
            for line in self.world.history.of(Kind.OWNED, Kind.RELEASED)
            if line.at_s > at_s and line.queue.startswith("orders/")
        }


def down(group, member, *, crash):
    group.crash(member) if crash else group.leave(member)


@pytest.mark.parametrize("mode", LOCKING)
@pytest.mark.parametrize("crash", [False, True])
def test_a_rolling_restart_moves_no_queue_of_anybody_else(mode, crash):
    group = Group(mode).begin()
    before = group.shares()
    assert sorted(map(len, before.values())) == [1, 1, 2, 2]
    for member in tuple(group.members):
        stem, since = stem_of(member.client_id), group.world.now
        down(group, member, crash=crash)
        group.run_for(5.0)
        away = {name: queues for name, queues in before.items() if name != stem}
        assert group.shares() == away, "its queues wait for it"
        group.start_member(stem)
        group.run_for(3.0)
        assert group.shares() == before
        assert {who for who, _queue in group.moves_since(since)} == {stem}
    group.run_for(GRACE_S * 1.2)
    assert group.shares() == before
    assert check_exclusive(group.world.history) == []
    assert check_loss(group.world.history) == []


@pytest.mark.parametrize("mode", LOCKING)
def test_two_that_restart_at_the_same_time_find_their_queues_again(mode):
    group = Group(mode).begin()
    before, since = group.shares(), group.world.now
    first, second = group.members[:2]
    down(group, first, crash=True)
    group.run_for(2.0)
    down(group, second, crash=False)
    group.run_for(2.0)
    group.start_member("m1")  # has not seen the second one go, and asks
    group.run_for(4.0)
    assert group.shares() == {name: q for name, q in before.items() if name != "m2"}
    group.start_member("m2")
    group.run_for(4.0)
    assert group.shares() == before
    assert {who for who, _queue in group.moves_since(since)} == {"m1", "m2"}


@pytest.mark.parametrize("mode", LOCKING)
@pytest.mark.parametrize("crash", [False, True])
def test_when_the_grace_time_is_over_the_queues_move(mode, crash):
    group = Group(mode).begin()
    down(group, group.members[0], crash=crash)
    group.run_for(GRACE_S * 0.9)
    assert sum(map(len, group.shares().values())) == 4, "two wait"
    # Clocks are up to 5 % off; a dead member's locks are taken over as ever.
    group.run_for(GRACE_S * 0.2 + (6.0 if crash else 1.0))
    shares = group.shares()
    assert sorted(map(len, shares.values())) == [2, 2, 2]
    assert len(set().union(*shares.values())) == 6
    assert check_exclusive(group.world.history) == []


def test_without_a_grace_time_the_same_restart_moves_queues_of_others():
    group = Group(Mode.LEASE, grace_s=None).begin()
    since = group.world.now
    down(group, group.members[0], crash=False)
    group.run_for(5.0)
    assert {who for who, _queue in group.moves_since(since)} >= {"m2", "m3"}


def test_a_stranger_that_joins_meanwhile_counts_the_absent_too():
    group = Group(Mode.LEASE).begin()
    down(group, group.members[0], crash=False)
    group.run_for(2.0)
    group.start_member()
    group.run_for(4.0)
    waiting = group.shares()
    assert waiting.keys() == {"m2", "m3", "m4", "m5"}
    assert sorted(map(len, waiting.values())) == [1, 1, 1, 1], "six queues for five: m1 has two"
    group.start_member("m1")
    group.run_for(4.0)
    assert group.shares() == {**waiting, "m1": group.shares()["m1"]}
    assert len(group.shares()["m1"]) == 2


@pytest.mark.parametrize("mode", LOCKING)
def test_restarts_amid_all_trouble_never_give_a_queue_two_owners(mode):
    options = Options(
        mode=mode,
        faults=(*FAULTS, *RESTARTS, *RESTARTS),
        rejoin_grace_s=GRACE_S,
    )
    for seed in range(500, 512):
        outcome = simulate(seed, options)
        assert not outcome.violations, outcome.report()


@pytest.mark.parametrize("mode", LOCKING)
def test_a_newcomer_that_nobody_answers_delays_queues_and_takes_none_from_its_owner(mode):
    group = Group(mode).begin()
    down(group, group.members[0], crash=False)
    group.run_for(1.0)
    elders = group.members[1:]
    for member in elders:
        member.process.pause()
    late = group.start_member()
    group.run_for(1.5)
    assert not late.assignment(), "it waits for an answer"
    group.run_for(10.0)
    for member in elders:
        member.process.resume()
    group.run_for(GRACE_S * 1.1 + 15.0)
    shares = group.shares()
    assert sorted(map(len, shares.values())) == [1, 1, 2, 2], "in the end all count alike"
    assert len(set().union(*shares.values())) == 6
    assert check_exclusive(group.world.history) == []
    assert check_loss(group.world.history) == []

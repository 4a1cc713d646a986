"""How soon a group has to be at rest: what makes a bound long, and what does not."""

from __future__ import annotations

import pytest

from gimbalmq.testing.sim import Happened, History, Kind, Mode, Options
from gimbalmq.testing.sim.bounds import locks_expire, settling_s
from gimbalmq.testing.sim.cast import Cast
from gimbalmq.testing.sim.executor import ListenerHabits
from simulation.stage import PLAIN

Q = "orders/broker-a/0"
LOCKING = (Mode.ORDERED, Mode.LEASE)


def history(*lines):
    made = History()
    for number, (kind, who, *text) in enumerate(lines):
        queue = Q if kind in {Kind.LOCKED, Kind.UNLOCKED, Kind.TAKEN_OFF} else ""
        made.add(Happened(float(number), kind, who, queue, text="".join(text)))
    return made


def bound_s(mode, happened=(), lines=(), habits=None, **options):
    cast = Cast(1, Options(mode=mode, **{**PLAIN, **options}))
    cast.habits = habits or ListenerHabits(0.001, 0.05)
    for line in history(*lines):
        cast.world.history.add(line)
    return settling_s(cast, happened)


DIED = [
    (Kind.JOINED, "a"),
    (Kind.JOINED, "b"),
    (Kind.LISTED, "a", "a b"),
    (Kind.LOCKED, "b"),
    (Kind.EXITED, "b"),
]


def test_a_concurrent_group_that_is_not_told_needs_the_patience_of_brokers_and_a_pass():
    assert bound_s(Mode.CONCURRENT, {"join", "leave", "crash"}) < 5, "they are told"
    assert 30 < bound_s(Mode.CONCURRENT, {"power loss"}) < 40
    assert 20 < bound_s(Mode.CONCURRENT, {"partition"}) < 25
    assert bound_s(Mode.CONCURRENT, {"partition"}, rebalance_interval_s=3.0) < 15


@pytest.mark.parametrize("mode", LOCKING)
def test_a_lock_that_can_be_taken_over_makes_the_bound_longer_by_the_grace_time(mode):
    assert 3 < bound_s(mode, {"crash"}, DIED) - bound_s(Mode.CONCURRENT, {"crash"}) < 5
    hanging = ListenerHabits(0.001, 0.05, hang_s=14.0, hang_share=0.01)
    assert 14 < bound_s(mode, {"crash"}, DIED, hanging) < 20, "listeners end meanwhile"


@pytest.mark.parametrize("mode", LOCKING)
def test_where_nobody_saw_the_dead_its_lock_expires_first(mode):
    stranger = [*DIED, (Kind.JOINED, "c"), (Kind.LISTED, "c", "a c")]
    assert 60 < bound_s(mode, {"crash"}, stranger) < 70
    alone = [*stranger, (Kind.EXITED, "a")]
    assert 60 < bound_s(mode, {"crash"}, alone) < 70


def test_a_lock_expires_where_nobody_can_take_it_off():
    assert not locks_expire(history(*DIED))
    assert not locks_expire(history(*DIED, (Kind.TAKEN_OFF, "a"), (Kind.LOCKED, "a")))
    assert locks_expire(history(*DIED, (Kind.JOINED, "c"))), "a stranger knows of nobody"
    assert locks_expire(history(*DIED, (Kind.JOINED, "b run 2"))), "it is not dead"
    left_behind = [*DIED[:-1], (Kind.LOCKED, "a")]
    assert locks_expire(history(*left_behind)), "its holder lives"


def test_a_lock_that_was_given_back_or_forgotten_does_not_have_to_expire():
    gave_back = [*DIED[:-1], (Kind.UNLOCKED, "b"), (Kind.EXITED, "b"), (Kind.JOINED, "c")]
    assert not locks_expire(history(*gave_back))
    forgotten = [*DIED[:-1], (Kind.RESTARTED, "broker-a"), (Kind.LOCKED, "a")]
    assert not locks_expire(history(*forgotten))


def test_a_foreign_member_looks_and_asks_seldom():
    assert 80 < bound_s(Mode.ORDERED, foreign=True) < 90

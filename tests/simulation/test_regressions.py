"""What the simulator found, each with the seed or the scene that shows it."""

from __future__ import annotations

import logging

import pytest

from core.consumer.harness import ME, QUEUES, Harness, only
from gimbalmq.core.consumer.effects import Commit, Lock
from gimbalmq.core.consumer.events import LockAnswered, TimerFired, TimerName
from gimbalmq.testing.checkers import check_exclusive, check_loss
from gimbalmq.testing.sim import Mode, Options, simulate
from simulation.stage import PLAIN, Stage

LOCKING = (Mode.ORDERED, Mode.LEASE)


@pytest.fixture(autouse=True)
def _quiet_logs(caplog):
    caplog.set_level(logging.CRITICAL, "gimbalmq")


@pytest.mark.parametrize("mode", LOCKING)
@pytest.mark.parametrize("seed", [0, 27])
def test_an_acquisition_whose_permit_ended_does_not_go_on_with_what_it_had_cached(seed, mode):
    """Another member had the queue meanwhile and gave it back; the lock says nothing of that."""
    outcome = simulate(seed, Options(mode=mode, **PLAIN))
    assert check_exclusive(outcome.history) == [], outcome.report()


def replayed(seed, **options):
    """A run that once broke a promise."""
    outcome = simulate(seed, Options(**{**PLAIN, **options}))
    assert not outcome.violations, outcome.report()


@pytest.mark.parametrize("mode", LOCKING)
@pytest.mark.parametrize("seed", [0, 1])
def test_passes_that_run_more_often_than_the_grace_time_do_not_keep_a_group_from_taking_over(
    seed, mode
):
    replayed(seed, mode=mode, faults=("crash",), rebalance_interval_s=3.0, spare_first=True)


@pytest.mark.parametrize("mode", LOCKING)
@pytest.mark.parametrize("seed", [7, 15])
def test_a_member_that_waits_for_a_lock_of_the_living_does_not_ask_in_circles(seed, mode):
    """Somebody had died before: it was unlocked in the name of the dead, without a pause."""
    replayed(seed, mode=mode, spare_first=True)


@pytest.mark.parametrize("seed", [9, 13, 20])
def test_a_message_on_its_way_back_is_waited_for_before_its_queue_is_handed_over(seed):
    replayed(
        seed,
        mode=Mode.LEASE,
        faults=("join", "leave"),
        faults_max=12,
        backlog=True,
        busy_brokers=True,
    )


@pytest.mark.parametrize("mode", LOCKING)
def test_a_member_that_has_lost_the_lock_of_a_queue_stores_no_offset_of_it(mode):
    faults = ("pause", "partition", "isolation", "torn connection")
    replayed(70, mode=mode, faults=faults)


@pytest.mark.parametrize("seed", [1, 2])
def test_the_grace_time_counts_from_when_the_last_broker_lost_the_member(seed):
    """It is cut off from one broker, and seconds later from the other, whose queue it consumes."""
    stage = Stage(seed).begin()
    victim, _survivor = stage.owner("broker-b")
    stage.sever(victim, "broker-a")
    stage.world.run_until(9.0)
    stage.sever(victim, "broker-b")
    stage.world.run_until(16.0)
    assert check_exclusive(stage.world.history) == []


def locked():
    """A machine that owns its queues by locks."""
    machine = Harness(ordered=True)
    machine.start()
    (lock,) = only(machine.members(ME), Lock)
    granted = LockAnswered(lock.asked, frozenset(QUEUES), machine.now)
    machine.located(machine.handle(granted))
    return machine


def test_a_member_stores_the_offsets_of_queues_whose_permit_holds():
    machine = locked()
    assert len(only(machine.handle(TimerFired(TimerName.COMMIT)), Commit)) == len(QUEUES)


def test_a_member_stores_no_offsets_of_queues_whose_permit_has_ended():
    """Somebody else may be further on; found as 'offset moved back' after lost connections."""
    machine = locked()
    machine.now += 10.0
    assert only(machine.handle(TimerFired(TimerName.COMMIT)), Commit) == []


@pytest.mark.parametrize("mode", LOCKING)
def test_a_member_that_is_cut_off_from_everything_is_followed_by_another_after_the_grace(mode):
    stage = Stage(mode=mode).begin()
    victim, survivor = stage.owner("broker-b")
    for server in ("broker-a", "broker-b"):
        stage.sever(victim, server)
    stage.world.run_until(16.0)
    assert check_exclusive(stage.world.history) == []
    owned = {queue.path for queue in survivor.assignment()}
    assert owned >= {"orders/broker-a/0", "orders/broker-b/0"}


def test_a_stage_without_trouble_loses_nothing():
    stage = Stage().begin()
    stage.world.run_until(90.0)
    assert check_loss(stage.world.history) == []
    assert check_exclusive(stage.world.history) == []

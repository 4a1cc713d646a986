"""What the simulator found, each with the seed or the scene that shows it."""

from __future__ import annotations

import logging

import pytest

from core.consumer.harness import ME, QUEUES, Harness, only
from gimbalmq.core.consumer.effects import Commit, Lock
from gimbalmq.core.consumer.events import LockAnswered, TimerFired, TimerName
from gimbalmq.testing.checkers import check_exclusive, check_loss
from gimbalmq.testing.sim import Mode, simulate
from simulation.stage import Stage


@pytest.fixture(autouse=True)
def _quiet_logs(caplog):
    caplog.set_level(logging.CRITICAL, "gimbalmq")


@pytest.mark.parametrize("seed", [10, 13])
def test_an_acquisition_whose_permit_ended_does_not_go_on_with_what_it_had_cached(seed):
    """Another member had the queue meanwhile and gave it back; the lock says nothing of that."""
    outcome = simulate(seed)
    assert outcome.mode is not Mode.CONCURRENT
    assert not outcome.violations, outcome.report()


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


@pytest.mark.parametrize("mode", [Mode.ORDERED, Mode.LEASE])
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

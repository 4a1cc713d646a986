"""Taking over from the dead, in virtual time: how soon, how often, and from whom not."""

from __future__ import annotations

import logging
from collections import Counter

import pytest

from gimbalmq.core.consumer import effects as fx
from gimbalmq.testing.checkers import check_exclusive
from gimbalmq.testing.sim import Mode
from simulation.stage import Stage

LOCKING = (Mode.ORDERED, Mode.LEASE)
QUEUES = {"orders/broker-a/0", "orders/broker-b/0"}


@pytest.fixture(autouse=True)
def _quiet_logs(caplog):
    caplog.set_level(logging.CRITICAL, "gimbalmq")


def owned(member):
    return {queue.path for queue in member.assignment() if queue.topic == "orders"}


@pytest.mark.rule("B10.12")
@pytest.mark.parametrize("mode", LOCKING)
@pytest.mark.parametrize("rebalance_interval_s", [1.0, 3.0, 10.0])
def test_a_dead_member_is_followed_after_the_grace_time_however_often_passes_run(
    mode, rebalance_interval_s
):
    stage = Stage(mode=mode, rebalance_interval_s=rebalance_interval_s).begin()
    victim, survivor = stage.members
    stage.crash(victim)
    stage.run_for(3.5)
    assert owned(survivor) != QUEUES, "it might be alive"
    stage.run_for(1.5)
    assert owned(survivor) == QUEUES
    assert check_exclusive(stage.world.history) == []


@pytest.mark.parametrize("mode", LOCKING)
def test_members_that_come_and_go_every_second_do_not_keep_a_dead_one_from_being_followed(mode):
    stage = Stage(mode=mode).begin()
    victim, survivor = stage.owner("broker-a")
    stage.crash(victim)
    died_at = stage.world.now
    while "orders/broker-a/0" not in owned(survivor):
        assert stage.world.now - died_at < 30.0, "its locks end after a minute by themselves"
        stage.run_for(0.6)
        restless = stage.start_member("z")  # sorts last: the first queue stays the survivor's
        stage.run_for(0.6)
        stage.crash(restless)
    assert check_exclusive(stage.world.history) == []


def effects_of(member):
    """Everything that a member's machine wants done from now on."""
    seen, handle = [], member.machine.handle

    def watched(event, now):
        effects = handle(event, now)
        seen.extend(effects)
        return effects

    member.machine.handle = watched
    return seen


@pytest.mark.parametrize("mode", LOCKING)
def test_a_lock_that_a_live_member_holds_for_long_is_waited_for_and_not_fought_for(mode):
    """It drains a listener of half a minute, and a third member has just died."""
    stage = Stage(mode=mode, listener_s=30.0).begin()
    doomed = stage.start_member()
    heir = stage.start_member("a0")  # sorts first, so the first queue is its own
    stage.run_for(1.0)
    stage.crash(doomed)
    seen = effects_of(heir)
    stage.run_for(20.0)
    assert owned(heir) == set(), "the listener still runs"
    kinds = Counter(type(effect) for effect in seen)
    assert 1 <= kinds[fx.TakeOver] <= 3, "grace, and twice as long each time"
    assert kinds[fx.ListEverywhere] <= 5
    assert kinds[fx.Lock] <= 60, "at first often, later once in a second, renewals among them"
    stage.run_for(100.0)
    assert owned(heir) == {"orders/broker-a/0"}
    assert check_exclusive(stage.world.history) == []


@pytest.mark.parametrize("mode", LOCKING)
@pytest.mark.parametrize("cut_again_s", [1.5, 2.0, 2.5, 3.0])
@pytest.mark.parametrize("joining", [False, True])
def test_a_member_that_is_back_for_a_moment_during_the_grace_time_is_not_robbed(
    mode, cut_again_s, joining
):
    """It renews its lock in that moment, is cut off again, and goes on for as long as it may.

    Only the second broker sees it, while the lists of passes come from the first.
    """
    stage = Stage(mode=mode).begin()
    victim, survivor = stage.owner("broker-b")
    stage.sever(victim, "broker-a")
    stage.tear(victim, "broker-b")  # both know, and a second later there is another connection
    stage.run_for(cut_again_s)
    if joining:
        stage.start_member("z")
        stage.run_for(0.1)
    stage.sever(victim, "broker-b")
    stage.run_for(12.0)
    assert "orders/broker-a/0" in owned(survivor)
    assert check_exclusive(stage.world.history) == []


@pytest.mark.rule("B10.12")
@pytest.mark.parametrize("mode", LOCKING)
def test_a_newcomer_that_has_not_seen_the_dead_go_has_their_queues_as_soon(mode):
    """A killed process is replaced under another id, and the first queue is the new one's."""
    stage = Stage(mode=mode).begin()
    victim, _survivor = stage.owner("broker-a")
    stage.crash(victim)
    stage.run_for(2.0)
    heir = stage.start_member("a0")
    stage.run_for(4.0)
    assert owned(heir) == {"orders/broker-a/0"}
    assert check_exclusive(stage.world.history) == []

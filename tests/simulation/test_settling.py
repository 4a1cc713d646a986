"""How soon a group agrees, in virtual time: exact, and independent of the machine."""

from __future__ import annotations

import logging

import pytest

from gimbalmq.testing.checkers import check_exclusive
from gimbalmq.testing.sim import Mode, Options, simulate
from simulation.stage import PLAIN, Stage

QUEUES = {"orders/broker-a/0", "orders/broker-b/0"}
#: Timers of the simulated members: routes are polled, and passes run, every ten seconds.
ROUTE_S = REBALANCE_S = 10.0


@pytest.fixture(autouse=True)
def _quiet_logs(caplog):
    caplog.set_level(logging.CRITICAL, "gimbalmq")


def owned(*members):
    return [
        {queue.path for queue in member.assignment() if queue.topic == "orders"}
        for member in members
    ]


@pytest.mark.rule("B9b")
def test_a_join_and_a_clean_leave_settle_an_ordered_group_within_two_seconds():
    stage = Stage(mode=Mode.ORDERED).begin()
    first, second = stage.members
    assert sorted(map(len, owned(first, second))) == [1, 1]
    stage.leave(second)
    stage.world.run_until(8.0)
    assert owned(first) == [QUEUES]
    stage.start_member()
    stage.world.run_until(10.0)
    third = stage.members[-1]
    shares = owned(first, third)
    assert set().union(*shares) == QUEUES
    assert sorted(map(len, shares)) == [1, 1]
    assert check_exclusive(stage.world.history) == []


@pytest.mark.rule("B10.1")
@pytest.mark.parametrize("block", range(2))
def test_pitfall_1_members_with_different_views_agree_within_a_route_and_a_rebalance_interval(
    block,
):
    options = Options(
        mode=Mode.CONCURRENT,
        faults=("partition", "isolation", "torn connection"),
        settled_within_s=ROUTE_S + REBALANCE_S,
        **PLAIN,
    )
    for seed in range(block * 10, block * 10 + 10):
        outcome = simulate(seed, options)
        assert not outcome.violations, outcome.report()


@pytest.mark.rule("B10.1")
def test_pitfall_1_with_a_lease_different_views_give_no_queue_two_owners_at_all():
    options = Options(mode=Mode.LEASE, faults=("partition", "isolation", "torn connection"))
    for seed in range(10):
        outcome = simulate(seed, options)
        assert check_exclusive(outcome.history) == [], outcome.report()

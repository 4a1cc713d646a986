"""Seeded campaigns: random trouble for random groups; a failing seed is printed and replays."""

from __future__ import annotations

import logging

import pytest

from gimbalmq.runtime.pull_calls import PullCalls
from gimbalmq.testing.checkers import check_once
from gimbalmq.testing.sim import Mode, Options, simulate

LOCKING = (Mode.ORDERED, Mode.LEASE)
#: Trouble that ends a member for good, or leaves everybody's contact to the brokers alone.
MEMBERSHIP = ("join", "leave", "crash", "power loss", "name server crash")
#: Ten thousand seeds, in parts that can run beside each other (`-n`).
SOAK_PARTS, SOAK_SEEDS = 4, 2_500


@pytest.fixture(autouse=True)
def _quiet_logs(caplog):
    caplog.set_level(logging.CRITICAL, "gimbalmq")


def check(seeds, options):
    for seed in seeds:
        outcome = simulate(seed, options)
        assert not outcome.violations, outcome.report()


@pytest.mark.parametrize("block", range(5))
def test_no_trouble_loses_messages_or_queues_of_a_concurrent_group(block):
    check(range(block * 20, block * 20 + 20), Options(mode=Mode.CONCURRENT))


@pytest.mark.parametrize("block", range(3))
@pytest.mark.parametrize("mode", LOCKING)
def test_members_that_come_go_and_die_keep_locked_queues_apart(mode, block):
    check(range(block * 15, block * 15 + 15), Options(mode=mode, faults=MEMBERSHIP))


@pytest.mark.parametrize("mode", LOCKING)
def test_no_trouble_at_all_lets_two_members_consume_a_locked_queue(mode):
    check(range(50), Options(mode=mode))


@pytest.mark.parametrize("mode", LOCKING)
def test_passes_more_often_than_the_grace_time_change_nothing_about_that(mode):
    check(range(2000, 2015), Options(mode=mode, rebalance_interval_s=2.0))


@pytest.mark.parametrize("seed", range(900, 910))
def test_a_lease_delivers_nothing_twice_when_members_only_join_and_leave(seed):
    options = Options(mode=Mode.LEASE, faults=("join", "leave"), rough_listeners=False)
    outcome = simulate(seed, options)
    assert not outcome.violations, outcome.report()
    assert check_once(outcome.history) == [], outcome.report()


@pytest.mark.parametrize("mode", Mode)
def test_pulling_ahead_breaks_no_promise(mode, monkeypatch):
    early, ask_early = [], PullCalls._ask_early

    def counted(self, *arguments):
        early.append(self)
        ask_early(self, *arguments)

    monkeypatch.setattr(PullCalls, "_ask_early", counted)
    check(range(10), Options(mode=mode, backlog=True))
    assert len(early) > 50


@pytest.mark.soak
@pytest.mark.parametrize("part", range(SOAK_PARTS))
def test_no_trouble_breaks_a_promise_in_thousands_of_runs(record_property, part):
    slowest_s: dict[Mode, float] = {}
    failed = []
    for seed in range(part * SOAK_SEEDS, (part + 1) * SOAK_SEEDS):
        # One in four with much to read, so that pulls run ahead.
        outcome = simulate(seed, Options(backlog=seed % 4 == 0))
        slowest_s[outcome.mode] = max(slowest_s.get(outcome.mode, 0.0), outcome.settled_after_s)
        if outcome.violations:
            failed.append(outcome.report())
    record_property("seeds", SOAK_SEEDS)
    for mode, seconds in slowest_s.items():
        record_property(f"settled after, {mode.value}, at most (s)", round(seconds, 2))
    assert not failed, "\n\n".join(failed[:20])

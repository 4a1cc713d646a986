"""Seeded campaigns: random trouble for random groups; a failing run is printed as what replays it."""

from __future__ import annotations

import logging
from collections import Counter

import pytest

from gimbalmq.runtime.pull_calls import PullCalls
from gimbalmq.testing.sim import Mode, Options, simulate

LOCKING = (Mode.ORDERED, Mode.LEASE)
#: Trouble that ends a member for good, or leaves everybody's contact to the brokers alone.
MEMBERSHIP = ("join", "leave", "crash", "power loss", "name server crash")
#: Ten thousand seeds, in parts that can run beside each other (`-n`).
SOAK_PARTS, SOAK_SEEDS = 4, 2_500
#: One in ten of these is a pull consumer's group; the others are drawn.
SOAK_MODES = (None,) * 18 + (Mode.LITE_PULL, Mode.CLASSIC_PULL)


@pytest.fixture(autouse=True)
def _quiet_logs(caplog):
    caplog.set_level(logging.CRITICAL, "gimbalmq")


def check(seeds, options):
    for seed in seeds:
        outcome = simulate(seed, options)
        assert not outcome.violations, outcome.report()


@pytest.mark.parametrize("block", range(4))
def test_no_trouble_loses_messages_or_queues_of_a_concurrent_group(block):
    check(range(block * 20, block * 20 + 20), Options(mode=Mode.CONCURRENT))


@pytest.mark.parametrize("block", range(2))
@pytest.mark.parametrize("mode", LOCKING)
def test_members_that_come_go_and_die_keep_locked_queues_apart(mode, block):
    check(range(block * 15, block * 15 + 15), Options(mode=mode, faults=MEMBERSHIP))


@pytest.mark.parametrize("mode", LOCKING)
def test_no_trouble_at_all_lets_two_members_consume_a_locked_queue(mode):
    check(range(50), Options(mode=mode))


@pytest.mark.parametrize("mode", LOCKING)
def test_passes_more_often_than_the_grace_time_change_nothing_about_that(mode):
    check(range(2000, 2015), Options(mode=mode, rebalance_interval_s=2.0))


@pytest.mark.parametrize("busy", [False, True])
@pytest.mark.parametrize("mode", LOCKING)
def test_what_a_lock_guards_is_delivered_once_when_members_only_join_and_leave(mode, busy):
    options = Options(
        mode=mode,
        faults=("join", "leave"),
        faults_max=12,
        backlog=True,
        busy_brokers=busy,
        keyed=False,
        foreign=False,
    )
    check(range(900, 912), options)


def test_foreign_members_among_ours_keep_locked_queues_apart():
    check(range(15), Options(mode=Mode.ORDERED, foreign=True))


@pytest.mark.parametrize("mode", [Mode.CONCURRENT, *LOCKING])
def test_keys_consumed_in_parallel_stay_in_order_through_all_trouble(mode):
    check(range(100, 110), Options(mode=mode, keyed=True))


@pytest.mark.parametrize("mode", [Mode.LITE_PULL, Mode.CLASSIC_PULL])
def test_no_trouble_loses_messages_or_queues_of_users_who_pull(mode):
    check(range(12), Options(mode=mode))


@pytest.mark.parametrize("mode", [mode for mode in Mode if mode is not Mode.CLASSIC_PULL])
def test_pulling_ahead_breaks_no_promise(mode, monkeypatch):
    calls = Counter()

    def count(name):
        called = getattr(PullCalls, name)

        def counted(self, *arguments):
            calls[name] += 1
            return called(self, *arguments)

        monkeypatch.setattr(PullCalls, name, counted)

    for name in ("_ask_early", "_found", "_read"):
        count(name)
    check(range(10), Options(mode=mode, backlog=True))
    assert calls["_ask_early"] > 50
    if mode is not Mode.ORDERED:  # there only by key
        assert calls["_read"] - calls["_found"] > 50, "answers came together"


@pytest.mark.soak
@pytest.mark.parametrize("part", range(SOAK_PARTS))
def test_no_trouble_breaks_a_promise_in_thousands_of_runs(record_property, part):
    slowest_s: dict[Mode, float] = {}
    failed = []
    for seed in range(part * SOAK_SEEDS, (part + 1) * SOAK_SEEDS):
        # One in four with much to read, so that pulls run ahead.
        options = Options(mode=SOAK_MODES[seed % len(SOAK_MODES)], backlog=seed // 20 % 4 == 0)
        outcome = simulate(seed, options)
        slowest_s[outcome.mode] = max(slowest_s.get(outcome.mode, 0.0), outcome.settled_after_s)
        if outcome.violations:
            failed.append(outcome.report())
    record_property("seeds", SOAK_SEEDS)
    for mode, seconds in slowest_s.items():
        record_property(f"settled after, {mode.value}, at most (s)", round(seconds, 2))
    assert not failed, "\n\n".join(failed[:20])

"""Queues that change hands while slow listeners fail: with leases each failure is one more start."""

from __future__ import annotations

import logging
from collections import Counter

import pytest

from gimbalmq.testing.sim import Kind, Mode, Options, simulate
from gimbalmq.testing.sim.cast import Cast
from gimbalmq.testing.sim.executor import ListenerHabits

#: Members come and go all the time, and all messages are there from the start.
BUSY = Options(
    mode=Mode.LEASE,
    faults=("join", "leave"),
    faults_max=16,
    rough_listeners=False,
    backlog=True,
    quiet_s=90.0,
    keyed=False,
    foreign=False,
)


@pytest.fixture(autouse=True)
def _quiet_logs(caplog):
    caplog.set_level(logging.CRITICAL, "gimbalmq")


@pytest.fixture
def _failing(monkeypatch):
    habits = ListenerHabits(0.05, 0.3, failure_share=0.3)
    monkeypatch.setattr(Cast, "_habits", lambda _cast: habits)


def started_in_vain(history):
    """Messages that were started more often than their failures call for."""
    starts = Counter(line.text for line in history.of(Kind.STARTED))
    failures = Counter(line.text for line in history.of(Kind.FAILED))
    return [
        f"{text}: started {count} times, failed {failures[text]} times"
        for text, count in starts.items()
        if count > 1 + failures[text]
    ]


@pytest.mark.rule("B10.6")
@pytest.mark.usefixtures("_failing")
def test_pitfall_6_a_lease_delivers_nothing_twice_but_what_failed():
    moves = 0
    for seed in range(30):
        outcome = simulate(seed, BUSY)
        assert not outcome.violations, outcome.report()
        assert started_in_vain(outcome.history) == [], outcome.report()
        moves += len(outcome.history.of(Kind.RELEASED))
    assert moves > 100, "queues did change hands"

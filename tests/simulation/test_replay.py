"""The same seed is the same run, also in another process with other hashes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from gimbalmq.core.consumer.machine import ConsumerMachine
from gimbalmq.testing import sim
from gimbalmq.testing.sim import Mode, Options, simulate, world

PROGRAM = """
import logging, sys
logging.disable(logging.CRITICAL)
from gimbalmq.testing.sim import simulate
print(*(simulate(seed).history.digest() for seed in (3, 4, 5)))
"""


@pytest.mark.parametrize("mode", Mode)
def test_the_same_seed_gives_the_same_history(mode):
    options = Options(mode=mode)
    first, again = simulate(7, options), simulate(7, options)
    assert first.history.story() == again.history.story()
    assert first.violations == again.violations


def test_another_seed_gives_another_history():
    assert simulate(1).history.digest() != simulate(2).history.digest()


def test_a_seed_replays_in_another_process_whatever_its_hash_seed():
    digests = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1


def again(outcome):
    """What the first line of a report does."""
    return eval(outcome.report().splitlines()[0], dict(vars(sim)))


@pytest.mark.parametrize(
    "options",
    [
        None,
        Options(mode=Mode.LEASE, backlog=True),
        Options(faults=("crash", "join"), rejoin_grace_s=20.0, member_away_s=(0.1, 1.0 / 3.0)),
        Options(mode=Mode.ORDERED, keyed=True, busy_brokers=True, foreign=True),
    ],
)
def test_what_a_report_begins_with_replays_its_run(options):
    outcome = simulate(17, options)
    assert again(outcome).history.story() == outcome.history.story()
    assert again(outcome).options == outcome.options


def test_what_is_drawn_does_not_depend_on_what_is_given():
    drawn = Options().drawn(17)
    for name in ("mode", "rebalance_interval_s", "keyed", "busy_brokers", "spare_first"):
        given = Options(**{name: getattr(drawn, name)})
        assert given.drawn(17) == drawn
    assert simulate(17).history.digest() == simulate(17, drawn).history.digest()


def test_seeds_draw_all_there_is():
    drawn = [Options().drawn(seed) for seed in range(100)]
    assert {one.mode for one in drawn} == {Mode.CONCURRENT, Mode.ORDERED, Mode.LEASE}
    assert {one.rebalance_interval_s for one in drawn} == {3.0, 10.0, 20.0}
    for name in ("keyed", "foreign", "busy_brokers", "spare_first"):
        assert {getattr(one, name) for one in drawn} == {False, True}, name


def test_an_invariant_that_breaks_is_reported_with_what_replays_it(monkeypatch):
    validate, calls = ConsumerMachine.validate, []

    def breaks(self):
        validate(self)
        calls.append(self)
        assert len(calls) % 500, "an invariant"

    monkeypatch.setattr(ConsumerMachine, "validate", breaks)
    outcome = simulate(4, Options(mode=Mode.ORDERED))
    (said,) = outcome.violations
    assert said.startswith("broken at ")
    assert "AssertionError: an invariant" in said
    assert "in breaks" in said, "where it broke"
    calls.clear()
    assert again(outcome).history.story() == outcome.history.story()


def test_a_run_in_circles_is_reported_with_what_replays_it(monkeypatch):
    monkeypatch.setattr(world, "_EVENTS_MAX", 500)
    outcome = simulate(4, Options(mode=Mode.ORDERED))
    assert "more than 500 events" in outcome.violations[0]
    assert again(outcome).history.story() == outcome.history.story()

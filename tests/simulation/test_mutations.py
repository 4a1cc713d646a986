"""The simulator sees what it is there to see: a product that breaks a promise is found.

Each test takes one thing away from the product that a promise rests on, and shows that a few seeds
of a campaign find it, and by which checker.
"""

from __future__ import annotations

import logging

import msgspec
import pytest

from gimbalmq.broker.locks import LockTable
from gimbalmq.core.consumer.delivery import Delivery
from gimbalmq.core.consumer.keyed import KeyedDelivery
from gimbalmq.core.process_queue import ProcessQueue
from gimbalmq.runtime.lock_calls import LockCalls
from gimbalmq.testing.sim import Mode, Options, simulate
from gimbalmq.testing.sim.executor import SimExecutor
from simulation.stage import PLAIN

LOCKING = (Mode.ORDERED, Mode.LEASE)


@pytest.fixture(autouse=True)
def _quiet_logs(caplog):
    caplog.set_level(logging.CRITICAL, "gimbalmq")


def first_found(kind, options, seeds=range(40)):
    """What the checkers say of the first seed that shows a violation of some kind."""
    for seed in seeds:
        found = [one for one in simulate(seed, options).violations if one.startswith(kind)]
        if found:
            return found[0]
    pytest.fail(f"no seed of {options!r} shows '{kind}'")


def nothing(*_arguments, **_options):
    return None


@pytest.mark.parametrize("mode", LOCKING)
def test_a_group_that_waits_for_locks_to_expire_is_slow(mode, monkeypatch):
    monkeypatch.setattr(LockCalls, "take_over", nothing)
    faults = ("join", "leave", "crash", "name server crash")
    options = Options(mode=mode, faults=faults, **{**PLAIN, "spare_first": True})
    assert "slow" in first_found("slow", options)
    silent = Options(mode=mode, faults=("power loss",), **{**PLAIN, "spare_first": True})
    assert "slow" in first_found("slow", silent)


@pytest.mark.parametrize("mode", LOCKING)
def test_a_queue_that_is_handed_over_while_listeners_run_is_found(mode, monkeypatch):
    cancel = SimExecutor.cancel

    def not_waited_for(self, queue, epoch):
        cancel(self, queue, epoch)
        return 0

    monkeypatch.setattr(SimExecutor, "cancel", not_waited_for)
    options = Options(mode=mode, faults=("join", "leave"), **PLAIN)
    for kind in ("not drained", "overlap", "delivered"):
        assert kind in first_found(kind, options)


def test_a_broker_that_locks_for_everybody_gives_a_queue_two_owners(monkeypatch):
    monkeypatch.setattr(LockTable, "lock", lambda _self, _group, _id, queues, *_rest: list(queues))
    assert "two owners" in first_found("two owners", Options(mode=Mode.ORDERED))


@pytest.mark.parametrize("mode", [Mode.CONCURRENT, Mode.LEASE, Mode.LITE_PULL])
def test_a_member_that_takes_an_offset_back_is_found(mode, monkeypatch):
    reached = ProcessQueue.commit_offset.fget

    def now_and_then_less(self):
        return max(0, reached(self) - 2 * (reached(self) % 3 == 0))

    monkeypatch.setattr(ProcessQueue, "commit_offset", property(now_and_then_less))
    assert "stores" in first_found("offset taken back", Options(mode=mode))


def test_keys_that_are_consumed_side_by_side_are_found(monkeypatch):
    monkeypatch.setattr(KeyedDelivery, "_key", lambda _self, batch, at: (batch.offsets[at],))
    options = Options(mode=Mode.ORDERED, keyed=True, backlog=True)
    assert "side by side" in first_found("side by side", options)
    assert "out of order" in first_found("out of order", options)


def test_an_ordered_queue_that_goes_on_after_a_failure_is_found(monkeypatch):
    take_in = Delivery._take_in

    def passing_over(self, held, event, reached, now):
        if event.suspend_s is not None:
            reached += 1
            at = None if reached == event.until else reached
            event = msgspec.structs.replace(event, suspend_s=None, reached=at)
        take_in(self, held, event, reached, now)

    monkeypatch.setattr(Delivery, "_take_in", passing_over)
    options = Options(mode=Mode.ORDERED, keyed=False)
    assert "out of order" in first_found("out of order", options)
    assert "lost" in first_found("lost", options)

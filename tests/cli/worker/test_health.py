from __future__ import annotations

import msgspec
import pytest

from gimbalmq.cli.worker.health import families, live, pages, ready
from gimbalmq.cli.worker.reports import Status
from gimbalmq.cli.worker.supervisor import ChildNow, WorkerNow
from gimbalmq.telemetry.catalogue import CONSUMER_QUEUES
from gimbalmq.telemetry.exposition import expose


def child(number, state="ready", status: Status | None = None, **changes):
    return ChildNow(
        number,
        state,
        changes.get("restarts", 0),
        100 + number,
        None,
        status,
        changes.get("silent_s", 0.0),
    )


def status(*, is_live=True, is_ready=True, reasons=(), owned=2):
    measured = CONSUMER_QUEUES.family([CONSUMER_QUEUES.sample(owned, "billing")])
    return Status(1, is_live, is_ready, tuple(reasons), owned, (measured,))


def worker(*children, stopping=False):
    return WorkerNow(stopping, False, children, {"halted": 1})


def test_one_child_that_consumes_is_enough_to_be_ready():
    now = worker(child(1, status=status()), child(2, "starting"))
    assert ready(now) == (True, ["child 2: starting"])
    assert live(now) == (True, [])


@pytest.mark.parametrize(
    ("one", "reason"),
    [
        (child(1, "waiting"), "child 1: waiting"),
        (child(1), "child 1: does not answer"),
        (child(1, status=status(is_ready=False, reasons=["no broker"])), "child 1: no broker"),
    ],
)
def test_without_any_it_is_not_ready_and_says_why(one, reason):
    assert ready(worker(one)) == (False, [reason])


def test_a_worker_that_stops_is_not_ready():
    assert not ready(worker(child(1, status=status()), stopping=True))[0]


def test_a_child_that_was_given_up_or_is_stuck_calls_for_a_restart():
    assert live(worker(child(1, "given_up"))) == (False, ["child 1 was given up"])
    stuck = child(2, status=status(is_live=False, is_ready=False, reasons=["all workers hang"]))
    assert live(worker(stuck)) == (False, ["child 2: all workers hang"])


@pytest.mark.parametrize("state", ["starting", "draining", "waiting", "gone"])
def test_a_child_that_comes_or_goes_is_no_reason_for_a_restart(state):
    leaving = status(is_live=False, is_ready=False, reasons=["the consumer is stopping"])
    for said in (leaving, None):
        assert live(worker(child(1, state, said, silent_s=100.0))) == (True, [])


def test_a_child_that_consumes_and_stays_silent_calls_for_a_restart():
    assert live(worker(child(1, silent_s=10.0))) == (True, [])
    assert live(worker(child(1, silent_s=16.2))) == (False, ["child 1 has not answered for 16 s"])


def test_metrics_of_children_are_told_apart():
    now = worker(
        child(1, status=status(owned=3)), child(2, status=status(owned=5)), child(3, "waiting")
    )
    text = expose(families(now))
    assert 'gimbalmq_consumer_queues{group="billing",worker="1"} 3\n' in text
    assert 'gimbalmq_consumer_queues{group="billing",worker="2"} 5\n' in text
    assert 'gimbalmq_worker_children{state="waiting"} 1\n' in text
    assert 'gimbalmq_worker_reloads_total{outcome="halted"} 1\n' in text


def test_pages_speak_the_language_of_orchestrators():
    made = pages(lambda: worker(child(1, "given_up", restarts=4)))
    assert made["/live"]().status == made["/ready"]().status == 503
    assert made["/metrics"]().status == 200
    detail = msgspec.json.decode(made["/"]().body)
    assert detail["live"] is detail["ready"] is False
    assert detail["children"][0]["restarts"] == 4

"""Messages that a listener has had for too long are sent back, and no longer hold up the offset."""

import pytest

from core.consumer.harness import ME, QUEUES, Harness, one, only
from core.consumer.test_locks import LockingHarness
from gimbalmq.core.consumer.effects import Consume, FindExpired, SendBack, SetTimer, Warn
from gimbalmq.core.consumer.events import (
    Consumed,
    Expired,
    SentBack,
    Started,
    TimerFired,
    TimerName,
)

QUEUE = QUEUES[0]


def with_three_running(**settings):
    harness = Harness(**settings)
    pull = harness.owning(ME)[QUEUE]
    batch = one(harness.deliver(pull, b"a", b"b", b"c"), Consume).batch
    return harness, pull.epoch, batch


def offset_of(harness):
    return harness.machine.held[QUEUE].process.commit_offset


@pytest.mark.rule("B3g")
def test_looks_repeat_and_ask_for_at_most_sixteen_of_a_queue():
    harness = Harness(consume_timeout_s=900.0)
    timer = next(e for e in only(harness.start(), SetTimer) if e.name is TimerName.EXPIRE)
    effects = harness.handle(TimerFired(TimerName.EXPIRE))
    assert one(effects, FindExpired) == FindExpired(900.0, 16)
    assert one(effects, SetTimer) == timer, "and again after the same time"
    assert timer.delay_s < 900.0


@pytest.mark.rule("B3g")
def test_an_expired_message_goes_back_with_level_three_and_frees_the_offset():
    harness, epoch, batch = with_three_running()
    effects = harness.handle(Expired(QUEUE, epoch, batch, 0))
    back = one(effects, SendBack)
    assert (back.position, back.delay_level) == (0, 3)
    assert "consume_timeout_s" in one(effects, Warn).text
    assert offset_of(harness) == 0, "not before the broker has it"
    harness.handle(SentBack(QUEUE, epoch, batch, 0, ok=True))
    assert offset_of(harness) == 1
    assert harness.machine.tally().expired == 1


@pytest.mark.rule("B3g")
def test_it_is_sent_back_once_however_often_it_is_found():
    harness, epoch, batch = with_three_running()
    assert only(harness.handle(Expired(QUEUE, epoch, batch, 0)), SendBack)
    assert not only(harness.handle(Expired(QUEUE, epoch, batch, 0)), SendBack)
    harness.handle(SentBack(QUEUE, epoch, batch, 0, ok=True))
    assert not only(harness.handle(Expired(QUEUE, epoch, batch, 0)), SendBack)


@pytest.mark.rule("B3g")
@pytest.mark.parametrize("failures", [(), ((0, 0),)], ids=["returns", "raises"])
@pytest.mark.parametrize("answered_first", [True, False])
def test_what_the_listener_says_afterwards_changes_nothing(failures, answered_first):
    harness, epoch, batch = with_three_running()
    harness.handle(Expired(QUEUE, epoch, batch, 0))
    events = [
        SentBack(QUEUE, epoch, batch, 0, ok=True),
        Consumed(QUEUE, epoch, batch, 0, 1, failures),
    ]
    for event in events if answered_first else reversed(events):
        assert not only(harness.handle(event), SendBack), "not sent back a second time"
    assert offset_of(harness) == 1
    assert harness.machine.held[QUEUE].process.cached_count == 2


def test_a_failed_send_back_of_a_message_that_still_runs_is_tried_at_the_next_look():
    harness, epoch, batch = with_three_running()
    harness.handle(Expired(QUEUE, epoch, batch, 0))
    effects = harness.handle(SentBack(QUEUE, epoch, batch, 0, ok=False, reason="busy"))
    assert not only(effects, SetTimer), "not delivered again beside the listener that has it"
    assert offset_of(harness) == 0
    assert only(harness.handle(Expired(QUEUE, epoch, batch, 0)), SendBack)


def test_a_failed_send_back_of_a_message_whose_listener_failed_is_delivered_again_here():
    harness, epoch, batch = with_three_running()
    harness.handle(Expired(QUEUE, epoch, batch, 0))
    harness.handle(Consumed(QUEUE, epoch, batch, 0, 1, ((0, 0),)))
    effects = harness.handle(SentBack(QUEUE, epoch, batch, 0, ok=False, reason="busy"))
    timer = one(effects, SetTimer)
    assert timer.name is TimerName.REDELIVER
    again = one(harness.handle(TimerFired(timer.name, QUEUE, epoch)), Consume)
    assert (again.first, again.until) == (0, 1)


def test_a_message_of_an_earlier_acquisition_is_not_sent_back():
    harness, epoch, batch = with_three_running()
    assert not only(harness.handle(Expired(QUEUE, epoch + 100, batch, 0)), SendBack)


@pytest.mark.rule("B3g")
@pytest.mark.parametrize(
    "settings", [{"ordered": True}, {"broadcasting": True}, {"consume_timeout_s": None}], ids=str
)
def test_nothing_expires_where_it_could_not_come_back(settings):
    harness = (LockingHarness if "ordered" in settings else Harness)(**settings)
    timers = [effect.name for effect in only(harness.handle(Started()), SetTimer)]
    assert TimerName.EXPIRE not in timers

"""Ordered delivery: one run at a time, a failure stops the queue, commit and rollback."""

import pytest

from core.consumer.harness import ME, QUEUES, one, only
from core.consumer.test_locks import LockingHarness
from gimbalmq.core.consumer.effects import Bury, Consume, HandOver, Lock, SetTimer, Warn
from gimbalmq.core.consumer.events import (
    Cancelled,
    Consumed,
    LockAnswered,
    SentBack,
    StopRequested,
    TimerFired,
    TimerName,
)


def ordered(**settings):
    harness = LockingHarness(**settings)
    pull = harness.owning_locked(ME)[QUEUES[0]]
    return harness, pull


def offset_of(harness):
    return harness.machine.held[QUEUES[0]].process.commit_offset


@pytest.mark.rule("B5.2", "B5.2a")
def test_one_run_of_a_queue_is_with_a_worker_at_a_time():
    harness, pull = ordered()
    effects = harness.deliver(pull, b"a", b"b")
    first = one(effects, Consume)
    assert first.ordered
    second_pull = next(e for e in effects if type(e).__name__ == "Pull")
    assert not only(harness.deliver(second_pull, b"c"), Consume)
    effects = harness.handle(Consumed(pull.queue, pull.epoch, first.batch, 0, 2))
    assert one(effects, Consume).batch is not first.batch
    assert offset_of(harness) == 2


@pytest.mark.rule("B5.2", "B5.2c")
def test_a_failed_message_stops_the_queue_and_is_tried_again_after_the_pause():
    harness, pull = ordered()
    batch = one(harness.deliver(pull, b"a", b"b", b"c"), Consume).batch
    effects = harness.handle(
        Consumed(pull.queue, pull.epoch, batch, 0, 3, reached=1, suspend_s=0.5)
    )
    timer = one(effects, SetTimer)
    assert (timer.name, timer.delay_s) == (TimerName.CONTINUE, 0.5)
    assert offset_of(harness) == 1
    again = one(harness.handle(TimerFired(timer.name, timer.queue, timer.epoch)), Consume)
    assert (again.batch, again.first, again.until) == (batch, 1, 3)


@pytest.mark.rule("B5.2", "B5.2c")
@pytest.mark.parametrize(("asked", "pause"), [(0.0, 0.01), (100.0, 30.0)])
def test_the_pause_is_kept_within_javas_bounds(asked, pause):
    harness, pull = ordered()
    batch = one(harness.deliver(pull, b"a"), Consume).batch
    effects = harness.handle(
        Consumed(pull.queue, pull.epoch, batch, 0, 1, reached=0, suspend_s=asked)
    )
    assert one(effects, SetTimer).delay_s == pause


@pytest.mark.rule("B5.2", "B5.2d")
def test_a_message_that_failed_too_often_is_buried_and_the_queue_goes_on():
    harness, pull = ordered(ordered_reconsume_max=1)
    batch = one(harness.deliver(pull, b"a", b"b"), Consume).batch
    failed = Consumed(pull.queue, pull.epoch, batch, 0, 2, reached=0, suspend_s=1.0)
    harness.handle(failed)
    harness.handle(TimerFired(TimerName.CONTINUE, pull.queue, pull.epoch))
    assert one(harness.handle(failed), Bury).position == 0
    effects = harness.handle(SentBack(pull.queue, pull.epoch, batch, 0, ok=True))
    assert one(effects, Consume).first == 1
    assert offset_of(harness) == 1


def test_a_message_that_cannot_be_buried_holds_the_queue():
    harness, pull = ordered()
    batch = one(harness.deliver(pull, b"a"), Consume).batch
    buried = Consumed(pull.queue, pull.epoch, batch, 0, 1, reached=0, buried=True)
    assert one(harness.handle(buried), Bury).position == 0
    effects = harness.handle(SentBack(pull.queue, pull.epoch, batch, 0, ok=False, reason="down"))
    assert "could not be moved" in one(effects, Warn).text
    assert one(effects, SetTimer).name is TimerName.CONTINUE
    assert offset_of(harness) == 0


@pytest.mark.rule("B5.2", "B5.2e", "B3f")
def test_without_auto_commit_the_offset_waits_for_the_commit():
    harness, pull = ordered()
    effects = harness.deliver(pull, b"a", b"b")
    first = one(effects, Consume).batch
    next_pull = next(e for e in effects if type(e).__name__ == "Pull")
    harness.deliver(next_pull, b"c", b"d")
    effects = harness.handle(Consumed(pull.queue, pull.epoch, first, 0, 2, uncommitted_from=0))
    assert offset_of(harness) == 0
    second = one(effects, Consume).batch
    # A commit covers everything delivered before it.
    harness.handle(Consumed(pull.queue, pull.epoch, second, 0, 2, uncommitted_from=1))
    assert offset_of(harness) == 3


@pytest.mark.rule("B5.2", "B5.2e", "B3f")
def test_a_rollback_delivers_everything_uncommitted_again_in_order():
    harness, pull = ordered()
    effects = harness.deliver(pull, b"a", b"b")
    first = one(effects, Consume).batch
    next_pull = next(e for e in effects if type(e).__name__ == "Pull")
    harness.deliver(next_pull, b"c", b"d")
    effects = harness.handle(Consumed(pull.queue, pull.epoch, first, 0, 2, uncommitted_from=0))
    second = one(effects, Consume).batch
    harness.handle(
        Consumed(
            pull.queue, pull.epoch, second, 0, 2, reached=1, uncommitted_from=0,
            rolled_back=True, suspend_s=1.0,
        )
    )  # fmt: skip
    timer = TimerFired(TimerName.CONTINUE, pull.queue, pull.epoch)
    order = []
    effects = harness.handle(timer)
    for _ in range(3):
        consume = one(effects, Consume)
        order.append((consume.batch, consume.first, consume.until))
        effects = harness.handle(
            Consumed(pull.queue, pull.epoch, consume.batch, consume.first, consume.until)
        )
    assert order == [(first, 0, 2), (second, 0, 1), (second, 1, 2)]
    assert offset_of(harness) == 4


@pytest.mark.rule("B5.2b")
def test_an_ended_permit_stops_the_queue_until_the_lock_is_renewed():
    harness, pull = ordered()
    batch = one(harness.deliver(pull, b"a", b"b"), Consume).batch
    harness.now += 2.9
    renew, sent_at = one(harness.handle(TimerFired(TimerName.RENEW_LOCKS)), Lock), harness.now
    harness.now += 0.6  # the answer takes its time
    effects = harness.handle(Consumed(pull.queue, pull.epoch, batch, 0, 2, reached=1))
    assert not only(effects, Consume)
    renewed = harness.handle(LockAnswered(renew.asked, frozenset(QUEUES), sent_at))
    assert [(c.first, c.until) for c in only(renewed, Consume)] == [(1, 2)]


# ---- batches -------------------------------------------------------------------------------------


def stopped(harness, pull, batch, reached=0, failed_until=3, **verdict):
    """A listener got messages [reached, failed_until) of a run of five at once, and raised."""
    about = pull.queue, pull.epoch, batch, 0, 5
    return harness.handle(Consumed(*about, reached=reached, failed_until=failed_until, **verdict))


def five_messages(**settings):
    harness, pull = ordered(**settings)
    return harness, pull, one(harness.deliver(pull, b"a", b"b", b"c", b"d", b"e"), Consume).batch


def buried(harness, pull, batch, position, **answer):
    answer = {"ok": True, **answer}
    return harness.handle(SentBack(pull.queue, pull.epoch, batch, position, **answer))


@pytest.mark.rule("B5.2d")
def test_every_message_of_a_batch_that_failed_too_often_is_buried():
    harness, pull, batch = five_messages(ordered_reconsume_max=1)
    stopped(harness, pull, batch, suspend_s=1.0)
    harness.handle(TimerFired(TimerName.CONTINUE, pull.queue, pull.epoch))
    effects = stopped(harness, pull, batch, suspend_s=1.0)
    assert [bury.position for bury in only(effects, Bury)] == [0, 1, 2]
    for position in (2, 0):
        assert not only(buried(harness, pull, batch, position), Consume)
    again = one(buried(harness, pull, batch, 1), Consume)
    assert (again.first, again.until) == (3, 5)
    assert offset_of(harness) == 3
    assert harness.machine.tally().failed == 6


@pytest.mark.rule("B5.2d")
def test_a_batch_that_its_listener_gives_up_is_buried_whole():
    harness, pull, batch = five_messages()
    effects = stopped(harness, pull, batch, reached=1, buried=True)
    assert [bury.position for bury in only(effects, Bury)] == [1, 2]
    buried(harness, pull, batch, 1)
    assert one(buried(harness, pull, batch, 2), Consume).first == 3


@pytest.mark.rule("B5.2d")
def test_only_those_of_a_batch_that_failed_too_often_are_buried():
    """The first two have failed before, in a batch of their own."""
    harness, pull, batch = five_messages(ordered_reconsume_max=1)
    stopped(harness, pull, batch, failed_until=2, suspend_s=1.0)
    harness.handle(TimerFired(TimerName.CONTINUE, pull.queue, pull.epoch))
    effects = stopped(harness, pull, batch, failed_until=4, suspend_s=0.5)
    assert [bury.position for bury in only(effects, Bury)] == [0, 1]
    buried(harness, pull, batch, 0)
    effects = buried(harness, pull, batch, 1)
    assert not only(effects, Consume), "the others pause"
    timer = one(effects, SetTimer)
    assert (timer.name, timer.delay_s) == (TimerName.CONTINUE, 0.5)
    again = one(harness.handle(TimerFired(timer.name, timer.queue, timer.epoch)), Consume)
    assert (again.first, again.until) == (2, 5)


def test_one_of_a_batch_that_cannot_be_buried_is_tried_again_and_those_that_are_buried_not():
    harness, pull, batch = five_messages()
    stopped(harness, pull, batch, buried=True)
    buried(harness, pull, batch, 0)
    assert one(buried(harness, pull, batch, 1, ok=False, reason="down"), Warn)
    effects = buried(harness, pull, batch, 2)
    assert one(effects, SetTimer).name is TimerName.CONTINUE
    again = one(harness.handle(TimerFired(TimerName.CONTINUE, pull.queue, pull.epoch)), Consume)
    assert (again.first, again.until) == (1, 2)
    effects = harness.handle(Consumed(pull.queue, pull.epoch, batch, 1, 2))
    assert (one(effects, Consume).first, one(effects, Consume).until) == (3, 5)
    assert offset_of(harness) == 3


def test_a_batch_that_is_given_up_while_its_queue_is_released_is_buried_whole():
    harness, pull, batch = five_messages()
    harness.handle(StopRequested(5.0))
    harness.handle(Cancelled(pull.queue, pull.epoch, 5))
    effects = stopped(harness, pull, batch, reached=1, failed_until=3, buried=True)
    assert [bury.position for bury in only(effects, Bury)] == [1, 2]
    buried(harness, pull, batch, 2)
    assert one(buried(harness, pull, batch, 1), HandOver).offset == 3

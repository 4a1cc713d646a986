"""What a member tells of its queues, whatever made them come or go, and how long each paused."""

import pytest

from core.consumer.harness import ME, OTHER, QUEUES, Harness, one, only
from core.consumer.test_locks import LockingHarness
from gimbalmq.core.consumer.effects import Announce, FindOffset, Leave, Lock, Moved, Settled
from gimbalmq.core.consumer.events import (
    Assigned,
    Cancelled,
    HandedOver,
    LockAnswered,
    OffsetFound,
    OffsetsReset,
    PullAnswered,
    Started,
    StopRequested,
    TimerFired,
    TimerName,
    Trigger,
    Unsubscribed,
)
from gimbalmq.model.message import PullStatus

QUEUE = QUEUES[0]


@pytest.fixture
def harness():
    return Harness()


def gone(harness, *queues):
    """Listeners of these queues end, and their offsets are stored."""
    effects = []
    for queue in queues:
        about = queue, harness.machine.held[queue].epoch
        effects += harness.handle(Cancelled(*about, 0)) + harness.handle(HandedOver(*about))
    return effects


def told(report):
    return report.trigger, dict(report.moves), report.mine, report.kept


# ---- releases without a pass ---------------------------------------------------------------------


def test_leaving_is_announced(harness):
    harness.owning(ME, OTHER)
    report = one(harness.handle(StopRequested(5.0)), Announce).report
    assert told(report) == (Trigger.STOP, dict.fromkeys(QUEUES[:2], "stop"), (), 0)
    assert (report.revoked, report.all_queues) == (QUEUES[:2], QUEUES)
    assert (report.members, report.strategy) == ((ME, OTHER), "AVG")


def test_a_topic_that_is_no_longer_subscribed_is_announced(harness):
    harness.owning(ME)
    report = one(harness.handle(Unsubscribed("orders")), Announce).report
    why = dict.fromkeys(QUEUES, "topic no longer subscribed")
    assert told(report) == (Trigger.SUBSCRIPTION, why, (), 0)


def test_a_lost_lock_is_announced():
    harness = LockingHarness()
    harness.owning_locked(ME)
    renew = one(harness.handle(TimerFired(TimerName.RENEW_LOCKS)), Lock)
    effects = harness.handle(LockAnswered(renew.asked, frozenset(QUEUES[1:]), harness.now))
    report = one(effects, Announce).report
    assert told(report) == (Trigger.LOCK, {QUEUE: "lock lost"}, QUEUES[1:], 3)


@pytest.mark.parametrize("pushed", [True, False], ids=["pushed", "found by a pull"])
def test_an_offset_that_was_moved_is_announced(harness, pushed):
    pull = harness.owning(ME)[QUEUE]
    event = (
        OffsetsReset({QUEUE: 7})
        if pushed
        else PullAnswered(QUEUE, pull.epoch, PullStatus.OFFSET_ILLEGAL, 7)
    )
    report = one(harness.handle(event), Announce).report
    assert told(report) == (Trigger.OFFSET, {QUEUE: "offset moved to 7"}, QUEUES[1:], 3)


def test_queues_that_the_user_chose_are_announced_when_the_member_leaves():
    harness = Harness(manual=True, pull_idle_limit_s=None)
    harness.handle(Started())
    harness.located(harness.handle(Assigned(frozenset({QUEUE}))))
    report = one(harness.handle(StopRequested(1.0)), Announce).report
    assert (report.revoked, report.strategy, report.members) == ((QUEUE,), "MANUAL", (ME,))


def test_a_queue_that_is_on_its_way_out_is_not_announced_again(harness):
    harness.owning(ME)
    harness.pass_again(ME, OTHER)
    report = one(harness.handle(StopRequested(5.0)), Announce).report
    assert report.revoked == QUEUES[:2]


def test_a_member_leaves_once_also_when_nothing_has_to_be_waited_for(harness):
    harness.start()
    harness.members(ME)
    effects = harness.handle(StopRequested(5.0))
    assert len(only(effects, Leave)) == 1
    assert one(effects, Announce).report.revoked == QUEUES


# ---- when it is done -----------------------------------------------------------------------------


def test_a_change_is_told_once_more_when_its_last_queue_has_come(harness):
    harness.start()
    effects = harness.members(ME)
    announced = one(effects, Announce).report
    assert announced.done == ()
    for number, find in enumerate(only(effects, FindOffset)):
        harness.now += 0.5
        settled = only(harness.handle(OffsetFound(find.queue, find.epoch, 0)), Settled)
        assert bool(settled) is (number == 3)
    report = settled[0].report
    assert [(move.queue, move.acquired, move.pause_s) for move in report.done] == [
        (queue, True, 0.5 * (number + 1)) for number, queue in enumerate(QUEUES)
    ]
    assert {move.reason for move in report.done} == {"newly assigned to this member"}
    assert (report.trigger, report.acquired) == (announced.trigger, announced.acquired)


def test_a_change_is_told_once_more_when_its_last_queue_has_gone(harness):
    harness.owning(ME)
    harness.pass_again(ME, OTHER)
    harness.now += 1.5
    assert not only(gone(harness, QUEUES[2]), Settled)
    harness.now += 1.0
    report = one(gone(harness, QUEUES[3]), Settled).report
    assert [(move.queue, move.acquired, move.pause_s) for move in report.done] == [
        (QUEUES[2], False, 1.5),
        (QUEUES[3], False, 2.5),
    ]
    assert {move.reason for move in report.done} == {"assigned to another member"}


def test_a_member_that_leaves_tells_the_pauses_before_it_is_gone(harness):
    harness.owning(ME, OTHER)
    harness.handle(StopRequested(5.0))
    effects = gone(harness, *QUEUES[:2])
    kinds = [type(effect) for effect in effects if isinstance(effect, Settled | Leave)]
    assert kinds == [Settled, Leave]


def test_a_queue_that_did_not_come_after_all_holds_up_nothing(harness):
    harness.start()
    first, *others = only(harness.members(ME), FindOffset)
    for find in others:
        harness.handle(OffsetFound(find.queue, find.epoch, 0))
    effects = harness.handle(OffsetFound(first.queue, first.epoch, None, "busy"))
    assert [move.queue for move in one(effects, Settled).report.done] == list(QUEUES[1:])
    assert not only(effects, Moved)


def test_a_queue_that_is_taken_away_before_it_came_is_part_of_the_later_change(harness):
    harness.start()
    finds = only(harness.members(ME), FindOffset)
    for find in finds[:2]:
        harness.handle(OffsetFound(find.queue, find.epoch, 0))
    effects = harness.pass_again(ME, OTHER)
    first, second = (effect.report for effect in only(effects, Settled))
    assert [move.queue for move in first.done] == list(QUEUES[:2])
    assert [(move.queue, move.acquired) for move in second.done] == [
        (queue, False) for queue in QUEUES[2:]
    ]
    assert not only(effects, Moved), "what was never owned is not counted"

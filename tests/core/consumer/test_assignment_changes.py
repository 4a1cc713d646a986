"""What goes with a change of assignment: limits, versions, reports; and members that pause."""

import pytest

from core.consumer.harness import ME, OTHER, QUEUES, Harness, one, only
from core.consumer.test_locks import LockingHarness
from gimbalmq.core.consumer.effects import (
    Announce,
    Cancel,
    Commit,
    Consume,
    HandOver,
    Leave,
    ListMembers,
    Lock,
    Moved,
    Pull,
    RenewHeartbeat,
    SetTimer,
    Unlock,
    Warn,
)
from gimbalmq.core.consumer.events import (
    Cancelled,
    Consumed,
    HandedOver,
    MembersListed,
    Paused,
    PullAnswered,
    Resumed,
    RouteLearned,
    StopRequested,
    TimerFired,
    TimerName,
    Trigger,
    Unlocked,
    Unsubscribed,
    Woken,
)
from gimbalmq.core.consumer.held import HeldState
from gimbalmq.core.flow_control import NO_ROOM, FlowLimits
from gimbalmq.model.message import PullStatus

QUEUE = QUEUES[0]


def limits_of(harness):
    return harness.machine._context.limits


# ---- limits for a topic --------------------------------------------------------------------------


@pytest.mark.rule("B2.8c")
@pytest.mark.parametrize(
    ("limit", "held", "each"), [(1000, 3, 333), (1000, 2000, 1), (1000, 1, 1000)]
)
def test_a_topic_limit_is_divided_by_the_held_queues_and_never_below_one(limit, held, each):
    by_count = FlowLimits(pull_threshold_for_topic=limit).shared_by(held)
    by_size = FlowLimits(pull_threshold_size_for_topic=limit).shared_by(held)
    assert by_count.pull_threshold_for_queue == each
    assert by_size.pull_threshold_size_for_queue == each


@pytest.mark.rule("B2.8d")
def test_without_topic_limits_those_of_a_queue_stay():
    limits = FlowLimits(pull_threshold_for_queue=7, pull_threshold_size_for_queue=8)
    assert limits.shared_by(3) == limits
    some = FlowLimits(pull_threshold_for_topic=30, pull_threshold_size_for_queue=8).shared_by(3)
    assert (some.pull_threshold_for_queue, some.pull_threshold_size_for_queue) == (10, 8)


@pytest.mark.rule("B2.8c")
def test_the_division_follows_the_assignment_with_a_new_version_and_a_heartbeat():
    harness = Harness(limits=FlowLimits(pull_threshold_for_topic=100))
    harness.owning(ME)
    assert limits_of(harness).pull_threshold_for_queue == 25
    effects = harness.pass_again(ME, OTHER)
    assert limits_of(harness).pull_threshold_for_queue == 50
    assert one(effects, RenewHeartbeat).changed == ("orders",)


def test_a_queue_that_was_held_back_goes_on_when_its_share_grows():
    harness = Harness(limits=FlowLimits(pull_threshold_for_topic=8))
    pull = harness.owning(ME)[QUEUE]  # 2 for each of 4
    assert not only(harness.deliver(pull, b"a", b"b", b"c"), Pull)
    assert harness.machine.held[QUEUE].state is HeldState.HELD_BACK
    effects = harness.pass_again(ME, OTHER)  # 4 for each of 2
    assert [effect.queue for effect in only(effects, Pull)] == [QUEUE]


# ---- flow control --------------------------------------------------------------------------------


@pytest.mark.rule("B4.2c")
@pytest.mark.parametrize(("kind", "pulled"), [(Harness, False), (LockingHarness, True)])
def test_the_span_holds_back_concurrent_queues_only(kind, pulled):
    harness = kind(limits=FlowLimits(consume_concurrently_max_span=10))
    pulls = harness.owning(ME) if kind is Harness else harness.owning_locked(ME)
    pull = pulls[QUEUE]
    again = one(harness.deliver(pull, b"a", next_offset=100), Pull)
    assert bool(only(harness.deliver(again, b"b"), Pull)) is pulled


def test_answers_may_come_together_as_far_as_there_is_room_but_not_in_order():
    limits = FlowLimits(pull_threshold_for_queue=10, consume_concurrently_max_span=8)
    concurrent = Harness(limits=limits).owning(ME)[QUEUE]
    assert concurrent.room.offsets == 8
    assert concurrent.room.size == 101 * (1 << 20) - 1
    assert LockingHarness(limits=limits).owning_locked(ME)[QUEUE].room == NO_ROOM


def test_all_queues_together_leave_no_more_room_than_there_is():
    harness = Harness(limits=FlowLimits(pull_threshold_for_all=3))
    pull = harness.owning(ME)[QUEUE]
    assert pull.room.offsets == 3
    assert one(harness.deliver(pull, b"a", b"b"), Pull).room.offsets == 1


# ---- what the user is told -----------------------------------------------------------------------


@pytest.mark.rule("B2.8e")
def test_the_report_names_the_topic_all_queues_and_the_held_ones_with_reasons():
    harness = Harness()
    harness.owning(ME)
    report = one(harness.pass_again(ME, OTHER), Announce).report
    assert (report.group, report.topic, report.trigger) == ("billing", "orders", Trigger.NOTICE)
    assert report.all_queues == QUEUES
    assert report.mine == QUEUES[:2]
    assert report.revoked == QUEUES[2:]
    assert dict(report.moves) == dict.fromkeys(QUEUES[2:], "assigned to another member")


def test_a_queue_that_came_is_reported_with_its_pause():
    harness = Harness()
    harness.start()
    effects = harness.members(ME)
    harness.now += 0.3
    moves = [effect.move for effect in only(harness.located(effects), Moved)]
    assert [move.queue for move in moves] == list(QUEUES)
    assert all(move.acquired and move.pause_s == pytest.approx(0.3) for move in moves)


def test_a_queue_that_went_is_reported_with_how_long_its_listeners_took():
    harness = Harness()
    pull = harness.owning(ME)[QUEUES[3]]
    batch = one(harness.deliver(pull, b"a"), Consume).batch
    harness.pass_again(ME, OTHER)
    harness.handle(Cancelled(pull.queue, pull.epoch, 1))
    harness.now += 2.0
    effects = harness.handle(Consumed(pull.queue, pull.epoch, batch, 0, 1))
    assert one(effects, HandOver).offset == 1
    move = one(harness.handle(HandedOver(pull.queue, pull.epoch)), Moved).move
    assert (move.queue, move.acquired, move.pause_s) == (pull.queue, False, pytest.approx(2.0))
    assert move.reason == "assigned to another member"


def test_counts_survive_the_queues_that_they_are_about():
    harness = Harness()
    pull = harness.owning(ME)[QUEUES[3]]
    batch = one(harness.deliver(pull, b"a", b"b", b"c"), Consume).batch
    harness.handle(Consumed(pull.queue, pull.epoch, batch, 0, 2, ((1, 0),), took_s=0.5))
    harness.pass_again(ME, OTHER)
    harness.handle(Cancelled(pull.queue, pull.epoch, 0))
    harness.handle(HandedOver(pull.queue, pull.epoch))
    tally = harness.machine.tally()
    assert (tally.consumed, tally.failed, tally.listener_s) == (1, 1, 0.5)


# ---- pausing the whole member --------------------------------------------------------------------


@pytest.mark.rule("B2.2f", "B6.2a")
def test_a_paused_member_neither_pulls_nor_balances():
    harness = Harness()
    pull = harness.owning(ME)[QUEUE]
    harness.handle(Paused(None, balancing=True))
    assert not only(harness.deliver(pull, b"a"), Pull)
    harness.now += 60.0
    for event in (Woken(Trigger.NOTICE), TimerFired(TimerName.REBALANCE)):
        assert not only(harness.handle(event), ListMembers)
    assert harness.machine.assignment() == frozenset(QUEUES)


def test_a_list_that_was_asked_for_before_the_pause_changes_nothing():
    harness = Harness()
    harness.owning(ME)
    harness.now += 1.0
    assert only(harness.handle(Woken(Trigger.NOTICE)), ListMembers)
    harness.handle(Paused(None, balancing=True))
    assert not harness.handle(MembersListed((ME, OTHER)))
    assert harness.machine.assignment() == frozenset(QUEUES)


@pytest.mark.rule("B2.3h", "B6.2a")
def test_resuming_balances_at_once_and_pulls_again():
    harness = Harness()
    pull = harness.owning(ME)[QUEUE]
    harness.handle(Paused(None, balancing=True))
    harness.deliver(pull, b"a")
    harness.now += 1.0
    effects = harness.handle(Resumed(None))
    assert only(effects, ListMembers)
    assert [effect.queue for effect in only(effects, Pull)] == [QUEUE]
    report = one(harness.members(ME, OTHER), Announce).report
    assert report.trigger is Trigger.RESUME


def test_pausing_some_queues_leaves_balancing_alone():
    harness = Harness()
    harness.owning(ME)
    harness.handle(Paused(frozenset({QUEUE})))
    assert only(harness.pass_again(ME, OTHER), Announce)


def test_a_paused_member_does_not_repeat_an_offset_that_somebody_may_have_moved_on():
    harness = Harness()
    harness.owning(ME, offset=5)
    assert len(only(harness.handle(TimerFired(TimerName.COMMIT)), Commit)) == 4
    harness.handle(Paused(None, balancing=True))
    effects = harness.handle(TimerFired(TimerName.COMMIT))
    assert not only(effects, Commit)
    assert only(effects, SetTimer)


# ---- coming and going ----------------------------------------------------------------------------


@pytest.mark.rule("B10.10", "B2.4i", "B6.2b")
def test_pitfall_10_unsubscribing_stores_the_offset_then_gives_the_lock_back():
    harness = LockingHarness()
    pulls = harness.owning_locked(ME)
    effects = harness.handle(Unsubscribed("orders"))
    assert {cancel.queue for cancel in only(effects, Cancel)} == set(QUEUES)
    epoch = pulls[QUEUE].epoch
    assert one(harness.handle(Cancelled(QUEUE, epoch, 0)), HandOver).offset == 0
    assert one(harness.handle(HandedOver(QUEUE, epoch)), Unlock).queue == QUEUE


@pytest.mark.rule("B5.4d", "B2.11e")
def test_an_ordered_member_stores_then_unlocks_then_leaves():
    harness = LockingHarness()
    harness.owning_locked(ME)
    left = []
    for cancel in only(harness.handle(StopRequested(1.0)), Cancel):
        about = cancel.queue, cancel.epoch
        assert only(harness.handle(Cancelled(*about, 0)), HandOver)
        effects = harness.handle(HandedOver(*about))
        assert only(effects, Unlock)
        assert not only(effects, Leave)
        left.append(only(harness.handle(Unlocked(*about)), Leave))
    assert [bool(one) for one in left] == [False, False, False, True]


@pytest.mark.rule("B5.2g")
def test_an_ordered_broadcasting_member_asks_for_no_lock():
    harness = Harness(broadcasting=True, ordered=True)
    effects = harness.start()
    assert not only(effects, Lock)
    assert len(only(harness.located(effects), Pull)) == len(QUEUES)


@pytest.mark.rule("B4.2j")
def test_nothing_is_pulled_before_the_start_or_after_the_stop():
    harness = Harness()
    effects = harness.handle(RouteLearned("orders", frozenset(QUEUES)))
    assert not only(effects + harness.handle(Woken(Trigger.NOTICE)), Pull | ListMembers)
    pull = harness.owning(ME)[QUEUE]
    harness.handle(StopRequested(1.0))
    assert not only(harness.deliver(pull, b"a"), Pull)


@pytest.mark.rule("B10.25")
def test_pitfall_25_a_member_with_another_strategy_is_noticed():
    me = "a@gmq1-CONSISTENT_HASH"
    harness = Harness("CONSISTENT_HASH", client_id=me)
    harness.start()
    warning = one(harness.members(me, OTHER), Warn)
    assert "AVG" in warning.text


@pytest.mark.rule("B2.3f")
def test_an_illegal_offset_starts_a_pass_once_the_queue_is_let_go():
    harness = Harness()
    pull = harness.owning(ME)[QUEUE]
    harness.now += 1.0
    harness.handle(PullAnswered(QUEUE, pull.epoch, PullStatus.OFFSET_ILLEGAL, 50))
    harness.handle(Cancelled(QUEUE, pull.epoch, 0))
    assert only(harness.handle(HandedOver(QUEUE, pull.epoch)), ListMembers)

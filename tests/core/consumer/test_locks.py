import pytest

from core.consumer.harness import ME, OTHER, QUEUES, LockingHarness, one, only
from gimbalmq.core.consumer.effects import (
    Cancel,
    Commit,
    Consume,
    FindOffset,
    HandOver,
    Leave,
    Lock,
    SetTimer,
    Unlock,
    Warn,
)
from gimbalmq.core.consumer.events import (
    Cancelled,
    Consumed,
    HandedOver,
    LockAnswered,
    OffsetFound,
    RouteLearned,
    StopRequested,
    TimerFired,
    TimerName,
    Unlocked,
)


@pytest.fixture
def harness():
    return LockingHarness()


@pytest.mark.rule("B2.6", "B2.6h", "B4.2e")
def test_a_queue_is_locked_before_its_offset_is_looked_up(harness):
    harness.start()
    effects = harness.members(ME)
    assert {queue for queue, _ in one(effects, Lock).asked} == set(QUEUES)
    assert not only(effects, FindOffset)
    assert {find.queue for find in only(harness.lock(effects), FindOffset)} == set(QUEUES)


def lock_timers(effects):
    return [timer.delay_s for timer in only(effects, SetTimer) if timer.name is TimerName.LOCK]


@pytest.mark.rule("B2.11", "B2.3e")
def test_a_refused_lock_is_asked_for_again_soon_and_the_queue_is_not_owned(harness):
    harness.start()
    effects = harness.lock(harness.members(ME), granted=QUEUES[1:])
    assert lock_timers(effects) == [0.1]
    harness.located(effects)
    assert harness.machine.assignment() == frozenset(QUEUES[1:])
    (asked,) = one(harness.handle(TimerFired(TimerName.LOCK)), Lock).asked
    assert asked == (QUEUES[0], harness.machine.held[QUEUES[0]].epoch)


def test_refused_locks_are_asked_for_again_together(harness):
    harness.start()
    asked = one(harness.members(ME), Lock).asked
    first = harness.handle(LockAnswered(asked[:2], frozenset(), harness.now))
    harness.now += 0.01
    second = harness.handle(LockAnswered(asked[2:], frozenset(), harness.now))  # another broker
    assert lock_timers(first + second) == [0.1]
    harness.now += 0.09
    assert one(harness.handle(TimerFired(TimerName.LOCK)), Lock).asked == asked


def test_a_lock_that_stays_refused_is_asked_for_less_and_less_often(harness):
    harness.start()
    effects = harness.members(ME)
    pauses = []
    for _ in range(20):
        (pause_s,) = lock_timers(harness.lock(effects, granted=()))
        pauses.append(pause_s)
        harness.now += pause_s
        effects = harness.handle(TimerFired(TimerName.LOCK))
    assert pauses[:4] == [0.1] * 4
    assert pauses == sorted(pauses)
    assert pauses[-1] == harness.machine.settings.lock_renew_s


def test_a_queue_that_was_just_refused_does_not_wait_for_one_that_has_long_been(harness):
    harness.start(QUEUES[:2])
    effects = harness.members(ME)
    harness.now += 60.0
    assert lock_timers(harness.lock(effects, granted=())) == [1.0]
    harness.handle(RouteLearned("orders", frozenset(QUEUES)))
    effects = harness.lock(harness.members(ME), granted=())
    assert lock_timers(effects) == [0.1]
    assert len(one(harness.handle(TimerFired(TimerName.LOCK)), Lock).asked) == 4


def test_a_queue_that_is_no_longer_wanted_is_not_asked_for_again(harness):
    harness.start()
    harness.lock(harness.members(ME), granted=())
    harness.pass_again(ME, OTHER)
    asked = one(harness.handle(TimerFired(TimerName.LOCK)), Lock).asked
    assert {queue for queue, _epoch in asked} == set(QUEUES[:2])


@pytest.mark.rule("B2.11", "B2.11b", "B2.11d")
def test_locks_are_renewed_together_and_count_from_when_the_request_left(harness):
    harness.owning_locked(ME)
    held = harness.machine.held[QUEUES[0]]
    sent_at = harness.now
    renew = harness.handle(TimerFired(TimerName.RENEW_LOCKS))
    assert len(one(renew, Lock).asked) == 4
    harness.now += 2.0  # the answer takes its time
    harness.handle(LockAnswered(one(renew, Lock).asked, frozenset(QUEUES), sent_at))
    assert held.permit.valid_until == sent_at + 3.0


def test_a_renewal_without_an_answer_changes_nothing(harness):
    harness.owning_locked(ME)
    before = harness.machine.held[QUEUES[0]].permit.valid_until
    renew = one(harness.handle(TimerFired(TimerName.RENEW_LOCKS)), Lock)
    assert not only(harness.handle(LockAnswered(renew.asked, None, harness.now, "down")), Cancel)
    assert harness.machine.held[QUEUES[0]].permit.valid_until == before


@pytest.mark.rule("B2.11", "B2.11c")
def test_a_lock_that_another_member_took_ends_the_ownership(harness):
    harness.owning_locked(ME)
    renew = one(harness.handle(TimerFired(TimerName.RENEW_LOCKS)), Lock)
    effects = harness.handle(LockAnswered(renew.asked, frozenset(QUEUES[1:]), harness.now))
    assert one(effects, Cancel).queue == QUEUES[0]
    assert harness.machine.held[QUEUES[0]].permit.valid_until == 0.0
    assert "taken its lock" in one(effects, Warn).text


@pytest.mark.rule("B2.7f")
def test_release_is_drain_then_store_then_unlock(harness):
    pulls = harness.owning_locked(ME)
    lost = QUEUES[3]
    consume = one(harness.deliver(pulls[lost], b"x", b"y"), Consume)
    harness.pass_again(ME, OTHER)
    assert consume.permit.valid_until == 0.0  # nothing new starts
    harness.handle(Cancelled(lost, consume.epoch, running=2))
    done = Consumed(lost, consume.epoch, consume.batch, 0, 2, reached=1)
    assert one(harness.handle(done), HandOver).offset == 1
    effects = harness.handle(HandedOver(lost, consume.epoch))
    assert one(effects, Unlock).queue == lost
    harness.handle(Unlocked(lost, consume.epoch))
    assert lost not in harness.machine.held


@pytest.mark.rule("B2.7d", "B2.7e", "B10.11")
def test_pitfall_11_a_long_listener_keeps_its_queue_until_it_ends(harness):
    pulls = harness.owning_locked(ME)
    lost = QUEUES[3]
    consume = one(harness.deliver(pulls[lost], b"x"), Consume)
    harness.pass_again(ME, OTHER)
    harness.handle(Cancelled(lost, consume.epoch, running=1))
    effects = harness.handle(TimerFired(TimerName.DRAIN, lost, consume.epoch))
    assert not only(effects, HandOver | Unlock)
    assert "its next owner waits" in one(effects, Warn).text
    # Its lock is renewed meanwhile, so that nobody starts beside it.
    renewed = one(harness.handle(TimerFired(TimerName.RENEW_LOCKS)), Lock).asked
    assert lost in {queue for queue, _ in renewed}


def test_a_listener_that_outlives_the_stop_leaves_the_lock_to_expire(harness):
    pulls = harness.owning_locked(ME)
    busy = QUEUES[0]
    harness.deliver(pulls[busy], b"x")
    cancels = only(harness.handle(StopRequested(1.0)), Cancel)
    for cancel in cancels:
        harness.handle(Cancelled(cancel.queue, cancel.epoch, int(cancel.queue == busy)))
        if cancel.queue != busy:
            harness.handle(HandedOver(cancel.queue, cancel.epoch))
            harness.handle(Unlocked(cancel.queue, cancel.epoch))
    epoch = pulls[busy].epoch
    harness.handle(TimerFired(TimerName.DRAIN, busy, epoch))
    effects = harness.handle(HandedOver(busy, epoch))
    assert not only(effects, Unlock)
    assert only(effects, Leave)


@pytest.mark.rule("B2.6i", "B10.27")
@pytest.mark.parametrize("offset", [None, -1])
def test_pitfall_27_a_lock_without_an_offset_is_given_back(harness, offset):
    harness.start()
    find = only(harness.lock(harness.members(ME)), FindOffset)[0]
    effects = harness.handle(OffsetFound(find.queue, find.epoch, offset, "down"))
    assert one(effects, Unlock).queue == find.queue


def test_a_lock_granted_too_late_is_given_back(harness):
    harness.start()
    asked = one(harness.members(ME), Lock).asked
    harness.pass_again(ME, OTHER)  # two of the queues are no longer wanted
    for queue, epoch in asked[2:]:
        harness.handle(Unlocked(queue, epoch))
    effects = harness.handle(LockAnswered(asked, frozenset(QUEUES), harness.now))
    assert {unlock.queue for unlock in only(effects, Unlock)} == set(QUEUES[2:])


def test_a_renewal_after_the_permit_has_ended_does_not_revive_the_queue(harness):
    harness.owning_locked(ME)
    harness.now += 3.5
    renew = one(harness.handle(TimerFired(TimerName.RENEW_LOCKS)), Lock)
    effects = harness.handle(LockAnswered(renew.asked, frozenset(QUEUES), harness.now))
    assert {cancel.queue for cancel in only(effects, Cancel)} == set(QUEUES)


def test_without_a_permit_nothing_is_committed(harness):
    pull = harness.owning_locked(ME)[QUEUES[0]]
    consume = one(harness.deliver(pull, b"x"), Consume)
    harness.handle(Consumed(pull.queue, pull.epoch, consume.batch, 0, 1))
    harness.now += 3.5
    assert not only(harness.handle(TimerFired(TimerName.COMMIT)), Commit)


# ---- a lock that is lost -------------------------------------------------------------------------


def consumed_some(harness):
    """A queue whose first of two messages is done; returns its pull and what the listener has."""
    pull = harness.owning_locked(ME)[QUEUES[0]]
    consume = one(harness.deliver(pull, b"x", b"y"), Consume)
    return pull, Consumed(pull.queue, pull.epoch, consume.batch, 0, 2, reached=1)


def renew(harness, granted):
    asked = one(harness.handle(TimerFired(TimerName.RENEW_LOCKS)), Lock).asked
    return harness.handle(LockAnswered(asked, frozenset(granted), harness.now))


def test_whoever_has_lost_a_lock_stores_no_offset_of_the_queue(harness):
    """Its next owner may have begun, and a broker keeps whatever is stored last."""
    pull, done = consumed_some(harness)
    harness.handle(done)
    assert one(renew(harness, QUEUES[1:]), Cancel).queue == pull.queue
    effects = harness.handle(Cancelled(pull.queue, pull.epoch, running=0))
    assert not only(effects, HandOver)
    assert "not stored" in one(effects, Warn).text
    assert one(effects, Unlock).queue == pull.queue


def test_a_lock_lost_while_listeners_finish_leaves_the_offset_alone_too(harness):
    pull, done = consumed_some(harness)
    harness.handle(StopRequested(10.0))
    harness.handle(Cancelled(pull.queue, pull.epoch, running=2))
    renew(harness, QUEUES[1:])
    assert not only(harness.handle(done), HandOver)


def test_so_does_a_lock_that_could_not_be_renewed_for_too_long(harness):
    pull, done = consumed_some(harness)
    harness.handle(StopRequested(10.0))
    harness.handle(Cancelled(pull.queue, pull.epoch, running=2))
    harness.now += 3.0  # lock_trust_s
    assert not only(harness.handle(done), HandOver)


def test_a_lock_that_is_renewed_while_listeners_finish_lets_the_offset_be_stored(harness):
    pull, done = consumed_some(harness)
    harness.handle(StopRequested(10.0))
    harness.handle(Cancelled(pull.queue, pull.epoch, running=2))
    for _ in range(4):
        harness.now += 1.0
        renew(harness, QUEUES)
    assert one(harness.handle(done), HandOver).offset == 1


def test_a_lock_that_is_had_again_after_a_gap_lets_the_offset_be_stored(harness):
    """Nobody else has it now; and what somebody had stored meanwhile is never moved back."""
    pull, done = consumed_some(harness)
    harness.handle(done)
    harness.now += 3.5
    assert pull.queue in {cancel.queue for cancel in only(renew(harness, QUEUES), Cancel)}
    hand_over = one(harness.handle(Cancelled(pull.queue, pull.epoch, running=0)), HandOver)
    assert (hand_over.offset, hand_over.force) == (1, False)


def test_listeners_that_outlive_a_lost_lock_are_told_from_those_that_are_waited_for(harness):
    pull, _done = consumed_some(harness)
    renew(harness, QUEUES[1:])
    harness.handle(Cancelled(pull.queue, pull.epoch, running=2))
    effects = harness.handle(TimerFired(TimerName.DRAIN, pull.queue, pull.epoch))
    assert "another member may consume the queue beside them" in one(effects, Warn).text
    assert not only(effects, HandOver | Unlock)


# ---- lease ---------------------------------------------------------------------------------------


def test_a_lease_locks_queues_of_a_concurrent_group_too():
    harness = LockingHarness(ordered=False, lease=True)
    pulls = harness.owning_locked(ME)
    consume = one(harness.deliver(pulls[QUEUES[0]], b"x"), Consume)
    assert not consume.ordered
    assert consume.permit.valid_until == harness.now + 3.0


def test_what_a_permit_that_ended_kept_back_starts_when_the_lock_is_renewed():
    harness = LockingHarness(ordered=False, lease=True)
    pull = harness.owning_locked(ME)[QUEUES[0]]
    consume = one(harness.deliver(pull, b"a", b"b", b"c"), Consume)
    harness.now += 2.9
    renew, sent_at = one(harness.handle(TimerFired(TimerName.RENEW_LOCKS)), Lock), harness.now
    harness.now += 0.6  # the answer takes its time
    harness.handle(Consumed(pull.queue, pull.epoch, consume.batch, 0, 3, reached=1))
    renewed = harness.handle(LockAnswered(renew.asked, frozenset(QUEUES), sent_at))
    assert [(c.first, c.until) for c in only(renewed, Consume)] == [(1, 3)]

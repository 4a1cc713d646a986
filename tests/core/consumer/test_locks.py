import pytest

from core.consumer.harness import ME, OTHER, QUEUES, Harness, one, only
from gimbalmq.core.consumer.effects import (
    Cancel,
    Commit,
    ConfirmGone,
    Consume,
    FindOffset,
    HandOver,
    Leave,
    Lock,
    Pull,
    SetTimer,
    TakeOver,
    Unlock,
    Warn,
)
from gimbalmq.core.consumer.events import (
    Cancelled,
    Consumed,
    GoneConfirmed,
    HandedOver,
    LockAnswered,
    OffsetFound,
    StopRequested,
    TakenOver,
    TimerFired,
    TimerName,
    Unlocked,
)

JAVA = "10.0.0.1@9#1"


class LockingHarness(Harness):
    def __init__(self, **settings):
        super().__init__(**{"ordered": True, **settings})

    def lock(self, effects, *, granted=True):
        """Answer every Lock: all granted, none, or only some queues."""
        answers = []
        for effect in only(effects, Lock):
            queues = frozenset(queue for queue, _epoch in effect.asked)
            if granted is not True:
                queues &= frozenset(granted or ())
            answers.append(LockAnswered(effect.asked, queues, self.now))
        return self.handle_all(answers)

    def owning_locked(self, *members):
        self.start()
        effects = self.located(self.lock(self.members(*members)))
        return {pull.queue: pull for pull in only(effects, Pull)}


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


@pytest.mark.rule("B2.11", "B2.3e")
def test_a_refused_lock_is_asked_for_again_soon_and_the_queue_is_not_owned(harness):
    harness.start()
    effects = harness.lock(harness.members(ME), granted=QUEUES[1:])
    timer = next(t for t in only(effects, SetTimer) if t.name is TimerName.LOCK)
    assert (timer.queue, timer.delay_s) == (QUEUES[0], 0.1)
    harness.located(effects)
    assert harness.machine.assignment() == frozenset(QUEUES[1:])
    again = harness.handle(TimerFired(TimerName.LOCK, timer.queue, timer.epoch))
    assert one(again, Lock).asked == ((QUEUES[0], timer.epoch),)


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


# ---- take-over -----------------------------------------------------------------------------------


def refused_after_death(harness, dead=OTHER, members=(ME,)):
    """Another member dies; this one wants its queues and is refused their locks."""
    harness.owning_locked(*members, dead)
    effects = harness.pass_again(*members)
    return harness.lock(effects, granted=())


def take_over_timer(effects):
    return next(t for t in only(effects, SetTimer) if t.name is TimerName.TAKE_OVER)


@pytest.mark.rule("B10.12")
def test_pitfall_12_locks_of_a_dead_member_are_taken_over_after_the_grace_time(harness):
    # Asked about at once: grace begins when no broker lists the member any more.
    first = one(refused_after_death(harness), ConfirmGone)
    timer = take_over_timer(harness.handle(GoneConfirmed(first.members)))
    assert timer.delay_s == 4.0
    harness.now += timer.delay_s
    last = one(harness.handle(TimerFired(TimerName.TAKE_OVER)), ConfirmGone)
    assert last.members == {OTHER}
    take_over = one(harness.handle(GoneConfirmed(last.members)), TakeOver)
    assert (set(take_over.queues), take_over.members) == (set(QUEUES[2:]), {OTHER})
    asked = one(harness.handle(TakenOver(take_over.queues)), Lock).asked
    assert {queue for queue, _ in asked} == set(QUEUES[2:])


def test_nobody_is_taken_over_from_before_the_grace_time_is_over(harness):
    refused_after_death(harness)
    harness.handle(GoneConfirmed(frozenset({OTHER})))
    harness.now += 3.9
    assert not only(harness.handle(TimerFired(TimerName.TAKE_OVER)), ConfirmGone)


@pytest.mark.rule("W8a")
@pytest.mark.parametrize("question", ["first", "last"])
def test_a_member_that_some_broker_still_lists_is_left_alone(harness, question):
    effects = refused_after_death(harness)
    if question == "last":
        harness.handle(GoneConfirmed(frozenset({OTHER})))
        harness.now += 4.0
        effects = harness.handle(TimerFired(TimerName.TAKE_OVER))
    assert one(effects, ConfirmGone)
    effects = harness.handle(GoneConfirmed(frozenset()))
    assert not only(effects, TakeOver)
    # It starts over: asked again later, and another whole grace time after that.
    assert take_over_timer(effects).delay_s == 4.0


def test_the_grace_time_starts_anew_with_every_new_list(harness):
    refused_after_death(harness)
    harness.handle(GoneConfirmed(frozenset({OTHER})))
    harness.now += 3.0
    assert one(harness.pass_again(ME), ConfirmGone)
    timer = take_over_timer(harness.handle(GoneConfirmed(frozenset({OTHER}))))
    assert timer.delay_s == 4.0


def test_a_member_that_comes_back_in_time_keeps_its_locks(harness):
    refused_after_death(harness)
    harness.handle(GoneConfirmed(frozenset({OTHER})))
    harness.now += 2.0
    harness.pass_again(ME, OTHER)
    harness.now += 4.0
    assert not only(harness.handle(TimerFired(TimerName.TAKE_OVER)), ConfirmGone)


def test_beside_java_members_locks_are_not_taken_over_unless_asked_for():
    harness = LockingHarness()
    assert not only(refused_after_death(harness, members=(ME, JAVA)), ConfirmGone)
    harness = LockingHarness(take_over_foreign_grace_s=35.0)
    confirm = one(refused_after_death(harness, members=(ME, JAVA)), ConfirmGone)
    timer = take_over_timer(harness.handle(GoneConfirmed(confirm.members)))
    assert timer.delay_s == 35.0


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

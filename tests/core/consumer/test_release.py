"""A queue that is given up: what failed goes back to its broker before the offset is stored."""

import pytest

from core.consumer.harness import ME, OTHER, QUEUES, Harness, one, only
from core.consumer.test_keyed import key_of
from core.consumer.test_locks import LockingHarness
from gimbalmq.core.allocation import strategy_named
from gimbalmq.core.consumer.effects import (
    Bury,
    Cancel,
    Consume,
    FindOffset,
    HandOver,
    ListMembers,
    Lock,
    SendBack,
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
    OffsetsReset,
    SentBack,
    StopRequested,
    TimerFired,
    TimerName,
    Unlocked,
    Unsubscribed,
)
from gimbalmq.core.consumer.machine import ConsumerMachine

QUEUE = QUEUES[3]


class Given:
    """A member whose listeners have got three messages of a queue."""

    def __init__(self, *, keyed=False, **settings):
        locking = settings.get("lease") or settings.get("ordered")
        self.harness = (
            LockingHarness(**{"ordered": False, **settings}) if locking else Harness(**settings)
        )
        if keyed:
            self.harness.machine = ConsumerMachine(
                self.harness.machine.settings, strategy_named("AVG"), ("orders",), key_of=key_of
            )
        owning = self.harness.owning_locked if locking else self.harness.owning
        pull = owning(ME)[QUEUE]
        self.epoch = pull.epoch
        self.batch = only(self.harness.deliver(pull, b"a", b"b", b"c"), Consume)[0].batch
        self.handle = self.harness.handle

    def consumed(self, first=0, until=3, failures=(), **verdict):
        about = QUEUE, self.epoch, self.batch, first, until, failures
        return self.handle(Consumed(*about, **verdict))

    def sent_back(self, position=0, *, ok=True):
        reason = "" if ok else "busy"
        return self.handle(SentBack(QUEUE, self.epoch, self.batch, position, ok, reason))

    def cancelled(self, running):
        return self.handle(Cancelled(QUEUE, self.epoch, running))

    def drain_over(self):
        return self.handle(TimerFired(TimerName.DRAIN, QUEUE, self.epoch))

    def leaves(self):
        self.handle(StopRequested(5.0))
        return self

    def moves(self):
        self.harness.pass_again(ME, OTHER)
        return self


KINDS = pytest.mark.parametrize(
    "given", [lambda: Given().leaves(), lambda: Given(lease=True).moves()], ids=["stop", "lease"]
)


@pytest.mark.rule("B10.6")
@pytest.mark.parametrize("settings", [{}, {"lease": True}], ids=str)
def test_pitfall_6_a_message_on_its_way_back_is_waited_for(settings):
    member = Given(**settings)
    assert only(member.consumed(failures=((0, 0),)), SendBack)
    member.moves()
    effects = member.cancelled(running=0)
    assert not only(effects, HandOver), "else it were sent back and left uncommitted"
    assert one(effects, SetTimer).name is TimerName.DRAIN
    assert one(member.sent_back(), HandOver).offset == 3


@pytest.mark.rule("B10.6")
@KINDS
def test_pitfall_6_a_failure_while_listeners_finish_goes_back_and_is_waited_for(given):
    member = given()
    member.cancelled(running=3)
    effects = member.consumed(failures=((0, 4),))
    back = one(effects, SendBack)
    assert (back.position, back.delay_level) == (0, 4)
    assert not only(effects, HandOver)
    assert one(member.sent_back(), HandOver).offset == 3, "nothing of it comes twice"


@pytest.mark.rule("B10.6")
def test_pitfall_6_a_failure_that_the_next_owner_has_already_is_left_to_it():
    """Without a lock the next owner has begun: it would get the message and its copy."""
    member = Given().moves()
    member.cancelled(running=3)
    effects = member.consumed(failures=((0, 0),))
    assert not only(effects, SendBack)
    assert one(effects, HandOver).offset == 0


def test_a_failure_after_the_lock_was_lost_is_left_to_the_next_owner():
    member = Given(lease=True)
    renew = one(member.handle(TimerFired(TimerName.RENEW_LOCKS)), Lock)
    member.handle(LockAnswered(renew.asked, frozenset(QUEUES[:3]), member.harness.now))
    member.cancelled(running=3)
    effects = member.consumed(failures=((0, 0),))
    assert not only(effects, SendBack | HandOver)


def test_a_failure_after_the_lock_was_lost_on_the_way_out_is_left_to_the_next_owner():
    member = Given(lease=True)
    member.handle(Unsubscribed("orders"))
    member.cancelled(running=3)
    renew = one(member.handle(TimerFired(TimerName.RENEW_LOCKS)), Lock)
    member.handle(LockAnswered(renew.asked, frozenset(QUEUES[:3]), member.harness.now))
    effects = member.consumed(failures=((0, 0),))
    assert not only(effects, SendBack | HandOver)


def test_a_failure_of_an_unsubscribed_topic_goes_back_because_nobody_takes_its_queue():
    member = Given()
    member.handle(Unsubscribed("orders"))
    member.cancelled(running=3)
    assert one(member.consumed(failures=((0, 0),)), SendBack).position == 0


def test_a_failure_after_a_reset_does_not_go_back():
    """The operator says what is read again, and what is not."""
    member = Given()
    member.handle(OffsetsReset({QUEUE: 1}))
    member.cancelled(running=3)
    effects = member.consumed(failures=((0, 0),))
    assert not only(effects, SendBack)
    assert (one(effects, HandOver).offset, one(effects, HandOver).force) == (1, True)


@KINDS
def test_the_queue_is_handed_over_when_both_listeners_and_send_backs_are_done(given):
    member = given()
    member.cancelled(running=3)
    member.consumed(0, 1, failures=((0, 0),))
    assert not only(member.sent_back(), HandOver), "two listeners run"
    member.consumed(1, 2, failures=((1, 0),))
    assert not only(member.consumed(2, 3), HandOver), "one message is on its way back"
    assert one(member.sent_back(1), HandOver).offset == 3


@KINDS
def test_a_message_that_is_not_taken_back_is_left_to_the_next_owner(given):
    member = given()
    member.cancelled(running=3)
    member.consumed(failures=((1, 0),))
    effects = member.sent_back(1, ok=False)
    assert one(effects, HandOver).offset == 1
    assert not [one for one in only(effects, SetTimer) if one.name is TimerName.REDELIVER]
    assert "next owner" in one(effects, Warn).text


@KINDS
def test_a_broker_that_does_not_answer_is_waited_for_no_longer_than_the_drain_time(given):
    member = given()
    member.cancelled(running=3)
    member.consumed(failures=((0, 0),))
    effects = member.drain_over()
    assert one(effects, HandOver).offset == 0
    assert "no broker has taken back after" in one(effects, Warn).text
    locked = member.harness.machine.held[QUEUE].permit is not None
    effects = member.handle(HandedOver(QUEUE, member.epoch))
    assert bool(only(effects, Unlock)) is locked, "no listener runs: the lock is given back"


@pytest.mark.parametrize("settings", [{}, {"lease": True}], ids=str)
def test_a_listener_that_outlives_the_stop_takes_what_has_not_started_with_it(settings):
    member = Given(**settings).leaves()
    member.cancelled(running=3)
    assert one(member.drain_over(), Cancel).queue == QUEUE
    assert not member.cancelled(running=1), "nobody waits for that any more"


def test_messages_before_those_that_have_begun_may_start_while_the_lock_holds():
    """Otherwise what is done above them would come again."""
    member = Given(lease=True)
    permit = member.harness.machine.held[QUEUE].permit
    before = permit.valid_until
    member.moves()
    assert permit.valid_until == before
    renew = one(member.handle(TimerFired(TimerName.RENEW_LOCKS)), Lock)
    sent_at = member.harness.now
    member.handle(LockAnswered(renew.asked, frozenset(QUEUES), sent_at))
    assert permit.valid_until == sent_at + 3.0
    member.harness.now += 4.0
    member.handle(LockAnswered(renew.asked, frozenset(QUEUES), member.harness.now))
    assert permit.valid_until == sent_at + 3.0, "somebody else may have had it in between"


def test_a_result_that_was_taken_in_before_the_cancelling_was_answered_counts_once():
    member = Given(lease=True).moves()
    assert not only(member.consumed(0, 1, failures=((0, 0),)), HandOver)
    assert not only(member.sent_back(), HandOver), "how many run is not known yet"
    member.cancelled(running=2)
    assert one(member.consumed(1, 3), HandOver).offset == 3


# ---- ordered -------------------------------------------------------------------------------------


@pytest.mark.rule("B10.6")
def test_pitfall_6_a_message_on_its_way_to_the_dead_letters_is_waited_for():
    member = Given(ordered=True)
    assert one(member.consumed(reached=0, buried=True), Bury).position == 0
    member.moves()
    assert not only(member.cancelled(running=0), HandOver)
    assert one(member.sent_back(), HandOver).offset == 1


@pytest.mark.parametrize("verdict", [{"buried": True}, {"suspend_s": 1.0}], ids=str)
@pytest.mark.parametrize("keyed", [False, True], ids=["queue", "keys"])
def test_an_ordered_message_that_is_given_up_while_listeners_finish_is_buried(verdict, keyed):
    member = Given(ordered=True, ordered_reconsume_max=0, keyed=keyed).moves()
    member.cancelled(running=1)
    effects = member.consumed(0, 1, reached=0, **verdict)
    assert one(effects, Bury).position == 0
    assert not only(effects, HandOver)
    assert one(member.sent_back(), HandOver).offset == 1


@pytest.mark.parametrize("keyed", [False, True], ids=["queue", "keys"])
def test_an_ordered_message_that_failed_is_tried_again_by_the_next_owner(keyed):
    member = Given(ordered=True, keyed=keyed).moves()
    member.cancelled(running=1)
    effects = member.consumed(0, 1, reached=0, suspend_s=1.0)
    assert not only(effects, Bury | SendBack | SetTimer)
    assert one(effects, HandOver).offset == 0


def test_what_keys_of_a_concurrent_group_fail_while_they_finish_goes_back():
    member = Given(lease=True, keyed=True).moves()
    member.cancelled(running=3)
    member.consumed(1, 2)
    member.consumed(2, 3)
    assert one(member.consumed(0, 1, failures=((0, 0),)), SendBack).position == 0
    assert one(member.sent_back(), HandOver).offset == 3


# ---- wanted again --------------------------------------------------------------------------------


def test_a_queue_that_is_wanted_again_while_its_lock_is_given_back_is_taken_at_once():
    """It was never located, so nobody but the last pass knows that it is missed."""
    harness = LockingHarness()
    harness.start()
    harness.members(ME)
    epoch = harness.machine.held[QUEUE].epoch
    assert QUEUE in {unlock.queue for unlock in only(harness.pass_again(ME, OTHER), Unlock)}
    assert QUEUE not in {q for lock in only(harness.pass_again(ME), Lock) for q, _ in lock.asked}
    harness.now += 1.0
    assert only(harness.handle(Unlocked(QUEUE, epoch)), ListMembers)
    assert QUEUE in {q for lock in only(harness.members(ME), Lock) for q, _ in lock.asked}


def test_a_queue_that_could_not_be_located_is_not_taken_again_before_the_pause():
    harness = LockingHarness()
    harness.start()
    effects = harness.lock(harness.members(ME))
    (find,) = [one for one in only(effects, FindOffset) if one.queue == QUEUE]
    assert only(harness.handle(OffsetFound(QUEUE, find.epoch, None, "busy")), Unlock)
    harness.now += 1.0
    assert not only(harness.handle(Unlocked(QUEUE, find.epoch)), ListMembers)

import pytest

from core.consumer.harness import ME, QUEUES, LockingHarness, one, only
from gimbalmq.core.consumer.effects import ListEverywhere, Lock, SetTimer, TakeOver, Unlock
from gimbalmq.core.consumer.events import (
    ListedEverywhere,
    LockAnswered,
    RouteLearned,
    TakenOver,
    TimerFired,
    TimerName,
    Trigger,
    Unlocked,
    Woken,
)
from gimbalmq.model.queue import MessageQueue

DEAD = "0@gmq1-AVG"
JAVA = "10.0.0.1@9#1"
NEWCOMER = "c@gmq1-AVG"
MORE = MessageQueue("orders", "broker-a", 4)
GRACE_S = 4.0


class DeathHarness(LockingHarness):
    """Another member dies; this one wants its queues and is refused their locks."""

    def __init__(self, *, members=(ME,), **settings):
        super().__init__(**settings)
        self.owning_locked(*members, DEAD)
        self.effects = self.lock(self.pass_again(*members), granted=())

    def everywhere(self, *members, **lists):
        """Answer to the question to every broker: the same list from both, or one each."""
        lists = lists or {"a": members, "b": members}
        return self.handle(
            ListedEverywhere({broker: frozenset(listed) for broker, listed in lists.items()})
        )

    def due(self, seconds):
        """Let time pass until the take-over timer runs out."""
        self.now += seconds
        return self.handle(TimerFired(TimerName.TAKE_OVER))

    def notice(self):
        return self.handle(Woken(Trigger.NOTICE))


@pytest.fixture
def harness():
    return DeathHarness()


def asks(effects):
    return bool(only(effects, ListEverywhere))


def timer_s(effects):
    (timer,) = (one for one in only(effects, SetTimer) if one.name is TimerName.TAKE_OVER)
    return timer.delay_s


@pytest.mark.rule("B10.12")
def test_pitfall_12_locks_of_a_dead_member_are_taken_over_after_the_grace_time(harness):
    # Asked about at once: grace begins when no broker lists the member any more.
    assert asks(harness.effects)
    assert timer_s(harness.everywhere(ME)) == GRACE_S
    assert asks(harness.due(GRACE_S))
    take_over = one(harness.everywhere(ME), TakeOver)
    assert (set(take_over.queues), take_over.members) == (set(QUEUES[:2]), {DEAD})
    asked = one(harness.handle(TakenOver(take_over.queues)), Lock).asked
    assert {queue for queue, _ in asked} == set(QUEUES[:2])


def test_nobody_is_taken_over_from_before_the_grace_time_is_over(harness):
    harness.everywhere(ME)
    assert not asks(harness.due(GRACE_S - 0.1))


@pytest.mark.rule("W8a")
@pytest.mark.parametrize("question", ["first", "last"])
@pytest.mark.parametrize("answer", [None, {"a": frozenset({ME, DEAD}), "b": frozenset({ME})}])
def test_a_member_that_some_broker_lists_or_might_list_is_left_alone(harness, question, answer):
    if question == "last":
        harness.everywhere(ME)
        assert asks(harness.due(GRACE_S))
    effects = harness.handle(ListedEverywhere(answer))
    assert not only(effects, TakeOver)
    # It starts over: asked again later, and another whole grace time after that.
    assert timer_s(effects) == GRACE_S
    assert asks(harness.due(GRACE_S))
    assert timer_s(harness.everywhere(ME)) == GRACE_S


def test_passes_that_find_the_same_members_do_not_delay_it(harness):
    harness.everywhere(ME)
    for _ in range(3):
        assert not asks(harness.pass_again(ME, trigger=Trigger.TIMER))
    assert asks(harness.due(GRACE_S - 3.0))
    assert only(harness.everywhere(ME), TakeOver)


def test_another_member_that_joins_does_not_delay_it(harness):
    harness.everywhere(ME)
    harness.now += 3.0
    assert asks(harness.notice()), "whoever it is about, every broker says who is there"
    harness.notice()  # of the other broker
    assert timer_s(harness.everywhere(ME, NEWCOMER)) == GRACE_S - 3.0
    assert not asks(harness.members(ME, NEWCOMER))  # the pass of the notice
    assert asks(harness.due(GRACE_S - 3.0))
    assert only(harness.everywhere(ME, NEWCOMER), TakeOver)


def test_another_member_that_dies_does_not_delay_it():
    harness = DeathHarness(members=(ME, NEWCOMER))
    harness.everywhere(ME, NEWCOMER)
    harness.now += 3.0
    assert asks(harness.notice())
    harness.notice()
    assert timer_s(harness.everywhere(ME)) == GRACE_S - 3.0
    harness.members(ME)  # the pass of the notice: one more is gone, and asked about at once
    harness.everywhere(ME)
    harness.now += GRACE_S - 3.0
    assert asks(harness.handle(TimerFired(TimerName.TAKE_OVER)))
    assert one(harness.everywhere(ME), TakeOver).members == {DEAD}


def test_a_notice_that_no_list_explains_begins_the_grace_time_anew(harness):
    """The dead one may have been there for a moment, and renewed its locks."""
    harness.everywhere(ME)
    harness.now += 3.0
    assert asks(harness.notice())
    assert timer_s(harness.everywhere(ME)) == GRACE_S


def test_more_notices_than_members_that_changed_begin_it_anew_too(harness):
    harness.everywhere(ME)
    harness.now += 3.0
    for _ in range(4):  # a join told by both brokers, and somebody who came and went
        harness.notice()
    assert timer_s(harness.everywhere(ME, NEWCOMER)) == GRACE_S


def test_a_notice_during_the_last_question_is_counted_before_anything_is_done(harness):
    harness.everywhere(ME)
    assert asks(harness.due(GRACE_S))
    assert not asks(harness.notice()), "one question at a time"
    effects = harness.everywhere(ME)
    assert not only(effects, TakeOver)
    assert timer_s(effects) == GRACE_S


def test_after_a_broken_connection_of_its_own_the_grace_time_begins_anew(harness):
    """Notices may have been missed meanwhile."""
    harness.everywhere(ME)
    harness.now += 3.0
    assert asks(harness.handle(Woken(Trigger.RECONNECT)))
    assert timer_s(harness.everywhere(ME)) == GRACE_S


def test_a_notice_while_no_lock_is_waited_for_begins_it_anew_too(harness):
    harness.everywhere(ME)
    waiting = [held for held in harness.machine.held.values() if held.lock_refused]
    asked = tuple((held.queue, held.epoch) for held in waiting)
    harness.located(harness.handle(LockAnswered(asked, frozenset(QUEUES), harness.now)))
    assert not asks(harness.notice())
    harness.members(ME)
    harness.now += 1.0
    harness.handle(RouteLearned("orders", frozenset((*QUEUES, MORE))))
    effects = harness.lock(harness.members(ME), granted=())
    assert asks(effects)
    assert timer_s(harness.everywhere(ME)) == GRACE_S


def test_a_member_that_comes_back_in_time_keeps_its_locks(harness):
    harness.everywhere(ME)
    harness.now += 1.0
    assert asks(harness.notice())
    harness.everywhere(ME, DEAD)
    harness.members(ME, DEAD)
    assert not asks(harness.due(GRACE_S))


def test_a_member_that_came_back_and_vanished_again_gets_a_whole_grace_time(harness):
    harness.everywhere(ME)
    given_up = only(harness.pass_again(ME, DEAD, trigger=Trigger.TIMER), Unlock)
    harness.handle_all(Unlocked(unlock.queue, unlock.epoch) for unlock in given_up)
    effects = harness.lock(harness.pass_again(ME, trigger=Trigger.TIMER), granted=())
    assert asks(effects)
    assert timer_s(harness.everywhere(ME)) == GRACE_S


def test_beside_java_members_locks_are_not_taken_over_unless_asked_for():
    assert not asks(DeathHarness(members=(ME, JAVA)).effects)
    harness = DeathHarness(members=(ME, JAVA), take_over_foreign_grace_s=35.0)
    assert asks(harness.effects)
    assert timer_s(harness.everywhere(ME, JAVA)) == 35.0


# ---- a lock that a live member holds -------------------------------------------------------------


def take_over_and_be_refused(harness):
    """The locks of the dead are taken off, and the queues stay refused."""
    take_over = one(harness.everywhere(ME), TakeOver)
    return harness.lock(harness.handle(TakenOver(take_over.queues)), granted=())


def test_a_lock_that_a_live_member_holds_is_not_taken_off_in_a_circle(harness):
    """It drains a long listener; nobody can see that the lock is not the dead one's."""
    harness.everywhere(ME)
    harness.due(GRACE_S)
    pauses = []
    for _ in range(4):
        effects = take_over_and_be_refused(harness)
        assert not asks(effects)
        # Set with the answer, and not changed by what follows until it runs out.
        pauses.append(timer_s(effects))
        effects = harness.due(pauses[-1])
        if not asks(effects):
            break
    assert pauses == [4.0, 8.0, 16.0, 32.0]


def test_after_a_lock_has_expired_on_the_broker_nobody_is_suspected_any_more(harness):
    harness.everywhere(ME)
    harness.due(90.0)
    harness.lock(harness.handle(TimerFired(TimerName.LOCK)), granted=())
    assert not asks(harness.due(60.0))


def test_another_member_that_died_is_taken_over_from_without_a_pause():
    harness = DeathHarness(members=(ME, NEWCOMER))
    harness.everywhere(ME, NEWCOMER)
    harness.due(GRACE_S)
    take_over = one(harness.everywhere(ME, NEWCOMER), TakeOver)
    harness.lock(harness.handle(TakenOver(take_over.queues)), granted=())
    harness.notice()
    harness.notice()
    harness.everywhere(ME)
    assert asks(harness.members(ME))
    harness.everywhere(ME)
    assert asks(harness.due(GRACE_S))
    assert NEWCOMER in one(harness.everywhere(ME), TakeOver).members


# ---- for others ----------------------------------------------------------------------------------


def test_the_locks_of_the_dead_are_taken_off_for_a_newcomer_that_has_not_seen_them_go():
    """Another one joins at the front, and what this member was refused is now the newcomer's."""
    first = "00@gmq1-AVG"
    harness = DeathHarness()
    harness.everywhere(ME)
    harness.notice()
    harness.notice()
    harness.everywhere(ME, first)
    given_up = only(harness.members(ME, first), Unlock)
    assert {unlock.queue for unlock in given_up} >= set(QUEUES[:2])
    harness.handle_all(Unlocked(unlock.queue, unlock.epoch) for unlock in given_up)
    assert asks(harness.due(GRACE_S))
    take_over = one(harness.everywhere(ME, first), TakeOver)
    assert (set(take_over.queues), take_over.members) == (set(QUEUES[:2]), {DEAD})
    assert not only(harness.handle(TakenOver(take_over.queues)), Lock)
    assert not asks(harness.due(GRACE_S)), "once is enough for others"


def test_a_queue_whose_lock_is_had_meanwhile_is_left_alone(harness):
    harness.everywhere(ME)
    waiting = [held for held in harness.machine.held.values() if held.lock_refused]
    asked = tuple((held.queue, held.epoch) for held in waiting)
    harness.located(harness.handle(LockAnswered(asked, frozenset(QUEUES), harness.now)))
    assert not asks(harness.due(GRACE_S))

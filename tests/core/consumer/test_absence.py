"""Members that are gone and may come back: whom to count, whom to ask, for how long."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.consumer.harness import QUEUES, Harness, one, only
from gimbalmq.core.allocation import Snapshot, assign, strategy_named
from gimbalmq.core.consumer.absence import Absence
from gimbalmq.core.consumer.effects import (
    Announce,
    AskAbsent,
    ListEverywhere,
    ListMembers,
    Lock,
    SetTimer,
    TakeOver,
    Warn,
)
from gimbalmq.core.consumer.events import (
    AbsentTold,
    ListedEverywhere,
    LockAnswered,
    TimerFired,
    TimerName,
    Trigger,
)
from gimbalmq.core.identity import member_id

GRACE_S = 30.0


def names(*stems, strategy="AVG"):
    return tuple(member_id(stem, strategy, rejoin_grace_s=GRACE_S) for stem in stems)


ANN, BOB, CID, DAN = names("ann", "bob", "cid", "dan")


def watching(members, me=ANN, at=0.0):
    absence = Absence(me, GRACE_S)
    absence.listed(members, at)
    absence.question(tuple(members))
    absence.told({}, at)
    return absence


# ---- whom to count -----------------------------------------------------------------------------


def test_who_is_gone_counts_until_the_grace_time_is_over():
    absence = watching((ANN, BOB, CID))
    absence.listed((ANN, CID), 10.0)
    assert absence.waited_for(10.0) == {BOB: 30.0}
    assert absence.waited_for(39.0) == {BOB: 1.0}
    assert absence.waited_for(40.0) == {}


def test_who_comes_back_is_no_longer_absent_and_gets_the_whole_time_when_it_goes_again():
    absence = watching((ANN, BOB))
    absence.listed((ANN,), 10.0)
    absence.listed((ANN, BOB), 20.0)
    assert absence.waited_for(20.0) == {}
    absence.listed((ANN,), 25.0)
    assert absence.waited_for(25.0) == {BOB: 30.0}


def test_a_member_that_is_missing_from_the_list_waits_for_itself():
    absence = watching((ANN, BOB))
    absence.listed((BOB,), 5.0)
    assert absence.waited_for(5.0) == {ANN: 30.0}


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ("10.0.0.7@4711#8", "is foreign"),
        ("bob@gmq1-AVG", "has no rejoin_grace_s"),
        ("bob@gmq1-AVG+rejoin31", "has rejoin_grace_s=31"),
        ("bob@gmq1-CAPPED_HASH+rejoin30", "runs CAPPED_HASH"),
        ("bob@gmq2-AVG+rejoin30", "follows version 2"),
    ],
)
def test_one_member_that_does_not_agree_ends_the_waiting_of_all(other, why):
    absence = watching((ANN, CID, DAN))
    absence.listed((ANN, CID, other), 1.0)
    assert why in absence.disagreement()
    assert absence.waited_for(1.0) == {}
    absence.listed((ANN, CID), 2.0)
    assert absence.waited_for(2.0) == {}, "nor is it waited for itself"


@given(
    st.integers(2, 6),
    st.data(),
    st.sampled_from(["AVG", "AVG_BY_CIRCLE", "CAPPED_HASH", "CONSISTENT_HASH"]),
)
def test_members_that_saw_the_same_share_out_as_if_nobody_were_gone(count, data, strategy):
    group = names(*(f"m{n}" for n in range(count)), strategy=strategy)
    gone = data.draw(st.sets(st.sampled_from(group), max_size=count - 1))
    left = tuple(one for one in group if one not in gone)
    seen = [watching(group, me, float(n)) for n, me in enumerate(left)]
    before = assign(strategy_named(strategy), Snapshot.of("billing", QUEUES, group))
    for absence in seen:
        absence.listed(left, 10.0)
        counted = (*left, *absence.waited_for(12.0))
        assert assign(strategy_named(strategy), Snapshot.of("billing", QUEUES, counted)) == before


@given(st.lists(st.sets(st.sampled_from((BOB, CID, DAN))), min_size=1, max_size=12))
def test_whoever_asks_a_member_counts_as_that_member_does(history):
    elder = watching((ANN, BOB, CID, DAN))
    for number, present in enumerate(history):
        elder.listed((ANN, *sorted(present)), 5.0 * (number + 1))
    now = 5.0 * len(history) + 1.0
    (newcomer_id,) = names("new")
    present = (ANN, *sorted(history[-1]), newcomer_id)
    newcomer = Absence(newcomer_id, GRACE_S)
    for absence in (elder, newcomer):
        absence.listed(present, now)
    newcomer.question(present)
    newcomer.told(elder.known(now), now)
    assert newcomer.waited_for(now) == elder.waited_for(now)


# ---- whom to ask -------------------------------------------------------------------------------


def test_a_newcomer_asks_the_next_three_of_the_list_before_anything():
    members = names("ann", "bob", "cid", "dan", "eve")
    absence = Absence(members[3], GRACE_S)
    absence.listed(members, 0.0)
    assert absence.known(0.0) is None
    assert absence.question(members) == (members[4], members[0], members[1])
    assert absence.asking
    assert absence.question(members) == (), "once"


def test_nobody_is_asked_by_one_that_is_alone_or_was_there_for_a_grace_time():
    alone = Absence(ANN, GRACE_S)
    alone.listed((ANN,), 0.0)
    assert alone.question((ANN,)) == ()
    assert alone.known(0.0) == {}
    old = Absence(ANN, GRACE_S)
    old.listed((ANN, "10.0.0.7@4711#8"), 0.0)
    assert old.question((ANN, "10.0.0.7@4711#8")) == (), "nothing is counted beside a stranger"
    old.listed((ANN, BOB), GRACE_S)
    assert old.question((ANN, BOB)) == ()
    assert old.known(GRACE_S) == {}, "strangers are not waited for"


def test_one_that_got_no_answer_goes_on_and_does_not_pretend_to_know():
    absence = Absence(ANN, GRACE_S)
    absence.listed((ANN, BOB), 0.0)
    absence.question((ANN, BOB))
    absence.told(None, 3.0)
    assert not absence.asking
    assert absence.known(3.0) is None


# ---- in a member -------------------------------------------------------------------------------


def member(me=ANN):
    return Harness(client_id=me, lease=True, rejoin_grace_s=GRACE_S)


def joined(*members, me=ANN):
    """A member that has asked and was told of nobody."""
    harness = member(me)
    harness.start()
    effects = harness.members(*members)
    if len(members) > 1:
        assert one(effects, AskAbsent).members == tuple(m for m in members if m != me)[:3]
        harness.now += 1.0
        assert only(harness.handle(AbsentTold({})), ListMembers)
        effects = harness.members(*members)
    return harness, effects


def wanted(effects):
    return {queue for lock in only(effects, Lock) for queue, _epoch in lock.asked}


def test_a_newcomer_takes_nothing_before_it_has_asked():
    harness = member()
    harness.start()
    effects = harness.members(ANN, BOB)
    assert not only(effects, Lock)
    assert harness.pass_again(ANN, BOB) == [], "nor while it waits for the answer"
    harness.now += 1.0
    harness.handle(AbsentTold({CID: 5.0}))
    effects = harness.members(ANN, BOB)
    assert wanted(effects) == set(QUEUES[:2]), "the first two of four: the third member has none"
    timer = next(t for t in only(effects, SetTimer) if t.name is TimerName.NEXT_PASS)
    assert timer.delay_s == pytest.approx(GRACE_S - 5.0)


def test_the_queues_of_one_that_is_gone_wait_and_then_move():
    harness, effects = joined(ANN, BOB)
    assert wanted(effects) == set(QUEUES[:2])
    effects = harness.pass_again(ANN)
    assert not wanted(effects)
    assert "wait for it to come back, for up to 30.0 s more" in one(effects, Warn).text
    harness.now += GRACE_S
    assert only(harness.handle(TimerFired(TimerName.NEXT_PASS)), ListMembers)
    assert wanted(harness.members(ANN)) == set(QUEUES[2:])


def test_beside_a_member_without_a_grace_time_queues_move_at_once():
    harness, _ = joined(ANN, BOB)
    effects = harness.pass_again(ANN, "cid@gmq1-AVG")
    assert "member 'cid@gmq1-AVG' has no rejoin_grace_s" in one(effects, Warn).text
    assert not wanted(effects), "two members, as before"
    assert wanted(harness.pass_again(ANN)) == set(QUEUES[2:]), "nobody is waited for any more"


def test_what_it_knows_is_told_to_those_that_ask():
    harness, _ = joined(ANN, BOB)
    harness.pass_again(ANN)
    harness.now += 2.0
    assert harness.machine.absent(harness.now) == {BOB: 2.0}
    plain = Harness()
    assert plain.machine.absent(plain.now) is None


def test_a_pass_is_named_after_what_led_to_it_and_the_end_of_the_wait_after_the_absence():
    harness, effects = joined(ANN, BOB)
    assert one(effects, Announce).report.trigger is Trigger.START
    harness.pass_again(ANN)
    harness.now += GRACE_S
    assert only(harness.handle(TimerFired(TimerName.NEXT_PASS)), ListMembers)
    (announce,) = only(harness.members(ANN), Announce)
    assert announce.report.trigger is Trigger.ABSENCE


def test_a_newcomer_takes_over_from_the_dead_that_it_was_told_of():
    harness = member()
    harness.start()
    harness.members(ANN, BOB)
    harness.now += 1.0
    harness.handle(AbsentTold({CID: 29.5}))
    harness.now += 1.0
    effects = harness.handle(TimerFired(TimerName.NEXT_PASS)) + harness.members(ANN, BOB)
    (lock,) = only(effects, Lock)
    effects = harness.handle(LockAnswered(lock.asked, frozenset(), harness.now))
    assert only(effects, ListEverywhere)
    everywhere = ListedEverywhere({"a": frozenset({ANN, BOB})})
    harness.handle(everywhere)
    harness.now += harness.machine.settings.take_over_grace_s
    harness.handle(TimerFired(TimerName.TAKE_OVER))
    assert one(harness.handle(everywhere), TakeOver).members == {CID}

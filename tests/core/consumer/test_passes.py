"""Passes that one topic cannot take part in."""

import pytest

from core.consumer.harness import ME, OTHER, QUEUES, Harness, only
from gimbalmq.core.allocation import strategy_named
from gimbalmq.core.consumer.effects import (
    Announce,
    FindOffset,
    ListMembers,
    Lock,
    RefreshRoute,
    SetTimer,
    Warn,
)
from gimbalmq.core.consumer.events import (
    MembersListed,
    OffsetFound,
    RouteLearned,
    TimerFired,
    TimerName,
    Trigger,
    WeightsRead,
    Woken,
)
from gimbalmq.core.identity import member_id
from gimbalmq.model.queue import MessageQueue


@pytest.mark.rule("B2.4h")
def test_a_retry_topic_that_cannot_be_shared_out_leaves_the_pass_settled():
    class Picky:
        name = "AVG"

        def allocate(self, snapshot):
            if snapshot.queues[0].topic.startswith("%RETRY%"):
                raise ValueError("not these")
            return strategy_named("AVG").allocate(snapshot)

    harness = Harness(topics=("orders", "%RETRY%billing"))
    harness.machine.passes._strategy = Picky()
    retry = MessageQueue("%RETRY%billing", "broker-a", 0)
    harness.handle(RouteLearned("%RETRY%billing", frozenset({retry})))
    harness.start()
    effects = harness.members(ME)
    assert {find.queue for find in only(effects, FindOffset)} == set(QUEUES)
    assert not only(effects, Warn), "quietly"
    timers = {timer.name: timer.delay_s for timer in only(effects, SetTimer)}
    assert timers == {TimerName.REBALANCE: 20.0}, "nothing is tried again soon"


def test_whatever_a_strategy_raises_keeps_the_queues_and_is_tried_again():
    harness = Harness()
    pulls = harness.owning(ME)

    class Broken:
        name = "AVG"

        def allocate(self, snapshot):
            raise ZeroDivisionError("no members")

    harness.machine.passes._strategy = Broken()
    effects = harness.pass_again(ME, OTHER)
    (warning,) = only(effects, Warn)
    assert "strategy AVG failed with ZeroDivisionError: no members" in warning.text
    assert harness.machine.assignment() == set(pulls)
    assert {timer.name for timer in only(effects, SetTimer)} == {
        TimerName.REBALANCE,
        TimerName.NEXT_PASS,
    }


# ---- published weights -------------------------------------------------------------------------


def test_published_weights_change_the_shares_as_soon_as_they_are_read():
    ids = [member_id(stem, "WEIGHTED.published") for stem in ("a", "b")]
    harness = Harness(client_id=ids[0], lease=True)
    harness.machine.passes._strategy = strategy_named("WEIGHTED", {"weights": "published"})
    harness.start()
    effects = harness.members(*ids)
    assert "only running consumers read them" in only(effects, Warn)[0].text
    assert not only(effects, Lock), "nothing is taken before the weights are known"
    harness.now += 1.0
    heavy = {QUEUES[0].path: 100.0}
    assert only(harness.handle(WeightsRead(heavy, {"orders": 1})), ListMembers)
    effects = harness.members(*ids)
    mine = {queue for lock in only(effects, Lock) for queue, _epoch in lock.asked}
    assert mine in ({QUEUES[0]}, set(QUEUES[1:])), "the heavy one alone, or all others"


def test_weights_are_nothing_to_a_strategy_that_does_not_read_them():
    harness = Harness()
    harness.owning(ME)
    assert harness.handle(WeightsRead({QUEUES[0].path: 100.0}, {"orders": 1})) == []


# ---- what a pass is for --------------------------------------------------------------------------


def triggers(effects):
    return [announce.report.trigger for announce in only(effects, Announce)]


def test_a_notice_that_comes_while_a_list_is_on_its_way_does_not_rename_that_pass():
    harness = Harness()
    harness.start()
    harness.handle(Woken(Trigger.NOTICE))
    effects = harness.members(ME)
    assert triggers(effects) == [Trigger.START]
    harness.now += 1.0
    assert only(harness.handle(TimerFired(TimerName.NEXT_PASS)), ListMembers)
    assert triggers(harness.members(ME, OTHER)) == [Trigger.NOTICE]


def test_a_planned_pass_keeps_what_it_is_for():
    harness = Harness()
    harness.owning(ME)
    harness.now += 1.0
    harness.handle(Woken(Trigger.RECONNECT))
    harness.members(ME)
    harness.handle(Woken(Trigger.NOTICE))  # within the gap: gathered
    harness.now += 0.05
    assert only(harness.handle(TimerFired(TimerName.NEXT_PASS)), ListMembers)
    assert triggers(harness.members(ME, OTHER)) == [Trigger.NOTICE]


# ---- a client id that several use ----------------------------------------------------------------


def listed_again(harness, *members):
    """The list of another pass, past the gap."""
    harness.now += 1.0
    assert only(harness.handle(Woken(Trigger.NOTICE)), ListMembers)
    return harness.members(*members)


@pytest.mark.rule("B10.4")
def test_pitfall_4_a_client_id_that_another_process_uses_is_said_with_an_event():
    harness = Harness()
    harness.start()
    assert not only(harness.members(ME, ME, OTHER), Warn), "a reconnect looks the same for a moment"
    assert not only(listed_again(harness, ME, ME, OTHER), Warn)
    (warn,) = only(listed_again(harness, ME, ME, OTHER), Warn)
    assert "another process uses this member's client id" in warn.text
    assert warn.facts == {"event": "shared client id", "group": "billing", "members": [ME]}
    assert harness.machine.passes.repeated == (ME,)
    listed_again(harness, ME, OTHER)
    assert harness.machine.passes.repeated == ()


@pytest.mark.rule("B10.4")
def test_pitfall_4_an_id_that_two_others_use_is_said_too_and_is_not_this_ones():
    harness = Harness()
    harness.start()
    harness.members(ME, OTHER, OTHER)
    listed_again(harness, ME, OTHER, OTHER)
    (warn,) = only(listed_again(harness, ME, OTHER, OTHER), Warn)
    assert f"several processes use the client id '{OTHER}'" in warn.text
    assert harness.machine.passes.repeated == (OTHER,)


def test_a_list_that_lacks_this_member_is_no_sign_of_a_shared_id():
    harness = Harness()
    harness.owning(ME)
    for _ in range(3):
        effects = listed_again(harness, OTHER)
    assert not only(effects, Warn)


# ---- leases --------------------------------------------------------------------------------------


def test_a_foreign_member_in_a_group_with_leases_is_named():
    harness = Harness(lease=True)
    harness.start()
    (warn,) = only(harness.members(ME, "10.0.0.1@9#1"), Warn)
    assert "'10.0.0.1@9#1' is foreign" in warn.text
    assert "knows no leases" in warn.text


@pytest.mark.parametrize("settings", [{}, {"ordered": True}])
def test_a_foreign_member_where_there_are_no_leases_is_nothing_to_tell(settings):
    harness = Harness(**settings)
    harness.start()
    assert not only(harness.members(ME, "10.0.0.1@9#1"), Warn)


# ---- trying again --------------------------------------------------------------------------------


def pause(effects):
    """How long the next pass waits, None when only the interval does."""
    pauses = [one.delay_s for one in only(effects, SetTimer) if one.name is TimerName.NEXT_PASS]
    return min(pauses, default=None)


def not_located(harness, effects):
    """No offset of what was acquired can be found."""
    return harness.handle_all(
        OffsetFound(find.queue, find.epoch, None, "busy") for find in only(effects, FindOffset)
    )


def next_pass(harness, delay_s):
    harness.now += delay_s
    assert only(harness.handle(TimerFired(TimerName.NEXT_PASS)), ListMembers)


def test_queues_that_fail_together_double_the_pause_once():
    harness = Harness()
    harness.start()
    pauses = []
    for _ in range(4):
        effects = not_located(harness, harness.members(ME))
        pauses.append(pause(effects))
        next_pass(harness, pauses[-1])
    assert pauses == [0.2, 0.4, 0.8, 1.6]


def test_after_an_outage_the_next_trouble_is_tried_again_soon():
    harness = Harness()
    harness.owning(ME)
    harness.now += 1.0
    harness.handle(Woken(Trigger.NOTICE))
    for delay_s in (0.2, 0.4, 0.8, 1.6):
        assert pause(harness.handle(MembersListed(None, "down"))) == delay_s
        next_pass(harness, delay_s)
    assert pause(harness.members(ME)) is None
    harness.now += 1.0
    harness.handle(Woken(Trigger.NOTICE))
    assert pause(harness.handle(MembersListed(None, "down again"))) == 0.2


def test_a_topic_that_is_never_made_does_not_slow_down_what_else_is_tried_again():
    harness = Harness(topics=("orders", "missing"))
    harness.start()
    pauses = []
    for _ in range(6):
        effects = harness.members(ME)
        harness.located(effects)
        pauses.append(pause(effects))
        next_pass(harness, pauses[-1])
    assert pauses[-1] == 6.4
    assert pause(harness.handle(MembersListed(None, "down"))) == 0.2


def test_a_queue_that_another_member_has_now_is_no_trouble_any_more():
    harness = Harness()
    harness.start()
    for delay_s in (0.2, 0.4, 0.8):
        assert pause(not_located(harness, harness.members(ME))) == delay_s
        next_pass(harness, delay_s)
    harness.members(ME, OTHER)
    for queue in QUEUES[:2]:
        harness.handle(OffsetFound(queue, harness.machine.held[queue].epoch, 0))
    harness.now += 1.0
    harness.handle(Woken(Trigger.NOTICE))
    assert pause(not_located(harness, harness.members(ME))) == 0.2


@pytest.mark.rule("B2.4h")
def test_a_retry_topic_without_a_route_leaves_the_pass_settled():
    harness = Harness(topics=("orders", "%RETRY%billing"))
    harness.start()
    effects = harness.members(ME)
    assert [one.topic for one in only(effects, RefreshRoute)] == ["%RETRY%billing"]
    assert not only(effects, Warn), "quietly"
    assert pause(effects) is None, "its route is asked for, and starts a pass when it is there"

import pytest

from core.consumer.harness import ME, OTHER, QUEUES, Harness, one, only
from gimbalmq.core.consumer.effects import (
    Announce,
    Cancel,
    Commit,
    Consume,
    FindOffset,
    HandOver,
    Leave,
    ListMembers,
    Pull,
    RefreshRoute,
    RenewHeartbeat,
    SendBack,
    SetTimer,
    Stopped,
    Warn,
)
from gimbalmq.core.consumer.events import (
    Cancelled,
    Consumed,
    HandedOver,
    Left,
    MembersListed,
    OffsetFound,
    Paused,
    PullAnswered,
    PullFailed,
    Resumed,
    RouteLearned,
    SentBack,
    Started,
    StopRequested,
    TimerFired,
    TimerName,
    Trigger,
    Unsubscribed,
    Woken,
)
from gimbalmq.model.message import PullStatus
from gimbalmq.model.queue import MessageQueue


@pytest.fixture
def harness():
    return Harness()


# ---- ownership -----------------------------------------------------------------------------------


@pytest.mark.rule("B2.3")
def test_start_asks_for_the_members_at_once(harness):
    assert only(harness.start(), ListMembers)


@pytest.mark.rule("B2.8b")
def test_a_lone_member_takes_every_queue_and_tells_the_brokers(harness):
    harness.start()
    effects = harness.members(ME)
    assert [effect.queue for effect in only(effects, FindOffset)] == list(QUEUES)
    assert one(effects, RenewHeartbeat).changed == ("orders",)
    assert one(effects, Announce).report.acquired == QUEUES


@pytest.mark.rule("B2.4a")
def test_two_members_share_as_the_strategy_says(harness):
    harness.start()
    effects = harness.members(OTHER, ME)  # the broker lists in any order
    assert [effect.queue for effect in only(effects, FindOffset)] == list(QUEUES[:2])


@pytest.mark.rule("B2.6g", "B4.1a")
def test_a_located_queue_is_pulled_from_its_offset(harness):
    pulls = harness.owning(ME, offset=7)
    assert {pull.offset for pull in pulls.values()} == {7}
    assert harness.machine.assignment() == frozenset(QUEUES)


@pytest.mark.rule("B2.6e", "B2.6f", "B2.10e", "B2.10g")
@pytest.mark.parametrize("offset", [None, -1])
def test_a_queue_without_a_start_offset_is_not_owned_and_tried_again_soon(harness, offset):
    harness.start()
    find = only(harness.members(ME), FindOffset)[0]
    effects = harness.handle(OffsetFound(find.queue, find.epoch, offset, "broker busy"))
    assert find.queue not in harness.machine.held
    assert one(effects, SetTimer).name is TimerName.NEXT_PASS
    assert one(effects, Warn)


@pytest.mark.rule("B2.6c", "B2.7a", "B2.7c", "B10.6")
def test_a_queue_that_moves_away_is_drained_then_stored_then_let_go(harness):
    pulls = harness.owning(ME)
    lost = QUEUES[3]
    consume = one(harness.deliver(pulls[lost], b"x", b"y"), Consume)
    effects = harness.pass_again(ME, OTHER)
    cancel = next(effect for effect in only(effects, Cancel) if effect.queue == lost)
    assert lost not in harness.machine.assignment()
    harness.handle(Cancelled(lost, cancel.epoch, running=2))
    done = Consumed(lost, cancel.epoch, consume.batch, 0, 2)
    assert one(harness.handle(done), HandOver).offset == 2
    harness.handle(HandedOver(lost, cancel.epoch))
    assert lost not in harness.machine.held


@pytest.mark.rule("B4.1a", "B4.2a", "B5.1i")
def test_nothing_of_a_queue_given_up_is_pulled_again(harness):
    pulls = harness.owning(ME)
    harness.pass_again(ME, OTHER)
    assert not only(harness.deliver(pulls[QUEUES[3]], b"late"), Pull | Consume)


def test_a_listener_that_outlives_the_drain_time_loses_its_queue_with_a_warning(harness):
    pulls = harness.owning(ME)
    lost = QUEUES[3]
    harness.deliver(pulls[lost], b"x")
    harness.pass_again(ME, OTHER)
    timer = one(harness.handle(Cancelled(lost, pulls[lost].epoch, running=1)), SetTimer)
    assert (timer.name, timer.delay_s) == (TimerName.DRAIN, 10.0)
    effects = harness.handle(TimerFired(TimerName.DRAIN, lost, timer.epoch))
    assert one(effects, HandOver).offset == 0  # the unfinished message is read again
    assert "delivered again" in one(effects, Warn).text


def test_a_queue_that_comes_back_while_it_is_let_go_is_taken_again_afterwards(harness):
    pulls = harness.owning(ME)
    lost = QUEUES[3]
    harness.pass_again(ME, OTHER)
    harness.handle(Cancelled(lost, pulls[lost].epoch, running=0))
    effects = harness.pass_again(ME)
    assert lost not in {find.queue for find in only(effects, FindOffset)}
    harness.now += 1.0
    effects = harness.handle(HandedOver(lost, pulls[lost].epoch))
    assert only(effects, ListMembers)
    assert lost in {find.queue for find in only(harness.members(ME), FindOffset)}


def test_an_answer_for_an_earlier_acquisition_changes_nothing(harness):
    pulls = harness.owning(ME)
    old = pulls[QUEUES[3]]
    harness.pass_again(ME, OTHER)
    harness.handle(Cancelled(old.queue, old.epoch, 0))
    harness.handle(HandedOver(old.queue, old.epoch))
    harness.located(harness.pass_again(ME))
    assert not harness.deliver(old, b"from the past")


@pytest.mark.rule("B2.4b", "B2.5e", "B10.19")
def test_pitfall_19_without_a_member_list_the_queues_are_kept_and_the_list_is_asked_for_soon(
    harness,
):
    harness.owning(ME)
    harness.now += 1.0
    harness.handle(Woken(Trigger.NOTICE))
    effects = harness.handle(MembersListed(None, "broker-a is down"))
    assert harness.machine.assignment() == frozenset(QUEUES)
    assert one(effects, SetTimer).delay_s < 1.0
    assert "broker-a is down" in one(effects, Warn).text


@pytest.mark.rule("B2.2d", "B10.18")
def test_pitfall_18_the_pause_between_failing_passes_doubles_up_to_the_interval(harness):
    harness.start()
    delays = []
    for _ in range(10):
        delays.append(one(harness.handle(MembersListed(None, "down")), SetTimer).delay_s)
        harness.now += delays[-1]
        harness.handle(TimerFired(TimerName.NEXT_PASS))
    assert delays[:3] == [0.2, 0.4, 0.8]
    assert delays[-1] == 20.0


@pytest.mark.rule("B1.0c")
def test_a_member_that_stays_missing_from_the_list_gives_up_its_queues(harness):
    harness.owning(ME)
    first = harness.pass_again(OTHER)
    assert only(first, RenewHeartbeat)
    assert harness.machine.assignment() == frozenset(QUEUES)
    for _ in range(2):
        harness.pass_again(OTHER)
    assert not harness.machine.assignment()


@pytest.mark.rule("B2.5f", "B10.3")
def test_pitfall_3_a_doubled_id_among_ours_leaves_no_queue_unowned(harness):
    harness.start()
    for _ in range(2):
        assert not only(harness.members(ME, ME, OTHER), FindOffset)
        harness.now += 1.0
        harness.handle(Woken(Trigger.NOTICE))
    effects = harness.members(ME, ME, OTHER)
    assert [find.queue for find in only(effects, FindOffset)] == list(QUEUES[:2])


@pytest.mark.rule("B10.3")
def test_pitfall_3_a_doubled_id_beside_a_java_member_is_treated_as_java_treats_it(harness):
    harness.start()
    for _ in range(2):
        harness.members(ME, ME, "10.0.0.1@9#1")
        harness.now += 1.0
        harness.handle(Woken(Trigger.NOTICE))
    effects = harness.members(ME, ME, "10.0.0.1@9#1")
    # AVG over three positions: the Java member is first, then this one, twice.
    assert [find.queue for find in only(effects, FindOffset)] == [QUEUES[2]]


@pytest.mark.rule("B2.2b", "B2.2c", "B10.17")
def test_pitfall_17_a_burst_of_notices_becomes_one_pass(harness):
    harness.owning(ME)
    harness.now += 1.0
    assert only(harness.handle(Woken(Trigger.NOTICE)), ListMembers)
    assert not harness.handle(Woken(Trigger.NOTICE))
    assert not harness.handle(Woken(Trigger.NOTICE))
    # The list on its way may be older than the notices: exactly one more pass follows.
    effects = harness.members(ME)
    timer = next(t for t in only(effects, SetTimer) if t.name is TimerName.NEXT_PASS)
    assert timer.delay_s <= 0.05
    harness.now += timer.delay_s
    assert only(harness.handle(TimerFired(TimerName.NEXT_PASS)), ListMembers)
    assert [timer.name for timer in only(harness.members(ME), SetTimer)] == [TimerName.REBALANCE]


@pytest.mark.rule("B10.21")
def test_pitfall_21_a_changed_route_starts_a_pass(harness):
    harness.owning(ME)
    harness.now += 1.0
    more = frozenset(QUEUES) | {MessageQueue("orders", "broker-b", 0)}
    assert only(harness.handle(RouteLearned("orders", more)), ListMembers)
    assert [find.queue.broker for find in only(harness.members(ME), FindOffset)] == ["broker-b"]


def test_an_unchanged_route_starts_nothing(harness):
    harness.owning(ME)
    assert not harness.handle(RouteLearned("orders", frozenset(QUEUES)))


@pytest.mark.rule("B2.2a", "B2.3c")
def test_the_timer_starts_a_pass_every_interval(harness):
    harness.owning(ME)
    effects = harness.pass_again(ME)
    assert one(effects, SetTimer) == SetTimer(TimerName.REBALANCE, 20.0)
    harness.now += 20.0
    assert only(harness.handle(TimerFired(TimerName.REBALANCE)), ListMembers)


@pytest.mark.rule("B2.4f", "B2.5b", "B10.19")
def test_pitfall_19_a_topic_without_route_is_asked_for_again_and_does_not_stop_the_others():
    harness = Harness(topics=("orders", "refunds", "%RETRY%billing"))
    harness.start()
    effects = harness.members(ME)
    assert len(only(effects, FindOffset)) == 4
    assert [one.topic for one in only(effects, RefreshRoute)] == ["refunds", "%RETRY%billing"]
    # The retry topic of a new group is missing for a moment: nobody needs to hear of that.
    assert [warn.text for warn in only(effects, Warn)] == [
        "topic refunds has no route yet; asking again"
    ]


@pytest.mark.rule("B2.4c")
def test_a_strategy_that_fails_keeps_the_queues_and_says_why(harness):
    harness.owning(ME)
    effects = harness.pass_again(ME, "")
    assert harness.machine.assignment() == frozenset(QUEUES)
    assert "empty client id" in one(effects, Warn).text


@pytest.mark.rule("B2.6b", "B3h")
def test_a_queue_whose_pull_never_came_back_is_dropped_and_taken_again(harness):
    pulls = harness.owning(ME)
    harness.now += 121.0
    effects = harness.pass_again(ME)
    assert {cancel.queue for cancel in only(effects, Cancel)} == set(QUEUES)
    for pull in pulls.values():
        harness.handle(Cancelled(pull.queue, pull.epoch, 0))
        harness.handle(HandedOver(pull.queue, pull.epoch))
    assert len(only(harness.members(ME), FindOffset)) == 4


# ---- pull loop -----------------------------------------------------------------------------------


@pytest.mark.rule("B4.3a")
def test_found_messages_are_consumed_and_the_next_pull_goes_on_behind_them(harness):
    pull = harness.owning(ME)[QUEUES[0]]
    effects = harness.deliver(pull, b"a", b"b")
    assert (one(effects, Consume).first, one(effects, Consume).until) == (0, 2)
    assert one(effects, Pull).offset == 2
    assert one(effects, Pull).commit_offset == 0


@pytest.mark.rule("B4.3")
@pytest.mark.parametrize("status", [PullStatus.NO_NEW_MESSAGE, PullStatus.NO_MATCHED_MESSAGE])
def test_an_empty_answer_moves_on_to_the_next_offset(harness, status):
    pull = harness.owning(ME)[QUEUES[0]]
    effects = harness.handle(PullAnswered(pull.queue, pull.epoch, status, 9))
    assert one(effects, Pull).offset == 9


@pytest.mark.rule("B4.3d")
def test_an_illegal_offset_stores_the_brokers_offset_and_starts_over(harness):
    pull = harness.owning(ME, offset=50)[QUEUES[0]]
    effects = harness.handle(PullAnswered(pull.queue, pull.epoch, PullStatus.OFFSET_ILLEGAL, 10))
    assert one(effects, Cancel)
    hand_over = one(harness.handle(Cancelled(pull.queue, pull.epoch, 0)), HandOver)
    assert (hand_over.offset, hand_over.force) == (10, True)
    harness.now += 1.0
    assert only(harness.handle(HandedOver(pull.queue, pull.epoch)), ListMembers)


@pytest.mark.rule("B4.2", "B4.2b")
def test_a_full_cache_holds_pulls_back_until_messages_finish(harness):
    pull = harness.owning(ME)[QUEUES[0]]
    effects = harness.deliver(pull, *[b"x"] * 1001)
    assert not only(effects, Pull)
    consume = one(effects, Consume)
    done = Consumed(pull.queue, pull.epoch, consume.batch, 0, 1)
    assert one(harness.handle(done), Pull).commit_offset == 1


@pytest.mark.rule("B4.3")
@pytest.mark.parametrize(
    ("code", "delay_s"), [(215, 0.02), (None, 1.0), (1, 1.0)], ids=["busy", "broken", "error"]
)
def test_a_failed_pull_is_tried_again_after_a_pause(harness, code, delay_s):
    pull = harness.owning(ME)[QUEUES[0]]
    effects = harness.handle(PullFailed(pull.queue, pull.epoch, code, "why"))
    timer = one(effects, SetTimer)
    assert (timer.name, timer.delay_s) == (TimerName.PULL, delay_s)
    assert one(harness.handle(TimerFired(TimerName.PULL, timer.queue, timer.epoch)), Pull)


@pytest.mark.rule("B4.3f")
def test_a_broker_that_does_not_know_the_subscription_gets_a_heartbeat_first(harness):
    pull = harness.owning(ME)[QUEUES[0]]
    effects = harness.handle(PullFailed(pull.queue, pull.epoch, 24, "no subscription"))
    assert one(effects, RenewHeartbeat)
    assert one(effects, SetTimer).delay_s < 1.0


@pytest.mark.rule("B4.2d")
def test_a_paused_queue_is_not_pulled_until_it_is_resumed(harness):
    pull = harness.owning(ME)[QUEUES[0]]
    harness.handle(Paused(frozenset({pull.queue})))
    assert not only(harness.deliver(pull, b"x"), Pull)
    assert one(harness.handle(Resumed(None)), Pull).queue == pull.queue


# ---- results -------------------------------------------------------------------------------------


@pytest.mark.rule("B5.1c", "W6.4f")
def test_a_failed_message_is_sent_back_and_holds_the_offset_until_then(harness):
    pull = harness.owning(ME)[QUEUES[0]]
    consume = one(harness.deliver(pull, b"a", b"b", b"c"), Consume)
    effects = harness.handle(
        Consumed(pull.queue, pull.epoch, consume.batch, 0, 3, failures=((1, 0),))
    )
    back = one(effects, SendBack)
    assert (back.position, back.delay_level) == (1, 0)
    assert offset_of(harness, pull.queue) == 1
    harness.handle(SentBack(pull.queue, pull.epoch, consume.batch, 1, ok=True))
    assert offset_of(harness, pull.queue) == 3


@pytest.mark.rule("B5.1d")
def test_a_message_that_cannot_be_sent_back_is_delivered_again_after_five_seconds(harness):
    pull = harness.owning(ME)[QUEUES[0]]
    consume = one(harness.deliver(pull, b"a"), Consume)
    harness.handle(Consumed(pull.queue, pull.epoch, consume.batch, 0, 1, failures=((0, 0),)))
    effects = harness.handle(
        SentBack(pull.queue, pull.epoch, consume.batch, 0, ok=False, reason="down")
    )
    timer = one(effects, SetTimer)
    assert (timer.name, timer.delay_s) == (TimerName.REDELIVER, 5.0)
    again = one(harness.handle(TimerFired(timer.name, timer.queue, timer.epoch)), Consume)
    assert (again.batch, again.first, again.until) == (consume.batch, 0, 1)
    assert offset_of(harness, pull.queue) == 0


@pytest.mark.rule("B2.1b")
def test_offsets_of_all_owned_queues_are_committed_every_interval_even_unchanged(harness):
    harness.owning(ME, offset=3)
    for _ in range(2):
        effects = harness.handle(TimerFired(TimerName.COMMIT))
        assert {(c.queue, c.offset) for c in only(effects, Commit)} == {(q, 3) for q in QUEUES}
        assert one(effects, SetTimer) == SetTimer(TimerName.COMMIT, 5.0)


# ---- leaving -------------------------------------------------------------------------------------


@pytest.mark.rule("B5.4a", "B5.4b", "B10.7")
def test_pitfall_7_leaving_drains_then_stores_offsets_then_unregisters(harness):
    pulls = harness.owning(ME)
    consume = one(harness.deliver(pulls[QUEUES[0]], b"a"), Consume)
    effects = harness.handle(StopRequested(drain_s=30.0))
    cancels = only(effects, Cancel)
    assert len(cancels) == 4
    for cancel in cancels:
        running = int(cancel.queue == QUEUES[0])
        effects = harness.handle(Cancelled(cancel.queue, cancel.epoch, running))
        if not running:
            assert only(effects, HandOver)
            harness.handle(HandedOver(cancel.queue, cancel.epoch))
    busy = pulls[QUEUES[0]]
    effects = harness.handle(Consumed(busy.queue, busy.epoch, consume.batch, 0, 1))
    assert one(effects, HandOver).offset == 1
    assert only(harness.handle(HandedOver(busy.queue, busy.epoch)), Leave)
    assert only(harness.handle(Left()), Stopped)


def test_leaving_before_anything_is_owned_unregisters_at_once(harness):
    harness.handle(Started())
    assert only(harness.handle(StopRequested(1.0)), Leave)


def test_after_it_has_left_the_machine_is_silent(harness):
    harness.handle(Started())
    harness.handle(StopRequested(1.0))
    harness.handle(Left())
    assert not harness.handle(Woken(Trigger.NOTICE))
    assert not harness.handle(TimerFired(TimerName.REBALANCE))


def offset_of(harness, queue):
    return harness.machine.held[queue].process.commit_offset


# ---- finer points of the pull loop and of release ------------------------------------------------


@pytest.mark.rule("B4.3c")
def test_with_nothing_cached_an_empty_answer_moves_the_offset_to_commit(harness):
    pull = harness.owning(ME)[QUEUES[0]]
    effects = harness.handle(PullAnswered(pull.queue, pull.epoch, PullStatus.NO_MATCHED_MESSAGE, 9))
    assert (one(effects, Pull).offset, one(effects, Pull).commit_offset) == (9, 9)


@pytest.mark.rule("B4.3c")
def test_with_something_cached_an_empty_answer_does_not_move_it(harness):
    pull = harness.owning(ME)[QUEUES[0]]
    harness.deliver(pull, b"a")
    effects = harness.handle(PullAnswered(pull.queue, pull.epoch, PullStatus.NO_MATCHED_MESSAGE, 9))
    assert (one(effects, Pull).offset, one(effects, Pull).commit_offset) == (9, 0)


@pytest.mark.rule("B4.2f")
def test_a_pull_that_failed_is_repeated_after_one_second(harness):
    pull = harness.owning(ME, offset=4)[QUEUES[0]]
    timer = one(harness.handle(PullFailed(pull.queue, pull.epoch, None, "broken")), SetTimer)
    assert (timer.name, timer.delay_s) == (TimerName.PULL, 1.0)
    assert one(harness.handle(TimerFired(timer.name, timer.queue, timer.epoch)), Pull).offset == 4


@pytest.mark.rule("B4.3e")
def test_flow_control_of_the_broker_repeats_the_pull_after_twenty_milliseconds(harness):
    pull = harness.owning(ME)[QUEUES[0]]
    effects = harness.handle(PullFailed(pull.queue, pull.epoch, 215, "busy"))
    assert one(effects, SetTimer).delay_s == 0.02


@pytest.mark.rule("B2.6a")
def test_all_queues_to_give_up_are_dropped_before_any_is_released(harness):
    harness.owning(ME)
    effects = harness.pass_again(ME, OTHER)
    lost = {cancel.queue for cancel in only(effects, Cancel)}
    assert lost == set(QUEUES[2:])
    assert not lost & harness.machine.assignment()
    assert not only(effects, HandOver)


@pytest.mark.rule("B2.6d")
def test_a_queue_taken_again_starts_at_the_offset_that_is_found_then(harness):
    old = harness.owning(ME, offset=5)[QUEUES[3]]
    harness.pass_again(ME, OTHER)
    harness.handle(Cancelled(old.queue, old.epoch, 0))
    harness.handle(HandedOver(old.queue, old.epoch))
    pulls = only(harness.located(harness.pass_again(ME), offset=70), Pull)
    assert {pull.offset for pull in pulls if pull.queue == old.queue} == {70}


@pytest.mark.rule("B2.7b")
def test_a_result_that_comes_after_the_queue_was_let_go_changes_nothing(harness):
    pull = harness.owning(ME)[QUEUES[3]]
    consume = one(harness.deliver(pull, b"a"), Consume)
    harness.pass_again(ME, OTHER)
    harness.handle(Cancelled(pull.queue, pull.epoch, 1))
    harness.handle(TimerFired(TimerName.DRAIN, pull.queue, pull.epoch))
    harness.handle(HandedOver(pull.queue, pull.epoch))
    assert not harness.handle(Consumed(pull.queue, pull.epoch, consume.batch, 0, 1))


@pytest.mark.rule("B5.5c")
def test_queues_that_are_no_longer_held_are_not_committed(harness):
    harness.owning(ME)
    harness.pass_again(ME, OTHER)
    committed = {c.queue for c in only(harness.handle(TimerFired(TimerName.COMMIT)), Commit)}
    assert committed == set(QUEUES[:2])


@pytest.mark.rule("B5.1f")
def test_the_offset_to_commit_only_increases(harness):
    pull = harness.owning(ME)[QUEUES[0]]
    consume = one(harness.deliver(pull, *[b"x"] * 6), Consume)
    seen = [offset_of(harness, pull.queue)]
    for first, until in [(4, 6), (0, 1), (2, 4), (1, 2), (0, 6)]:
        harness.handle(Consumed(pull.queue, pull.epoch, consume.batch, first, until))
        seen.append(offset_of(harness, pull.queue))
    assert seen == sorted(seen)
    assert seen[-1] == 6


@pytest.mark.rule("B2.4d")
def test_a_pass_that_changes_nothing_is_settled_and_waits_for_the_interval(harness):
    harness.owning(ME)
    assert harness.pass_again(ME) == [SetTimer(TimerName.REBALANCE, 20.0)]


@pytest.mark.rule("B2.4e")
def test_queues_of_a_topic_that_is_no_longer_subscribed_are_given_up():
    harness = Harness(topics=("orders", "refunds"))
    harness.start()
    harness.located(harness.members(ME))
    effects = harness.handle(Unsubscribed("orders"))
    assert {cancel.queue for cancel in only(effects, Cancel)} == set(QUEUES)
    assert not harness.machine.assignment()
    for queue in QUEUES:
        epoch = harness.machine.held[queue].epoch
        harness.handle(Cancelled(queue, epoch, 0))
        harness.handle(HandedOver(queue, epoch))
    assert not only(harness.pass_again(ME), FindOffset)


def test_messages_before_the_offset_that_was_asked_for_are_dropped(harness):
    pull = harness.owning(ME, offset=5)[QUEUES[0]]
    effects = harness.handle(
        PullAnswered(
            pull.queue, pull.epoch, PullStatus.FOUND, 8, [b"3", b"4", b"5", b"6"], [3, 4, 5, 6], 4
        )
    )
    consume = one(effects, Consume)
    assert consume.batch.offsets == [5, 6]
    assert one(effects, Pull).offset == 8


def test_a_strategy_across_topics_shares_all_topics_out_together():
    topics = [f"topic-{number}" for number in range(8)]
    harness = Harness("CROSS_TOPIC", topics=topics, client_id="a@gmq1-CROSS_TOPIC")
    for topic in topics[:-1]:
        harness.handle(RouteLearned(topic, frozenset({MessageQueue(topic, "broker-a", 0)})))
    harness.handle(Started())
    members = ("a@gmq1-CROSS_TOPIC", "b@gmq1-CROSS_TOPIC")
    # As long as one route is missing, members may differ in what they see: nothing moves.
    assert not only(harness.members(*members), FindOffset)
    harness.now += 1.0
    last = topics[-1]
    harness.handle(RouteLearned(last, frozenset({MessageQueue(last, "broker-a", 0)})))
    assert len(only(harness.members(*members), FindOffset)) == 4

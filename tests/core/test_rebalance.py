import pytest
from hypothesis import given
from hypothesis import strategies as st

from gimbalmq.core.rebalance import HeldView, Reason, plan_rebalance
from gimbalmq.model.queue import MessageQueue

A, B, C = (MessageQueue("t", "b", number) for number in range(3))
OTHER = MessageQueue("u", "b", 0)
NOW = 1000.0
FRESH = HeldView(last_pull_at=NOW - 1)
IDLE = HeldView(last_pull_at=NOW - 121)
DROPPED = HeldView(last_pull_at=NOW - 1, dropped=True)


def plan(held, target, limit=120.0, subscribed=None):
    return plan_rebalance(held, target, now=NOW, pull_idle_limit_s=limit, subscribed=subscribed)


def steps(listed):
    return [(step.queue, step.reason) for step in listed]


@pytest.mark.rule("B2.6")
def test_what_is_held_and_wanted_stays_what_is_new_comes_what_is_not_wanted_goes():
    result = plan({A: FRESH, B: FRESH}, [C, B])
    assert steps(result.keep) == [(B, Reason.IN_TARGET)]
    assert steps(result.acquire) == [(C, Reason.NEW)]
    assert steps(result.revoke) == [(A, Reason.NOT_IN_TARGET)]
    assert result.changed


@pytest.mark.rule("B2.6")
def test_a_queue_that_is_no_longer_pulled_is_taken_anew_in_the_same_pass():
    result = plan({A: IDLE, B: FRESH}, {A, B})
    assert steps(result.revoke) == [(A, Reason.PULL_EXPIRED)]
    assert steps(result.acquire) == [(A, Reason.AFTER_EXPIRY)]
    assert steps(result.keep) == [(B, Reason.IN_TARGET)]
    assert result.changed


@pytest.mark.rule("B2.6")
def test_exactly_at_the_limit_a_queue_is_not_expired():
    assert steps(plan({A: HeldView(NOW - 120)}, {A}).keep) == [(A, Reason.IN_TARGET)]


@pytest.mark.rule("B2.6", "B2.6j")
def test_consumers_whose_user_pulls_have_no_idle_limit():
    assert steps(plan({A: IDLE}, {A}, limit=None).keep) == [(A, Reason.IN_TARGET)]


@pytest.mark.rule("B2.6")
def test_an_expired_queue_that_is_not_wanted_goes_for_good():
    result = plan({A: IDLE}, ())
    assert steps(result.revoke) == [(A, Reason.NOT_IN_TARGET)]
    assert result.acquire == ()


@pytest.mark.rule("B2.4", "B10")
def test_queues_of_a_topic_that_is_no_longer_subscribed_go_even_when_still_assigned():
    result = plan({A: FRESH, OTHER: FRESH}, {A, OTHER}, subscribed={"t"})
    assert steps(result.revoke) == [(OTHER, Reason.UNSUBSCRIBED)]
    assert steps(result.keep) == [(A, Reason.IN_TARGET)]
    assert result.acquire == ()
    assert steps(plan({A: FRESH}, (), subscribed={"t"}).revoke) == [(A, Reason.NOT_IN_TARGET)]


@pytest.mark.rule("B2.7")
def test_an_unfinished_release_is_named_again_but_is_no_change():
    result = plan({A: DROPPED}, ())
    assert steps(result.revoke) == [(A, Reason.RELEASE_UNFINISHED)]
    assert not result.changed


@pytest.mark.rule("B2.6")
def test_a_queue_that_comes_back_during_its_release_is_acquired_after_it():
    result = plan({A: DROPPED}, {A})
    assert steps(result.revoke) == [(A, Reason.RELEASE_UNFINISHED)]
    assert steps(result.acquire) == [(A, Reason.RETURNED)]
    assert result.keep == ()
    assert not result.changed


def test_nothing_held_and_nothing_wanted_is_no_change():
    result = plan({}, ())
    assert (result.keep, result.acquire, result.revoke) == ((), (), ())
    assert not result.changed


QUEUES = st.builds(MessageQueue, st.sampled_from("tu"), st.sampled_from("ab"), st.integers(0, 3))
VIEWS = st.builds(HeldView, st.floats(NOW - 300, NOW), st.booleans())


@given(
    held=st.dictionaries(QUEUES, VIEWS),
    target=st.sets(QUEUES),
    limit=st.none() | st.just(120.0),
    subscribed=st.none() | st.sets(st.sampled_from("tu")),
)
def test_the_plan_leads_from_held_to_target(held, target, limit, subscribed):
    result = plan(held, target, limit, subscribed)
    keep, acquire, revoke = (
        [step.queue for step in listed] for listed in (result.keep, result.acquire, result.revoke)
    )
    for listed in (keep, acquire, revoke):
        assert listed == sorted(set(listed)), "each once, in order"
    assert set(keep) | set(revoke) == held.keys()
    assert not set(keep) & set(revoke)
    wanted = {q for q in target if subscribed is None or q.topic in subscribed}
    assert (held.keys() - set(revoke)) | set(acquire) == wanted
    backwards = dict(reversed(held.items()))
    assert plan(backwards, sorted(target, reverse=True), limit, subscribed) == result

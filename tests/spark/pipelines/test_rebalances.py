from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gimbalmq.core.history import QueueChange, RebalanceEvent
from gimbalmq.spark.pipelines.rebalances import summarize


def event(at_ms, member, acquired=(), revoked=()):
    return RebalanceEvent(at_ms, "g", member, "NOTICE", "AVG", 2, tuple(acquired), tuple(revoked))


def test_without_events_there_is_nothing():
    found = summarize([], period_s=60)
    assert (found.events, found.moves, found.pause_s, found.pause_s_max) == (0, 0, 0, 0)
    assert found.periods == found.queues == ()


def test_first_shares_and_queues_of_the_dead_are_taken_not_moved():
    found = summarize([event(0, "ann", ["t/a/0", "t/a/1"])], period_s=60)
    assert found.moves == 0
    assert [(one.taken, one.moves) for one in found.periods] == [(2, 0)]
    assert found.queues == ()


def test_moves_stand_in_their_period_and_at_their_queue():
    events = [
        event(1_000, "ann", ["t/a/0", "t/a/1"]),
        event(70_000, "ann", revoked=["t/a/1"]),
        event(70_250, "bob", ["t/a/1"]),
        event(200_000, "bob", revoked=["t/a/1"]),
        event(203_000, "ann", ["t/a/1"]),
    ]
    found = summarize(events, period_s=60)
    assert [(one.at[11:16], one.taken, one.moves, one.pause_s) for one in found.periods] == [
        ("00:00", 2, 0, 0.0),
        ("00:01", 0, 1, 0.25),
        ("00:03", 0, 1, 3.0),
    ]
    [queue] = found.queues
    assert (queue.queue, queue.moves, queue.pause_s, queue.pause_s_max) == ("t/a/1", 2, 3.25, 3.0)
    assert (found.moves, found.pause_s, found.pause_s_max) == (2, 3.25, 3.0)


def test_events_of_pauses_lengthen_a_pause_and_are_no_rebalances():
    pulled = RebalanceEvent(
        70_400, "g", "bob", "NOTICE", "AVG", 2, moves=(QueueChange("t/a/1", True, "new", 0.15),)
    )
    events = [event(70_000, "ann", revoked=["t/a/1"]), event(70_250, "bob", ["t/a/1"]), pulled]
    found = summarize(events, period_s=60)
    assert (found.events, found.moves, found.pause_s) == (2, 1, 0.4)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 10**6),
            st.sampled_from("abc"),
            st.lists(st.sampled_from("123"), unique=True),
            st.lists(st.sampled_from("123"), unique=True),
        )
    ),
    st.integers(1, 100),
)
def test_periods_and_queues_add_up_to_the_whole(told, period_s):
    events = [event(at_ms, member, took, gave) for at_ms, member, took, gave in told]
    found = summarize(events, period_s=period_s)
    assert sum(one.moves for one in found.periods) == found.moves
    assert sum(one.moves for one in found.queues) == found.moves
    assert (
        abs(sum(one.pause_s for one in found.periods) - found.pause_s) < 0.001 * len(events) + 1e-6
    )
    assert max((one.pause_s_max for one in found.queues), default=0.0) == found.pause_s_max

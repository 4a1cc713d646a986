from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gimbalmq.model.queue import MessageQueue
from gimbalmq.spark.limits import UNLIMITED, Limits, choose_records

QUEUES = [MessageQueue("orders", f"broker-{name}", n) for name in "ab" for n in range(4)]
BACKLOGS = st.dictionaries(st.sampled_from(QUEUES), st.integers(0, 10**9))


def lagging(waiting):
    return {queue: records for queue, records in waiting.items() if records}


@given(BACKLOGS)
def test_without_limits_everything_is_read(waiting):
    assert choose_records(waiting, UNLIMITED) == lagging(waiting)


@given(BACKLOGS, st.integers(1, 10**9), st.integers(0, 100))
def test_the_maximum_is_used_up_exactly_and_never_exceeded(waiting, records_max, turn):
    chosen = choose_records(waiting, Limits(records_max=records_max), turn=turn)
    assert sum(chosen.values()) == min(records_max, sum(waiting.values()))
    assert all(0 < records <= waiting[queue] for queue, records in chosen.items())


@given(BACKLOGS, st.integers(8, 10**9))
def test_no_queue_that_waits_is_forgotten_beside_a_hot_one(waiting, records_max):
    chosen = choose_records(waiting, Limits(records_max=records_max))
    assert chosen.keys() == lagging(waiting).keys()


@given(st.dictionaries(st.sampled_from(QUEUES), st.integers(1, 9), min_size=1), st.integers(1, 7))
def test_with_fewer_records_than_queues_all_have_their_turn(waiting, records_max):
    limits = Limits(records_max=records_max)
    seen = {queue for turn in range(8) for queue in choose_records(waiting, limits, turn=turn)}
    assert seen == waiting.keys()


@given(BACKLOGS, st.integers(1, 10**6))
def test_shares_are_in_proportion_to_what_waits(waiting, records_max):
    chosen = choose_records(waiting, Limits(records_max=records_max))
    total = sum(waiting.values())
    if len(lagging(waiting)) <= records_max < total:
        for queue, records in chosen.items():
            assert abs(records - records_max * waiting[queue] / total) <= len(chosen) + 1


@given(BACKLOGS, st.integers(1, 10**9), st.floats(1, 10**6))
def test_bytes_become_records_by_their_estimated_size(waiting, bytes_max, size):
    sizes = dict.fromkeys(waiting, size)
    chosen = choose_records(waiting, Limits(bytes_max=bytes_max), record_bytes=sizes)
    records = sum(chosen.values())
    assert records <= max(1, math.ceil(bytes_max / size))
    assert records >= min(sum(waiting.values()), math.floor(bytes_max / size) - 1)
    assert bool(records) == bool(lagging(waiting))


@given(BACKLOGS, st.integers(1, 10**6), st.integers(1, 10**6))
def test_of_two_maxima_the_smaller_counts(waiting, records_max, bytes_max):
    sizes = dict.fromkeys(waiting, 10.0)
    both = choose_records(
        waiting, Limits(records_max=records_max, bytes_max=bytes_max), record_bytes=sizes
    )
    alone = [
        choose_records(waiting, Limits(records_max=records_max)),
        choose_records(waiting, Limits(bytes_max=bytes_max), record_bytes=sizes),
    ]
    assert sum(both.values()) == min(sum(one.values()) for one in alone)


@given(BACKLOGS, st.integers(1, 10**9), st.floats(0, 100))
def test_below_the_minimum_nothing_is_read_until_the_delay_is_over(waiting, records_min, waited_s):
    limits = Limits(records_min=records_min, delay_max_s=50.0)
    chosen = choose_records(waiting, limits, waited_s=waited_s)
    due = sum(waiting.values()) >= records_min or waited_s >= 50.0
    assert chosen == (lagging(waiting) if due else {})


def test_the_minimum_looks_at_what_waits_and_not_at_what_the_maximum_leaves():
    limits = Limits(records_max=10, records_min=10)
    assert choose_records({QUEUES[0]: 10}, limits, waited_s=0.0) == {QUEUES[0]: 10}
    assert choose_records({QUEUES[0]: 9}, limits, waited_s=0.0) == {}


def test_a_record_larger_than_the_limit_by_bytes_is_read_alone():
    chosen = choose_records(
        {QUEUES[0]: 5}, Limits(bytes_max=10), record_bytes={QUEUES[0]: 10_000.0}
    )
    assert chosen == {QUEUES[0]: 1}


@pytest.mark.parametrize("waiting", [{}, {QUEUES[0]: 0}])
def test_where_nothing_waits_nothing_is_read(waiting):
    assert choose_records(waiting, Limits(records_max=5, bytes_max=5)) == {}

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gimbalmq.model.queue import MessageQueue
from gimbalmq.spark.planning import ReadRange, count_tasks, plan_tasks


def a_range(number, offset_from, offset_until, broker="broker-a"):
    return ReadRange(MessageQueue("orders", broker, number), "a:1", offset_from, offset_until)


RANGES = st.lists(
    st.tuples(st.integers(0, 1000), st.integers(0, 300)), max_size=12
).map(lambda spans: [a_range(n, start, start + size) for n, (start, size) in enumerate(spans)])  # fmt: skip
COUNTS = st.integers(1, 50)


def offsets(ranges):
    return [
        (one.queue, offset)
        for one in ranges
        for offset in range(one.offset_from, one.offset_until)
    ]  # fmt: skip


@given(RANGES, COUNTS, st.none() | COUNTS, st.none() | COUNTS)
def test_tasks_cover_the_ranges_exactly_once(ranges, cores, tasks_min, records_max):
    records = sum(one.records for one in ranges)
    tasks = count_tasks(records, cores=cores, tasks_min=tasks_min, records_max=records_max)
    planned = plan_tasks(ranges, tasks)
    read = [place for task in planned for place in offsets(task)]
    assert len(read) == len(set(read)) == records
    assert set(read) == set(offsets(ranges))


@given(RANGES, COUNTS, st.none() | COUNTS, st.none() | COUNTS)
def test_tasks_keep_their_bounds(ranges, cores, tasks_min, records_max):
    records = sum(one.records for one in ranges)
    tasks = count_tasks(records, cores=cores, tasks_min=tasks_min, records_max=records_max)
    sizes = [sum(one.records for one in task) for task in plan_tasks(ranges, tasks)]
    assert len(sizes) == tasks
    assert all(sizes)
    assert not sizes or max(sizes) - min(sizes) <= 1
    if tasks_min is not None:
        assert len(sizes) >= min(tasks_min, records)
    if records_max is not None:
        assert max(sizes, default=0) <= records_max


@given(RANGES, COUNTS, st.randoms())
def test_the_plan_does_not_depend_on_the_order_of_the_ranges(ranges, tasks, random):
    tasks = min(tasks, sum(one.records for one in ranges))
    shuffled = list(ranges)
    random.shuffle(shuffled)
    if tasks or not any(one.records for one in ranges):
        assert plan_tasks(shuffled, tasks) == plan_tasks(ranges, tasks)


@pytest.mark.parametrize(
    ("records", "options", "tasks"),
    [
        pytest.param(0, {}, 0, id="nothing to read needs no task"),
        pytest.param(1, {}, 1, id="one record needs one"),
        pytest.param(20_000, {}, 1, id="few records stay together"),
        pytest.param(50_000, {}, 3, id="more records, more tasks"),
        pytest.param(3_999_999, {}, 4, id="one for each core"),
        pytest.param(4_000_000, {}, 8, id="two for each core when there is much to read"),
        pytest.param(10_000_000, {}, 8, id="at most twice the cores"),
        pytest.param(10_000_000, {"tasks_min": 20}, 20, id="minPartitions raises it"),
        pytest.param(10_000_000, {"tasks_min": 2}, 8, id="minPartitions does not lower it"),
        pytest.param(5, {"tasks_min": 20}, 5, id="no task is empty"),
        pytest.param(1_000, {"records_max": 300}, 4, id="maxRecordsPerPartition raises it"),
    ],
)
def test_the_number_of_tasks(records, options, tasks):
    assert count_tasks(records, cores=4, **options) == tasks


def test_small_queues_share_a_task_and_a_hot_one_is_split():
    ranges = [a_range(0, 0, 10), a_range(1, 5, 15), a_range(2, 100, 180)]
    planned = plan_tasks(ranges, 2)
    assert planned == [
        (a_range(0, 0, 10), a_range(1, 5, 15), a_range(2, 100, 130)),
        (a_range(2, 130, 180),),
    ]


def test_neighbouring_tasks_read_from_different_brokers():
    ranges = [a_range(n, 0, 10, broker) for broker in ("a", "b") for n in range(2)]
    brokers = [task[0].queue.broker for task in plan_tasks(ranges, 4)]
    assert brokers == ["a", "b", "a", "b"]


def test_a_range_travels_to_a_task():
    one = a_range(3, 5, 9)
    assert pickle.loads(pickle.dumps(one)) == one

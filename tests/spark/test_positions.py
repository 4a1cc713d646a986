from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gimbalmq.errors import ConfigurationError
from gimbalmq.model.queue import MessageQueue
from gimbalmq.spark.positions import (
    COMMITTED,
    EARLIEST,
    LATEST,
    AtOffsets,
    AtTime,
    Loss,
    QueueFacts,
    check_queues,
    resolve_range,
)

QUEUE = MessageQueue("orders", "broker-a", 0)
OTHER = MessageQueue("orders", "broker-a", 1)


def at(offset):
    return AtOffsets({QUEUE: offset})


def resolve(start, end, **facts):
    found = resolve_range(QUEUE, start, end, QueueFacts(**{"minimum": 10, "maximum": 50} | facts))
    return (
        found.offset_from,
        found.offset_until,
        [(loss.wanted, loss.found) for loss in found.losses],
    )


@pytest.mark.parametrize(
    ("start", "end", "facts", "expected"),
    [
        pytest.param(EARLIEST, LATEST, {}, (10, 50, []), id="everything"),
        pytest.param(LATEST, EARLIEST, {}, (50, 50, []), id="backwards is nothing"),
        pytest.param(at(-2), at(-1), {}, (10, 50, []), id="the ends as numbers"),
        pytest.param(at(20), at(30), {}, (20, 30, []), id="exact offsets"),
        pytest.param(at(50), LATEST, {}, (50, 50, []), id="the end is no loss"),
        pytest.param(at(10), at(50), {}, (10, 50, []), id="exactly all"),
        pytest.param(at(5), LATEST, {}, (10, 50, [(5, 10)]), id="deleted start"),
        pytest.param(at(60), LATEST, {}, (50, 50, [(60, 50)]), id="start beyond the end"),
        pytest.param(EARLIEST, at(60), {}, (10, 50, [(60, 50)]), id="end beyond the end"),
        pytest.param(EARLIEST, at(5), {}, (10, 10, []), id="end before the first"),
        pytest.param(COMMITTED, LATEST, {"committed": 30}, (30, 50, []), id="from where the group is"),
        pytest.param(EARLIEST, COMMITTED, {"committed": 30}, (10, 30, []), id="to where the group is"),
        pytest.param(COMMITTED, LATEST, {}, (10, 50, []), id="the group never committed"),
        pytest.param(EARLIEST, COMMITTED, {}, (10, 10, []), id="nothing consumed, nothing read"),
        pytest.param(COMMITTED, LATEST, {"committed": 3}, (10, 50, [(3, 10)]), id="the group is late"),
        pytest.param(AtTime(1), LATEST, {"at_start_time": 3}, (10, 50, []), id="a time before all"),
        pytest.param(AtTime(1), AtTime(2), {"at_start_time": 20, "at_end_time": 40}, (20, 40, []), id="times"),
        pytest.param(EARLIEST, LATEST, {"minimum": 0, "maximum": 0}, (0, 0, []), id="an empty queue"),
    ],
)  # fmt: skip
def test_a_range_follows_from_positions_and_facts(start, end, facts, expected):
    assert resolve(start, end, **facts) == expected


POSITIONS = st.one_of(
    st.sampled_from([EARLIEST, LATEST, COMMITTED, AtTime(1)]), st.integers(-2, 120).map(at)
)
OFFSETS = st.integers(0, 120)


@given(POSITIONS, POSITIONS, OFFSETS, OFFSETS, OFFSETS | st.none(), OFFSETS, OFFSETS)
def test_a_range_never_leaves_the_queue_and_never_runs_backwards(
    start, end, first, second, committed, at_start, at_end
):
    facts = QueueFacts(min(first, second), max(first, second), committed, at_start, at_end)
    found = resolve_range(QUEUE, start, end, facts)
    assert facts.minimum <= found.offset_from <= found.offset_until <= facts.maximum


@given(OFFSETS, OFFSETS, OFFSETS, OFFSETS)
def test_exact_offsets_are_read_exactly_or_reported(first, second, start, end):
    facts = QueueFacts(min(first, second), max(first, second))
    found = resolve_range(QUEUE, at(min(start, end)), at(max(start, end)), facts)
    wanted = set(range(min(start, end), max(start, end)))
    read = set(range(found.offset_from, found.offset_until))
    assert read <= wanted
    if not found.losses:
        assert read == wanted


def test_a_loss_names_the_queue_the_wanted_and_the_found_offset():
    assert "orders/broker-a/0: offset 5 was wanted" in Loss(QUEUE, 5, 10).sentence
    assert "still stored is 10" in Loss(QUEUE, 5, 10).sentence
    assert "the queue ends at 50" in Loss(QUEUE, 60, 50).sentence


def test_json_offsets_must_name_every_queue():
    with pytest.raises(
        ConfigurationError, match="'startingOffsets' gives no offset for orders/broker-a/1"
    ):
        check_queues("startingOffsets", at(5), [QUEUE, OTHER])


def test_json_offsets_may_not_name_a_queue_that_is_not_there():
    with pytest.raises(ConfigurationError, match="'endingOffsets' names orders/broker-a/0, which"):
        check_queues("endingOffsets", at(5), [OTHER])


def test_json_offsets_of_a_broker_that_is_not_there_ask_whether_it_is_down():
    there = MessageQueue("orders", "broker-b", 0)
    with pytest.raises(ConfigurationError, match="knows no broker 'broker-a': is it down"):
        check_queues("startingOffsets", at(5), [there])
    with pytest.raises(ConfigurationError) as caught:
        check_queues("startingOffsets", at(5), [OTHER])
    assert "is it down" not in str(caught.value)


def test_a_long_list_of_queues_is_shortened():
    queues = [MessageQueue("orders", "broker-a", number) for number in range(20)]
    with pytest.raises(ConfigurationError, match="and 14 more"):
        check_queues("startingOffsets", at(5), queues)


def test_other_positions_fit_any_queues():
    check_queues("startingOffsets", EARLIEST, [QUEUE])

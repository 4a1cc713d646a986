from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gimbalmq.errors import ConfigurationError
from gimbalmq.model.queue import MessageQueue
from gimbalmq.spark.positions import COMMITTED, EARLIEST, LATEST, AtOffsets, AtTime, Loss
from gimbalmq.spark.stream_offsets import (
    Bounds,
    Span,
    Survey,
    is_symbolic,
    read_offsets,
    settle,
    spans,
    symbolic_start,
    write_offsets,
)

QUEUES = [MessageQueue(topic, "broker-a", n) for topic in ("orders", "refunds") for n in range(11)]
A, B = QUEUES[:2]
OFFSETS = st.dictionaries(st.sampled_from(QUEUES), st.integers(0, 1000))


@st.composite
def bounds(draw):
    minimum = draw(st.integers(0, 500))
    return Bounds(minimum, minimum + draw(st.integers(0, 500)), "h:1", draw(st.booleans()))


@st.composite
def surveys(draw):
    there = draw(st.dictionaries(st.sampled_from(QUEUES), bounds()))
    rest = [queue for queue in QUEUES if queue not in there]
    away = draw(st.frozensets(st.sampled_from(rest))) if rest else frozenset()
    left = [queue for queue in rest if queue not in away]
    ends = st.none() | st.integers(0, 1000)
    gone = draw(st.dictionaries(st.sampled_from(left), ends)) if left else {}
    return Survey(there, away, gone)


def at(minimum, maximum, *, behind=False):
    return Bounds(minimum, maximum, "h:1", behind)


@given(OFFSETS)
def test_offsets_survive_the_checkpoint_and_equal_maps_are_equal_texts(offsets):
    text = json.dumps(write_offsets(offsets))
    assert read_offsets(json.loads(text)) == offsets
    backwards = dict(reversed(offsets.items()))
    assert json.dumps(write_offsets(backwards)) == text
    assert list(json.loads(text)) == sorted(json.loads(text))


@pytest.mark.parametrize("position", [EARLIEST, LATEST, COMMITTED, AtTime(5), AtOffsets({A: 1})])
def test_a_symbolic_start_is_never_taken_for_offsets(position):
    assert is_symbolic(symbolic_start(position))
    assert not is_symbolic(write_offsets({A: 1}))
    assert not is_symbolic({})


@pytest.mark.parametrize("document", [{"0": 5}, {"orders/a/0": "5"}, {"orders/a/0": -1}])
def test_a_checkpoint_of_another_source_is_refused(document):
    with pytest.raises(ConfigurationError, match="option 'checkpointLocation' names a checkpoint"):
        read_offsets(document)


@given(OFFSETS, OFFSETS)
def test_a_batch_reads_only_forwards_and_only_queues_of_both_maps(start, end):
    found = {one.queue: one for one in spans(start, end)}
    assert found.keys() == {q for q in end if q in start and end[q] > start[q]}
    assert all(one == Span(q, start[q], end[q]) for q, one in found.items())


@given(OFFSETS, surveys())
def test_nothing_is_skipped_without_being_told(start, survey):
    """Whoever reads all that waits has read every offset, or a loss says which."""
    settled = settle(start, survey)
    lost = {loss.queue for loss in settled.losses}
    for queue, wanted in start.items():
        now = settled.offsets.get(queue)
        if queue not in lost and now is not None:
            assert now == wanted
        if now is None and queue not in lost:
            drained = queue in survey.gone and survey.gone[queue] <= wanted
            assert drained or queue not in (survey.bounds.keys() | survey.away)
    for queue in survey.bounds:
        assert queue in settled.offsets
        if queue not in start and queue not in lost:
            assert settled.offsets[queue] == 0


@given(OFFSETS, surveys())
def test_what_waits_is_stored_and_follows_the_offset(start, survey):
    settled = settle(start, survey)
    for queue, records in settled.waiting.items():
        found = survey.bounds[queue]
        assert records == max(0, found.maximum - settled.offsets[queue])
        if records:
            assert found.minimum <= settled.offsets[queue]


@given(OFFSETS, surveys())
def test_after_reading_all_a_second_look_finds_nothing(start, survey):
    """So a query ends, and an idle one makes no batches."""
    for _ in range(3):
        settled = settle(start, survey)
        start = {q: n + settled.waiting.get(q, 0) for q, n in settled.offsets.items()}
    again = settle(start, survey)
    assert again.offsets == start
    assert not any(again.waiting.values())


@given(OFFSETS, surveys(), OFFSETS)
def test_a_target_is_never_passed_and_adds_no_queue(start, survey, target):
    settled = settle(start, survey, target=target)
    assert settled.offsets.keys() <= start.keys() | target.keys()
    for queue, records in settled.waiting.items():
        assert not records or settled.offsets[queue] + records <= target[queue]


def test_a_broker_that_is_away_keeps_its_offsets():
    settled = settle({A: 5, B: 7}, Survey({A: at(0, 9)}, away=frozenset({B})))
    assert settled.offsets == {A: 5, B: 7}
    assert settled.waiting == {A: 4}
    assert settled.losses == ()


def test_retention_that_overtook_the_query_is_a_loss():
    settled = settle({A: 5}, Survey({A: at(20, 30)}))
    assert settled.losses == (Loss(A, 5, 20),)
    assert (settled.offsets, settled.waiting) == ({A: 20}, {A: 10})


def test_a_queue_that_was_made_again_starts_over_with_the_next_batch():
    settled = settle({A: 500}, Survey({A: at(0, 20)}))
    assert settled.losses == (Loss(A, 500, 20),)
    assert settled.offsets == {A: 0}
    assert not any(settled.waiting.values())
    assert list(spans({A: 500}, settled.offsets)) == []
    assert settle(settled.offsets, Survey({A: at(0, 20)})).waiting == {A: 20}


def test_a_slave_that_lacks_the_newest_is_waited_for():
    settled = settle({A: 500}, Survey({A: at(0, 480, behind=True)}))
    assert (settled.offsets, settled.losses) == ({A: 500}, ())
    assert not any(settled.waiting.values())


def test_a_removed_queue_leaves_and_is_a_loss_unless_it_was_read_to_its_end():
    drained = settle({A: 5, B: 7}, Survey({B: at(0, 7)}, gone={A: 5}))
    assert (drained.offsets, drained.losses) == ({B: 7}, ())
    for end in (None, 6):
        assert settle({A: 5}, Survey({}, gone={A: end})).losses == (Loss(A, 5, None),)


def test_a_new_queue_enters_at_its_first_message_and_is_read_from_the_next_batch_on():
    settled = settle({A: 5}, Survey({A: at(0, 5), B: at(0, 9)}))
    assert (settled.offsets, settled.waiting) == ({A: 5, B: 0}, {A: 0})
    assert settle({A: 5}, Survey({A: at(0, 5), B: at(3, 9)})).losses == (Loss(B, 0, 3),)


def test_a_queue_from_another_member_enters_where_the_group_is():
    settled = settle({}, Survey({A: at(3, 9)}), entering={A: 7})
    assert (settled.offsets, settled.waiting, settled.losses) == ({A: 7}, {}, ())


def test_a_queue_that_others_hold_leaves_without_a_loss():
    settled = settle({A: 5, B: 5}, Survey({A: at(0, 9)}))
    assert (settled.offsets, settled.losses) == ({A: 5}, ())


def test_the_words_for_a_queue_that_is_gone():
    assert Loss(A, 5, None).sentence == (
        "orders/broker-a/0: offset 5 was wanted, but the queue is gone "
        "(its topic was deleted or got fewer queues)"
    )

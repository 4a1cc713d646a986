import pytest
from hypothesis import given
from hypothesis import strategies as st

from gimbalmq.core.process_queue import Batch, ProcessQueue


@pytest.mark.rule("B3b", "B3c")
def test_commit_offset_is_the_lowest_unfinished_offset():
    held = ProcessQueue(5)
    batch = held.put("abc", [5, 6, 7], body_bytes=30, next_offset=8)
    assert held.commit_offset == 5
    held.finish(batch, 1, 2)
    assert held.commit_offset == 5
    held.finish(batch, 0, 1)
    assert held.commit_offset == 7
    held.finish(batch, 2, 3)
    assert held.commit_offset == 8


def test_a_filtered_tail_is_committed_once_nothing_is_cached():
    held = ProcessQueue(0)
    batch = held.put("a", [3], body_bytes=1, next_offset=10)
    assert held.commit_offset == 3
    held.finish(batch, 0, 1)
    assert held.commit_offset == 10


@pytest.mark.rule("B3e")
def test_finishing_twice_counts_once():
    held = ProcessQueue(0)
    batch = held.put("ab", [0, 1], body_bytes=8, next_offset=2)
    assert held.finish(batch, 0, 1) == 1
    assert held.finish(batch, 0, 2) == 1
    assert (held.cached_count, held.cached_bytes) == (0, 0)


def test_what_a_user_has_is_not_cached_and_holds_the_offset_back_until_it_is_done():
    held = ProcessQueue(5)
    first = held.put("abc", [5, 6, 7], body_bytes=30, next_offset=8)
    held.put("de", [8, 9], body_bytes=20, next_offset=10)
    held.hand_out(first, 2)
    assert (held.cached_count, held.cached_bytes, held.span) == (3, 50, 2)
    assert list(first.messages) == ["a", "b", "c"], "the rest is still to be handed out"
    held.hand_out(first, 3)
    assert (held.cached_count, held.cached_bytes, held.span) == (2, 20, 1)
    assert (held.commit_offset, held.cached_from) == (5, 8)
    assert not first.messages
    assert held.finish(first, 0, 3) == 3
    assert (held.cached_count, held.cached_bytes, held.commit_offset) == (2, 20, 8)


def test_nothing_is_cached_when_a_user_has_all():
    held = ProcessQueue(0)
    batch = held.put("ab", [3, 7], body_bytes=8, next_offset=9)
    held.hand_out(batch, 2)
    assert (held.cached_count, held.cached_bytes, held.span) == (0, 0, 0)
    held.finish(batch, 1, 2)
    held.finish(batch, 0, 1)
    assert (held.cached_count, held.cached_bytes, held.commit_offset) == (0, 0, 9)


def test_advance_never_moves_back():
    held = ProcessQueue(7)
    held.advance(3)
    assert held.next_offset == 7
    held.advance(9)
    assert held.commit_offset == 9


@pytest.mark.rule("B3d")
def test_span_reaches_from_the_lowest_unfinished_to_the_highest_cached_offset():
    held = ProcessQueue(0)
    assert held.span == 0
    first = held.put("ab", [0, 1], body_bytes=2, next_offset=2)
    held.put("c", [2000], body_bytes=1, next_offset=2001)
    assert held.span == 2000
    held.finish(first, 0, 2)
    assert held.span == 0


class _NaiveQueue:
    """Every message by its offset; slow and obvious."""

    def __init__(self, offset):
        self.next_offset = offset
        self.unfinished = {}

    def put(self, offsets, next_offset):
        self.unfinished |= dict.fromkeys(offsets)
        self.next_offset = max(next_offset, offsets[-1] + 1)

    def finish(self, offsets):
        for offset in offsets:
            self.unfinished.pop(offset, None)

    @property
    def commit_offset(self):
        return min(self.unfinished, default=self.next_offset)


_runs = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9), st.integers(1, 6)), max_size=60)
_replies = st.lists(
    st.tuples(st.lists(st.integers(1, 4), min_size=1, max_size=8), st.integers(0, 3)),
    min_size=1,
    max_size=8,
)


@pytest.mark.rule("B3c", "B3e")
@given(start=st.integers(0, 100), replies=_replies, runs=_runs)
def test_any_order_of_finishing_agrees_with_a_naive_model(start, replies, runs):
    held, naive = ProcessQueue(start), _NaiveQueue(start)
    batches: list[Batch] = []
    for gaps, tail in replies:
        offsets, offset = [], held.next_offset - 1
        for gap in gaps:
            offset += gap
            offsets.append(offset)
        next_offset = offset + 1 + tail
        batches.append(held.put(offsets, offsets, body_bytes=len(gaps), next_offset=next_offset))
        naive.put(offsets, next_offset)
    for which, first, length in runs:
        batch = batches[which % len(batches)]
        start = first % len(batch.offsets)
        until = min(start + length, len(batch.offsets))
        held.finish(batch, start, until)
        naive.finish(batch.offsets[start:until])
        assert held.commit_offset == naive.commit_offset
        assert held.cached_count == len(naive.unfinished)
    for batch in batches:
        held.finish(batch, 0, len(batch.offsets))
    assert (held.cached_count, held.cached_bytes, held.span) == (0, 0, 0)
    assert held.commit_offset == naive.next_offset


def test_what_is_not_done_of_a_batch_is_told_in_runs():
    batch = Batch(range(8), range(8), 8)
    assert batch.unfinished(0, 8) == [(0, 8)]
    batch.finish(1, 3)
    batch.finish(5, 6)
    assert batch.unfinished(0, 8) == [(0, 1), (3, 5), (6, 8)]
    assert batch.unfinished(1, 6) == [(3, 5)]
    assert batch.unfinished(1, 3) == []

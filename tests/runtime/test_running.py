import itertools

from hypothesis import given
from hypothesis import strategies as st

from gimbalmq.runtime.running import RunningWork
from runtime.test_workers import consume_of


@given(st.integers(1, 20), st.integers(0, 20))
def test_each_message_is_either_begun_or_taken_away(count, begun):
    work = RunningWork(consume_of(count), 0, count, 0.0)
    left = work.parts()
    got = [message.queue_offset for message in itertools.islice(left, begun)]
    assert work.left() == count - len(got)
    assert list(work.current()) == [max(0, len(got) - 1)]
    assert work.take_rest() == count - len(got)
    assert (work.take_rest(), work.left(), list(left)) == (0, 0, [])
    assert list(work.current()) == [max(0, len(got) - 1)]


@given(st.integers(1, 20), st.integers(2, 8), st.integers(0, 10))
def test_each_batch_is_either_begun_or_taken_away(count, width, begun):
    work = RunningWork(consume_of(count), 0, count, 0.0, width=width)
    left = work.parts()
    batches = list(itertools.islice(left, begun))
    assert all(len(batch) == width for batch in batches[:-1])
    got = [message.queue_offset for batch in batches for message in batch]
    assert got == list(range(len(got)))
    assert work.take_rest() == count - len(got)
    assert (work.take_rest(), work.left(), list(left)) == (0, 0, [])
    first = max(0, len(batches) - 1) * width
    assert work.current() == range(first, min(first + width, count))


def test_what_an_ordered_run_has_cannot_be_taken_away():
    work = RunningWork(consume_of(4), 0, 4, 0.0, width=4)
    assert (work.left(), work.take_rest(), list(work.current())) == (0, 0, [0, 1, 2, 3])


def test_what_is_not_the_first_part_of_a_run_is_had_since_the_look_that_found_it():
    work = RunningWork(consume_of(4), 0, 4, 100.0, width=2)
    parts = work.parts()
    next(parts)
    assert work.had_since(500.0) == 100.0
    next(parts)
    assert [work.had_since(now) for now in (900.0, 950.0)] == [900.0, 900.0]


def test_an_ordered_run_says_itself_since_when_it_has_what_it_has():
    work = RunningWork(consume_of(4), 0, 4, 100.0)
    work.position, work.since = 2, 700.0
    assert work.had_since(900.0) == 700.0

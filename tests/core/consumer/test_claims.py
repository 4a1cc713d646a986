import pytest
from hypothesis import given
from hypothesis import strategies as st

from gimbalmq.core.consumer.claims import Claims
from gimbalmq.core.consumer.effects import Consume
from gimbalmq.core.consumer.events import Consumed
from gimbalmq.core.process_queue import Batch
from gimbalmq.model.queue import MessageQueue

QUEUE = MessageQueue("orders", "broker-a", 0)


def piece(count, *, epoch=1, ordered=False):
    batch = Batch(range(count), range(count), count)
    return Consume(QUEUE, epoch, batch, 0, count, ordered)


def taken(claims, most):
    consume, first, until = claims.claim(most)
    return consume.epoch, first, until


@pytest.fixture
def claims():
    return Claims()


def test_a_piece_is_claimed_in_runs_and_the_next_one_after_it(claims):
    claims.add(piece(5))
    claims.add(piece(2, epoch=2))
    assert [taken(claims, 3) for _ in range(3)] == [(1, 0, 3), (1, 3, 5), (2, 0, 2)]
    assert not claims.waiting


def test_an_ordered_piece_is_claimed_whole(claims):
    claims.add(piece(5, ordered=True))
    assert taken(claims, 1) == (1, 0, 5)


def test_what_is_given_back_comes_before_all_else(claims):
    claims.add(piece(5))
    claims.add(piece(2, epoch=2))
    consume, _first, until = claims.claim(5)
    claims.give_back(consume, 2, until)
    assert claims.cancel(QUEUE, 1) == 2, "what was given back is no longer with a worker"
    assert taken(claims, 9) == (2, 0, 2)


def test_a_queue_counts_as_running_until_its_results_were_taken_in(claims):
    claims.add(piece(5))
    consume, first, until = claims.claim(5)
    assert claims.cancel(QUEUE, 1) == 5
    claims.account(Consumed(QUEUE, 1, consume.batch, first, 3))
    assert claims.cancel(QUEUE, 1) == 2
    claims.account(Consumed(QUEUE, 1, consume.batch, 3, until))
    assert claims.cancel(QUEUE, 1) == 0


# ---- giving a queue up ---------------------------------------------------------------------------


def test_only_the_end_of_a_queue_that_is_given_up_may_not_wait_again(claims):
    claims.add(piece(4))
    claims.add(piece(1, epoch=2))
    first, second, other = (claims.claim(2) for _ in range(3))

    def over():
        return [claims.is_over(consume, until) for consume, _, until in (first, second, other)]

    assert over() == [False, False, False], "nothing is given up"
    claims.cancel(QUEUE, 1)
    assert over() == [False, True, False], "later messages of the first have begun"


@pytest.mark.parametrize("done", [False, True], ids=["running", "done"])
def test_what_waits_before_messages_that_have_begun_is_not_discarded(claims, done):
    """Their offsets cannot be stored before its own: they would be delivered twice."""
    claims.add(piece(9))
    first, second = claims.claim(4), claims.claim(2)
    claims.give_back(first[0], 1, 4)
    if done:
        for consume, at, until in (first, second):
            claims.account(Consumed(QUEUE, 1, consume.batch, at, 1 if at == 0 else until))
    assert claims.cancel(QUEUE, 1) == (3 if done else 3 + 1 + 2)
    assert taken(claims, 2) == (1, 1, 3)
    claims.give_back(first[0], 2, 3)
    assert [taken(claims, 9) for _ in range(2)] == [(1, 2, 3), (1, 3, 4)]
    assert not claims.waiting, "what comes after them is"


def test_a_queue_that_is_given_up_again_has_nothing_left_to_start(claims):
    claims.add(piece(9))
    first, _second = claims.claim(4), claims.claim(2)
    claims.give_back(first[0], 1, 4)
    assert claims.cancel(QUEUE, 1) == 3 + 1 + 2
    assert claims.cancel(QUEUE, 1) == 1 + 2
    assert not claims.waiting
    assert claims.is_over(first[0], 1), "not even the rest of an earlier run"


def test_a_run_that_was_given_back_before_it_began_leaves_nothing_behind(claims):
    claims.add(piece(3))
    consume, first, until = claims.claim(3)
    claims.give_back(consume, first, until)
    claims.account(Consumed(QUEUE, 1, consume.batch, first, first))
    assert claims.cancel(QUEUE, 1) == 0
    assert not claims.waiting


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 4), st.booleans()), max_size=30),
    st.integers(1, 12),
)
def test_after_a_queue_was_given_up_no_hole_is_left_in_what_was_done(steps, size):
    claims, begun, running = Claims(), set(), []
    claims.add(piece(size))

    def end(claim):
        """A worker comes to an end, or gives the rest of its run back if that may wait again."""
        (consume, first, until), reached = claim
        if reached < until and not claims.is_over(consume, until):
            claims.give_back(consume, reached, until)
            until = reached
        begun.update(range(first, reached))
        at = None if reached == until else reached
        claims.account(Consumed(QUEUE, 1, consume.batch, first, until, reached=at))
        return until - first

    for most, reached, ends in steps:
        if claims.waiting:
            claim = claims.claim(most)
            running.append((claim, min(claim[1] + max(reached, 1), claim[2])))
        if ends and running:
            end(running.pop(0))
    left = claims.cancel(QUEUE, 1)
    while running or claims.waiting:
        if claims.waiting:
            claim = claims.claim(1)
            running.append((claim, claim[2]))
        left -= end(running.pop(0))
    assert left == 0
    assert begun == set(range(len(begun)))


@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 4)), max_size=40),
)
def test_every_message_is_claimed_once_however_runs_are_cut_and_given_back(sizes, steps):
    claims, done = Claims(), []
    for epoch, size in enumerate(sizes):
        claims.add(piece(size, epoch=epoch))
    for most, begun in [*steps, *[(9, 9)] * 60]:
        if not claims.waiting:
            break
        consume, first, until = claims.claim(most)
        reached = min(first + max(begun, 1), until)
        if reached < until:
            claims.give_back(consume, reached, until)
        done += [(consume.epoch, position) for position in range(first, reached)]
        claims.account(Consumed(QUEUE, consume.epoch, consume.batch, first, reached))
    assert sorted(done) == [(epoch, at) for epoch, size in enumerate(sizes) for at in range(size)]
    assert not any(claims.cancel(QUEUE, epoch) for epoch in range(len(sizes)))

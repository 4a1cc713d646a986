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
    _number, consume, first, until = claims.claim(most)
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
    _number, consume, _first, until = claims.claim(5)
    claims.give_back(consume, 2, until)
    assert claims.cancel(QUEUE, 1) == 2, "what was given back is no longer with a worker"
    assert taken(claims, 9) == (2, 0, 2)


def test_a_queue_counts_as_running_until_its_results_were_taken_in(claims):
    claims.add(piece(5))
    _number, consume, first, until = claims.claim(5)
    assert claims.cancel(QUEUE, 1) == 5
    assert claims.is_cancelled(consume)
    claims.account(Consumed(QUEUE, 1, consume.batch, first, 3))
    assert claims.cancel(QUEUE, 1) == 2
    claims.account(Consumed(QUEUE, 1, consume.batch, 3, until))
    assert claims.cancel(QUEUE, 1) == 0
    assert not claims.is_cancelled(consume), "nothing of it is left to be kept from starting"


def test_a_claim_knows_whether_later_messages_of_its_queue_were_claimed(claims):
    claims.add(piece(4))
    claims.add(piece(1, epoch=2))
    first, second, other = (claims.claim(2) for _ in range(3))
    assert [claims.is_newest(one[0], one[1]) for one in (first, second, other)] == [
        False,
        True,
        True,
    ]


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
        _number, consume, first, until = claims.claim(most)
        reached = min(first + max(begun, 1), until)
        if reached < until:
            claims.give_back(consume, reached, until)
        done += [(consume.epoch, position) for position in range(first, reached)]
        claims.account(Consumed(QUEUE, consume.epoch, consume.batch, first, reached))
    assert sorted(done) == [(epoch, at) for epoch, size in enumerate(sizes) for at in range(size)]
    assert not any(claims.cancel(QUEUE, epoch) for epoch in range(len(sizes)))

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gimbalmq.core.selection import RoundRobin, queue_by_key
from gimbalmq.errors import ConfigurationError
from gimbalmq.model.queue import MessageQueue

QUEUES = [MessageQueue("t", broker, number) for broker in "ab" for number in (0, 1)]


@pytest.mark.rule("B7.1a")
def test_the_counter_steps_before_use_and_goes_round():
    ring = RoundRobin(0)
    assert [QUEUES.index(ring.next(QUEUES)) for _ in range(5)] == [1, 2, 3, 0, 1]


@pytest.mark.rule("B7.1b")
def test_a_retry_takes_the_next_queue_of_another_broker():
    ring = RoundRobin(0)
    assert ring.next(QUEUES).path == "t/a/1"
    assert ring.next(QUEUES, avoid_broker="a").path == "t/b/0"


@pytest.mark.rule("B7.1b")
def test_a_retry_with_only_one_broker_takes_the_next_queue():
    only_a = QUEUES[:2]
    ring = RoundRobin(0)
    assert ring.next(only_a, avoid_broker="a") in only_a


@pytest.mark.rule("B7.1c")
@given(start=st.integers(0, 2**32 - 1))
def test_every_queue_gets_its_turn_from_any_start(start):
    ring = RoundRobin(start)
    # Where the counter leaves 31 bits the walk skips once; two rounds see every queue.
    assert {ring.next(QUEUES) for _ in range(2 * len(QUEUES))} == set(QUEUES)


@given(start=st.integers(0, 2**32 - 1), count=st.integers(0, 9))
def test_many_steps_are_as_many_single_ones(start, count):
    one_by_one, together = RoundRobin(start), RoundRobin(start)
    assert together.steps(count) == [one_by_one.step() for _ in range(count)]
    assert together.step() == one_by_one.step()


@pytest.mark.rule("B7.6a")
@pytest.mark.parametrize(
    ("key", "position"),
    [("order-1", 6), ("a", 1), ("hello", 2), ("TagA", 7), ("订单", 3), (12345678901, 1), (-7, 7)],
)
def test_a_key_lands_where_java_puts_it(key, position):
    queues = [MessageQueue("t", "a", number) for number in range(8)]
    assert queue_by_key(queues, key).queue_id == position


def test_a_key_beyond_64_bits_is_refused():
    with pytest.raises(ConfigurationError, match="64 bits"):
        queue_by_key(QUEUES, 1 << 64)

import itertools
import threading

from hypothesis import given
from hypothesis import strategies as st

from gimbalmq.telemetry.families import Kind, Metric, Sample
from gimbalmq.telemetry.instruments import Counter, Histogram

SENT = Metric("sent_total", Kind.COUNTER, "Messages sent.", ("topic",))
TOOK = Metric("took_seconds", Kind.HISTOGRAM, "Time.", ("broker",), (0.1, 1.0, 10.0))


def run_all(threads):
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_no_count_of_many_threads_is_lost_also_of_those_that_have_ended():
    counter = Counter(SENT)

    def count():
        for _ in range(1000):
            counter.add(("orders",))

    for expected in (4000.0, 8000.0):
        run_all([threading.Thread(target=count) for _ in range(4)])
        assert counter.family().samples == (Sample(("orders",), expected),)


def test_threads_that_have_ended_leave_nothing_behind_once_read():
    counter = Counter(SENT)
    run_all([threading.Thread(target=counter.add, args=(("orders",),)) for _ in range(50)])
    counter.add(("orders",))
    assert counter.family().samples == (Sample(("orders",), 51.0),)
    assert len(counter._threads) == 1


@given(st.lists(st.floats(0.0, 100.0)))
def test_every_observation_is_in_the_first_bucket_that_reaches_it(values):
    histogram = Histogram(TOOK)
    for value in values:
        histogram.observe(("broker-a",), value)
    samples = histogram.family().samples
    if not values:
        assert samples == ()
        return
    (found,) = samples
    bounds = (0.0, *TOOK.bounds, float("inf"))
    expected = [
        sum(low < value <= high or (low == 0.0 == value) for value in values)
        for low, high in itertools.pairwise(bounds)
    ]
    assert list(found.counts) == expected
    assert found.count == len(values)
    assert abs(found.total - sum(values)) < 1e-6

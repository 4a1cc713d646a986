import pytest
from hypothesis import given
from hypothesis import strategies as st

from gimbalmq.core.fault import Faults, FaultTolerance, pause_s
from gimbalmq.core.selection import RoundRobin
from gimbalmq.errors import ConfigurationError
from gimbalmq.model.queue import MessageQueue

QUEUES = [MessageQueue("t", broker, number) for broker in "abc" for number in (0, 1)]
COUNTS = {"a": 2, "b": 2, "c": 2}
NEW, OLD = FaultTolerance(), FaultTolerance(rules="4.x")


def choices(faults, count=12, *, now_s=1.0, failed=None, queues=QUEUES):
    ring = RoundRobin(0)
    return [faults.select(ring, queues, COUNTS, now_s, failed_broker=failed) for _ in range(count)]


def brokers(chosen):
    return {queue.broker for queue in chosen}


@pytest.mark.rule("B7.3a")
@pytest.mark.parametrize(
    ("latency_ms", "pause_ms"),
    [(49, 0), (549, 0), (550, 2000), (1799, 2000), (2999, 5000), (4999, 6000), (14999, 10000),
     (20000, 30000)],
)  # fmt: skip
def test_a_slow_answer_is_looked_up_in_the_table(latency_ms, pause_ms):
    assert pause_s(NEW, latency_ms / 1000) * 1000 == pause_ms


@pytest.mark.rule("B7.3a")
@pytest.mark.parametrize(("tolerance", "seconds"), [(NEW, 10.0), (OLD, 600.0)])
def test_a_failure_counts_as_a_very_slow_answer(tolerance, seconds):
    faults = Faults(tolerance)
    faults.report("a", 0.001, 0.0, failed=True)
    assert not faults.available("a", seconds - 0.001)
    assert faults.available("a", seconds)


@pytest.mark.rule("B7.3b")
def test_a_quick_success_does_not_end_an_isolation_in_5x_but_does_in_4x():
    for tolerance, available in ((NEW, False), (OLD, True)):
        faults = Faults(tolerance)
        faults.report("a", 0.001, 0.0, failed=True)
        faults.report("a", 0.001, 1.0)
        assert faults.available("a", 1.0) is available


@pytest.mark.rule("B7.3b")
def test_an_isolation_of_5x_is_never_shortened():
    faults = Faults(NEW)
    faults.report("a", 20.0, 0.0)
    faults.report("a", 0.6, 1.0)
    assert faults.health(1.0)["a"].aside_s == 29.0


@pytest.mark.rule("B7.3c")
def test_a_broker_of_which_nothing_is_known_is_fine():
    faults = Faults(NEW)
    assert faults.available("a", 0.0)
    assert faults.reachable("a")
    assert faults.health(0.0) == {}


@pytest.mark.rule("B7.2a")
def test_brokers_that_are_aside_get_nothing_while_others_are_there():
    for tolerance in (NEW, OLD):
        faults = Faults(tolerance)
        faults.report("b", 0.0, 0.0, failed=True)
        assert brokers(choices(faults)) == {"a", "c"}


@pytest.mark.rule("B7.2a")
def test_a_retry_of_5x_also_avoids_the_broker_that_just_failed():
    faults = Faults(NEW)
    faults.report("b", 0.0, 0.0, failed=True)
    assert brokers(choices(faults, failed="c")) == {"a"}


@pytest.mark.rule("B7.2a")
def test_when_all_are_aside_5x_takes_the_reachable_ones():
    faults = Faults(NEW)
    for broker in "abc":
        faults.report(broker, 0.0, 0.0, failed=True, reachable=broker == "c")
    assert brokers(choices(faults)) == {"c"}
    assert brokers(choices(faults, failed="c")) == {"a", "b", "c"}


@pytest.mark.rule("B7.2b")
def test_when_all_are_aside_4x_takes_one_of_the_better_half():
    faults = Faults(OLD)
    queues = [MessageQueue("t", broker, number) for broker in "abcd" for number in (0, 1)]
    for broker, latency_s in zip("abcd", (0.9, 0.6, 0.7, 0.8), strict=True):
        faults.report(broker, latency_s, 0.0)
    ring, counts = RoundRobin(0), dict.fromkeys("abcd", 2)
    chosen = [faults.select(ring, queues, counts, 1.0) for _ in range(12)]
    assert brokers(chosen) == {"b", "c"}
    assert {queue.queue_id for queue in chosen} == {0, 1}


@pytest.mark.rule("B7.2b")
def test_the_fallback_of_4x_leaves_the_queue_list_alone():
    faults = Faults(OLD)
    for broker in "abc":
        faults.report(broker, 0.6, 0.0)
    queues = list(QUEUES)
    choices(faults, queues=queues)
    assert queues == QUEUES


@pytest.mark.rule("B7.2b")
def test_4x_forgets_a_broker_that_has_no_queues_any_more():
    faults = Faults(OLD)
    for broker in "abcx":
        faults.report(broker, 0.6 if broker == "x" else 0.9, 0.0)
    chosen = {faults.select(RoundRobin(0), QUEUES, COUNTS, 1.0) for _ in range(4)}
    assert brokers(chosen) <= {"a", "b", "c"}
    assert "x" not in faults.health(1.0)


@pytest.mark.rule("B7.3e")
def test_the_detector_asks_each_broker_once_per_interval_and_clears_the_mark():
    faults = Faults(FaultTolerance(detector=True))
    faults.report("a", 0.0, 0.0, failed=True, reachable=False)
    assert faults.due_checks(3.0) == ["a"]
    assert faults.due_checks(4.9) == []
    faults.answered("a")
    assert faults.reachable("a")
    assert faults.due_checks(5.0) == ["a"]
    faults.forget("a")
    faults.answered("a")
    assert faults.due_checks(9.0) == []


@given(
    reports=st.lists(
        st.tuples(
            st.sampled_from("abcx"), st.floats(0, 20), st.floats(0, 5), st.booleans(), st.booleans()
        )
    ),
    rules=st.sampled_from(["4.x", "5.x"]),
    start=st.integers(0, 2**32 - 1),
    failed=st.sampled_from([None, "a", "x"]),
)
def test_whatever_happened_the_choice_is_one_of_the_queues(reports, rules, start, failed):
    faults = Faults(FaultTolerance(rules=rules))
    for broker, latency_s, at_s, fault, reachable in reports:
        faults.report(broker, latency_s, at_s, failed=fault, reachable=reachable)
    ring = RoundRobin(start)
    for _ in range(8):
        assert faults.select(ring, QUEUES, COUNTS, 2.0, failed_broker=failed) in QUEUES


@pytest.mark.parametrize(
    "options",
    [{"rules": "6.x"}, {"latency_s": (1.0,)}, {"latency_s": (2.0, 1.0), "isolate_s": (1.0, 2.0)},
     {"latency_s": (), "isolate_s": ()}, {"detect_interval_s": 0}],
)  # fmt: skip
def test_options_that_make_no_sense_are_refused(options):
    with pytest.raises(ConfigurationError):
        FaultTolerance(**options)


def test_a_table_of_ones_own_is_used():
    tolerance = FaultTolerance(latency_s=(0.2,), isolate_s=(60.0,))
    assert (pause_s(tolerance, 0.19), pause_s(tolerance, 0.2)) == (0.0, 60.0)

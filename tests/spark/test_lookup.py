from __future__ import annotations

import pytest

from gimbalmq.errors import (
    BrokerError,
    ConfigurationError,
    OffsetError,
    TopicNotFoundError,
    TransportError,
)
from gimbalmq.model.route import BrokerSet, QueueData, TopicRoute
from gimbalmq.runtime.inline import ConnectionPool, run_inline
from gimbalmq.spark import topic_lookup
from gimbalmq.spark.lookup import broker_address, find_coverage
from gimbalmq.spark.options import parse_read_options


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr(topic_lookup, "_RETRY_WAITS_S", (0.001, 0.001))


@pytest.fixture
def cover(scripted):
    def run(**given):
        given = {"nameserver": scripted.address, "topic": "orders"} | given
        if "topicPattern" in given:
            del given["topic"]
        options = parse_read_options(given)
        pool = ConnectionPool()
        try:
            return run_inline(find_coverage(options), pool)
        finally:
            pool.close()

    return run


def spans(coverage):
    return {r.queue.path: (r.offset_from, r.offset_until) for r in coverage.ranges if r.records}


def test_a_topic_is_covered_from_its_first_to_its_last_message(scripted, cover):
    for number, count in enumerate((10, 0, 30)):
        scripted.store(scripted.queue(number), count)
    scripted.minimum[scripted.queue(2)] = 5
    coverage = cover()
    assert spans(coverage) == {"orders/broker-a/0": (0, 10), "orders/broker-a/2": (5, 30)}
    assert {one.address for one in coverage.ranges} == {scripted.address}


def test_several_topics_are_covered_together(scripted, cover):
    for topic in ("orders", "refunds"):
        scripted.store(scripted.queue(0, topic), 3)
    found = spans(cover(topic="refunds,orders"))
    assert found == {"orders/broker-a/0": (0, 3), "refunds/broker-a/0": (0, 3)}


def test_a_pattern_matches_whole_names_and_leaves_out_what_is_not_meant(scripted, cover):
    for topic in ("shop-a", "shop-b", "my-shop-a", "%RETRY%shop-a", "rmq_sys_shop-a"):
        scripted.store(scripted.queue(0, topic), 1)
    assert set(spans(cover(topicPattern="shop-.*"))) == {"shop-a/broker-a/0", "shop-b/broker-a/0"}
    every = {path.partition("/")[0] for path in spans(cover(topicPattern=".*"))}
    assert every == {"shop-a", "shop-b", "my-shop-a"}
    assert set(spans(cover(topicPattern="%RETRY%.*"))) == {"%RETRY%shop-a/broker-a/0"}


def test_a_pattern_that_matches_nothing_is_refused(scripted, cover):
    scripted.queue(0)
    with pytest.raises(
        ConfigurationError, match=r"option 'topicPattern' is 'x.*' and matches none"
    ):
        cover(topicPattern="x.*")


def test_committed_offsets_of_the_group_are_a_start_or_an_end(scripted, cover):
    first, second = scripted.queue(0), scripted.queue(1)
    scripted.store(first, 10)
    scripted.store(second, 10)
    scripted.committed["billing", first] = 4
    found = spans(cover(group="billing", startingOffsets="committed"))
    assert found == {first.path: (4, 10), second.path: (0, 10)}
    assert spans(cover(group="billing", endingOffsets="committed")) == {first.path: (0, 4)}


@pytest.mark.rule("W2.5")
@pytest.mark.parametrize("closest", [False, True], ids=["first not before", "closest"])
@pytest.mark.parametrize(
    ("start", "end", "span"),
    [
        (0, 9_999, (0, 100)),
        (2_000, 3_000, (40, 80)),
        (1_999, 2_001, (40, 80)),
        (2_001, 3_001, (80, 100)),
        (1_001, 2_000, None),
        (3_001, 9_999, None),
        (0, 1_000, None),
    ],
)
def test_times_cut_exactly_whatever_the_broker_searches_for(
    scripted, cover, closest, start, end, span
):
    scripted.closest_search = closest
    queue = scripted.queue(0)
    for at_ms, count in ((1_000, 40), (2_000, 40), (3_000, 20)):
        scripted.store(queue, count, at_ms=at_ms)
    found = spans(cover(startingTimestamp=str(start), endingTimestamp=str(end)))
    assert found == ({queue.path: span} if span else {})


def test_a_time_in_an_empty_queue_covers_nothing(scripted, cover):
    scripted.queue(0)
    assert spans(cover(startingTimestamp="5")) == {}


def test_a_time_before_what_is_still_stored_starts_there(scripted, cover):
    queue = scripted.queue(0)
    scripted.store(queue, 50)
    scripted.minimum[queue] = 20
    assert spans(cover(startingTimestamp="5")) == {queue.path: (20, 50)}


def test_offsets_that_are_gone_fail_the_read(scripted, cover):
    queue = scripted.queue(0)
    scripted.store(queue, 50)
    scripted.minimum[queue] = 20
    with pytest.raises(
        OffsetError, match=r"orders/broker-a/0: offset 5 was wanted.*'failOnDataLoss'"
    ):
        cover(startingOffsets='{"orders/broker-a/0": 5}')


def test_offsets_that_are_gone_may_be_left_out_and_are_reported(scripted, cover):
    queue = scripted.queue(0)
    scripted.store(queue, 50)
    scripted.minimum[queue] = 20
    coverage = cover(startingOffsets='{"orders/broker-a/0": 5}', failOnDataLoss="false")
    assert spans(coverage) == {queue.path: (20, 50)}
    assert [(loss.wanted, loss.found) for loss in coverage.losses] == [(5, 20)]


def test_json_offsets_are_held_against_the_queues(scripted, cover):
    scripted.queue(0)
    scripted.queue(1)
    with pytest.raises(ConfigurationError, match="'startingOffsets' gives no offset for"):
        cover(startingOffsets='{"orders/broker-a/0": 0}')


def test_an_unknown_topic_is_named(cover):
    with pytest.raises(TopicNotFoundError, match="option 'topic': there is no topic 'nosuch'"):
        cover(topic="nosuch")


def test_an_unreachable_name_server_is_named_by_its_option(cover):
    with pytest.raises(TransportError, match=r"option 'nameserver' is '127.0.0.1:1'"):
        cover(nameserver="127.0.0.1:1")
    with pytest.raises(TransportError, match=r"option 'nameserver' is '127.0.0.1:1'"):
        cover(nameserver="127.0.0.1:1", topicPattern=".*")


def test_a_second_name_server_is_asked_when_the_first_is_down(scripted, cover):
    scripted.store(scripted.queue(0), 3)
    assert spans(cover(nameserver=f"127.0.0.1:1;{scripted.address}")) == {
        "orders/broker-a/0": (0, 3)
    }


def test_a_failure_while_planning_that_passes_is_not_seen(scripted, cover):
    queue = scripted.queue(0)
    scripted.store(queue, 10)
    scripted.faults.extend(["close", 2])
    assert spans(cover(startingTimestamp="5")) == {queue.path: (0, 10)}


def test_a_broker_that_does_not_answer_while_planning_is_named(scripted, cover):
    scripted.store(scripted.queue(0), 10)
    scripted.faults.extend(["close"] * 10)
    words = (
        "cannot plan the read of orders/broker-a/0: broker 'broker-a' is registered and does not"
    )
    with pytest.raises(TransportError, match=words):
        cover(startingTimestamp="5")


def test_a_refusal_while_planning_is_passed_on(scripted, cover):
    queue = scripted.queue(0)
    scripted.store(queue, 10)
    scripted.faults.append(16)
    with pytest.raises(BrokerError, match="NO_PERMISSION"):
        cover(startingTimestamp="5")


def test_a_broker_is_read_at_its_master_or_else_at_a_slave():
    def route(*brokers):
        return TopicRoute("orders", brokers, (QueueData("broker-a", 1, 1, 6),))

    both = route(BrokerSet("broker-a", "c", {0: "m:1", 1: "s:1"}))
    assert broker_address(both, "broker-a") == "m:1"
    assert broker_address(route(BrokerSet("broker-a", "c", {1: "s:1"})), "broker-a") == "s:1"
    with pytest.raises(TransportError, match="no running process of it"):
        broker_address(route(), "broker-a")

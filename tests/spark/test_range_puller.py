from __future__ import annotations

import logging

import pytest

from gimbalmq.errors import BrokerError, OffsetError, TransportError
from gimbalmq.spark import connections, range_puller
from gimbalmq.spark.planning import ReadRange
from gimbalmq.spark.pull_links import Link
from gimbalmq.spark.range_puller import RangePuller
from spark.scripted_reads import expected, ranged, rows


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr(range_puller, "_BACK_OFF_S", (0.001,))


def test_a_range_is_read_exactly_and_in_order(scripted, read_options):
    queue = scripted.queue(0)
    scripted.store(queue, 3_000)
    assert rows([ranged(scripted, queue, 100, 2_777)], read_options()) == expected(
        queue, 100, 2_777
    )


def test_pulls_are_asked_for_ahead_at_predicted_offsets(scripted, read_options):
    queue = scripted.queue(0)
    scripted.store(queue, 640)
    rows([ranged(scripted, queue)], read_options())
    assert [offset for _, offset, _ in scripted.pulls] == list(range(0, 640, 32))


def test_pulls_are_asked_for_many_at_once(scripted, read_options, monkeypatch):
    """Brokers do many pulls that come together for less than those that come one by one."""
    asked, ask = [], Link.ask

    def counted(link, requests, segments):
        asked.append(len(segments))
        ask(link, requests, segments)

    monkeypatch.setattr(Link, "ask", counted)
    queue = scripted.queue(0)
    scripted.store(queue, 32 * 1_000)
    assert rows([ranged(scripted, queue)], read_options()) == expected(queue, 0, 32 * 1_000)
    first, *between, _ = asked
    assert sum(asked) == 1_000
    assert first == 4, "how large messages are is learned with few pulls"
    assert min(between) >= range_puller._WINDOW // 2


def test_a_short_answer_among_whole_ones_is_completed(scripted, read_options):
    scripted.short_at = {320: 31, 640: 1}
    queue = scripted.queue(0)
    scripted.store(queue, 32 * 1_000)
    assert rows([ranged(scripted, queue)], read_options()) == expected(queue, 0, 32 * 1_000)
    asked = [(offset, most) for _, offset, most in scripted.pulls]
    assert (351, 1) in asked
    assert (641, 31) in asked


def test_what_could_not_be_sent_is_asked_for_once(scripted, read_options, monkeypatch):
    take, failures = connections.take, [TransportError("refused", address="x")]

    def refused_once(*where):
        if failures:
            raise failures.pop()
        return take(*where)

    monkeypatch.setattr(connections, "take", refused_once)
    queue = scripted.queue(0)
    scripted.store(queue, 640)
    assert rows([ranged(scripted, queue)], read_options()) == expected(queue, 0, 640)
    assert [offset for _, offset, _ in scripted.pulls] == list(range(0, 640, 32))


def test_no_more_is_asked_for_than_the_range_has(scripted, read_options):
    queue = scripted.queue(0)
    scripted.store(queue, 100)
    rows([ranged(scripted, queue, 0, 40)], read_options())
    assert [(offset, most) for _, offset, most in scripted.pulls] == [(0, 32), (32, 8)]


def test_answers_in_any_order_give_rows_in_the_order_of_offsets(scripted, read_options):
    scripted.reversed = True
    queue = scripted.queue(0)
    scripted.store(queue, 2_000)
    assert rows([ranged(scripted, queue)], read_options()) == expected(queue, 0, 2_000)


def test_a_short_answer_is_completed(scripted, read_options):
    scripted.pull_messages_max = 5
    queue = scripted.queue(0)
    scripted.store(queue, 500)
    assert rows([ranged(scripted, queue)], read_options()) == expected(queue, 0, 500)


def test_large_messages_are_asked_for_with_fewer_pulls_and_smaller_ones(
    scripted, read_options, monkeypatch
):
    """Answers wait for those before them, so what is under way must fit into the memory."""
    monkeypatch.setattr(range_puller, "_HELD_BYTES_MAX", 100_000)
    scripted.pull_messages_max = 3
    scripted.reversed = True
    queue = scripted.queue(0)
    scripted.store(queue, 400, body=b"x" * 5_000)
    puller = RangePuller([ranged(scripted, queue)], read_options())
    seen = [(puller._held, len(segment.answers)) for segment in puller]
    # The limit, and what was under way when it was reached.
    assert max(held for held, _ in seen) <= 100_000 + 6 * 16_000
    # The first segments were asked for before anything was known.
    assert max(answers for _, answers in seen[10:]) <= 2
    assert rows([ranged(scripted, queue)], read_options()) == expected(queue, 0, 400)


def test_small_messages_after_large_ones_are_pulled_in_full_again(scripted, read_options):
    scripted.pull_messages_max = 2
    queue = scripted.queue(0)
    scripted.store(queue, 6_000)
    segments = iter(RangePuller([ranged(scripted, queue)], read_options()))
    for _ in range(100):
        next(segments)
    scripted.pull_messages_max = 32
    scripted.pulls.clear()
    list(segments)
    assert [most for _, _, most in scripted.pulls[-20:-1]] == [32] * 19


def test_several_ranges_are_read_one_after_the_other(scripted, read_options):
    queues = [scripted.queue(number) for number in range(5)]
    for queue in queues:
        scripted.store(queue, 10 * (queue.queue_id + 1))
    ranges = [ranged(scripted, queue, 3) for queue in queues]
    wanted = [place for queue in queues for place in expected(queue, 3, 10 * (queue.queue_id + 1))]
    assert rows(ranges, read_options()) == wanted


@pytest.mark.rule("W3.3")
def test_a_filter_skips_and_keeps_exactly_what_matches(scripted, read_options):
    queue = scripted.queue(0)
    scripted.store(queue, 5_000, tags=lambda n: "rare" if n % 97 == 0 else "common")
    found = rows([ranged(scripted, queue, 50, 4_900)], read_options(tags="rare"))
    assert found == [(0, offset) for offset in range(50, 4_900) if offset % 97 == 0]


def test_a_sparse_filter_is_not_scanned_again_and_again(scripted, read_options):
    queue = scripted.queue(0)
    scripted.store(queue, 20_000, tags=lambda n: "rare" if n % 5_000 == 7 else "common")
    rows([ranged(scripted, queue)], read_options(tags="rare"))
    assert len(scripted.pulls) <= 20_000 / scripted.scan_max + 2


@pytest.mark.parametrize("fault", ["close", 2, 14, 215])
def test_a_failure_that_passes_is_not_seen(scripted, read_options, fault):
    queue = scripted.queue(0)
    scripted.store(queue, 3_000)
    scripted.faults.extend([None, fault, None, None, fault, fault])
    assert rows([ranged(scripted, queue)], read_options()) == expected(queue, 0, 3_000)


def test_a_broker_that_stays_silent_is_asked_again(scripted, read_options, monkeypatch):
    monkeypatch.setattr(range_puller, "_ANSWER_TIMEOUT_S", 0.2)
    queue = scripted.queue(0)
    scripted.store(queue, 500)
    scripted.faults.extend([None, "silence"])
    assert rows([ranged(scripted, queue)], read_options()) == expected(queue, 0, 500)


def test_a_broker_that_moved_is_found_again(scripted, read_options):
    queue = scripted.queue(0)
    scripted.store(queue, 100)
    elsewhere = ReadRange(queue, "127.0.0.1:1", 0, 100)
    assert rows([elsewhere], read_options()) == expected(queue, 0, 100)


def test_a_failure_that_stays_names_broker_and_queue(scripted, read_options):
    queue = scripted.queue(3)
    scripted.store(queue, 100)
    scripted.faults.extend(["close"] * 1_000)
    with pytest.raises(TransportError, match=r"cannot read orders/broker-a/3 from broker-a \(127"):
        rows([ranged(scripted, queue)], read_options(), patience_s=0.05)


def test_a_broker_that_is_always_busy_is_given_up(scripted, read_options):
    queue = scripted.queue(0)
    scripted.store(queue, 100)
    scripted.faults.extend([2] * 10_000)
    with pytest.raises(BrokerError, match="orders/broker-a/0 from broker-a") as caught:
        rows([ranged(scripted, queue)], read_options(), patience_s=0.05)
    assert caught.value.code == 2


@pytest.mark.parametrize(
    ("code", "words"),
    [(26, "option 'group'"), (17, "option 'topic'"), (16, "not permitted"), (23, "option 'tags'")],
)
def test_a_refusal_is_told_in_the_words_of_the_options(scripted, read_options, code, words):
    queue = scripted.queue(0)
    scripted.store(queue, 100)
    scripted.faults.append(code)
    with pytest.raises(BrokerError, match=words) as caught:
        rows([ranged(scripted, queue)], read_options())
    assert caught.value.code == code


def test_deleted_messages_fail_the_read_and_are_named(scripted, read_options):
    queue = scripted.queue(0)
    scripted.store(queue, 500)
    scripted.minimum[queue] = 200
    with pytest.raises(OffsetError, match=r"orders/broker-a/0: offset 100 was wanted.* is 200"):
        rows([ranged(scripted, queue, 100)], read_options())


def test_the_first_of_the_deleted_messages_is_named_whichever_answer_comes_first(
    scripted, read_options
):
    scripted.reversed = True
    queue = scripted.queue(0)
    scripted.store(queue, 2_000)
    scripted.minimum[queue] = 1_500
    with pytest.raises(OffsetError, match=r"orders/broker-a/0: offset 100 was wanted.* is 1500"):
        rows([ranged(scripted, queue, 100)], read_options())


def test_deleted_messages_may_be_left_out(scripted, read_options, caplog):
    queue = scripted.queue(0)
    scripted.store(queue, 500)
    scripted.minimum[queue] = 200
    with caplog.at_level(logging.WARNING):
        found = rows([ranged(scripted, queue, 100)], read_options(failOnDataLoss="false"))
    assert found == expected(queue, 200, 500)
    assert "orders/broker-a/0: offset 100 was wanted" in caplog.text


def test_a_queue_that_is_shorter_than_planned_fails_the_read(scripted, read_options):
    queue = scripted.queue(0)
    scripted.store(queue, 100)
    with pytest.raises(OffsetError, match="was wanted, but the queue ends at 100"):
        rows([ranged(scripted, queue, 0, 300)], read_options())


def test_a_queue_that_is_shorter_than_planned_may_be_read_as_it_is(scripted, read_options):
    queue = scripted.queue(0)
    scripted.store(queue, 100)
    found = rows([ranged(scripted, queue, 0, 300)], read_options(failOnDataLoss="false"))
    assert found == expected(queue, 0, 100)


def test_a_connection_is_used_by_the_next_task_too(scripted, read_options):
    queue = scripted.queue(0)
    scripted.store(queue, 100)
    first, second = (RangePuller([ranged(scripted, queue)], read_options()) for _ in range(2))
    list(first)
    kept = connections.take(scripted.address)
    connections.give_back(kept)
    list(second)
    assert connections.take(scripted.address) is kept
    kept.close()


def test_a_task_that_ends_early_leaves_no_connection_with_answers_under_way(scripted, read_options):
    queue = scripted.queue(0)
    scripted.store(queue, 10_000)
    segments = iter(RangePuller([ranged(scripted, queue)], read_options()))
    next(segments)
    segments.close()
    assert rows([ranged(scripted, queue)], read_options()) == expected(queue, 0, 10_000)

from __future__ import annotations

import logging

import pyarrow as pa
import pytest

from gimbalmq.errors import BrokerError, OffsetError, ProtocolError, TransportError
from gimbalmq.spark import reading
from gimbalmq.spark.options import parse_read_options
from gimbalmq.spark.planning import ReadRange
from gimbalmq.spark.reading import RangePuller, read_batches
from gimbalmq.spark.schema import arrow_schema, parse_columns
from gimbalmq.wire.codes import CompressionType, SysFlag
from gimbalmq.wire.record import encode_record


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr(reading, "_BACK_OFF_S", (0.001,))


@pytest.fixture
def options(scripted):
    def make(**given):
        return parse_read_options({"nameserver": scripted.address, "topic": "orders"} | given)

    return make


def ranged(broker, queue, offset_from=0, offset_until=None):
    until = len(broker.stored[queue]) if offset_until is None else offset_until
    return ReadRange(queue, broker.address, offset_from, until)


def rows(ranges, options, **more):
    batches = read_batches(ranges, options, parse_columns("queue_id,queue_offset,body"), **more)
    return [
        (row["queue_id"], row["queue_offset"]) for batch in batches for row in batch.to_pylist()
    ]


def expected(queue, offset_from, offset_until):
    return [(queue.queue_id, offset) for offset in range(offset_from, offset_until)]


def test_a_range_is_read_exactly_and_in_order(scripted, options):
    queue = scripted.queue(0)
    scripted.store(queue, 3_000)
    assert rows([ranged(scripted, queue, 100, 2_777)], options()) == expected(queue, 100, 2_777)


def test_pulls_are_asked_for_ahead_at_predicted_offsets(scripted, options):
    queue = scripted.queue(0)
    scripted.store(queue, 640)
    rows([ranged(scripted, queue)], options())
    assert [offset for _, offset, _ in scripted.pulls] == list(range(0, 640, 32))


def test_what_could_not_be_sent_is_asked_for_once(scripted, options, monkeypatch):
    take, failures = reading.connections.take, [TransportError("refused", address="x")]

    def refused_once(*where):
        if failures:
            raise failures.pop()
        return take(*where)

    monkeypatch.setattr(reading.connections, "take", refused_once)
    queue = scripted.queue(0)
    scripted.store(queue, 640)
    assert rows([ranged(scripted, queue)], options()) == expected(queue, 0, 640)
    assert [offset for _, offset, _ in scripted.pulls] == list(range(0, 640, 32))


def test_no_more_is_asked_for_than_the_range_has(scripted, options):
    queue = scripted.queue(0)
    scripted.store(queue, 100)
    rows([ranged(scripted, queue, 0, 40)], options())
    assert [(offset, most) for _, offset, most in scripted.pulls] == [(0, 32), (32, 8)]


def test_answers_in_any_order_give_rows_in_the_order_of_offsets(scripted, options):
    scripted.reversed = True
    queue = scripted.queue(0)
    scripted.store(queue, 2_000)
    assert rows([ranged(scripted, queue)], options()) == expected(queue, 0, 2_000)


def test_a_short_answer_is_completed(scripted, options):
    scripted.pull_messages_max = 5
    queue = scripted.queue(0)
    scripted.store(queue, 500)
    assert rows([ranged(scripted, queue)], options()) == expected(queue, 0, 500)


def test_large_messages_are_asked_for_with_fewer_pulls_and_smaller_ones(
    scripted, options, monkeypatch
):
    """Answers wait for those before them, so what is under way must fit into the memory."""
    monkeypatch.setattr(reading, "_HELD_BYTES_MAX", 100_000)
    scripted.pull_messages_max = 3
    scripted.reversed = True
    queue = scripted.queue(0)
    scripted.store(queue, 400, body=b"x" * 5_000)
    puller = RangePuller([ranged(scripted, queue)], options())
    seen = [(puller._held, len(segment.answers)) for segment in puller]
    # The limit, and what was under way when it was reached.
    assert max(held for held, _ in seen) <= 100_000 + 6 * 16_000
    # The first segments were asked for before anything was known.
    assert max(answers for _, answers in seen[10:]) <= 2
    assert rows([ranged(scripted, queue)], options()) == expected(queue, 0, 400)


def test_small_messages_after_large_ones_are_pulled_in_full_again(scripted, options):
    scripted.pull_messages_max = 2
    queue = scripted.queue(0)
    scripted.store(queue, 6_000)
    segments = iter(RangePuller([ranged(scripted, queue)], options()))
    for _ in range(100):
        next(segments)
    scripted.pull_messages_max = 32
    scripted.pulls.clear()
    list(segments)
    assert [most for _, _, most in scripted.pulls[-20:-1]] == [32] * 19


def test_several_ranges_are_read_one_after_the_other(scripted, options):
    queues = [scripted.queue(number) for number in range(5)]
    for queue in queues:
        scripted.store(queue, 10 * (queue.queue_id + 1))
    ranges = [ranged(scripted, queue, 3) for queue in queues]
    wanted = [place for queue in queues for place in expected(queue, 3, 10 * (queue.queue_id + 1))]
    assert rows(ranges, options()) == wanted


def test_rows_come_in_batches_of_some_thousands(scripted, options):
    queue = scripted.queue(0)
    scripted.store(queue, 12_000)
    columns = parse_columns("queue_offset")
    sizes = [b.num_rows for b in read_batches([ranged(scripted, queue)], options(), columns)]
    assert sum(sizes) == 12_000
    assert all(2_000 <= size <= 10_000 for size in sizes[:-1])


def test_large_messages_make_smaller_batches(scripted, options, monkeypatch):
    monkeypatch.setattr(reading, "_BATCH_BYTES", 100_000)
    queue = scripted.queue(0)
    scripted.store(queue, 1_000, body=b"x" * 1_000)
    batches = list(read_batches([ranged(scripted, queue)], options(), parse_columns("body")))
    assert max(batch.nbytes for batch in batches) < 200_000


def test_batches_have_exactly_the_schema_that_was_asked_for(scripted, options):
    queue = scripted.queue(0)
    scripted.store(queue, 10)
    for text in ("properties,body", None, "queue_offset"):
        columns = parse_columns(text)
        (batch,) = read_batches([ranged(scripted, queue)], options(), columns)
        assert batch.schema.equals(arrow_schema(columns))


def test_nothing_to_read_gives_no_batch(scripted, options):
    assert rows([], options()) == []


@pytest.mark.rule("W3.3")
def test_a_filter_skips_and_keeps_exactly_what_matches(scripted, options):
    queue = scripted.queue(0)
    scripted.store(queue, 5_000, tags=lambda n: "rare" if n % 97 == 0 else "common")
    found = rows([ranged(scripted, queue, 50, 4_900)], options(tags="rare"))
    assert found == [(0, offset) for offset in range(50, 4_900) if offset % 97 == 0]


def test_a_sparse_filter_is_not_scanned_again_and_again(scripted, options):
    queue = scripted.queue(0)
    scripted.store(queue, 20_000, tags=lambda n: "rare" if n % 5_000 == 7 else "common")
    rows([ranged(scripted, queue)], options(tags="rare"))
    assert len(scripted.pulls) <= 20_000 / scripted.scan_max + 2


@pytest.mark.rule("W3.3")
def test_tags_with_the_same_hash_are_told_apart(scripted, options):
    queue = scripted.queue(0)
    # "Aa" and "BB" have one hash in Java.
    scripted.store(queue, 100, tags=lambda n: "Aa" if n % 2 else "BB")
    assert rows([ranged(scripted, queue)], options(tags="Aa")) == [(0, n) for n in range(1, 100, 2)]


@pytest.mark.parametrize("fault", ["close", 2, 14, 215])
def test_a_failure_that_passes_is_not_seen(scripted, options, fault):
    queue = scripted.queue(0)
    scripted.store(queue, 3_000)
    scripted.faults.extend([None, fault, None, None, fault, fault])
    assert rows([ranged(scripted, queue)], options()) == expected(queue, 0, 3_000)


def test_a_broker_that_stays_silent_is_asked_again(scripted, options, monkeypatch):
    monkeypatch.setattr(reading, "_ANSWER_TIMEOUT_S", 0.2)
    queue = scripted.queue(0)
    scripted.store(queue, 500)
    scripted.faults.extend([None, "silence"])
    assert rows([ranged(scripted, queue)], options()) == expected(queue, 0, 500)


def test_a_broker_that_moved_is_found_again(scripted, options):
    queue = scripted.queue(0)
    scripted.store(queue, 100)
    elsewhere = ReadRange(queue, "127.0.0.1:1", 0, 100)
    assert rows([elsewhere], options()) == expected(queue, 0, 100)


def test_a_failure_that_stays_names_broker_and_queue(scripted, options):
    queue = scripted.queue(3)
    scripted.store(queue, 100)
    scripted.faults.extend(["close"] * 1_000)
    with pytest.raises(TransportError, match=r"cannot read orders/broker-a/3 from broker-a \(127"):
        rows([ranged(scripted, queue)], options(), patience_s=0.05)


def test_a_broker_that_is_always_busy_is_given_up(scripted, options):
    queue = scripted.queue(0)
    scripted.store(queue, 100)
    scripted.faults.extend([2] * 10_000)
    with pytest.raises(BrokerError, match="orders/broker-a/0 from broker-a") as caught:
        rows([ranged(scripted, queue)], options(), patience_s=0.05)
    assert caught.value.code == 2


@pytest.mark.parametrize(
    ("code", "words"),
    [(26, "option 'group'"), (17, "option 'topic'"), (16, "not permitted"), (23, "option 'tags'")],
)
def test_a_refusal_is_told_in_the_words_of_the_options(scripted, options, code, words):
    queue = scripted.queue(0)
    scripted.store(queue, 100)
    scripted.faults.append(code)
    with pytest.raises(BrokerError, match=words) as caught:
        rows([ranged(scripted, queue)], options())
    assert caught.value.code == code


def test_deleted_messages_fail_the_read_and_are_named(scripted, options):
    queue = scripted.queue(0)
    scripted.store(queue, 500)
    scripted.minimum[queue] = 200
    with pytest.raises(OffsetError, match=r"orders/broker-a/0: offset 100 was wanted.* is 200"):
        rows([ranged(scripted, queue, 100)], options())


def test_deleted_messages_may_be_left_out(scripted, options, caplog):
    queue = scripted.queue(0)
    scripted.store(queue, 500)
    scripted.minimum[queue] = 200
    with caplog.at_level(logging.WARNING):
        found = rows([ranged(scripted, queue, 100)], options(failOnDataLoss="false"))
    assert found == expected(queue, 200, 500)
    assert "orders/broker-a/0: offset 100 was wanted" in caplog.text


def test_a_queue_that_is_shorter_than_planned_fails_the_read(scripted, options):
    queue = scripted.queue(0)
    scripted.store(queue, 100)
    with pytest.raises(OffsetError, match="was wanted, but the queue ends at 100"):
        rows([ranged(scripted, queue, 0, 300)], options())


def test_a_queue_that_is_shorter_than_planned_may_be_read_as_it_is(scripted, options):
    queue = scripted.queue(0)
    scripted.store(queue, 100)
    found = rows([ranged(scripted, queue, 0, 300)], options(failOnDataLoss="false"))
    assert found == expected(queue, 0, 100)


def test_a_connection_is_used_by_the_next_task_too(scripted, options):
    queue = scripted.queue(0)
    scripted.store(queue, 100)
    first, second = (RangePuller([ranged(scripted, queue)], options()) for _ in range(2))
    list(first)
    kept = reading.connections.take(scripted.address)
    reading.connections.give_back(kept)
    list(second)
    assert reading.connections.take(scripted.address) is kept
    kept.close()


def test_a_task_that_ends_early_leaves_no_connection_with_answers_under_way(scripted, options):
    queue = scripted.queue(0)
    scripted.store(queue, 10_000)
    segments = iter(RangePuller([ranged(scripted, queue)], options()))
    next(segments)
    segments.close()
    assert rows([ranged(scripted, queue)], options()) == expected(queue, 0, 10_000)


def test_a_corrupt_message_is_named_by_its_queue(scripted, options):
    queue = scripted.queue(2)
    scripted.store(queue, 3_000)
    record, tag, at_ms = scripted.stored[queue][1_500]
    scripted.stored[queue][1_500] = (record[:4] + b"\0\0\0\0" + record[8:], tag, at_ms)
    with pytest.raises(ProtocolError, match="messages of orders/broker-a/2 before offset 1504"):
        rows([ranged(scripted, queue)], options())


def test_a_corrupt_body_is_named_by_its_offset_and_does_not_hinder_other_columns(scripted, options):
    queue = scripted.queue(1)
    scripted.store(queue, 100)
    zlib = SysFlag.COMPRESSED | CompressionType.ZLIB
    broken = encode_record(
        topic="orders", body=b"no zlib", queue_id=1, queue_offset=70, sys_flag=zlib
    )
    scripted.stored[queue][70] = (broken, None, 1_000)
    words = (
        r"messages of orders/broker-a/1 before offset \d+: the message at queue offset 70: "
        r"ZLIB body is corrupt.*Options 'startingOffsets' and 'endingOffsets'"
    )
    with pytest.raises(ProtocolError, match=words):
        rows([ranged(scripted, queue)], options())
    offsets = parse_columns("queue_offset")
    (batch,) = read_batches([ranged(scripted, queue)], options(), offsets)
    assert batch.column(0).to_pylist() == list(range(100))


def test_a_map_without_null_values_is_given_as_one(scripted, options):
    queue = scripted.queue(0)
    scripted.store(queue, 5)
    columns = [parse_columns("properties")[0]]
    strict = [type(columns[0])("properties", "properties", nullable=False, null_values=False)]
    (batch,) = read_batches([ranged(scripted, queue)], options(), strict)
    assert batch.schema.equals(arrow_schema(strict))
    assert batch.column(0).type != arrow_schema(columns).field(0).type
    assert isinstance(batch, pa.RecordBatch)

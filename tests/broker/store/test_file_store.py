from __future__ import annotations

import functools
import gc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.store.storing import HOST, NOW, bodies, crash, message, opened, put, segments
from gimbalmq.broker.store import (
    Boundary,
    FlushPolicy,
    ReadStatus,
    StoredMessage,
    StoreOptions,
    open_store,
)
from gimbalmq.errors import ConfigurationError, StateError
from gimbalmq.model.java import hash_code
from gimbalmq.wire.properties import encode_properties
from gimbalmq.wire.record import decode_records, encode_record


@pytest.fixture
def store(tmp_path):
    store = opened(tmp_path)
    yield store
    store.close()


@pytest.mark.rule("W5.1")
def test_a_stored_record_is_byte_for_byte_the_wire_record(store):
    given_message = StoredMessage(
        "orders",
        3,
        b"\x00body\xff",
        flag=7,
        sys_flag=4,
        born_timestamp_ms=11,
        born_host=("::1", 5151),
        reconsume_times=2,
        prepared_transaction_offset=99,
        properties=encode_properties({"TAGS": "a", "own": "ü"}),
    )
    (where,) = store.append([given_message], NOW)
    expected = encode_record(
        topic="orders",
        body=b"\x00body\xff",
        properties=given_message.properties,
        queue_id=3,
        queue_offset=0,
        physical_offset=where.physical_offset,
        sys_flag=4,
        flag=7,
        born_timestamp_ms=11,
        born_host=("::1", 5151),
        store_timestamp_ms=NOW,
        store_host=HOST,
        reconsume_times=2,
        prepared_transaction_offset=99,
    )
    result = store.read("orders", 3, 0, max_messages=32, max_bytes=1000)
    assert [bytes(record) for record in result.records] == [expected]
    assert bytes(store.record_at(where.physical_offset)) == expected
    assert (where.size, where.store_timestamp_ms, result.size) == (
        len(expected),
        NOW,
        len(expected),
    )


def test_queues_count_each_for_itself(store):
    first = put(store, b"a", b"b", queue_id=0)
    second = put(store, b"c", queue_id=1)
    third = put(store, b"d", topic="refunds")
    assert [one.queue_offset for one in first + second + third] == [0, 1, 0, 0]
    assert (bodies(store), bodies(store, queue_id=1)) == ([b"a", b"b"], [b"c"])
    assert store.topics() == ["orders", "refunds"]
    assert (store.queues("orders"), store.queues("unknown")) == ([0, 1], [])


def test_a_batch_is_stored_in_order_also_over_several_queues(store):
    batch = [message(b"a"), message(b"b", queue_id=1), message(b"c"), message(b"d", "refunds")]
    where = store.append(batch, NOW)
    assert [one.queue_offset for one in where] == [0, 0, 1, 0]
    assert [bytes(decode_records(store.record_at(one.physical_offset), "b")[0].body) for one in where] == [b"a", b"b", b"c", b"d"]  # fmt: skip
    assert store.append([], NOW) == []


@pytest.mark.rule("W5.2")
@pytest.mark.parametrize(
    ("offset", "status", "following"),
    [
        (-1, ReadStatus.OFFSET_TOO_SMALL, 0),
        (0, ReadStatus.FOUND, 2),
        (2, ReadStatus.OFFSET_OVERFLOW_ONE, 2),
        (3, ReadStatus.OFFSET_OVERFLOW_BADLY, 2),
    ],
)
def test_every_offset_has_its_status_and_next_offset(store, offset, status, following):
    put(store, b"a", b"b")
    result = store.read("orders", 0, offset, max_messages=32, max_bytes=1000)
    assert (result.status, result.next_offset) == (status, following)
    assert (result.minimum, result.maximum) == (0, 2)


@pytest.mark.rule("W5.2")
def test_an_unknown_queue_is_empty(store):
    for offset in (0, 5):
        result = store.read("orders", 0, offset, max_messages=1, max_bytes=1)
        assert (result.status, result.next_offset) == (ReadStatus.NO_MESSAGE_IN_QUEUE, 0)
        assert (result.minimum, result.maximum) == (0, 0)
    assert store.bounds("orders", 0) == (0, 0)
    assert store.earliest_time("orders", 0) == -1
    assert store.offset_at("orders", 0, NOW) == 0


@pytest.mark.rule("W5.2")
def test_a_read_stops_at_its_limits_but_never_before_the_first_record(store):
    sizes = [one.size for one in put(store, b"x" * 500, b"y" * 10, b"z" * 10)]
    read = functools.partial(store.read, "orders", 0, 0)
    assert len(read(max_messages=2, max_bytes=10_000).records) == 2
    assert len(read(max_messages=9, max_bytes=1).records) == 1
    assert len(read(max_messages=9, max_bytes=sizes[0] + sizes[1]).records) == 2
    assert read(max_messages=9, max_bytes=sizes[0] + sizes[1] - 1).next_offset == 1


def test_a_filter_sees_the_tag_and_the_record_only_on_demand(store):
    put(store, b"a", b"b", TAGS="paid")
    put(store, b"c", TAGS="refunded")
    put(store, b"d")
    asked = []

    def wanted(tag_hash, record):
        asked.append(tag_hash)
        return tag_hash == hash_code("refunded") and record().find(b"c") > 0

    result = store.read("orders", 0, 0, max_messages=9, max_bytes=9000, wanted=wanted)
    assert [one.body for one in decode_records(b"".join(result.records), "b")] == [b"c"]
    assert asked == [hash_code("paid")] * 2 + [hash_code("refunded"), 0]
    assert (result.status, result.next_offset) == (ReadStatus.FOUND, 4)


@pytest.mark.rule("W5.2")
def test_a_filter_that_wants_nothing_still_moves_on_by_at_most_the_scan_limit(store):
    put(store, *[b"x"] * 10)
    result = store.read(
        "orders", 0, 2, max_messages=9, max_bytes=9000, wanted=lambda *_: False, scan_max=5
    )
    assert (result.status, result.next_offset) == (ReadStatus.NO_MATCHED_MESSAGE, 7)


@pytest.mark.rule("W2.5c")
def test_offsets_are_found_by_time(store):
    for moment in (10, 20, 20, 30):
        put(store, b"x", now_ms=NOW + moment)
    at = functools.partial(store.offset_at, "orders", 0)
    assert [at(NOW + moment) for moment in (0, 10, 15, 20, 30, 31)] == [0, 0, 1, 1, 3, 4]
    upper = [at(NOW + moment, Boundary.UPPER) for moment in (0, 10, 15, 20, 29, 99)]
    assert upper == [0, 0, 0, 2, 2, 3]
    assert store.earliest_time("orders", 0) == NOW + 10


@pytest.mark.rule("W2.5c")
def test_a_place_where_no_record_starts_has_none(store):
    (where,) = put(store, b"x" * 200)
    end = store.log_bounds()[1]
    places = [-1, 0, where.physical_offset + 1, end, end + 1, 1 << 40]
    assert [store.record_at(place) for place in places] == [None] * len(places)


@pytest.mark.rule("W2.5c")
def test_messages_are_found_by_unique_id_and_by_each_word_of_their_keys(store):
    put(store, b"a", KEYS="k1 k2", UNIQ_KEY="U1")
    put(store, b"b", KEYS="k2", UNIQ_KEY="U2", now_ms=NOW + 10)
    put(store, b"c", topic="refunds", KEYS="k2")

    def find(key, topic="orders", begin_ms=0, end_ms=1 << 60, limit=9):
        found = store.find(topic, key, begin_ms, end_ms, limit)
        return [one.body for one in decode_records(b"".join(found), "b")]

    assert [find(key) for key in ("k1", "k2", "U1", "U2", "k", "k1 k2")] == [
        [b"a"], [b"b", b"a"], [b"a"], [b"b"], [], []]  # fmt: skip
    assert find("k2", "refunds") == [b"c"]
    assert find("k2", limit=1) == [b"b"]
    assert find("k2", begin_ms=NOW + 1) == [b"b"]
    assert find("k2", end_ms=NOW + 9) == [b"a"]


def test_keys_are_found_in_full_segments_and_after_a_reopening(tmp_path):
    store = opened(tmp_path)
    for number in range(60):
        put(store, b"x" * 100, KEYS=f"k{number}")
    assert len(segments(tmp_path)) > 3

    def found(store):
        return [len(store.find("orders", f"k{number}", 0, 1 << 60, 9)) for number in range(60)]

    assert found(store) == [1] * 60
    store.close()
    store = opened(tmp_path)
    assert store.report.clean
    put(store, b"more", KEYS="k60")
    assert found(store) == [1] * 60
    assert len(store.find("orders", "k60", 0, 1 << 60, 9)) == 1
    store.close()


@settings(deadline=None)
@given(st.lists(st.integers(0, 900), min_size=1, max_size=60))
def test_no_record_crosses_segments_and_all_can_be_read(sizes):
    store = open_store(None, store_host=HOST, options=StoreOptions(segment_bytes=4096))
    try:
        where = [put(store, bytes(size))[0] for size in sizes]
        assert all(
            one.physical_offset // 4096 == (one.physical_offset + one.size - 1) // 4096
            for one in where
        )
        assert [len(body) for body in bodies(store)] == sizes
    finally:
        store.close()


def test_what_can_never_be_stored_is_refused_and_changes_nothing(store):
    for bad in (
        message(b"x" * 5000),
        message(topic=""),
        message(topic="t" * 300),
        message(topic="\ud800"),
        message(queue_id=-1),
    ):
        with pytest.raises(ConfigurationError):
            store.append([message(b"good"), bad], NOW)
    assert store.topics() == []
    put(store, b"a")
    assert bodies(store) == [b"a"]


@pytest.mark.parametrize("topic", ["%RETRY%billing", "a.b", "../../etc", "ü|-_", "x~2e~", "."])
def test_any_topic_name_survives_a_reopening_without_leaving_its_directory(tmp_path, topic):
    store = opened(tmp_path / "data")
    put(store, b"a", topic=topic)
    store.close()
    store = opened(tmp_path / "data")
    assert (store.topics(), bodies(store, topic)) == ([topic], [b"a"])
    assert store.report.clean
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    store.close()


def test_records_stay_readable_after_their_segment_was_removed(tmp_path):
    store = opened(tmp_path, retention_interval_ms=1)
    put(store, *[b"%d" % number * 300 for number in range(10)])
    views = store.read("orders", 0, 0, max_messages=9, max_bytes=90_000).records
    before = [bytes(view) for view in views]
    store._log.drop_first(99)
    store.close()
    gc.collect()
    assert [bytes(view) for view in views] == before


def test_many_queues_need_few_descriptors_and_little_memory_each(tmp_path):
    store = opened(tmp_path, segment_bytes=1 << 20)
    for number in range(300):
        put(store, b"x", queue_id=number)
    store.close()
    store = opened(tmp_path)
    assert store.report.clean
    assert [bodies(store, queue_id=number) for number in range(300)] == [[b"x"]] * 300
    assert len(store._files._descriptors) <= 128
    store.close()


class TestTopics:
    def test_a_deleted_topic_is_gone_and_starts_again_at_0(self, tmp_path):
        store = opened(tmp_path)
        put(store, b"old", b"older", KEYS="k")
        put(store, b"kept", topic="refunds")
        store.delete_topic("orders")
        store.delete_topic("unknown")
        assert (store.topics(), store.bounds("orders", 0)) == (["refunds"], (0, 0))
        assert store.find("orders", "k", 0, 1 << 60, 9) == []
        put(store, b"new", KEYS="k")
        for finish in (crash, type(store).close):
            finish(store)
            store = opened(tmp_path)
            assert (bodies(store), bodies(store, "refunds")) == ([b"new"], [b"kept"])
            assert len(store.find("orders", "k", 0, 1 << 60, 9)) == 1
        store.close()

    def test_a_deletion_that_was_interrupted_is_finished_at_the_next_start(self, tmp_path):
        store = opened(tmp_path)
        put(store, b"old", topic="orders")
        store.close()
        store = opened(tmp_path)
        store._queues.remove_topic = lambda topic: (_ for _ in ()).throw(RuntimeError)
        with pytest.raises(RuntimeError):
            store.delete_topic("orders")
        crash(store)
        assert (tmp_path / "queues" / "orders").exists()
        store = opened(tmp_path)
        assert store.topics() == []
        assert not (tmp_path / "queues" / "orders").exists()
        store.close()


class TestFlushing:
    def test_each_is_safe_when_append_returns(self, tmp_path):
        store = opened(tmp_path, flush=FlushPolicy.EACH)
        put(store, b"a")
        assert store._log.flushed_until == store.log_bounds()[1]
        assert not store.flush_wanted
        store.close()

    def test_a_group_commit_shares_one_flush(self, tmp_path):
        store = opened(tmp_path, flush=FlushPolicy.EACH, group_commit=True)
        assert not store.flush_wanted
        put(store, b"a", b"b")
        assert store.flush_wanted
        store.flush()
        assert not store.flush_wanted
        assert store._log.flushed_until == store.log_bounds()[1]
        store.close()

    def test_a_flush_covers_what_was_there_when_it_began(self, tmp_path):
        store = opened(tmp_path, flush=FlushPolicy.EACH, group_commit=True)
        put(store, b"a")
        end = store.log_bounds()[1]
        flush = store.begin_flush()
        put(store, *[b"x" * 900] * 6)
        flush.wait()
        store.end_flush(flush)
        assert store._log.flushed_until == end
        assert store.flush_wanted
        store.flush()
        assert not store.flush_wanted
        store.close()

    def test_an_interval_flush_is_due_once_the_oldest_message_has_waited_for_it(self, tmp_path):
        store = opened(tmp_path, flush=FlushPolicy.INTERVAL, flush_interval_ms=500)
        assert not store.flush_due(NOW)
        put(store, b"a", now_ms=NOW)
        put(store, b"b", now_ms=NOW + 400)
        store.tick(NOW + 499)
        assert store._log.flushed_until < store.log_bounds()[1]
        assert store.flush_due(NOW + 500)
        store.tick(NOW + 500)
        assert store._log.flushed_until == store.log_bounds()[1]
        assert not store.flush_due(NOW + 5000)
        store.close()

    def test_none_never_flushes_by_itself(self, tmp_path):
        store = opened(tmp_path, flush=FlushPolicy.NONE)
        put(store, b"a")
        store.tick(NOW + 1_000_000)
        assert store._log.flushed_until == 0
        store.close()


def test_a_temporary_store_leaves_nothing_behind():
    store = open_store(None, store_host=HOST, options=StoreOptions(flush=FlushPolicy.EACH))
    put(store, b"a")
    directory = store.directory
    assert bodies(store) == [b"a"]
    store.close()
    assert not directory.exists()


def test_a_closed_store_says_so(tmp_path):
    store = opened(tmp_path)
    store.close()
    store.close()
    store.tick(NOW)
    for call in (lambda: put(store, b"a"), store.flush, lambda: store.delete_topic("orders")):
        with pytest.raises(StateError, match="closed"):
            call()


def test_documents_of_the_broker_live_in_the_data_directory(tmp_path):
    store = opened(tmp_path)
    store.documents.write("topics", {"orders": 4})
    store.close()
    store = opened(tmp_path)
    assert store.documents.read("topics") == {"orders": 4}
    store.close()

from __future__ import annotations

import os
import shutil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.store.storing import NOW, bodies, crash, message, opened, put, segments
from gimbalmq.broker.store import FlushPolicy, StoreError
from gimbalmq.broker.store.layout import SEAL_BYTES

BODIES = [b"%03d" % number * 30 for number in range(60)]


def overwrite(path, at, data):
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def fill(directory, **options):
    """Sixty messages in two queues over several segments; returns the open store."""
    store = opened(directory, **options)
    for number, body in enumerate(BODIES):
        put(store, body, queue_id=number % 2, KEYS=f"k{number}", now_ms=NOW + number)
    return store


def check(store, lost=()):
    """Index equals log: every message is where its queue says, and has its key."""
    kept = [(n, body) for n, body in enumerate(BODIES) if n not in lost]
    for queue_id in (0, 1):
        assert bodies(store, queue_id=queue_id) == [b for n, b in kept if n % 2 == queue_id]
    for number in range(len(BODIES)):
        found = store.find("orders", f"k{number}", 0, 1 << 60, 9)
        assert len(found) == (number not in lost)


def test_a_clean_stop_needs_no_scan(tmp_path):
    fill(tmp_path).close()
    store = opened(tmp_path)
    assert (store.report.clean, store.report.scanned_bytes, store.report.repairs) == (True, 0, ())
    check(store)
    store.close()


def test_a_killed_process_loses_nothing(tmp_path):
    crash(fill(tmp_path))
    store = opened(tmp_path)
    assert not store.report.clean
    assert (store.report.scanned_messages, store.report.cut_bytes) == (60, 0)
    check(store)
    put(store, b"next")
    assert store.bounds("orders", 0) == (0, 31)
    store.close()


def test_opening_again_and_again_after_crashes_changes_nothing(tmp_path):
    crash(fill(tmp_path))
    for _ in range(3):
        store = opened(tmp_path)
        check(store)
        crash(store)


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_a_tail_torn_at_any_byte_is_cut_and_the_rest_kept(tmp_path_factory, data):
    directory = tmp_path_factory.mktemp("torn")
    store = opened(directory)
    put(store, b"a" * 50)
    put(store, b"b" * 50, queue_id=1)
    begin = store.log_bounds()[1]
    store.append([message(b"c" * 50), message(b"d" * 50, queue_id=1)], NOW)
    end = store.log_bounds()[1]
    crash(store)
    at = data.draw(st.integers(begin, end - 1), "torn at")
    (segment,) = segments(directory)
    os.truncate(segment, at)
    overwrite(segment, at, data.draw(st.binary(max_size=40), "garbage"))
    store = opened(directory)
    both = bodies(store) + bodies(store, queue_id=1)
    # All of the batch or none of it; all only if the garbage happened to be the right bytes.
    assert both in ([b"a" * 50, b"b" * 50], [b"a" * 50, b"c" * 50, b"b" * 50, b"d" * 50])
    put(store, b"e")
    assert bodies(store)[-1] == b"e"
    store.close()
    store = opened(directory)
    assert store.report.clean
    store.close()
    shutil.rmtree(directory)


def test_the_report_says_what_was_cut_and_where(tmp_path):
    store = opened(tmp_path)
    put(store, b"a", b"b")
    (_, end) = store.log_bounds()
    crash(store)
    (segment,) = segments(tmp_path)
    overwrite(segment, end, b"half a record")
    store = opened(tmp_path)
    assert store.report.cut_bytes == len(b"half a record")
    (repair,) = store.report.repairs
    assert str(segment) in repair
    assert f"byte {end}" in repair
    assert bodies(store) == [b"a", b"b"]
    store.close()


def test_unflushed_damage_cuts_everything_behind_it_over_segments(tmp_path):
    store = fill(tmp_path)
    place = store._queues["orders", 1].entry(4)[0]
    crash(store)
    overwrite(segments(tmp_path)[0], place + 100, b"!")
    store = opened(tmp_path)
    check(store, lost=range(9, 60))
    assert len(segments(tmp_path)) == 1
    assert store.report.cut_bytes > 4096
    put(store, b"next", queue_id=1)
    assert store.bounds("orders", 1) == (0, 5)
    store.close()


class TestDamage:
    """What was safe on disk is never given up without being told to."""

    @pytest.fixture
    def damaged(self, tmp_path):
        store = fill(tmp_path, flush=FlushPolicy.EACH)
        place = store._queues["orders", 1].entry(4)[0]
        crash(store)
        overwrite(segments(tmp_path)[0], place + 100, b"!")
        return tmp_path, place

    def test_the_error_names_file_and_byte_and_what_to_do_and_nothing_changes(self, damaged):
        directory, place = damaged
        before = {path: path.read_bytes() for path in segments(directory)}
        for _ in range(2):
            with pytest.raises(StoreError) as error:
                opened(directory)
            assert str(segments(directory)[0]) in str(error.value)
            assert f"byte {place - SEAL_BYTES}" in str(error.value)
            assert "salvage" in str(error.value)
        assert {path: path.read_bytes() for path in segments(directory)} == before

    def test_salvage_keeps_all_else_and_later_offsets_keep_their_meaning(self, damaged):
        directory, _ = damaged
        store = opened(directory, salvage=True)
        check(store, lost=[9])
        assert store.bounds("orders", 1) == (0, 30)
        assert any(
            "offsets 4 to 4 of queue orders/1 are lost" in one for one in store.report.repairs
        )
        crash(store)
        store = opened(directory)
        check(store, lost=[9])
        store.close()
        store = opened(directory)
        assert store.report.clean
        check(store, lost=[9])
        result = store.read("orders", 1, 4, max_messages=1, max_bytes=1)
        assert result.next_offset == 6
        store.close()

    def test_a_segment_that_was_cut_from_outside(self, tmp_path):
        fill(tmp_path).close()
        os.truncate(segments(tmp_path)[1], 1000)
        with pytest.raises(StoreError, match="it has 1000 bytes"):
            opened(tmp_path)
        store = opened(tmp_path, salvage=True)
        assert len(bodies(store)) + len(bodies(store, queue_id=1)) < 60
        assert store.bounds("orders", 0) == (0, 30)
        store.close()
        store = opened(tmp_path)
        assert store.report.clean
        store.close()

    def test_a_segment_that_was_removed_from_outside(self, tmp_path):
        fill(tmp_path).close()
        segments(tmp_path)[1].unlink()
        with pytest.raises(StoreError, match="damaged at byte 4096"):
            opened(tmp_path)
        store = opened(tmp_path, salvage=True)
        assert 30 < len(bodies(store)) + len(bodies(store, queue_id=1)) < 60
        store.close()

    def test_a_last_segment_that_was_cut_after_a_clean_stop(self, tmp_path):
        fill(tmp_path).close()
        os.truncate(segments(tmp_path)[-1], 100)
        with pytest.raises(StoreError, match="salvage"):
            opened(tmp_path)
        store = opened(tmp_path, salvage=True)
        kept = bodies(store), bodies(store, queue_id=1)
        assert 30 < len(kept[0] + kept[1]) < 60
        store.close()
        store = opened(tmp_path)
        assert (bodies(store), bodies(store, queue_id=1)) == kept
        store.close()

    def test_check_all_finds_damage_that_a_clean_start_would_not_look_at(self, tmp_path):
        fill(tmp_path).close()
        opened(tmp_path, check_all=True).close()
        overwrite(segments(tmp_path)[0], 700, b"!")
        opened(tmp_path).close()
        with pytest.raises(StoreError, match="damaged"):
            opened(tmp_path, check_all=True)


class TestIndexes:
    """Both indexes are made again from the log, whatever happened to them."""

    @pytest.mark.parametrize("clean", [True, False])
    @pytest.mark.parametrize("what", ["queues", "queues/orders/1", "keys"])
    def test_a_lost_index(self, tmp_path, what, clean):
        store = fill(tmp_path)
        for _ in range(9):
            store.tick(NOW)
        store.close() if clean else crash(store)
        shutil.rmtree(tmp_path / what)
        store = opened(tmp_path)
        assert store.report.repairs
        check(store)
        store.close()
        store = opened(tmp_path)
        assert store.report.clean
        check(store)
        store.close()

    @pytest.mark.parametrize("clean", [True, False])
    def test_a_queue_index_that_is_behind(self, tmp_path, clean):
        store = fill(tmp_path)
        store.close()
        if not clean:
            crash(opened(tmp_path))
        os.truncate(tmp_path / "queues/orders/0" / ("0" * 20), 24 * 7 + 5)
        store = opened(tmp_path)
        check(store)
        store.close()

    def test_a_queue_index_that_is_ahead_of_a_torn_log(self, tmp_path):
        store = fill(tmp_path)
        for queue in store._queues.values():
            queue.write_out()
        place = store._queues["orders", 1].entry(28)[0]
        crash(store)
        overwrite(segments(tmp_path)[-1], (place - SEAL_BYTES) % 4096, bytes(8))
        store = opened(tmp_path)
        check(store, lost=range(57, 60))
        store.close()

    def test_zeros_and_garbage_in_a_queue_index_after_the_checkpoint(self, tmp_path):
        store = fill(tmp_path)
        for queue in store._queues.values():
            queue.write_out()
        crash(store)
        index = tmp_path / "queues/orders/0" / ("0" * 20)
        overwrite(index, 24 * 20, bytes(24 * 10))
        overwrite(index, 24 * 30, b"\xff" * 24 * 5)
        store = opened(tmp_path)
        check(store)
        store.close()

    def test_a_garbled_key_file(self, tmp_path):
        fill(tmp_path).close()
        for path in (tmp_path / "keys").iterdir():
            overwrite(path, 0, b"garbage garbage")
        store = opened(tmp_path)
        assert sum("key index" in one for one in store.report.repairs) == len(segments(tmp_path))
        check(store)
        store.close()

    def test_a_lost_footer(self, tmp_path):
        fill(tmp_path).close()
        overwrite(segments(tmp_path)[0], 4096 - 8, b"garbage!")
        store = opened(tmp_path)
        first = store._segments.held[0]
        assert (first.first_ms, first.until > first.start) == (NOW, True)
        check(store)
        store.close()
        assert opened(tmp_path).report.repairs == ()


class TestCheckpoint:
    @pytest.mark.parametrize("content", [b"", b"{", b'{"log_until": "x"}', b'{"log_until": 1e9}'])
    def test_an_unreadable_checkpoint_costs_a_scan_of_the_whole_log(self, tmp_path, content):
        fill(tmp_path).close()
        for path in (tmp_path / "store").iterdir():
            path.write_bytes(content)
        store = opened(tmp_path)
        assert store.report.scanned_messages == 60
        check(store)
        store.close()

    def test_a_checkpoint_older_than_the_log(self, tmp_path):
        store = opened(tmp_path)
        put(store, b"a")
        store.close()
        old = (tmp_path / "store/checkpoint.json").read_bytes()
        store = opened(tmp_path)
        put(store, b"b")
        store.close()
        (tmp_path / "store/checkpoint.json").write_bytes(old)
        store = opened(tmp_path)
        assert bodies(store) == [b"a", b"b"]
        store.close()

    def test_deleted_topics_that_cannot_be_read_are_an_error_that_names_the_file(self, tmp_path):
        store = fill(tmp_path)
        store.delete_topic("orders")
        store.close()
        for path in (tmp_path / "store").glob("deleted*"):
            path.write_bytes(b"[]")
        with pytest.raises(StoreError, match=r"deleted\.json"):
            opened(tmp_path)

    def test_a_crash_while_a_segment_was_made(self, tmp_path):
        store = fill(tmp_path)
        end = store._log.active.end
        crash(store)
        (tmp_path / "log" / f"{end:020d}").touch()
        store = opened(tmp_path)
        check(store)
        put(store, b"next")
        store.close()

    def test_a_crash_while_a_segment_was_closed(self, tmp_path):
        store = fill(tmp_path)
        made = store._segments.add
        store._segments.add = lambda start, limit: (_ for _ in ()).throw(KeyboardInterrupt)
        with pytest.raises(KeyboardInterrupt):
            store._log.roll()
        store._segments.add = made
        crash(store)
        store = opened(tmp_path)
        check(store)
        put(store, b"next")
        assert bodies(store)[-1] == b"next"
        store.close()

"""What power cuts, failing devices and strangers in the directory may not do to stored messages.

A power cut takes what was not flushed: files and names that no flush covered are put back to what
they were at the last one.
"""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path

import pytest

from broker.store.storing import NOW, BrokenDisk, bodies, crash, opened, put, segments
from gimbalmq.broker.store import (
    Documents,
    FlushPolicy,
    RetentionPolicy,
    StoreError,
    open_store,
)
from gimbalmq.broker.store.files import Disk

DESCRIPTORS = Path("/proc/self/fd")


class RecordingDisk(Disk):
    """Keeps what was asked of it, in order: (method, name of the file)."""

    __slots__ = ("calls",)

    def __init__(self):
        self.calls = []

    def write_at(self, descriptor, data, at):
        self.calls.append(("write", named(descriptor)))
        super().write_at(descriptor, data, at)

    def sync(self, descriptor):
        self.calls.append(("sync", named(descriptor)))
        super().sync(descriptor)

    def replace(self, source, target):
        self.calls.append(("replace", str(target)))
        super().replace(source, target)

    def remove(self, path):
        self.calls.append(("remove", str(path)))
        super().remove(path)


def named(descriptor):
    return str((DESCRIPTORS / str(descriptor)).readlink())


def at(calls, method, path):
    """When something was first asked for."""
    return calls.index((method, str(path)))


class TestDeletedTopics:
    @pytest.mark.parametrize("flush", list(FlushPolicy))
    def test_a_topic_that_came_back_keeps_its_messages_when_a_power_cut_took_the_log_behind_it(
        self, tmp_path, flush
    ):
        store = opened(tmp_path)
        put(store, b"kept", topic="refunds")
        kept = store.log_bounds()[1]
        put(store, *[b"lost" * 100] * 4, topic="orders")
        store.delete_topic("orders")
        crash(store)
        os.truncate(segments(tmp_path)[0], kept)
        store = opened(tmp_path, flush=flush)
        put(store, b"new", topic="orders", KEYS="k")
        for finish in (crash, type(store).close, crash):
            assert bodies(store) == [b"new"]
            assert len(store.find("orders", "k", 0, 1 << 60, 9)) == 1
            finish(store)
            store = opened(tmp_path, flush=flush)
        store.close()

    @pytest.mark.parametrize("end", [crash, lambda store: store.close()])
    def test_a_deletion_whose_end_could_not_be_noted_does_not_take_the_next_topic_of_that_name(
        self, tmp_path, end
    ):
        disk = BrokenDisk()
        store = opened(tmp_path, disk)
        put(store, b"old")
        finish = store._deletions.finish
        store._deletions.finish = lambda topic: (
            disk.broken.update(write_at=errno.ENOSPC) or finish(topic)
        )
        with pytest.raises(StoreError, match="disk is full"):
            store.delete_topic("orders")
        disk.broken.clear()
        put(store, b"new")
        put(store, *[b"x" * 300] * 30, topic="refunds")
        for moment in range(9):
            store.tick(NOW + moment)
        assert store._checkpoints.indexed_until > 0
        end(store)
        store = opened(tmp_path)
        assert bodies(store) == [b"new"]
        assert len(bodies(store, "refunds")) == 30
        store.close()
        store = opened(tmp_path)
        assert store.report.clean
        store.close()


class TestOrder:
    def test_names_of_new_directories_are_on_disk_before_the_first_message(self, tmp_path):
        disk = RecordingDisk()
        directory = tmp_path / "a" / "data"
        store = opened(directory, disk, flush=FlushPolicy.EACH)
        synced = {path for method, path in disk.calls if method == "sync"}
        assert {str(tmp_path), str(tmp_path / "a"), str(directory)} <= synced
        segment = store._log.active.path
        assert ("sync", str(segment.parent)) in disk.calls
        disk.calls.clear()
        put(store, b"a")
        assert at(disk.calls, "write", segment) < at(disk.calls, "sync", segment)
        store.close()

    def test_a_checkpoint_is_written_after_log_queues_and_keys_are_safe(self, tmp_path):
        disk = RecordingDisk()
        store = opened(tmp_path, disk)
        put(store, *[b"x" * 300] * 20, KEYS="k")
        disk.calls.clear()
        for moment in range(9):
            store.tick(NOW + moment)
        calls = list(disk.calls)
        word = at(calls, "replace", tmp_path / "store" / "checkpoint.json")
        first = store._segments.held[0]
        queue = tmp_path / "queues" / "orders" / "0"
        for path in (
            first.path,
            first.path.parent,
            queue / f"{0:020d}",
            queue,
            queue.parent,
            tmp_path / "keys" / f"{0:020d}.keys",
        ):
            assert at(calls, "sync", path) < word
        store.close()

    def test_a_document_is_safe_before_it_has_its_name(self, tmp_path):
        disk = RecordingDisk()
        Documents(tmp_path, disk).write("topics", {})
        name = at(disk.calls, "replace", tmp_path / "topics.json")
        assert at(disk.calls, "sync", tmp_path / "topics.new") < name
        assert at(disk.calls, "sync", tmp_path) > name

    def test_segments_go_for_good_one_after_the_other(self, tmp_path):
        disk = RecordingDisk()
        store = opened(tmp_path, disk)
        put(store, *[b"x" * 300] * 60)
        for moment in range(20):
            store.tick(NOW + moment)
        disk.calls.clear()
        log = str(tmp_path / "log")
        assert store._log.drop_first(3) == 3
        removed = [("remove", f"{log}/{4096 * number:020d}") for number in range(3)]
        assert disk.calls == [one for gone in removed for one in (gone, ("sync", log))]
        store.close()


class FailingDisk(RecordingDisk):
    """Cannot sync what has these words in its path."""

    __slots__ = ("failing",)

    def __init__(self, failing=""):
        super().__init__()
        self.failing = failing

    def sync(self, descriptor):
        if self.failing and self.failing in named(descriptor):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().sync(descriptor)


@pytest.mark.parametrize("part", ["/queues/orders/0/", "/keys/"])
def test_an_index_is_written_again_before_a_flush_that_failed_is_repeated(tmp_path, part, caplog):
    disk = FailingDisk()
    store = opened(tmp_path, disk)
    put(store, *[b"x" * 300] * 20, KEYS="k")
    disk.failing = part
    for moment in range(9):
        store.tick(NOW + moment)
        assert moment == 0 or part == "/keys/" or "device failed" in store.problem
    assert "device failed" in store.problem
    assert len(caplog.records) == 1, "the same trouble is told once"
    disk.failing = ""
    disk.calls.clear()
    for moment in range(9):
        store.tick(NOW + moment)
    assert store.problem is None
    path = next(path for what, path in disk.calls if what == "sync" and part in path)
    assert at(disk.calls, "write", path) < at(disk.calls, "sync", path)
    store.close()


class TestOpening:
    def test_strangers_in_the_directories_are_left_alone(self, tmp_path):
        store = opened(tmp_path)
        put(store, b"a", KEYS="k")
        store.close()
        strangers = [tmp_path / name for name in ("queues/notes.txt", "keys/old.keys", "log/x.bak")]
        for path in strangers:
            path.write_text("mine")
        for finish in (crash, type(store).close):
            store = opened(tmp_path)
            assert bodies(store) == [b"a"]
            assert len(store.find("orders", "k", 0, 1 << 60, 9)) == 1
            finish(store)
        assert [path.read_text() for path in strangers] == ["mine"] * 3

    @pytest.mark.parametrize("what", ["open", "write_at", "resize", "sync", "replace"])
    def test_a_start_that_fails_lets_go_of_everything_and_the_next_finds_all(self, tmp_path, what):
        store = opened(tmp_path)
        put(store, b"a", b"b")
        crash(store)
        before = len(list(DESCRIPTORS.iterdir()))
        disk = BrokenDisk()
        disk.broken[what] = errno.EACCES
        with pytest.raises(StoreError, match="permission is missing: change the owner or mode"):
            opened(tmp_path, disk, flush=FlushPolicy.EACH)
        assert len(list(DESCRIPTORS.iterdir())) == before
        store = opened(tmp_path)
        assert bodies(store) == [b"a", b"b"]
        store.close()

    def test_a_log_that_cannot_be_flushed_at_the_start_is_let_go(self, tmp_path):
        store = opened(tmp_path)
        put(store, b"a")
        crash(store)
        before = len(list(DESCRIPTORS.iterdir()))
        with pytest.raises(StoreError, match="the device failed"):
            opened(tmp_path, FailingDisk("/log/"), flush=FlushPolicy.INTERVAL)
        assert len(list(DESCRIPTORS.iterdir())) == before
        store = opened(tmp_path)
        assert bodies(store) == [b"a"]
        store.close()

    def test_a_temporary_store_that_cannot_be_opened_leaves_nothing_behind(
        self, tmp_path, monkeypatch
    ):
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        disk = BrokenDisk()
        disk.broken["resize"] = errno.ENOSPC
        with pytest.raises(StoreError, match="disk is full"):
            open_store(None, store_host=("127.0.0.1", 1), disk=disk)
        assert list(tmp_path.iterdir()) == []

    def test_a_document_that_may_not_be_looked_at_is_an_error_in_words(self, tmp_path, monkeypatch):
        documents = Documents(tmp_path)

        def refuse(path, **_options):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

        with monkeypatch.context() as patched:
            patched.setattr("pathlib.Path.stat", refuse)
            with pytest.raises(StoreError, match="permission is missing"):
                documents.read("topics")

    def test_a_document_read_from_the_one_before_is_said_in_the_log(self, tmp_path, caplog):
        documents = Documents(tmp_path)
        for version in (1, 2):
            documents.write("topics", {"version": version})
        (tmp_path / "topics.json").write_bytes(b"{")
        with caplog.at_level(logging.WARNING, "gimbalmq.broker.store"):
            assert documents.read("topics") == {"version": 1}
        assert "topics.json' is damaged" in caplog.text


def test_a_segment_that_was_left_over_is_made_anew(tmp_path):
    store = opened(tmp_path)
    put(store, b"a")
    end = store._log.active.end
    stray = tmp_path / "log" / f"{end:020d}"
    stray.write_bytes(b"\1" * 4096)
    while store._log.active.end == end:
        put(store, b"x" * 300)
    assert not any(store._segments.view(store._log.active)[store._log.end - end :])
    crash(store)
    store = opened(tmp_path)
    assert bodies(store)[0] == b"a"
    assert store.report.cut_bytes == 0
    store.close()


def test_a_segment_that_can_neither_be_made_nor_removed_is_an_error_in_words(tmp_path):
    disk = BrokenDisk()
    store = opened(tmp_path, disk)
    put(store, b"a")
    disk.broken = {"resize": errno.EFBIG, "remove": errno.EACCES}
    with pytest.raises(StoreError, match="make the log segment"):
        put(store, *[b"x" * 300] * 30)
    disk.broken.clear()
    put(store, b"b")
    assert bodies(store)[-1] == b"b"
    store.close()


def test_a_full_disk_does_not_keep_retention_from_making_room(tmp_path):
    disk = BrokenDisk()
    store = opened(tmp_path, disk, retention=RetentionPolicy(keep_ms=1000))
    put(store, *[b"x" * 300] * 30)
    for moment in range(9):
        store.tick(NOW + moment)
    put(store, *[b"x" * 300] * 30)
    disk.broken["write_at"] = errno.ENOSPC
    store.tick(NOW + 60_000)
    store.tick(NOW + 60_001)
    assert "disk is full" in store.problem
    assert 0 < store.log_bounds()[0] <= store._checkpoints.indexed_until
    disk.broken.clear()
    for moment in range(9):
        store.tick(NOW + 90_000 + moment)
    assert store.problem is None
    assert store.log_bounds()[0] == store._log.active.start
    store.close()


class TestShortSegments:
    """A power cut may leave a file's name without its size."""

    @pytest.mark.parametrize("left", [0, 700, 3072])
    def test_one_that_nobody_was_promised_is_cut_with_all_behind_it(self, tmp_path, left):
        store = opened(tmp_path)
        put(store, *[b"%d" % number + b"x" * 300 for number in range(40)])
        whole = bodies(store)
        crash(store)
        os.truncate(segments(tmp_path)[1], left)
        store = opened(tmp_path)
        kept = bodies(store)
        assert 0 < len(kept) < 40
        assert kept == whole[: len(kept)]
        put(store, b"next")
        store.close()
        store = opened(tmp_path)
        assert (bodies(store), store.report.clean) == ([*kept, b"next"], True)
        store.close()

    @pytest.mark.parametrize("left", [0, 700, 3072])
    def test_one_that_was_safe_is_damage_and_nothing_changes(self, tmp_path, left):
        store = opened(tmp_path, flush=FlushPolicy.EACH)
        put(store, *[b"x" * 300] * 40)
        crash(store)
        (tmp_path / "store" / "checkpoint.json").unlink()
        (tmp_path / "store" / "checkpoint.previous").unlink(missing_ok=True)
        os.truncate(segments(tmp_path)[1], left)
        for _ in range(2):
            with pytest.raises(StoreError, match=f"{4096:020d}' is damaged at byte {left}"):
                opened(tmp_path)
            assert segments(tmp_path)[1].stat().st_size == left

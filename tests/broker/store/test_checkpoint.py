from __future__ import annotations

import errno

import pytest

from broker.store.storing import NOW, BrokenDisk, bodies, crash, opened, put
from gimbalmq.broker.store import Documents
from gimbalmq.broker.store.checkpoint import Checkpoint, read_checkpoint, write_checkpoint


def test_a_checkpoint_reads_as_it_was_written(tmp_path):
    notes = Documents(tmp_path)
    assert read_checkpoint(notes) is None
    write_checkpoint(notes, Checkpoint(7, 9))
    assert read_checkpoint(notes) == Checkpoint(7, 9)


@pytest.mark.parametrize("content", [b"{", b'{"log_until": "x"}'])
def test_one_that_cannot_be_read_is_none_and_said_to_be(tmp_path, content, caplog):
    (tmp_path / "checkpoint.json").write_bytes(content)
    assert read_checkpoint(Documents(tmp_path)) is None
    assert len(caplog.records) == 1


def test_a_full_segment_needs_no_scan_after_a_crash_once_its_checkpoint_is_made(tmp_path):
    store = opened(tmp_path)
    put(store, *[b"x" * 300] * 20, queue_id=1)
    put(store, *[b"y" * 300] * 20)
    for moment in range(10):
        store.tick(NOW + moment)
    crash(store)
    store = opened(tmp_path)
    assert 0 < store.report.scanned_messages < 15
    assert bodies(store) == [b"y" * 300] * 20
    assert bodies(store, queue_id=1) == [b"x" * 300] * 20
    store.close()


def test_a_step_that_fails_begins_the_checkpoint_again(tmp_path):
    disk = BrokenDisk()
    store = opened(tmp_path, disk)
    put(store, *[b"x" * 300] * 20)
    checkpoints = store._checkpoints
    before = checkpoints.indexed_until
    store.tick(NOW)
    disk.broken["sync"] = errno.EIO
    store.tick(NOW)
    assert "device failed" in store.problem
    disk.broken = {}
    for _ in range(4):
        store.tick(NOW)
    assert before < checkpoints.indexed_until == store._log.active.start
    assert read_checkpoint(store._notes).safe_until >= checkpoints.indexed_until
    store.close()

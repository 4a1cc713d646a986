"""The end of the log: appends, full segments, flushes that fail."""

from __future__ import annotations

import errno

import pytest

from broker.store.storing import NOW, BrokenDisk
from gimbalmq.broker.store import StoreError
from gimbalmq.broker.store.layout import SEAL_BYTES, Frame, entry_at
from gimbalmq.broker.store.log import CommitLog
from gimbalmq.broker.store.segments import Segments

SEGMENT_BYTES = 4096
RECORDS = bytes(range(1, 201))


@pytest.fixture
def disk():
    return BrokenDisk()


@pytest.fixture
def log(tmp_path, disk):
    made = started(tmp_path, disk)
    yield made
    made.close()


def started(directory, disk, end=0, flushed_until=0):
    return CommitLog(
        Segments(directory, disk),
        disk,
        segment_bytes=SEGMENT_BYTES,
        end=end,
        flushed_until=flushed_until,
    )


def flush(log):
    one = log.begin_flush()
    one.wait()
    log.end_flush(one)


def test_an_append_is_sealed_and_moves_the_end(log):
    log.write(RECORDS, NOW)
    view = log.segments.view(log.active)
    assert entry_at(view, 0, 0) == Frame(SEAL_BYTES, SEAL_BYTES + len(RECORDS), 0)
    assert bytes(view[SEAL_BYTES : log.end]) == RECORDS
    assert log.active.until == log.end == SEAL_BYTES + len(RECORDS)


def test_a_seal_says_how_much_was_safe_when_it_was_written(log):
    log.write(RECORDS, NOW)
    flush(log)
    safe = log.end
    log.write(RECORDS, NOW)
    assert entry_at(log.segments.view(log.active), safe, 0).flushed_until == safe


def test_the_times_of_a_segment_are_the_extremes_also_when_the_clock_steps_back(log):
    for now_ms in (NOW, NOW - 7, NOW + 3, NOW):
        log.write(RECORDS, now_ms)
    assert (log.active.first_ms, log.active.last_ms) == (NOW - 7, NOW + 3)


def test_a_full_segment_says_where_it_ends_and_the_next_one_goes_on(log):
    while log.fits(len(RECORDS)):
        log.write(RECORDS, NOW)
    full, end = log.active, log.end
    log.roll()
    assert log.end == log.active.start == full.end == SEGMENT_BYTES
    full.until = 0
    assert log.segments.read_footer(full)
    assert full.until == end
    assert log.fits(log.records_bytes_max)
    assert not log.fits(log.records_bytes_max + 1)


def test_whatever_lies_behind_the_end_is_wiped_when_writing_starts(tmp_path, disk, log):
    log.write(RECORDS, NOW)
    end = log.end
    log.write(RECORDS, NOW)
    log.close()
    again = started(tmp_path, disk, end=end)
    assert not any(again.segments.view(again.active)[end:])
    assert again.active.path.stat().st_size == SEGMENT_BYTES
    again.close()


def test_a_flush_syncs_every_segment_that_may_not_be_safe_and_new_names(log):
    log.write(RECORDS, NOW)
    log.roll()
    log.write(RECORDS, NOW)
    one = log.begin_flush()
    assert one.paths == [segment.path for segment in log.segments.held]
    one.wait()
    log.end_flush(one)
    assert log.flushed_until == log.end
    assert log.begin_flush().paths == [log.active.path]


def test_a_failed_flush_writes_again_what_the_kernel_may_have_dropped(log, disk):
    log.write(RECORDS, NOW)
    disk.broken["sync"] = errno.EIO
    with pytest.raises(StoreError, match="the device failed"):
        flush(log)
    assert log.flushed_until == 0
    disk.broken = {"write_at": errno.ENOSPC}
    with pytest.raises(StoreError, match="write again after a failed flush"):
        log.begin_flush()
    disk.broken = {}
    flush(log)
    assert log.flushed_until == log.end


def test_a_segment_that_went_is_not_flushed(log):
    log.write(RECORDS, NOW)
    log.roll()
    one = log.begin_flush()
    assert log.drop_first(9) == 1
    one.wait()
    log.end_flush(one)
    assert one.error is None
    assert log.begin_flush().paths == [log.active.path]
    assert log.drop_first(9) == 0

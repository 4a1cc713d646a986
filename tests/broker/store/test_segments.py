"""The files of the log: found by name, found by place, mapped, mended."""

from __future__ import annotations

import errno
import os

import pytest

from broker.store.storing import BrokenDisk
from gimbalmq.broker.store import StoreError
from gimbalmq.broker.store.files import Disk
from gimbalmq.broker.store.layout import Blank, entry_at
from gimbalmq.broker.store.segments import Segments

SEGMENT_BYTES = 4096


def made(directory, count, disk=None):
    segments = Segments(directory, disk or Disk())
    for number in range(count):
        os.close(segments.add(number * SEGMENT_BYTES, SEGMENT_BYTES))
    return segments


def test_only_files_named_by_a_place_are_segments(tmp_path):
    made(tmp_path, 2)
    for stray in ("notes.txt", "123", "0000000000000000000x"):
        (tmp_path / stray).touch()
    found = Segments(tmp_path, Disk())
    assert [(one.start, one.limit, one.until) for one in found.held] == [
        (0, SEGMENT_BYTES, 0),
        (SEGMENT_BYTES, SEGMENT_BYTES, SEGMENT_BYTES),
    ]


@pytest.mark.parametrize(
    ("place", "number"), [(-1, None), (0, 0), (4095, 0), (4096, 1), (8191, 1), (8192, None)]
)
def test_a_place_is_in_one_segment_or_none(tmp_path, place, number):
    segments = made(tmp_path, 2)
    assert segments.segment_of(place) is (None if number is None else segments.held[number])


def test_a_new_segment_is_a_hole_that_reads_as_zeros(tmp_path):
    segments = made(tmp_path, 1)
    (segment,) = segments.held
    assert not any(segments.view(segment))
    assert segment.path.stat().st_blocks == 0
    assert segments.record_at(0) is None


@pytest.mark.parametrize("broken", ["open", "resize"])
def test_a_segment_that_cannot_be_made_is_not_there(tmp_path, broken):
    disk = BrokenDisk()
    segments = made(tmp_path, 1, disk)
    disk.broken[broken] = errno.ENOSPC
    with pytest.raises(StoreError, match="make the log segment"):
        segments.add(SEGMENT_BYTES, SEGMENT_BYTES)
    assert len(segments.held) == 1
    assert len(list(tmp_path.iterdir())) == 1


def test_few_maps_are_kept_and_views_outlive_their_segment(tmp_path):
    segments = made(tmp_path, 6)
    views = [segments.view(one) for one in segments.held]
    assert segments.view(segments.held[-1]) is views[-1]
    assert segments.view(segments.held[0]) is not views[0]
    dropped = segments.drop_first()
    assert not dropped.path.exists()
    assert segments.start == SEGMENT_BYTES
    assert bytes(views[0]) == bytes(SEGMENT_BYTES)


def test_a_segment_cut_from_outside_is_an_error_that_names_it(tmp_path):
    segments = made(tmp_path, 1)
    os.truncate(segments.held[0].path, 100)
    with pytest.raises(StoreError, match=r"0{20}.*cut from outside"):
        segments.view(segments.held[0])


def test_a_segment_that_cannot_be_removed_stays(tmp_path):
    disk = BrokenDisk()
    segments = made(tmp_path, 2, disk)
    disk.broken["remove"] = errno.EACCES
    with pytest.raises(StoreError, match="permission"):
        segments.drop_first()
    assert segments.segment_of(0) is segments.held[0]


def test_a_footer_says_where_a_full_segment_ends_and_when_it_was_filled(tmp_path):
    segments = made(tmp_path, 1)
    (segment,) = segments.held
    assert not segments.read_footer(segment)
    segment.until, segment.first_ms, segment.last_ms = 1234, 5, 6
    segments.write_footer(segment)
    again = Segments(tmp_path, Disk())
    assert again.read_footer(again.held[0])
    assert again.held[0] is not segment
    assert (again.held[0].until, again.held[0].first_ms, again.held[0].last_ms) == (1234, 5, 6)


def test_a_footer_that_points_elsewhere_is_none(tmp_path):
    segments = made(tmp_path, 2)
    first, second = segments.held
    first.until = second.end + 1
    segments.write_footer(first)
    first.until = 77
    assert not segments.read_footer(first)
    assert first.until == 77


def test_bytes_are_skipped_where_a_mark_for_that_fits(tmp_path):
    segments = made(tmp_path, 1)
    (segment,) = segments.held
    segments.skip(segment, 100, 7)
    assert not any(segments.view(segment))
    segments.skip(segment, 100, 50)
    assert entry_at(segments.view(segment), 100, 0) == Blank(150)


def test_a_short_segment_is_lengthened_by_a_hole(tmp_path):
    segments = made(tmp_path, 1)
    (segment,) = segments.held
    segments.lengthen(segment, 3 * SEGMENT_BYTES)
    assert (segment.end, segment.path.stat().st_size) == (3 * SEGMENT_BYTES, 3 * SEGMENT_BYTES)
    assert len(segments.view(segment)) == 3 * SEGMENT_BYTES

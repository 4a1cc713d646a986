from __future__ import annotations

import errno

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.store.storing import BrokenDisk
from gimbalmq.broker.store import Boundary, StoreError
from gimbalmq.broker.store.files import Disk, OpenFiles
from gimbalmq.broker.store.queue_index import HOLE, QueueIndex, load_queue_index, unpack_entries


def make(directory, count=0, *, per_file=100, disk=None, base=0):
    index = QueueIndex(directory / "q", OpenFiles(disk or Disk()), per_file=per_file, base=base)
    for number in range(count):
        index.make_room()
        index.add(number * 10 + 5, 10, number, number * 100)
    return index


def places(index, offset_from, offset_until):
    return [entry[0] for entry in unpack_entries(index.entries(offset_from, offset_until))]


def expected(offset_from, offset_until):
    return [number * 10 + 5 for number in range(offset_from, offset_until)]


@settings(max_examples=40, deadline=None)
@given(
    count=st.integers(0, 1500),
    span=st.tuples(st.integers(0, 1500), st.integers(0, 1500)),
    written=st.booleans(),
)
def test_any_range_reads_the_same_from_memory_and_files(tmp_path_factory, count, span, written):
    index = make(tmp_path_factory.mktemp("index"), count)
    if written:
        index.write_out()
    start, until = span
    assert places(index, start, until) == expected(start, min(until, count))
    index._files.close()


def test_only_the_youngest_entries_are_in_memory(tmp_path):
    index = make(tmp_path, 5000, per_file=2000)
    assert len(index._tail) <= 512 * 24
    index.write_out()
    assert [path.name for path in sorted((tmp_path / "q").iterdir())] == [
        f"{base:020d}" for base in (0, 2000, 4000)
    ]
    again = load_queue_index(tmp_path / "q", index._files, per_file=2000)
    assert (again.minimum, again.next_offset, again.bases) == (0, 5000, [0, 2000, 4000])
    assert places(again, 1990, 4010) == expected(1990, 4010)


def test_a_search_by_time_and_by_place(tmp_path):
    index = make(tmp_path, 1000)
    assert [index.offset_at(moment, Boundary.LOWER) for moment in (-1, 0, 1, 500_00, 10**9)] == [
        0, 0, 1, 500, 1000]  # fmt: skip
    assert [index.offset_at(moment, Boundary.UPPER) for moment in (-1, 0, 1, 10**9)] == [
        0, 0, 0, 999]  # fmt: skip
    assert [index.first_at_or_after(place) for place in (0, 5, 6, 9995, 9996)] == [
        0, 0, 1, 999, 1000]  # fmt: skip


def test_a_raised_minimum_removes_whole_files_but_never_the_last(tmp_path):
    index = make(tmp_path, 1000)
    index.write_out()
    index.raise_minimum(2505)
    assert (index.minimum, index.bases[0]) == (250, 200)
    index.raise_minimum(10**9)
    assert (index.minimum, index.next_offset, index.bases) == (1000, 1000, [900])
    again = load_queue_index(tmp_path / "q", index._files, per_file=100)
    assert again.next_offset == 1000


@pytest.mark.parametrize("offset", [0, 1, 99, 100, 101, 250, 999, 1000])
def test_a_cut_forgets_the_rest_and_the_next_entry_takes_its_place(tmp_path, offset):
    index = make(tmp_path, 1000)
    index.write_out()
    index.cut(offset)
    assert (index.next_offset, places(index, 0, 2000)) == (offset, expected(0, offset))
    index.add(777_777, 10, 0, 0)
    index.write_out()
    again = load_queue_index(tmp_path / "q", index._files, per_file=100)
    assert places(again, 0, 2000) == [*expected(0, offset), 777_777]


def test_holes_keep_later_offsets_in_place(tmp_path):
    index = make(tmp_path, 3)
    index.fill_holes(700, 250)
    index.add(9999, 10, 0, 300)
    assert index.next_offset == 701
    assert index.entry(600)[0] == HOLE
    assert index.first_at_or_after(26) == 3
    assert index.offset_at(300, Boundary.LOWER) == 700


def test_files_that_do_not_join_up_are_removed_and_ragged_ends_cut(tmp_path):
    index = make(tmp_path, 350)
    index.write_out()
    (tmp_path / "q" / f"{100:020d}").unlink()
    (tmp_path / "q" / "notes.txt").write_text("left alone")
    again = load_queue_index(tmp_path / "q", OpenFiles(Disk()), per_file=100)
    assert (again.next_offset, again.bases) == (100, [0])
    with (tmp_path / "q" / f"{0:020d}").open("ab") as file:
        file.write(b"half an entry")
    again = load_queue_index(tmp_path / "q", OpenFiles(Disk()), per_file=100)
    assert (again.next_offset, places(again, 0, 200)) == (100, expected(0, 100))
    assert (tmp_path / "q" / f"{0:020d}").stat().st_size == 2400


def test_an_index_can_start_above_0(tmp_path):
    index = make(tmp_path, base=42)
    index.add(1, 1, 1, 1)
    index.write_out()
    again = load_queue_index(tmp_path / "q", index._files, per_file=100)
    assert (again.minimum, again.next_offset) == (42, 43)


def test_a_full_disk_is_met_before_memory_fills_and_nothing_is_lost(tmp_path):
    disk = BrokenDisk()
    index = make(tmp_path, 512, disk=disk)
    disk.broken["write_at"] = errno.ENOSPC
    for _ in range(3):
        with pytest.raises(StoreError, match="write the queue index"):
            index.make_room()
    assert places(index, 0, 1000) == expected(0, 512)
    disk.broken.clear()
    index.make_room()
    assert places(index, 0, 1000) == expected(0, 512)


def test_a_file_cut_from_outside_is_an_error_that_names_it(tmp_path):
    index = make(tmp_path, 1000)
    index.write_out()
    (tmp_path / "q" / f"{0:020d}").write_bytes(b"")
    with pytest.raises(StoreError, match="read the queue index"):
        index.entries(0, 10)


def test_what_is_not_synced_is_named_once(tmp_path):
    index = make(tmp_path, 150)
    index.write_out()
    assert [path.name for path in index.unsynced()][:3] == [f"{0:020d}", f"{100:020d}", "q"]
    index.mark_synced()
    assert index.unsynced() == []
    index.add(1, 1, 1, 1)
    index.write_out()
    assert [path.name for path in index.unsynced()] == [f"{100:020d}"]

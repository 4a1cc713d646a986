from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gimbalmq.broker.store import key_index
from gimbalmq.broker.store.files import Disk, OpenFiles
from gimbalmq.broker.store.key_index import KeyIndex

HASHES = st.integers(0, 20) | st.integers(0, (1 << 32) - 1)


@pytest.fixture
def small_runs(monkeypatch):
    monkeypatch.setattr(key_index, "_RUN_COUNT_MAX", 8)


@settings(max_examples=60, deadline=None)
@given(pairs=st.lists(st.tuples(HASHES, st.integers(0, (1 << 32) - 1)), max_size=100))
def test_every_place_is_found_by_its_hash_in_memory_in_runs_and_after_resuming(
    tmp_path_factory, pairs
):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_index, "_RUN_COUNT_MAX", 8)
        directory = tmp_path_factory.mktemp("keys")
        keys = KeyIndex(directory, OpenFiles(Disk()))
        for number, place in pairs:
            keys.make_room(0)
            keys.add([number], place)
        wanted = {}
        for number, place in pairs:
            wanted.setdefault(number, set()).add(place)
        for number, its in wanted.items():
            assert keys.places(0, number) == sorted(its, reverse=True)
        keys.write_out(1000)
        again = KeyIndex(directory, OpenFiles(Disk()))
        assert again.resume(0, 1000)
        for number, its in wanted.items():
            assert again.places(0, number) == sorted(its, reverse=True)
        assert again.places(0, 1 << 31) == sorted(wanted.get(1 << 31, set()), reverse=True)


def test_the_run_in_memory_is_not_found_twice_after_it_was_written(tmp_path):
    keys = KeyIndex(tmp_path, OpenFiles(Disk()))
    keys.add([5], 1)
    keys.write_out(10)
    keys.add([5], 2)
    assert keys.places(0, 5) == [2, 1]
    keys.write_out(20)
    keys.roll(4096, 20)
    assert keys.places(0, 5) == [2, 1]
    assert keys.places(4096, 5) == []


def test_a_file_is_complete_when_it_covers_the_segment(tmp_path):
    keys = KeyIndex(tmp_path, OpenFiles(Disk()))
    assert not keys.complete(0, 0)
    keys.roll(4096, 3000)
    assert keys.complete(0, 3000)
    assert not keys.complete(0, 3001)


def test_damage_is_noticed_when_a_segment_is_resumed(tmp_path, small_runs):
    keys = KeyIndex(tmp_path, OpenFiles(Disk()))
    for number in range(20):
        keys.make_room(number)
        keys.add([number], number)
    keys.write_out(1000)
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    for data in (b"", whole[:-1], whole[:-1] + b"\xff", b"\x00" * len(whole)):
        path.write_bytes(data)
        assert not KeyIndex(tmp_path, OpenFiles(Disk())).resume(0, 1000)
    path.write_bytes(whole)
    assert not KeyIndex(tmp_path, OpenFiles(Disk())).resume(0, 1001)
    assert KeyIndex(tmp_path, OpenFiles(Disk())).resume(0, 1000)


def test_files_of_segments_that_are_gone_go_too(tmp_path):
    keys = KeyIndex(tmp_path, OpenFiles(Disk()))
    for start in (4096, 8192, 12288):
        keys.roll(start, start)
    keys.write_out(12288)
    keys.drop_outside([8192, 12288])
    assert [int(path.stem) for path in sorted(tmp_path.iterdir())] == [8192, 12288]
    keys.sync()

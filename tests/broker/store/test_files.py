from __future__ import annotations

import errno
import os

import pytest

from gimbalmq.broker.store import StoreError
from gimbalmq.broker.store.files import Disk, OpenFiles, disk_errors, sync_paths


def test_an_error_says_what_was_tried_on_which_file_and_why():
    words = r"cannot open 'x' \(No space left.*disk is full"
    with pytest.raises(StoreError, match=words) as error, disk_errors("open", "x"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert (error.value.path, error.value.retryable) == ("x", True)


def test_a_write_that_is_cut_short_goes_on(tmp_path, monkeypatch):
    whole = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: whole(fd, bytes(data)[:3], at))
    descriptor = Disk().open(tmp_path / "f")
    Disk().write_at(descriptor, b"0123456789", 2)
    os.close(descriptor)
    assert (tmp_path / "f").read_bytes() == b"\0\x000123456789"


def test_a_write_that_gets_nowhere_is_a_full_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "pwrite", lambda *_: 0)
    descriptor = Disk().open(tmp_path / "f")
    with pytest.raises(OSError, match="No space"):
        Disk().write_at(descriptor, b"x", 0)
    os.close(descriptor)


def test_the_oldest_descriptor_is_closed_first(tmp_path):
    files = OpenFiles(Disk(), limit=2)
    first = files.get(tmp_path / "a")
    files.get(tmp_path / "b")
    assert files.get(tmp_path / "a") == first
    files.get(tmp_path / "c")
    assert files.get(tmp_path / "a") == first
    assert set(files._descriptors) == {tmp_path / "a", tmp_path / "c"}
    files.forget(tmp_path / "a")
    files.forget(tmp_path / "a")
    files.close()
    assert not files._descriptors


@pytest.mark.parametrize("count", [1, 2, 40])
def test_many_paths_are_synced_and_a_failure_names_one(tmp_path, count):
    paths = [tmp_path / str(number) for number in range(count)]
    for path in paths:
        path.touch()
    sync_paths(Disk(), [*paths, tmp_path])
    paths[-1].unlink()
    with pytest.raises(StoreError, match=f"flush '{paths[-1]}'"):
        sync_paths(Disk(), paths)

from __future__ import annotations

import errno

import pytest

from broker.store.storing import BrokenDisk
from gimbalmq.broker.store import Documents, StoreError
from gimbalmq.errors import ConfigurationError


@pytest.fixture
def disk():
    return BrokenDisk()


@pytest.fixture
def documents(tmp_path, disk):
    return Documents(tmp_path / "config", disk)


def test_a_document_reads_as_it_was_written(documents):
    documents.write("consumer.offsets", {"orders@billing": {"0": 7}, "ü": None})
    assert documents.read("consumer.offsets") == {"orders@billing": {"0": 7}, "ü": None}
    assert documents.names() == ["consumer.offsets"]


def test_a_document_that_was_never_written_is_none(documents):
    assert documents.read("topics") is None
    assert documents.names() == []


def test_the_last_one_written_counts_and_leaves_no_half_made_file(documents, tmp_path):
    for number in range(3):
        documents.write("topics", number)
    assert documents.read("topics") == 2
    assert sorted(path.name for path in (tmp_path / "config").iterdir()) == [
        "topics.json", "topics.previous"]  # fmt: skip


@pytest.mark.parametrize("broken", ["open", "write_at", "sync", "replace"])
def test_a_full_disk_leaves_the_old_document(documents, disk, broken):
    documents.write("topics", "old")
    disk.broken[broken], disk.partial = errno.ENOSPC, 2
    with pytest.raises(StoreError, match="disk is full"):
        documents.write("topics", "a new one that does not fit")
    assert documents.read("topics") == "old"
    disk.broken.clear()
    documents.write("topics", "new")
    assert documents.read("topics") == "new"


def test_a_crash_between_the_two_renames_leaves_the_old_document(documents, tmp_path):
    documents.write("topics", "old")
    (tmp_path / "config/topics.json").rename(tmp_path / "config/topics.previous")
    assert documents.read("topics") == "old"
    assert documents.names() == ["topics"]


def test_a_damaged_document_is_replaced_by_the_one_before_and_that_is_told(documents, tmp_path):
    documents.write("topics", "old")
    documents.write("topics", "new")
    (tmp_path / "config/topics.json").write_bytes(b'"ne')
    assert documents.read("topics") == "old"
    assert "topics.previous" in documents.problems[0]


def test_a_damaged_document_with_none_before_is_an_error_that_names_it(documents, tmp_path):
    documents.write("topics", "old")
    documents.write("topics", "new")
    for name in ("topics.json", "topics.previous"):
        (tmp_path / "config" / name).write_bytes(b"\x00\x00")
    with pytest.raises(StoreError, match=r"topics\.json.*restore it from a copy, or remove it"):
        documents.read("topics")


def test_a_removed_document_stays_removed(documents):
    documents.write("topics", 1)
    documents.write("topics", 2)
    documents.remove("topics")
    documents.remove("topics")
    assert documents.read("topics") is None


@pytest.mark.parametrize("name", ["", "../topics", ".hidden", "a/b", "ü"])
def test_a_name_cannot_leave_the_directory(documents, name):
    with pytest.raises(ConfigurationError, match="no name for a document"):
        documents.write(name, 1)

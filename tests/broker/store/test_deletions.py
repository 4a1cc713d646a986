from __future__ import annotations

import errno

import pytest

from broker.store.storing import BrokenDisk
from gimbalmq.broker.store import Documents, StoreError
from gimbalmq.broker.store.deletions import Deletions


@pytest.fixture
def disk():
    return BrokenDisk()


@pytest.fixture
def notes(tmp_path, disk):
    return Documents(tmp_path, disk)


def test_a_deletion_is_known_to_the_next_run_before_and_after_its_files_are_gone(notes):
    deletions = Deletions(notes)
    deletions.begin("orders", 700)
    again = Deletions(notes)
    assert (again.before, again.unfinished) == ({"orders": 700}, ("orders",))
    again.finish("orders")
    last = Deletions(notes)
    assert (last.before, last.unfinished) == ({"orders": 700}, ())


def test_a_topic_deleted_twice_counts_from_the_later_place(notes):
    deletions = Deletions(notes)
    for place in (700, 900):
        deletions.begin("orders", place)
        deletions.finish("orders")
    assert Deletions(notes).before == {"orders": 900}


def test_a_deletion_is_forgotten_once_the_log_starts_behind_it(notes):
    deletions = Deletions(notes)
    deletions.begin("orders", 700)
    deletions.begin("refunds", 900)
    deletions.forget(699)
    assert deletions.before == {"orders": 700, "refunds": 900}
    deletions.forget(700)
    assert Deletions(notes).before == {"refunds": 900}


def test_nothing_is_deleted_that_could_not_be_noted(notes, disk):
    deletions = Deletions(notes)
    disk.broken["write_at"] = errno.ENOSPC
    with pytest.raises(StoreError, match="full"):
        deletions.begin("orders", 700)
    assert (deletions.before, deletions.unfinished) == ({}, ())

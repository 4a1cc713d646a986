"""A disk that refuses: senders hear of it, readers do not."""

from __future__ import annotations

import errno

import pytest

from gimbalmq.broker.store.files import Disk


class FullDisk(Disk):
    """Refuses to write while it is full."""

    __slots__ = ("full",)

    def __init__(self):
        self.full = False

    def write_at(self, descriptor, data, at):
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write_at(descriptor, data, at)


@pytest.fixture
def full(make_desk):
    desk = make_desk(disk=FullDisk())
    desk.topic("orders", 4)
    yield desk
    desk.disk.full = False


@pytest.mark.rule("W2.1")
def test_a_full_disk_refuses_sends_and_goes_on_serving_reads(full):
    full.send(body=b"before")
    full.disk.full = True
    answer = full.send(body=b"refused")
    assert answer.code == 14
    assert "disk is full" in answer.remark
    assert full.bodies() == [b"before"]
    full.disk.full = False
    assert full.send(body=b"after").code == 0
    assert full.bodies() == [b"before", b"after"]


def test_a_topic_that_cannot_be_saved_is_not_there(full):
    full.disk.full = True
    assert full.send("unknown").code == 14
    assert "unknown" not in full.machine.topics.topics
    full.disk.full = False
    assert full.send("unknown").code == 0


def test_what_is_due_waits_for_the_disk(full):
    full.send(properties="DELAY\x011\x02", body=b"late")
    full.disk.full = True
    full.advance(3_000)
    assert full.bodies() == []
    assert "disk is full" in full.machine.trouble
    full.disk.full = False
    full.advance(2_000)
    assert full.bodies() == [b"late"]


def test_offsets_that_cannot_be_saved_are_saved_later(full):
    full.send()
    full.commit(1)
    full.disk.full = True
    full.advance(6_000)
    full.disk.full = False
    full.advance(6_000)
    full.restart(clean=False)
    assert full.committed().fields == {"offset": "1"}

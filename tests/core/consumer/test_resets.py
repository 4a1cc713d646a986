"""Offsets that an operator moved: no state of a queue that this member has loses them."""

import pytest

from core.consumer.harness import ME, QUEUES, Harness, one, only
from core.consumer.test_locks import LockingHarness
from gimbalmq.core.consumer.effects import Cancel, Commit, FindOffset, HandOver, Pull
from gimbalmq.core.consumer.events import (
    Cancelled,
    HandedOver,
    OffsetFound,
    OffsetsReset,
    StopRequested,
)

QUEUE = QUEUES[0]


@pytest.fixture
def harness():
    return Harness()


@pytest.mark.rule("B5.6a")
def test_a_queue_in_hand_is_dropped_and_stored_at_the_new_offset(harness):
    pull = harness.owning(ME, offset=50)[QUEUE]
    assert one(harness.handle(OffsetsReset({QUEUE: 7})), Cancel).queue == QUEUE
    over = one(harness.handle(Cancelled(QUEUE, pull.epoch, 0)), HandOver)
    assert (over.offset, over.force) == (7, True)


@pytest.mark.rule("B5.6a")
@pytest.mark.parametrize("found", [50, None], ids=["found", "not found"])
def test_a_queue_that_is_being_located_starts_at_the_new_offset(harness, found):
    """What is being looked up may be the offset of before."""
    harness.start()
    find = next(e for e in only(harness.members(ME), FindOffset) if e.queue == QUEUE)
    assert not harness.handle(OffsetsReset({QUEUE: 7}))
    effects = harness.handle(OffsetFound(QUEUE, find.epoch, found))
    assert one(effects, Pull).offset == 7
    assert one(effects, Commit) == Commit(QUEUE, 7), "nobody else may store it"


@pytest.mark.rule("B5.6a")
def test_a_queue_that_is_being_handed_over_is_handed_over_once_more(harness):
    pull = harness.owning(ME, offset=50)[QUEUE]
    harness.handle(StopRequested(1.0))
    assert one(harness.handle(Cancelled(QUEUE, pull.epoch, 0)), HandOver).offset == 50
    assert not harness.handle(OffsetsReset({QUEUE: 7}))
    over = one(harness.handle(HandedOver(QUEUE, pull.epoch)), HandOver)
    assert (over.offset, over.force) == (7, True)
    harness.handle(HandedOver(QUEUE, pull.epoch))
    assert QUEUE not in harness.machine.held


@pytest.mark.rule("B5.6a")
def test_a_queue_whose_lock_another_member_has_is_left_to_that_one():
    harness = LockingHarness()
    harness.start()
    effects = harness.members(ME)
    assert not harness.handle(OffsetsReset({QUEUE: 7}))
    pulls = only(harness.located(harness.lock(effects), offset=50), Pull)
    assert {pull.offset for pull in pulls} == {50}


def test_a_queue_that_is_not_in_hand_is_not_touched(harness):
    assert not harness.handle(OffsetsReset({QUEUE: 7}))

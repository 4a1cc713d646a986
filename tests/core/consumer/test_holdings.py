"""From what is held to a target, without a group around it."""

from __future__ import annotations

import pytest

from core.consumer.harness import QUEUES, one, only
from gimbalmq.core.consumer.context import Context
from gimbalmq.core.consumer.effects import Announce, Cancel, FindOffset, Lock, Moved, Warn
from gimbalmq.core.consumer.events import OffsetFound, Trigger
from gimbalmq.core.consumer.held import HeldState
from gimbalmq.core.consumer.holdings import Holdings
from gimbalmq.core.consumer.locks import LockKeeper
from gimbalmq.core.consumer.passes import Target
from gimbalmq.core.consumer.release import Release
from gimbalmq.core.consumer.reports import Reports
from gimbalmq.core.consumer.settings import ConsumerSettings


class Stage:
    """Holdings with nothing behind them; keeps who was told what."""

    def __init__(self, **settings):
        options = ConsumerSettings(group="billing", client_id="me", **settings)
        self.context = Context(options)
        self.located, self.failed = [], []
        locks = LockKeeper(self.context, secured=lambda *_: None, lost=lambda *_: None)
        reports = Reports(self.context)
        releases = Release(self.context, gone=reports.went)
        self.holdings = Holdings(
            self.context,
            locks,
            releases,
            reports,
            located=lambda held, now: self.located.append((held.queue, now)),
            failed=lambda held, now: self.failed.append((held.queue, now)),
        )

    def move_to(self, *queues, now=10.0):
        target = Target("orders", frozenset(queues), Trigger.TIMER, ("me",), "AVG")
        return self.holdings.move_to(target, now), self.effects()

    def find(self, queue, offset, now=12.0):
        self.holdings.offset_found(OffsetFound(queue, self.context.held[queue].epoch, offset), now)
        return self.effects()

    def effects(self):
        out, self.context.out = self.context.out, []
        return out


def test_queues_of_the_target_are_located_and_then_belong_to_the_member():
    stage = Stage()
    changed, effects = stage.move_to(*QUEUES[:2])
    assert changed
    assert [effect.queue for effect in only(effects, FindOffset)] == list(QUEUES[:2])
    assert one(effects, Announce).report.acquired == QUEUES[:2]
    moved = one(stage.find(QUEUES[0], 7), Moved).move
    assert (moved.acquired, moved.pause_s) == (True, 2.0)
    assert stage.located == [(QUEUES[0], 12.0)]
    assert stage.context.held[QUEUES[0]].process.next_offset == 7


def test_a_target_that_is_held_changes_nothing():
    stage = Stage()
    stage.move_to(*QUEUES)
    assert stage.move_to(*QUEUES) == (False, [])


def test_a_queue_outside_the_target_is_given_up_and_taken_again_only_once_it_is_gone():
    stage = Stage()
    stage.move_to(QUEUES[0])
    stage.find(QUEUES[0], 0)
    changed, effects = stage.move_to()
    assert changed
    assert one(effects, Cancel).queue == QUEUES[0]
    assert one(effects, Announce).report.revoked == (QUEUES[0],)
    assert stage.move_to(QUEUES[0]) == (False, [])


@pytest.mark.parametrize("offset", [None, -1])
def test_a_queue_without_an_offset_is_let_go_and_that_is_told(offset):
    stage = Stage()
    stage.move_to(QUEUES[0])
    effects = stage.find(QUEUES[0], offset)
    assert one(effects, Warn).key == f"offset {QUEUES[0].path}"
    assert only(effects, Moved) == [], "it was never owned"
    assert (stage.context.held, stage.located) == ({}, [])
    assert stage.failed == [(QUEUES[0], 12.0)]


def test_with_locks_a_queue_is_locked_before_it_is_located():
    stage = Stage(ordered=True)
    _changed, effects = stage.move_to(QUEUES[0])
    assert only(effects, FindOffset) == []
    assert [queue for queue, _epoch in one(effects, Lock).asked] == [QUEUES[0]]
    assert stage.context.held[QUEUES[0]].state is HeldState.LOCKING
    assert stage.find(QUEUES[0], 7) == [], "nobody has asked for an offset yet"

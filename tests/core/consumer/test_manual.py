"""A member whose user assigns the queues: one place changes the assignment, and nothing is lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.consumer.harness import QUEUES, Harness, only
from gimbalmq.core.consumer.effects import Cancel, Consume, FindOffset, HandOver, Pull, SetTimer
from gimbalmq.core.consumer.events import (
    Assigned,
    Cancelled,
    Consumed,
    HandedOver,
    OffsetFound,
    Paused,
    PullAnswered,
    Resumed,
    SeekRequested,
    Started,
    TimerFired,
    TimerName,
)
from gimbalmq.model.message import PullStatus

LENGTH = 6


class Cluster:
    """Queues of six messages; answers whatever is asked, when the test says so."""

    def __init__(self):
        self.harness = Harness(manual=True, pull_idle_limit_s=None)
        self.stored = dict.fromkeys(QUEUES, 0)
        self.waiting = []
        self.consumed = {queue: set() for queue in QUEUES}
        self.handle(Started())

    def handle(self, event):
        self.waiting += only(
            self.harness.handle(event), FindOffset | Pull | Consume | Cancel | HandOver | SetTimer
        )

    def answer(self, number):
        """Carry out one of the things that the member waits for, in any order."""
        if not self.waiting:
            return
        effect = self.waiting.pop(number % len(self.waiting))
        match effect:
            case FindOffset():
                self.handle(OffsetFound(effect.queue, effect.epoch, self.stored[effect.queue]))
            case Pull() if effect.offset < LENGTH:
                until = min(effect.offset + 2, LENGTH)
                offsets = list(range(effect.offset, until))
                about = effect.queue, effect.epoch, PullStatus.FOUND, until
                self.handle(PullAnswered(*about, tuple(offsets), offsets, len(offsets)))
            case Pull():
                pass  # held by the broker
            case Consume():
                self.consumed[effect.queue].update(
                    effect.batch.offsets[effect.first : effect.until]
                )
                about = effect.queue, effect.epoch, effect.batch, effect.first, effect.until
                self.handle(Consumed(*about))
            case Cancel():
                self.waiting = [
                    one
                    for one in self.waiting
                    if not isinstance(one, Consume)
                    or (one.queue, one.epoch) != (effect.queue, effect.epoch)
                ]
                self.handle(Cancelled(effect.queue, effect.epoch, 0))
            case HandOver():
                self.stored[effect.queue] = max(self.stored[effect.queue], effect.offset)
                self.handle(HandedOver(effect.queue, effect.epoch))
            case SetTimer(name=TimerName.NEXT_PASS):
                self.harness.now += effect.delay_s
                self.handle(TimerFired(effect.name))

    def settle(self):
        for _ in range(1000):
            if not any(
                not isinstance(one, SetTimer) or one.name is TimerName.NEXT_PASS
                for one in self.waiting
            ):
                return
            self.answer(0)
        raise AssertionError("it never comes to rest")


queues = st.sampled_from(QUEUES)
steps = st.one_of(
    st.frozensets(queues).map(lambda some: ("assign", some)),
    st.integers(0, 50).map(lambda number: ("answer", number)),
    st.integers(0, 50).map(lambda number: ("answer", number)),
    queues.map(lambda queue: ("pause", queue)),
    queues.map(lambda queue: ("seek", queue)),
)


@pytest.mark.rule("B10.13")
@given(st.lists(steps, max_size=40))
def test_pitfall_13_however_the_assignment_changes_every_message_is_consumed_in_the_end(plan):
    cluster = Cluster()
    for what, about in plan:
        match what:
            case "assign":
                cluster.handle(Assigned(about))
            case "answer":
                cluster.answer(about)
            case "pause":
                cluster.handle(Paused(frozenset({about})))
            case "seek":
                # To where the group is: that leaves nothing out.
                cluster.handle(SeekRequested(about, cluster.stored[about]))
    cluster.handle(Resumed(None))
    cluster.handle(Assigned(frozenset(QUEUES)))
    cluster.settle()
    assert cluster.harness.machine.assignment() == set(QUEUES)
    assert cluster.consumed == {queue: set(range(LENGTH)) for queue in QUEUES}


@pytest.mark.rule("B10.13")
def test_an_answer_of_an_earlier_assignment_changes_nothing():
    cluster = Cluster()
    cluster.handle(Assigned(frozenset({QUEUES[0]})))
    (find,) = only(cluster.waiting, FindOffset)
    cluster.answer(cluster.waiting.index(find))
    (old,) = only(cluster.waiting, Pull)
    cluster.handle(Assigned(frozenset()))
    cluster.settle()
    cluster.handle(Assigned(frozenset({QUEUES[0]})))
    cluster.harness.handle(
        PullAnswered(old.queue, old.epoch, PullStatus.FOUND, 2, (0, 1), [0, 1], 2)
    )
    cluster.settle()
    assert cluster.consumed[QUEUES[0]] == set(range(LENGTH))


def test_an_offset_that_cannot_be_found_is_asked_for_less_and_less_often():
    harness = Harness(manual=True, pull_idle_limit_s=None)
    harness.handle(Started())
    effects = harness.handle(Assigned(frozenset(QUEUES[:2])))
    pauses = []
    for _ in range(8):
        failed = [
            OffsetFound(find.queue, find.epoch, None, "busy") for find in only(effects, FindOffset)
        ]
        assert len(failed) == 2
        (timer,) = only(harness.handle_all(failed), SetTimer)
        pauses.append(timer.delay_s)
        harness.now += timer.delay_s
        effects = harness.handle(TimerFired(timer.name))
    assert pauses[:3] == [0.2, 0.4, 0.8]
    assert pauses[-1] == 20.0
    harness.located(effects)
    harness.handle(Assigned(frozenset(QUEUES)))
    queue, epoch = QUEUES[3], harness.machine.held[QUEUES[3]].epoch
    (timer,) = only(harness.handle(OffsetFound(queue, epoch, None, "busy")), SetTimer)
    assert timer.delay_s == 0.2


def test_a_queue_that_is_assigned_again_while_it_is_let_go_is_taken_as_soon_as_that_is_done():
    harness = Harness(manual=True, pull_idle_limit_s=None)
    harness.handle(Started())
    (pull,) = only(harness.located(harness.handle(Assigned(frozenset({QUEUES[0]})))), Pull)
    about = pull.queue, pull.epoch
    harness.handle(Assigned(frozenset()))
    harness.handle(Cancelled(*about, 0))
    harness.handle(Assigned(frozenset({QUEUES[0]})))
    assert only(harness.handle(HandedOver(*about)), FindOffset)

"""Keys of one queue in parallel: the messages of a key in order and never side by side."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.consumer.harness import ME, QUEUES, Harness, one, only
from core.consumer.test_locks import LockingHarness
from gimbalmq.core.allocation import strategy_named
from gimbalmq.core.consumer.effects import Bury, Consume, Pull, SendBack, SetTimer
from gimbalmq.core.consumer.events import Consumed, LockAnswered, SentBack, TimerFired, TimerName
from gimbalmq.core.consumer.machine import ConsumerMachine

QUEUE = QUEUES[0]


def key_of(body):
    """Bodies are `key` and a number: b"a1"; those that begin with a dash have no key."""
    return None if body.startswith(b"-") else body[:1]


def keyed(base=Harness, **settings):
    harness = base(**settings)
    harness.machine = ConsumerMachine(
        harness.machine.settings, strategy_named("AVG"), ("orders",), key_of=key_of
    )
    owning = harness.owning_locked if base is LockingHarness else harness.owning
    return harness, owning(ME)[QUEUE]


def bodies(effects):
    return [effect.batch.messages[effect.first] for effect in only(effects, Consume)]


def done(consume, **verdict):
    return Consumed(
        consume.queue, consume.epoch, consume.batch, consume.first, consume.until, **verdict
    )


def offset_of(harness):
    return harness.machine.held[QUEUE].process.commit_offset


BOTH = pytest.mark.parametrize("base", [Harness, LockingHarness], ids=["concurrent", "ordered"])


@BOTH
def test_one_message_of_each_key_starts(base):
    harness, pull = keyed(base)
    effects = harness.deliver(pull, b"a1", b"a2", b"b1", b"a3", b"c1")
    assert bodies(effects) == [b"a1", b"b1", b"c1"]
    assert all(c.until == c.first + 1 for c in only(effects, Consume))


@BOTH
def test_the_next_of_a_key_starts_when_the_one_before_is_done_also_across_pulls(base):
    harness, pull = keyed(base)
    effects = harness.deliver(pull, b"a1", b"b1")
    first = only(effects, Consume)[0]
    assert bodies(harness.deliver(one(effects, Pull), b"a2", b"c1")) == [b"c1"]
    assert bodies(harness.handle(done(first))) == [b"a2"]


def test_messages_without_a_key_run_side_by_side_in_a_concurrent_group():
    harness, pull = keyed()
    assert bodies(harness.deliver(pull, b"-1", b"-2")) == [b"-1", b"-2"]


def test_messages_without_a_key_keep_their_order_in_an_ordered_group():
    harness, pull = keyed(LockingHarness)
    assert bodies(harness.deliver(pull, b"-1", b"-2")) == [b"-1"]


def test_a_failure_goes_back_to_the_broker_and_its_key_goes_on():
    harness, pull = keyed()
    first = only(harness.deliver(pull, b"a1", b"a2"), Consume)[0]
    effects = harness.handle(done(first, failures=((0, 0),)))
    assert one(effects, SendBack).position == 0
    assert bodies(effects) == [b"a2"]
    assert offset_of(harness) == 0
    harness.handle(SentBack(QUEUE, first.epoch, first.batch, 0, ok=True))
    assert offset_of(harness) == 1


def test_a_failure_in_an_ordered_group_pauses_its_key_only():
    harness, pull = keyed(LockingHarness)
    a, b = only(harness.deliver(pull, b"a1", b"b1", b"a2", b"b2"), Consume)
    effects = harness.handle(done(a, reached=0, suspend_s=1.0))
    assert one(effects, SetTimer).delay_s == 1.0
    assert not only(effects, Consume)
    (b2,) = only(harness.handle(done(b)), Consume)
    harness.handle(done(b2))
    assert offset_of(harness) == 0, "the key that pauses holds the offset back"
    harness.now += 1.0
    again = one(harness.handle(TimerFired(TimerName.CONTINUE, QUEUE, a.epoch)), Consume)
    assert bodies([again]) == [b"a1"]
    assert bodies(harness.handle(done(again))) == [b"a2"]
    assert offset_of(harness) == 2


def test_each_key_has_a_pause_of_its_own():
    harness, pull = keyed(LockingHarness)
    a, b = only(harness.deliver(pull, b"a1", b"b1"), Consume)
    harness.handle(done(a, reached=0, suspend_s=5.0))
    timer = one(harness.handle(done(b, reached=1, suspend_s=1.0)), SetTimer)
    assert timer.delay_s == 1.0
    harness.now += 1.0
    effects = harness.handle(TimerFired(timer.name, QUEUE, a.epoch))
    assert bodies(effects) == [b"b1"]
    assert one(effects, SetTimer).delay_s == pytest.approx(4.0)


@pytest.mark.parametrize("verdict", [{"buried": True}, {"suspend_s": 1.0}], ids=str)
def test_an_ordered_message_that_is_given_up_lets_its_key_go_on(verdict):
    harness, pull = keyed(LockingHarness, ordered_reconsume_max=0)
    a, _b = only(harness.deliver(pull, b"a1", b"b1", b"a2"), Consume)
    effects = harness.handle(done(a, reached=0, **verdict))
    assert one(effects, Bury).position == 0
    assert not only(effects, Consume), "its key waits until it is buried"
    effects = harness.handle(SentBack(QUEUE, a.epoch, a.batch, 0, ok=True))
    assert bodies(effects) == [b"a2"]
    assert offset_of(harness) == 1


def test_a_message_that_cannot_be_buried_is_tried_again_after_the_pause():
    harness, pull = keyed(LockingHarness)
    (a,) = only(harness.deliver(pull, b"a1", b"a2"), Consume)
    harness.handle(done(a, reached=0, buried=True))
    effects = harness.handle(SentBack(QUEUE, a.epoch, a.batch, 0, ok=False, reason="busy"))
    assert not only(effects, Consume)
    harness.now += one(effects, SetTimer).delay_s
    assert bodies(harness.handle(TimerFired(TimerName.CONTINUE, QUEUE, a.epoch))) == [b"a1"]


def test_what_a_permit_kept_from_starting_starts_first_when_it_is_renewed():
    harness, pull = keyed(LockingHarness)
    (a,) = only(harness.deliver(pull, b"a1", b"a2"), Consume)
    sent_at = harness.now + 2.9  # a renewal that leaves just before the permit ends
    harness.now += 4.0
    assert not only(harness.handle(done(a, reached=0)), Consume)
    effects = harness.handle(LockAnswered(((QUEUE, a.epoch),), frozenset({QUEUE}), sent_at))
    assert bodies(effects) == [b"a1"]


@BOTH
@given(data=st.data())
def test_no_key_is_ever_out_of_order_or_beside_itself(base, data):
    """Any order of results: keys stay serial and in order, offsets only grow, all is done."""
    names = data.draw(st.lists(st.sampled_from("abc-"), min_size=1, max_size=20))
    sent = [f"{name}{number:02}".encode() for number, name in enumerate(names)]
    harness, pull = keyed(base)
    running, history, offset = only(harness.deliver(pull, *sent), Consume), [], 0
    while running:
        keys = [key_of(c.batch.messages[c.first]) for c in running]
        named = [key for key in keys if key is not None or base is LockingHarness]
        assert len(set(named)) == len(named), "a key runs beside itself"
        consume = running.pop(data.draw(st.integers(0, len(running) - 1)))
        history.append(consume.batch.messages[consume.first])
        running += only(harness.handle(done(consume)), Consume)
        assert offset_of(harness) >= offset
        offset = offset_of(harness)
    assert sorted(history) == sorted(sent)
    for key in b"abc":
        mine = [body for body in history if body[0] == key]
        assert mine == sorted(mine)
    assert offset == len(sent)
    assert len(harness.machine.held[QUEUE].lanes) == 0

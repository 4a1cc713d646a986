import pytest
from hypothesis import given
from hypothesis import strategies as st

from gimbalmq.core.flow_control import NO_ROOM, FlowLimits, HeldBack, held_back, room_for
from gimbalmq.core.process_queue import ProcessQueue

MIB = 1 << 20


def queue_with(count=1, size=0, last=None):
    held = ProcessQueue(0)
    offsets = list(range(count))
    if last is not None:
        offsets[-1] = last
    held.put(offsets, offsets, body_bytes=size, next_offset=offsets[-1] + 1)
    return held


@pytest.mark.rule("B4.2")
@pytest.mark.parametrize(
    ("queue", "expected"),
    [
        pytest.param(queue_with(1000), None, id="a thousand messages are allowed"),
        pytest.param(queue_with(1001), HeldBack.COUNT, id="one more is too many"),
        pytest.param(queue_with(1, 101 * MIB - 1), None, id="MiB are counted whole"),
        pytest.param(queue_with(1, 101 * MIB), HeldBack.SIZE, id="101 MiB are too much"),
        pytest.param(queue_with(2, 0, 2000), None, id="a span of 2000 is allowed"),
        pytest.param(queue_with(2, 0, 2001), HeldBack.SPAN, id="a wider span is not"),
        pytest.param(queue_with(1001, 101 * MIB, 5000), HeldBack.COUNT, id="count is named first"),
    ],
)
def test_limits_are_strict_and_checked_in_java_order(queue, expected):
    assert held_back(queue, FlowLimits()) is expected


def test_an_empty_queue_may_always_be_pulled():
    assert held_back(ProcessQueue(0), FlowLimits()) is None


@pytest.mark.rule("B4.2")
@given(
    cached=st.integers(1, 40),
    gap=st.integers(0, 40),
    size=st.integers(0, 3 * MIB),
    answers=st.lists(st.tuples(st.integers(1, 16), st.integers(0, MIB)), min_size=1, max_size=8),
)
def test_no_more_comes_together_than_if_each_answer_had_been_asked_for(cached, gap, size, answers):
    limits = FlowLimits(
        pull_threshold_for_queue=40,
        pull_threshold_size_for_queue=2,
        consume_concurrently_max_span=60,
    )
    queue = queue_with(cached, size, cached - 1 + gap if cached > 1 else None)
    if held_back(queue, limits) is not None:
        return
    room, came, came_size = room_for(queue, limits), 0, 0
    for count, more in answers:
        offsets = range(queue.next_offset, queue.next_offset + count)
        queue.put(offsets, offsets, body_bytes=more, next_offset=offsets.stop)
        came, came_size = came + count, came_size + more
        assert room.left_after(came, came_size) == (held_back(queue, limits) is None)


def test_without_room_every_answer_comes_by_itself():
    assert not NO_ROOM.left_after(0, 0)

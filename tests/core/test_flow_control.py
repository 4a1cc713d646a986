import pytest

from gimbalmq.core.flow_control import FlowLimits, HeldBack, held_back
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

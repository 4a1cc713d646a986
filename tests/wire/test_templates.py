import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gimbalmq.errors import ConfigurationError
from gimbalmq.model.queue import MessageQueue
from gimbalmq.wire import templates
from gimbalmq.wire.command import encode_command
from gimbalmq.wire.frame import FRAME_BYTES_MAX
from gimbalmq.wire.headers import send_request
from gimbalmq.wire.properties import first_properties
from gimbalmq.wire.templates import SendTemplate

texts = st.text(st.characters(codec="utf-8"), max_size=20)
numbers = st.integers(-(1 << 63), (1 << 63) - 1)
opaques = st.integers(0, (1 << 31) - 1)


@given(
    group=texts,
    topic=texts,
    broker=texts,
    more=texts,
    body=st.binary(max_size=40),
    queue_id=st.integers(0, 1 << 20),
    born=numbers,
    flag=st.integers(0, 1 << 20),
    opaque=opaques,
)
def test_a_filled_send_is_the_send_written_down(
    group, topic, broker, more, body, queue_id, born, flag, opaque
):
    queue = MessageQueue(topic, broker, queue_id)
    command = send_request(
        group=group,
        queue=queue,
        body=body,
        properties=first_properties("7F00A1") + more,
        born_timestamp_ms=born,
        sys_flag=flag,
        default_topic="TBW102",
        default_topic_queues=4,
    )
    command.opaque = opaque
    template = SendTemplate(group, queue, "TBW102", 4)
    parts = template.parts(opaque, body, "7F00A1", more, born, flag)
    assert b"".join(parts) == encode_command(command)


@given(moments=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=8))
def test_what_one_send_left_behind_is_not_in_the_next(moments):
    queue = MessageQueue("orders", "broker-a", 1)
    template = SendTemplate("shop", queue, "TBW102", 4)
    for opaque, (born, flag) in enumerate(moments):
        fresh = SendTemplate("shop", queue, "TBW102", 4)
        values = (opaque, b"x", f"7F{opaque}", "A\x01b\x02" * flag, born, flag)
        assert template.parts(*values) == fresh.parts(*values)


def test_what_is_too_long_for_any_receiver_is_refused():
    template = SendTemplate("g", MessageQueue("t", "b", 0), "TBW102", 4)
    with pytest.raises(ConfigurationError, match="above the protocol's limit"):
        template.parts(1, bytes(FRAME_BYTES_MAX), "7F", "", 0, 0)


def test_properties_that_are_not_text_are_refused():
    template = SendTemplate("g", MessageQueue("t", "b", 0), "TBW102", 4)
    with pytest.raises(ConfigurationError, match="lone surrogate"):
        template.parts(1, b"x", "7F", "A\x01\ud800\x02", 0, 0)


@pytest.mark.parametrize("line", range(1, 16))
def test_a_thread_that_comes_by_at_any_line_changes_nothing(line):
    queue = MessageQueue("orders", "broker-a", 1)
    shared, alone = (SendTemplate("shop", queue, "TBW102", 4) for _ in range(2))
    lines = 0

    def trace(frame, event, _):
        nonlocal lines
        if frame.f_code.co_filename == templates.__file__ and event == "line":
            lines += 1
            if lines == line:
                sys.settrace(None)
                shared.parts(8, b"y", "7F02", "", 1_000_000, 8)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        mine = shared.parts(7, b"x", "7F01", "", 1, 0)
    finally:
        sys.settrace(before)
    assert lines >= line
    assert mine == alone.parts(7, b"x", "7F01", "", 1, 0)

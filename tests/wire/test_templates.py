import pytest
from hypothesis import given
from hypothesis import strategies as st

from gimbalmq.errors import ConfigurationError
from gimbalmq.model.queue import MessageQueue
from gimbalmq.wire.command import encode_command
from gimbalmq.wire.frame import FRAME_BYTES_MAX
from gimbalmq.wire.headers import send_request
from gimbalmq.wire.properties import first_properties
from gimbalmq.wire.templates import SendTemplate, born_part

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
    parts = template.parts(opaque, body, "7F00A1", more, born_part(born, flag))
    assert b"".join(parts) == encode_command(command)


def test_what_is_too_long_for_any_receiver_is_refused():
    template = SendTemplate("g", MessageQueue("t", "b", 0), "TBW102", 4)
    with pytest.raises(ConfigurationError, match="above the protocol's limit"):
        template.parts(1, bytes(FRAME_BYTES_MAX), "7F", "", born_part(0, 0))


def test_properties_that_are_not_text_are_refused():
    template = SendTemplate("g", MessageQueue("t", "b", 0), "TBW102", 4)
    with pytest.raises(ConfigurationError, match="lone surrogate"):
        template.parts(1, b"x", "7F", "A\x01\ud800\x02", born_part(0, 0))

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gimbalmq.errors import ConfigurationError
from gimbalmq.model.queue import MessageQueue
from gimbalmq.wire.command import Command, encode_command
from gimbalmq.wire.frame import FRAME_BYTES_MAX
from gimbalmq.wire.headers import send_request
from gimbalmq.wire.templates import CommandTemplate, SendTemplate

texts = st.text(st.characters(codec="utf-8"), max_size=20)
numbers = st.integers(-(1 << 63), (1 << 63) - 1)
opaques = st.integers(0, (1 << 31) - 1)


@given(
    group=texts,
    topic=texts,
    broker=texts,
    properties=texts,
    body=st.binary(max_size=40),
    queue_id=st.integers(0, 1 << 20),
    born=numbers,
    flag=st.integers(0, 1 << 20),
    opaque=opaques,
)
def test_a_filled_send_is_the_send_written_down(
    group, topic, broker, properties, body, queue_id, born, flag, opaque
):
    queue = MessageQueue(topic, broker, queue_id)
    command = send_request(
        group=group,
        queue=queue,
        body=body,
        properties=properties,
        born_timestamp_ms=born,
        sys_flag=flag,
        default_topic="TBW102",
        default_topic_queues=4,
    )
    command.opaque = opaque
    template = SendTemplate(group, queue, "TBW102", 4)
    assert template.frame(opaque, body, properties, born, flag) == encode_command(command)


@given(
    fields=st.dictionaries(texts.filter(lambda text: text not in {"n", "m"}), texts, max_size=5),
    number=numbers,
    other=numbers,
    opaque=opaques,
)
def test_gaps_are_filled_in_the_order_of_the_fields(fields, number, other, opaque):
    template = CommandTemplate(Command(9, {"n": "", **fields, "m": ""}), numbers=["m", "n"])
    expected = Command(9, {"n": str(number), **fields, "m": str(other)}, opaque=opaque)
    assert template.frame((number, other, opaque)) == encode_command(expected)


def test_what_is_too_long_for_any_receiver_is_refused():
    template = SendTemplate("g", MessageQueue("t", "b", 0), "TBW102", 4)
    with pytest.raises(ConfigurationError, match="above the protocol's limit"):
        template.frame(1, bytes(FRAME_BYTES_MAX), "", 0, 0)


def test_properties_that_are_not_text_are_refused():
    template = SendTemplate("g", MessageQueue("t", "b", 0), "TBW102", 4)
    with pytest.raises(ConfigurationError, match="lone surrogate"):
        template.frame(1, b"x", "A\x01\ud800\x02", 0, 0)

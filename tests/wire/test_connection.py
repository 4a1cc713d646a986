from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gimbalmq.errors import ProtocolError
from gimbalmq.wire.command import Command, encode_command
from gimbalmq.wire.connection import Connection


@given(st.lists(st.integers(0, 999), min_size=1, max_size=6), st.integers(1, 50))
def test_commands_come_out_in_order_however_the_bytes_arrive(codes, piece):
    stream = b"".join(encode_command(Command(code, body=b"b" * code)) for code in codes)
    connection = Connection()
    received = []
    for position in range(0, len(stream), piece):
        received += connection.receive(stream[position : position + piece])
    assert [(one.code, len(one.body)) for one in received] == [(code, code) for code in codes]
    assert connection.fault is None


@pytest.mark.rule("W8a")
def test_each_answer_is_read_by_its_own_form_whatever_the_request_was():
    connection = Connection()
    answers = [Command(0, {"offset": "7"}, flag=1, opaque=number) for number in range(4)]
    stream = b"".join(
        encode_command(answer, binary=number % 2 == 1) for number, answer in enumerate(answers)
    )
    received = list(connection.receive(stream))
    assert [(one.opaque, one.fields["offset"]) for one in received] == [
        (number, "7") for number in range(4)
    ]


def test_commands_before_a_bad_header_are_returned_and_then_the_error_is_raised():
    connection = Connection()
    bad = b"\x00\x00\x00\x08\x07\x00\x00\x00abcd"
    [command] = connection.receive(encode_command(Command(34)) + bad)
    assert command.code == 34
    assert connection.fault is not None
    with pytest.raises(ProtocolError, match="header type 7"):
        connection.receive(encode_command(Command(34)))


def test_a_bad_first_header_is_raised_at_once_and_stays():
    connection = Connection()
    for _ in range(2):
        with pytest.raises(ProtocolError, match="header type 7"):
            connection.receive(b"\x00\x00\x00\x08\x07\x00\x00\x00abcd")


def test_a_bad_length_shows_as_the_fault_of_the_connection():
    connection = Connection()
    assert len(connection.receive(encode_command(Command(34)) + b"HTTP")) == 1
    assert "HTTP" in str(connection.fault)


def test_the_frame_limit_can_be_chosen():
    with pytest.raises(ProtocolError, match="above the limit"):
        Connection(frame_bytes_max=64).receive(encode_command(Command(34, body=bytes(100))))

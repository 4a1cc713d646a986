import pytest
from hypothesis import given
from hypothesis import strategies as st

from gimbalmq.wire.command import Command, decode_command, encode_command, response_to
from gimbalmq.wire.stored import StoredPlace, read_all_stored, read_stored

FIELDS = {"msgId": "7F0000", "queueId": "3", "queueOffset": "41", "TRACE_ON": "true"}


def frame(command, **options):
    return memoryview(encode_command(command, **options))[4:]


def answer(code=0, fields=FIELDS, **options):
    return frame(response_to(Command(310, opaque=9), code, fields=fields), **options)


@given(
    opaque=st.integers(0, (1 << 31) - 1),
    queue=st.integers(0, 1 << 20),
    offset=st.integers(0, (1 << 63) - 1),
    msg_id=st.text(st.characters(codec="utf-8"), max_size=20),
    others=st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=4),
    body=st.binary(max_size=8),
)
def test_what_is_read_in_one_step_is_what_the_general_reader_finds(
    opaque, queue, offset, msg_id, others, body
):
    fields = {**others, "msgId": msg_id, "queueId": str(queue), "queueOffset": str(offset)}
    data = frame(response_to(Command(310, opaque=opaque), fields=fields, body=body))
    read, found = read_stored(data), decode_command(data)
    assert (read.code, read.opaque, read.flag) == (found.code, found.opaque, found.flag)
    assert read.place == StoredPlace(msg_id, queue, offset)


UNREADABLE = pytest.mark.parametrize(
    "data",
    [
        pytest.param(answer(code=10), id="flushed too late"),
        pytest.param(answer(code=14), id="refused"),
        pytest.param(answer(fields={"msgId": "7F", "queueId": "3"}), id="no offset"),
        pytest.param(answer(fields=FIELDS | {"queueOffset": "many"}), id="no number"),
        pytest.param(answer(fields={}), id="no fields"),
        pytest.param(answer(binary=True), id="binary"),
        pytest.param(frame(Command(310, FIELDS, opaque=9)), id="a request"),
        pytest.param(memoryview(b"\x00\x00\x00\x00"), id="no header"),
        pytest.param(memoryview(b"\x00\x00\x00\x09{}"), id="cut off"),
        pytest.param(memoryview(b"\x00\x00\x00\x02[]"), id="no object"),
        pytest.param(memoryview(b'\x00\x00\x00\x04"\xff\xff"'), id="no text"),
    ],
)


@UNREADABLE
def test_everything_else_is_left_to_the_general_reader(data):
    assert read_stored(data) is None


@given(st.binary(min_size=4, max_size=80))
def test_no_bytes_make_it_fail(data):
    assert read_stored(memoryview(data)) is None


@given(
    st.lists(
        st.tuples(
            st.integers(0, (1 << 31) - 1),
            st.integers(0, 1 << 20),
            st.integers(0, (1 << 63) - 1),
            st.text(st.characters(codec="utf-8"), max_size=20),
        ),
        max_size=8,
    )
)
def test_many_are_read_together_as_each_alone(answers):
    frames = [
        frame(
            response_to(
                Command(310, opaque=opaque),
                fields={"msgId": msg_id, "queueId": str(queue), "queueOffset": str(offset)},
            )
        )
        for opaque, queue, offset, msg_id in answers
    ]
    assert read_all_stored(frames) == [read_stored(one) for one in frames]


@UNREADABLE
def test_one_that_is_something_else_leaves_all_to_be_read_alone(data):
    assert read_all_stored([answer(), data, answer()]) is None


def test_long_answers_are_read_alone():
    long = answer(fields=FIELDS | {"msgId": "7" * 2000})
    assert read_stored(long) is not None
    assert read_all_stored([answer(), long]) is None


def test_a_body_is_never_taken_for_another_answer():
    inside = b"," + bytes(answer()[4:])
    assert read_all_stored([frame(response_to(Command(310), fields=FIELDS, body=inside))]) is None


@given(st.lists(st.binary(min_size=4, max_size=80), min_size=1, max_size=3))
def test_no_bytes_together_make_it_fail(frames):
    assert read_all_stored(frames) is None

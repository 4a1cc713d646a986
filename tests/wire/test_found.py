import pytest
from hypothesis import given
from hypothesis import strategies as st

from gimbalmq.wire.command import Command, decode_command, encode_command, response_to
from gimbalmq.wire.found import read_found
from gimbalmq.wire.headers import parse_pull_response

FIELDS = {
    "nextBeginOffset": "33",
    "minOffset": "1",
    "maxOffset": "64",
    "suggestWhichBrokerId": "0",
}
BODY = bytes(2048)


def frame(command, **options):
    return memoryview(encode_command(command, **options))[4:]


def answer(code=0, fields=FIELDS, body=BODY, **options):
    return frame(response_to(Command(11, opaque=9), code, "FOUND", fields, body), **options)


numbers = st.integers(-(1 << 63), (1 << 63) - 1)


@given(
    opaque=st.integers(0, (1 << 31) - 1),
    offsets=st.tuples(numbers, numbers, numbers, numbers),
    delta=st.none() | numbers,
    others=st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=4),
    body=st.binary(min_size=1024, max_size=1030),
)
def test_what_is_read_in_one_step_is_what_the_general_reader_finds(
    opaque, offsets, delta, others, body
):
    fields = others | dict(zip(FIELDS, map(str, offsets), strict=True))
    if delta is not None:
        fields["offsetDelta"] = str(delta)
    data = frame(response_to(Command(11, opaque=opaque), 0, "FOUND", fields, body))
    read, found = read_found(data), decode_command(data)
    assert (read.code, read.opaque, read.flag) == (found.code, found.opaque, found.flag)
    assert (read.body, read.fields) == (found.body, found.fields)
    assert read.found == parse_pull_response(found) == parse_pull_response(read)


def test_bytes_are_read_as_a_view_is():
    assert read_found(bytes(answer())).found == read_found(answer()).found


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(answer(code=19), id="nothing new"),
        pytest.param(answer(code=24), id="refused"),
        pytest.param(answer(body=b""), id="no messages"),
        pytest.param(answer(body=b"x" * 700), id="small"),
        pytest.param(answer(fields={"nextBeginOffset": "33"}), id="fields missing"),
        pytest.param(answer(fields=FIELDS | {"maxOffset": "many"}), id="no number"),
        pytest.param(answer(fields=FIELDS | {"offsetDelta": ""}), id="an empty number"),
        pytest.param(answer(fields={}), id="no fields"),
        pytest.param(answer(binary=True), id="binary"),
        pytest.param(frame(Command(11, FIELDS, BODY, opaque=9)), id="a request"),
        pytest.param(memoryview(b"\x00\x00\x00\x00" + BODY), id="no header"),
        pytest.param(memoryview(b"\x00\x00\x20\x00" + BODY), id="cut off"),
        pytest.param(memoryview(b"\x00\x00\x00\x02[]" + BODY), id="no object"),
        pytest.param(memoryview(b'\x00\x00\x00\x04"\xff\xff"' + BODY), id="no text"),
    ],
)
def test_everything_else_is_left_to_the_general_reader(data):
    assert read_found(data) is None


@given(st.binary(max_size=80))
def test_no_bytes_make_it_fail(data):
    assert read_found(data) is None
    assert read_found(data + BODY) is None

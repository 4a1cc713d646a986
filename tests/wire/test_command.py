from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gimbalmq.errors import ConfigurationError, ProtocolError
from gimbalmq.wire.codes import CLIENT_VERSION, LANGUAGE_CODES
from gimbalmq.wire.command import (
    FLAG_ONEWAY,
    FLAG_RESPONSE,
    Command,
    decode_command,
    encode_command,
    response_to,
)

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
i32 = st.integers(-(1 << 31), (1 << 31) - 1)
commands = st.builds(
    Command,
    code=st.integers(-(1 << 15), (1 << 15) - 1),
    fields=st.dictionaries(text, text, max_size=5),
    body=st.binary(max_size=30),
    opaque=i32,
    flag=i32,
    remark=st.none() | text,
    language=st.sampled_from(sorted(LANGUAGE_CODES)),
    version=st.integers(0, (1 << 15) - 1),
)


@pytest.mark.rule("W1.2a")
@given(commands)
def test_a_command_survives_the_json_form(command):
    frame = encode_command(command)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert decode_command(frame[4:]) == command


@pytest.mark.rule("W1.3b", "W8a")
@given(commands)
def test_the_binary_form_loses_only_empty_texts(command):
    command.fields = {name: value for name, value in command.fields.items() if name and value}
    command.remark = command.remark or None
    assert decode_command(encode_command(command, binary=True)[4:]) == command


@given(st.binary(max_size=80))
def test_any_bytes_are_a_command_or_a_protocol_error(frame):
    try:
        decode_command(frame)
    except ProtocolError:
        return


@given(commands, st.data())
def test_damage_anywhere_is_a_command_or_a_protocol_error(command, data):
    binary = data.draw(st.booleans())
    frame = bytearray(encode_command(command, binary=binary)[4:])
    frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    del frame[data.draw(st.integers(0, len(frame))) :]
    try:
        decode_command(frame)
    except ProtocolError:
        return


ROUTE_JSON = (
    '{"code":105,"language":"PYTHON","version":479,"opaque":1,"flag":0,'
    '"extFields":{"topic":"TopicTest"},"serializeTypeCurrentRPC":"JSON"}'
)
ROUTE_BINARY = "0000002d0100002900690301df000000010000000000000000000000140005746f70696300000009546f70696354657374"
SEND_JSON = (
    '{"code":310,"language":"PYTHON","version":479,"opaque":2,"flag":0,"extFields":{"a":"PG",'
    '"b":"TopicTest","c":"TBW102","d":"4","e":"1","f":"0","g":"1700000000000","h":"0",'
    '"i":"UNIQ_KEY\\u00017F00000100003D4E1A2B000000000000\\u0002WAIT\\u0001true\\u0002'
    'TAGS\\u0001TagA\\u0002","j":"0","k":"false","m":"false"},"serializeTypeCurrentRPC":"JSON"}'
)
SEND_ANSWER = (
    "0000011e0000011a7b22636f6465223a302c226578744669656c6473223a7b2271756575654964223a2231222c227472"
    "616e73616374696f6e4964223a223746303030303031303030303344344531413242303030303030303030303030222c"
    "226d73674964223a223746303030303031303030303241394630303030303030303030303030343030222c2254524143"
    "455f4f4e223a2274727565222c224d53475f524547494f4e223a2244656661756c74526567696f6e222c227175657565"
    "4f6666736574223a2235227d2c22666c6167223a312c226c616e6775616765223a224a415641222c226f706171756522"
    "3a322c2273657269616c697a655479706543757272656e74525043223a224a534f4e222c2276657273696f6e223a3437"
    "397d"
)


@pytest.mark.rule("W7.1")
def test_a_json_request_written_by_another_encoder():
    header = ROUTE_JSON.encode()
    assert len(header) == 0x85
    command = decode_command(len(header).to_bytes(4, "big") + header)
    assert command == Command(105, {"topic": "TopicTest"}, opaque=1)


@pytest.mark.rule("W7.2", "W1.1d", "W1.3a", "W8a")
def test_the_same_request_with_a_binary_header():
    command = Command(105, {"topic": "TopicTest"}, opaque=1)
    assert encode_command(command, binary=True).hex() == ROUTE_BINARY
    assert decode_command(bytes.fromhex(ROUTE_BINARY)[4:]) == command


@pytest.mark.rule("W7.3")
def test_a_send_with_its_properties_and_body():
    header = SEND_JSON.encode()
    assert len(header) == 334
    command = decode_command(len(header).to_bytes(4, "big") + header + b"hello")
    assert command.body == b"hello"
    assert command.fields["i"] == (
        "UNIQ_KEY\x017F00000100003D4E1A2B000000000000\x02WAIT\x01true\x02TAGS\x01TagA\x02"
    )
    assert decode_command(encode_command(command)[4:]) == command


@pytest.mark.rule("W7.4")
def test_a_send_answer_as_java_writes_it_is_read_and_written_alike():
    frame = bytes.fromhex(SEND_ANSWER)
    command = decode_command(frame[4:])
    assert (command.code, command.opaque, command.is_response) == (0, 2, True)
    assert command.fields["queueOffset"] == "5"
    assert encode_command(command) == frame


def test_the_body_of_a_decoded_command_is_a_view_into_the_frame():
    frame = encode_command(Command(11, body=b"x" * 100))[4:]
    body = decode_command(frame).body
    assert isinstance(body, memoryview)
    assert body.obj is frame


@pytest.mark.rule("W1.2b", "W1.2c")
def test_loose_json_is_read_as_java_reads_it():
    header = (
        b'{"code":"105","opaque":7,"language":3,"unknown":{"a":[1]},"remark":5,'
        b'"extFields":{"n":1,"t":true,"d":1.5,"o":{"x":1},"l":[1],"none":null,"s":"text"}}'
    )
    command = decode_command(len(header).to_bytes(4, "big") + header)
    assert command == Command(
        105,
        {"n": "1", "t": "true", "d": "1.5", "o": '{"x":1}', "l": "[1]", "s": "text"},
        opaque=7,
        remark="5",
        version=0,
    )


def test_an_unknown_language_number_is_other_and_a_name_stays():
    header = b'{"code":1,"language":99,"opaque":"1"}'
    assert decode_command(len(header).to_bytes(4, "big") + header).language == "OTHER"
    header = b'{"code":1,"language":"KLINGON"}'
    assert decode_command(len(header).to_bytes(4, "big") + header).language == "KLINGON"
    binary = bytearray(encode_command(Command(1), binary=True)[4:])
    binary[6] = 99
    assert decode_command(binary).language == "OTHER"


@pytest.mark.rule("W1.3c")
def test_of_a_repeated_binary_key_the_last_one_counts():
    entry = lambda value: b"\x00\x01k" + len(value).to_bytes(4, "big") + value  # noqa: E731
    entries = entry(b"old") + entry(b"new")
    header = encode_command(Command(11), binary=True)[8:-4] + len(entries).to_bytes(4, "big")
    header += entries
    frame = (1 << 24 | len(header)).to_bytes(4, "big") + header
    assert decode_command(frame).fields == {"k": "new"}


@pytest.mark.rule("W1.1c")
@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (b"", "no header word"),
        (b"\x00\x00", "no header word"),
        (b"\x00\x00\x00\x09{}", "header of 9 bytes in a frame of 6"),
        (b"\x02\x00\x00\x00", "header type 2"),
        (b"\xff\x00\x00\x00", "header type -1"),
        (b"\x00\x00\x00\x03abc", "not JSON"),
        (b"\x00\x00\x00\x02[]", "no JSON object"),
        (b"\x00\x00\x00\x02\xff\xfe", "not JSON"),
        (b'\x00\x00\x00\x0c{"code":"x"}', "'code' is no number"),
        (b'\x00\x00\x00\x19{"code":1,"extFields":[1]}'[:4] + b'{"code":1,"extFields":[]}', "extF"),
        (b"\x01\x00\x00\x02ab", "binary header is corrupt"),
    ],
)
def test_what_is_no_header_is_refused_with_a_reason(frame, words):
    with pytest.raises(ProtocolError, match=words):
        decode_command(frame)


def test_a_binary_text_that_ends_beyond_its_header_is_refused():
    frame = bytearray(encode_command(Command(105, {"topic": "t"}), binary=True)[4:])
    frame[4 + 13 + 3] = 0x7F  # the remark's length
    with pytest.raises(ProtocolError, match="string at byte 13 ends at"):
        decode_command(frame)


def test_json_nested_without_end_is_refused():
    header = b'{"code":"1","x":' + b"[" * 100_000
    with pytest.raises(ProtocolError, match="not JSON"):
        decode_command(len(header).to_bytes(4, "big") + header)


@pytest.mark.rule("W1.3d", "W8a")
def test_a_code_that_the_binary_form_would_cut_off_is_refused():
    with pytest.raises(ConfigurationError, match="use the JSON form"):
        encode_command(Command(200050), binary=True)
    assert decode_command(encode_command(Command(200050))[4:]).code == 200050


@pytest.mark.rule("W1.1b", "W8a")
def test_a_frame_above_the_limit_of_every_receiver_is_refused():
    with pytest.raises(ConfigurationError, match="above the protocol's limit"):
        encode_command(Command(310, body=bytes(16 * 1024 * 1024)))


def test_a_lone_surrogate_is_refused_and_not_sent():
    with pytest.raises(ConfigurationError, match="lone surrogate"):
        encode_command(Command(105, {"topic": "\ud800"}))
    with pytest.raises(ConfigurationError, match="lone surrogate"):
        encode_command(Command(105, {"topic": "\ud800"}), binary=True)


@pytest.mark.rule("W1.4")
def test_an_answer_has_the_opaque_number_of_its_question():
    request = Command(34, opaque=-5, flag=FLAG_ONEWAY)
    answer = response_to(request, 3, "unknown", {"a": "b"}, b"body")
    assert answer == Command(3, {"a": "b"}, b"body", -5, FLAG_RESPONSE, "unknown")
    assert answer.is_response
    assert not answer.is_oneway
    assert request.is_oneway
    assert not request.is_response


def test_two_commands_do_not_share_their_fields():
    first, second = Command(1), Command(1)
    first.fields["a"] = "b"
    assert second.fields == {}
    assert response_to(first).fields == {}


@pytest.mark.rule("W1.5")
def test_we_present_ourselves_as_python_of_a_release_that_servers_know():
    command = Command(1)
    assert command.language == "PYTHON"
    assert command.version == CLIENT_VERSION == 479

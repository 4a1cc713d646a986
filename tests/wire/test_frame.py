from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gimbalmq.errors import ConfigurationError, ProtocolError
from gimbalmq.wire.frame import FRAME_BYTES_MAX, FrameBuffer


def framed(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


def feed_in_pieces(pieces, limit=1024):
    """The frames that come out, and the error that ended it, if one did."""
    frames = FrameBuffer(limit)
    out = []
    try:
        for piece in pieces:
            out += map(bytes, frames.feed(piece))
        frames.feed(b"")
    except ProtocolError as error:
        return out, str(error)
    return out, None


payloads = st.lists(st.binary(min_size=4, max_size=40), max_size=8)


@pytest.mark.rule("W1.1a", "W1.1e")
@given(payloads, st.data())
def test_frames_come_out_whole_however_the_bytes_arrive(sent, data):
    stream = b"".join(map(framed, sent))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert feed_in_pieces(pieces) == (sent, None)
    assert feed_in_pieces([stream[i : i + 1] for i in range(len(stream))]) == (sent, None)


@given(st.binary(max_size=200))
def test_any_bytes_give_frames_or_a_need_for_more_or_a_protocol_error(stream):
    whole = feed_in_pieces([stream])
    assert feed_in_pieces([stream[i : i + 1] for i in range(len(stream))]) == whole


@pytest.mark.rule("W1.1e")
@given(st.lists(st.binary(max_size=64), max_size=20))
def test_never_more_than_one_unfinished_frame_is_held(pieces):
    frames = FrameBuffer(64)
    for piece in pieces:
        try:
            frames.feed(piece)
        except ProtocolError:
            break
        assert frames.pending_bytes <= 64


def test_a_claimed_length_alone_costs_no_memory():
    frames = FrameBuffer()
    tracemalloc.start()
    try:
        frames.feed((FRAME_BYTES_MAX - 4).to_bytes(4, "big"))
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_large_frames_of_one_bytes_object_are_views_not_copies():
    large = bytes(2000)
    data = framed(large) + framed(large)
    first, second = FrameBuffer().feed(data)
    assert first.obj is data
    assert second.obj is data


def test_a_small_frame_keeps_nothing_else_alive():
    small, large = FrameBuffer().feed(framed(b"small") + framed(bytes(2000)))
    # A view of the same bytes would be equal, too.
    assert (type(small), type(large)) == (bytes, memoryview)
    assert small == b"small"


def test_a_reused_receive_buffer_does_not_change_frames_already_given_out():
    buffer = bytearray(framed(b"first"))
    [frame] = FrameBuffer().feed(memoryview(buffer))
    buffer[4:] = b"XXXXX"
    assert bytes(frame) == b"first"


def test_frames_collected_from_pieces_are_independent_of_each_other():
    frames = FrameBuffer()
    frames.feed(framed(b"first")[:6])
    [first] = frames.feed(framed(b"first")[6:] + framed(b"second")[:5])
    [second] = frames.feed(framed(b"second")[5:])
    assert (bytes(first), bytes(second)) == (b"first", b"second")


@pytest.mark.parametrize(
    ("start", "words"),
    [
        (b"HTTP/1.1 400 Bad Request", ["HTTP", "not a RocketMQ remoting port"]),
        (b"GET / HTTP/1.1", ["HTTP", "not a RocketMQ remoting port"]),
        (b"\x16\x03\x01\x02\x00", ["TLS", "not a RocketMQ remoting port"]),
        (b"\x15\x03\x03\x00\x02", ["TLS", "switch TLS on"]),
        (b"SSH-2.0-OpenSSH", ["plain text", "not a RocketMQ remoting port"]),
        (b"\x00\x00\x00\x00", ["frame length 0"]),
        (b"\xff\xff\xff\xff", ["frame length -1"]),
        (b"\x7f\x00\x00\x00", ["above the limit"]),
    ],
)
def test_bytes_of_another_protocol_are_named(start, words):
    with pytest.raises(ProtocolError) as caught:
        FrameBuffer().feed(start)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.rule("W1.1c")
def test_a_bad_length_is_found_also_when_it_arrives_in_pieces():
    frames = FrameBuffer()
    assert frames.feed(b"HT") == []
    with pytest.raises(ProtocolError, match="HTTP"):
        frames.feed(b"TP/1.1")


def test_frames_before_bad_bytes_are_returned_and_then_the_error_is_raised():
    frames = FrameBuffer()
    [good] = frames.feed(framed(b"good") + b"HTTP")
    assert bytes(good) == b"good"
    assert frames.fault is not None
    for _ in range(2):
        with pytest.raises(ProtocolError, match="HTTP"):
            frames.feed(b"")


@pytest.mark.rule("W1.1b")
def test_the_limit_counts_the_length_word():
    limit = 64
    assert len(FrameBuffer(limit).feed(framed(bytes(60)))) == 1
    with pytest.raises(ProtocolError, match="above the limit of 64"):
        FrameBuffer(limit).feed(framed(bytes(61)))


def test_a_limit_that_no_frame_can_meet_is_refused():
    with pytest.raises(ConfigurationError, match="at least 8"):
        FrameBuffer(7)

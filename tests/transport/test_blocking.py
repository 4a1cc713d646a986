import contextlib
import socket
import threading
import time

import pytest

from gimbalmq.errors import CallTimeoutError, ProtocolError, TransportError, UnreachableError
from gimbalmq.transport import blocking
from gimbalmq.transport.blocking import BlockingConnection
from gimbalmq.wire.command import Command, encode_command, response_to
from gimbalmq.wire.stored import StoredPlace
from transport.server import BlackHole, LoopbackServer, closed_port, silent

HTTP = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"


def test_a_call_returns_its_answer():
    with (
        LoopbackServer(lambda request: response_to(request, body=b"pong")) as server,
        BlockingConnection(server.address) as connection,
    ):
        answer = connection.call(Command(34, {"a": "b"}, b"ping"), 20.0)
    assert bytes(answer.body) == b"pong"
    (request,) = server.requests
    assert (request.code, request.fields, request.body) == (34, {"a": "b"}, b"ping")


def test_calls_follow_each_other_on_one_connection():
    with LoopbackServer() as server, BlockingConnection(server.address) as connection:
        opaques = {connection.call(Command(34), 20.0).opaque for _ in range(5)}
        assert (len(opaques), server.connects) == (5, 1)


@pytest.mark.rule("W1.4b")
def test_answers_may_come_in_any_order():
    first = []

    def second_before_first(request):
        if not first:
            first.append(request)
            return None
        server.push(response_to(request, remark="second"))
        return response_to(first[0], remark="first")

    with (
        LoopbackServer(second_before_first) as server,
        BlockingConnection(server.address) as connection,
    ):
        one, two = connection.send(Command(1)), connection.send(Command(2))
        answers = [connection.receive(3.0) for _ in range(2)]
    got = {answer.opaque: answer.remark for answer in answers}
    assert got == {one: "first", two: "second"}


def test_many_requests_go_out_in_one_piece_and_one_object_may_be_given_again():
    command = Command(34)

    def changing():
        for number in range(20):
            command.fields["number"] = str(number)
            yield command

    with LoopbackServer() as server, BlockingConnection(server.address) as connection:
        sent = connection.send_all(changing())
        came = []
        while len(came) < 20:
            came += connection.receive_all(3.0)
    assert [answer.opaque for answer in came] == sent
    assert [request.fields["number"] for request in server.requests] == list(map(str, range(20)))


@pytest.mark.rule("W1.4c")
def test_a_request_of_the_server_is_not_taken_for_an_answer():
    def ask_back(request):
        server.push(Command(40, {"consumerGroup": "g"}, opaque=request.opaque, flag=2))
        return response_to(request, remark="mine")

    with LoopbackServer(ask_back) as server, BlockingConnection(server.address) as connection:
        assert connection.call(Command(34), 20.0).remark == "mine"


def stored(request):
    place = {"msgId": "7F00", "queueId": "3", "queueOffset": "42"}
    return response_to(request, fields=place)


def written(opaque):
    return encode_command(Command(310, {"a": "shop"}, b"paid", opaque=opaque)), opaque


def test_a_written_message_is_answered_with_its_place():
    with LoopbackServer(stored) as server, BlockingConnection(server.address) as connection:
        answers = [connection.store(*written(opaque), 20.0) for opaque in (7, 8)]
    assert [answer.opaque for answer in answers] == [7, 8]
    assert {answer.place for answer in answers} == {StoredPlace("7F00", 3, 42)}
    assert [(request.code, request.body) for request in server.requests] == [(310, b"paid")] * 2


def test_a_written_message_that_is_refused_is_answered_with_the_refusal():
    def refuse(request):
        return response_to(request, 14, "too many")

    with LoopbackServer(refuse) as server, BlockingConnection(server.address) as connection:
        answer = connection.store(*written(7), 20.0)
        assert (answer.code, answer.remark) == (14, "too many")
        assert connection.healthy()


def test_only_its_own_answer_is_that_of_a_written_message():
    def others_first(request):
        server.push(Command(40, {"consumerGroup": "g"}, opaque=request.opaque, flag=2))
        server.push(stored(Command(310, opaque=request.opaque + 1)))
        server.push(response_to(Command(310, opaque=request.opaque + 2), 14, "not yours"))
        return stored(request)

    with LoopbackServer(others_first) as server, BlockingConnection(server.address) as connection:
        assert connection.store(*written(7), 20.0).place == StoredPlace("7F00", 3, 42)


@pytest.mark.parametrize("raw", [HTTP, b"\x00\x00\x00\x08\x00\x00\x00\x04nope"])
def test_a_written_message_to_a_server_of_another_kind_is_a_protocol_error(raw):
    with LoopbackServer(raw=raw) as server, BlockingConnection(server.address) as connection:
        with pytest.raises(ProtocolError):
            connection.store(*written(7), 20.0)
        assert connection.closed


def test_a_written_message_waits_for_its_answer_no_longer_than_it_may():
    def only_others(request):
        return stored(Command(310, opaque=request.opaque + 1))

    with LoopbackServer(only_others) as server, BlockingConnection(server.address) as connection:
        with pytest.raises(CallTimeoutError, match=r"did not answer within 0\.2 s"):
            connection.store(*written(7), 0.2)
        assert connection.closed


def test_answers_to_others_do_not_make_a_written_message_wait_longer():
    raised, ended = threading.Event(), threading.Event()

    def others_now_and_then():
        # Each of them comes before the time is over.
        for _ in range(100):
            with contextlib.suppress(OSError):  # who waits may be gone
                server.push(stored(Command(310, opaque=1)))
            if raised.wait(0.05):
                return
        ended.set()

    talking = threading.Thread(target=others_now_and_then)

    def keep_talking(_request):
        talking.start()

    with LoopbackServer(keep_talking) as server, BlockingConnection(server.address) as connection:
        with pytest.raises(CallTimeoutError, match=r"did not answer within 0\.3 s"):
            connection.store(*written(7), 0.3)
        raised.set()
        talking.join(10.0)
        assert not ended.is_set()


@pytest.mark.rule("W1.4a")
def test_a_one_way_request_is_marked_and_waits_for_nothing():
    with LoopbackServer() as server, BlockingConnection(server.address) as connection:
        connection.notify(Command(15))
        connection.call(Command(34), 20.0)
    assert [request.is_oneway for request in server.requests] == [True, False]


# ---- the wrong server ----------------------------------------------------------------------------


def test_nobody_there_is_said_at_once():
    address = f"127.0.0.1:{closed_port()}"
    with pytest.raises(
        TransportError, match=f"cannot connect to {address}: Connection refused; is it running"
    ):
        BlockingConnection(address)


@pytest.mark.parametrize("raw", [HTTP, b"\x00" * 64, b"\xff" * 64, b"SSH-2.0-OpenSSH_9.6\r\n"])
def test_a_server_of_another_kind_is_a_protocol_error(raw):
    with LoopbackServer(raw=raw) as server, BlockingConnection(server.address) as connection:
        with pytest.raises(ProtocolError):
            connection.call(Command(34), 20.0)
        assert connection.closed


def test_an_http_server_is_recognised_in_the_message():
    with (
        LoopbackServer(raw=HTTP) as server,
        BlockingConnection(server.address) as connection,
        pytest.raises(ProtocolError, match="HTTP"),
    ):
        connection.call(Command(34), 20.0)


def test_a_server_that_hangs_up_may_not_be_a_remoting_port():
    with (
        LoopbackServer(closes=True) as server,
        BlockingConnection(server.address) as connection,
        pytest.raises(TransportError, match=server.address),
    ):
        connection.call(Command(34), 20.0)


def test_silence_ends_in_a_timeout_that_names_the_peer():
    with LoopbackServer(silent) as server, BlockingConnection(server.address) as connection:
        started = time.monotonic()
        with pytest.raises(
            CallTimeoutError, match=rf"{server.address} did not answer within 0\.2 s"
        ):
            connection.call(Command(34), 0.2)
        assert time.monotonic() - started < 2.0


def test_a_peer_that_takes_no_data_is_given_up():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        with (
            BlockingConnection(address) as connection,
            pytest.raises(CallTimeoutError, match="took no data"),
        ):
            connection.send(Command(10, body=b"x" * (15 << 20)), 0.1)


# ---- after an error ------------------------------------------------------------------------------


def test_after_an_error_the_connection_is_closed_and_says_so():
    with LoopbackServer(silent) as server, BlockingConnection(server.address) as connection:
        with pytest.raises(CallTimeoutError):
            connection.call(Command(34), 0.05)
        assert connection.closed
        assert not connection.healthy()
        with pytest.raises(TransportError, match="is closed"):
            connection.call(Command(34), 20.0)


def test_a_late_answer_cannot_reach_the_next_question():
    # The only way to be sure is a new connection; see above.
    with LoopbackServer(silent) as server, BlockingConnection(server.address) as connection:
        with pytest.raises(CallTimeoutError):
            connection.call(Command(34), 0.05)
        with pytest.raises(TransportError):
            connection.receive(1.0)


def test_an_idle_connection_that_the_server_closed_is_noticed_before_use(monkeypatch):
    monkeypatch.setattr(blocking, "_TRUSTED_IDLE_S", 0.0)
    with LoopbackServer() as server, BlockingConnection(server.address) as connection:
        connection.call(Command(34), 20.0)
        assert connection.healthy()
        server.drop()
        deadline = time.monotonic() + 5.0
        while connection.healthy():
            assert time.monotonic() < deadline


def test_closing_twice_is_harmless():
    with LoopbackServer() as server:
        connection = BlockingConnection(server.address)
        connection.close()
        connection.close()
        assert connection.closed


def test_a_name_that_takes_all_the_time_to_resolve_leaves_none_to_connect(monkeypatch):
    clock = [100.0]

    def resolve_slowly(_target):
        clock[0] += 3.0
        return socket.AF_INET, ("127.0.0.1", 1)

    monkeypatch.setattr(blocking, "resolve", resolve_slowly)
    monkeypatch.setattr(blocking.time, "monotonic", lambda: clock[0])
    with pytest.raises(UnreachableError, match="cannot connect to broker:1: timed out"):
        BlockingConnection("broker:1", connect_timeout_s=3.0)


def test_a_connection_that_is_never_made_is_given_up():
    with BlackHole() as hole, pytest.raises(UnreachableError, match="timed out"):
        BlockingConnection(hole.address, connect_timeout_s=0.05)

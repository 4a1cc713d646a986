"""TLS on both kinds of connections, against a server with certificates made for tests."""

import select
import socket
import ssl
import threading
import time

import pytest

from gimbalmq.errors import CallTimeoutError, GimbalError, ProtocolError, TransportError
from gimbalmq.transport.address import resolve
from gimbalmq.transport.blocking import BlockingConnection
from gimbalmq.transport.nonblocking import NonBlockingConnection
from gimbalmq.transport.reach import Reach
from gimbalmq.wire.acl import Credentials
from gimbalmq.wire.command import Command, response_to
from transport.certificates import client_context, server_context
from transport.server import LoopbackServer, silent

TRUSTING = Reach(tls=client_context())
KNOWN = Reach(tls=client_context(shows_client=True))


def call_blocking(address, reach, command):
    with BlockingConnection(address, reach=reach) as connection:
        return connection.call(command, 20.0)


def call_nonblocking(address, reach, command):
    """As the engine would: watches the socket, and calls in when it is ready."""
    connection = NonBlockingConnection(address, time.monotonic(), 3.0, reach)
    if not connection.has_socket:
        connection.connect(resolve(connection.target))
    got = []
    connection.request(command, time.monotonic(), 5.0, got.append)
    deadline = time.monotonic() + 10.0
    try:
        while not got:
            assert time.monotonic() < deadline
            watched = [connection.socket]
            readable, writable, _ = select.select(
                watched, watched if connection.wants_write else [], [], 0.05
            )
            if writable and not connection.opened:
                connection.finish_connect()
            elif readable:
                connection.receive(time.monotonic())
            if connection.opened:
                connection.flush()
            connection.expire(time.monotonic())
    except GimbalError as error:
        connection.fail(error)
        raise
    # A TLS stream has one owner, and what is signed is written down late.
    assert connection.takes_frames == (reach.tls is None and reach.credentials is None)
    connection.fail(TransportError("done"))
    if isinstance(got[0], GimbalError):
        raise got[0]
    return got[0]


both = pytest.mark.parametrize("call", [call_blocking, call_nonblocking])


@both
@pytest.mark.rule("W1.7a")
@pytest.mark.parametrize("size", [0, 1, 100_000, 3_000_000])
def test_tls_is_spoken_from_the_first_byte(call, size):
    with LoopbackServer(
        lambda request: response_to(request, body=request.body), tls=server_context()
    ) as server:
        assert bytes(call(server.address, TRUSTING, Command(1, body=bytes(size))).body) == bytes(
            size
        )


@both
@pytest.mark.rule("W1.7a")
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_client_certificate_is_shown_to_those_who_ask(call, version):
    context = server_context(wants_client=True)
    context.maximum_version = version
    with LoopbackServer(tls=context) as server:
        assert call(server.address, KNOWN, Command(1)).code == 0
        with pytest.raises(TransportError, match="certificate"):
            call(server.address, TRUSTING, Command(1))


@both
@pytest.mark.parametrize(
    ("name", "reach", "words"),
    [
        ("server", Reach(tls=ssl.create_default_context()), "certificate is not accepted"),
        ("elsewhere", TRUSTING, "check_hostname = False"),
    ],
)
def test_a_certificate_that_cannot_be_trusted_is_refused_with_advice(call, name, reach, words):
    with (
        LoopbackServer(tls=server_context(name)) as server,
        pytest.raises(TransportError, match=words),
    ):
        call(server.address, reach, Command(1))


@both
def test_a_name_in_the_certificate_is_reached_by_the_address_map(call):
    with LoopbackServer(tls=server_context()) as server:
        reach = Reach(
            tls=client_context(), address_map=(("192.0.2.7:10911", f"localhost:{server.port}"),)
        )
        assert call("192.0.2.7:10911", reach, Command(1)).code == 0


@both
def test_a_server_that_answers_in_plain_text_is_called_so(call):
    with (
        LoopbackServer(raw=b"\x00\x00\x00\x10{plain text...}") as server,
        pytest.raises(TransportError, match="answers in plain text; leave tls out"),
    ):
        call(server.address, TRUSTING, Command(1))


@both
def test_a_server_that_takes_no_tls_is_called_so(call):
    with (
        LoopbackServer(closes=True) as server,
        pytest.raises(TransportError, match="during the handshake; it may take plain text only"),
    ):
        call(server.address, TRUSTING, Command(1))


@both
def test_plain_text_to_a_tls_port_says_that_tls_is_missing(call):
    with (
        LoopbackServer(tls=server_context()) as server,
        pytest.raises((TransportError, ProtocolError), match="TLS"),
    ):
        call(server.address, Reach(), Command(1))


@both
def test_a_handshake_that_is_not_answered_ends(call):
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
        with pytest.raises(TransportError, match="the handshake timed out"):
            call(address, TRUSTING, Command(1))


@both
def test_requests_are_signed_and_answers_are_not(call):
    with LoopbackServer() as server:
        call(
            server.address,
            Reach(credentials=Credentials("ak", "sk")),
            Command(105, {"topic": "TopicTest"}),
        )
        [request] = server.requests
    assert request.fields["AccessKey"] == "ak"
    assert request.fields["Signature"] == "bUNDfLxxr02vTlIhHg73lpRhduQ="


def test_an_idle_connection_is_looked_at_without_losing_anything():
    with LoopbackServer(tls=server_context()) as server:
        connection = BlockingConnection(server.address, reach=TRUSTING)
        assert connection.call(Command(1), 20.0).code == 0
        assert connection.healthy(look=True)
        assert connection.call(Command(2), 20.0).code == 0
        server.drop()
        deadline = time.monotonic() + 5.0
        while connection.healthy(look=True):
            assert time.monotonic() < deadline
        connection.close()


def test_a_silent_server_is_given_up_in_time():
    with (
        LoopbackServer(silent, tls=server_context()) as server,
        BlockingConnection(server.address, reach=TRUSTING) as connection,
        pytest.raises(CallTimeoutError, match=r"within 0\.2 s"),
    ):
        connection.call(Command(1), 0.2)


def test_many_requests_in_flight_keep_their_answers_apart():
    got = {}
    with (
        LoopbackServer(
            lambda request: response_to(request, body=request.body), tls=server_context()
        ) as server,
        BlockingConnection(server.address, reach=TRUSTING) as connection,
    ):
        wanted = {
            connection.send(Command(1, body=str(number).encode() * 5000)): number
            for number in range(50)
        }
        while len(got) < len(wanted):
            answer = connection.receive(5.0)
            got[wanted[answer.opaque]] = bytes(answer.body)
    assert got == {number: str(number).encode() * 5000 for number in range(50)}


def test_threads_with_connections_of_their_own_do_not_disturb_each_other():
    failures = []

    def work():
        try:
            for _ in range(5):
                assert call_blocking(server.address, TRUSTING, Command(1)).code == 0
        except Exception as error:  # noqa: BLE001 - shown by the test
            failures.append(error)

    with LoopbackServer(tls=server_context()) as server:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures

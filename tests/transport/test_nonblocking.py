import select
import socket
import threading
import time

import pytest

from gimbalmq.errors import CallTimeoutError, ProtocolError, TransportError, UnreachableError
from gimbalmq.transport.nonblocking import NonBlockingConnection, Offered
from gimbalmq.transport.reach import Reach
from gimbalmq.transport.requests import next_opaque
from gimbalmq.wire.acl import Credentials
from gimbalmq.wire.command import Command, encode_command, response_to
from transport.server import LoopbackServer, closed_port, silent


@pytest.fixture
def connected():
    """Opens connections and waits until they are made; closes them in the end."""
    made = []

    def connect(server, **options):
        connection = NonBlockingConnection(server.address, 0.0, 3.0, **options)
        made.append(connection)
        select.select([], [connection.socket], [], 3.0)
        connection.finish_connect()
        return connection

    yield connect
    for connection in made:
        connection.socket.close()


def pump(connection, until, now=1.0, requests=None):
    """Write and read until a condition holds; the server's own requests go to `requests`."""
    requests = [] if requests is None else requests
    deadline = time.monotonic() + 5.0
    while not until():
        assert time.monotonic() < deadline
        connection.flush()
        if select.select([connection.socket], [], [], 0.05)[0]:
            requests += connection.receive(now)


def test_an_answer_goes_to_the_one_who_asked(connected):
    got = {}
    with LoopbackServer(lambda request: response_to(request, request.code + 100)) as server:
        connection = connected(server)
        for code in (1, 2, 3):
            connection.request(
                Command(code), 0.0, 3.0, lambda answer, code=code: got.update({code: answer.code})
            )
        assert not connection.idle
        pump(connection, lambda: len(got) == 3)
        assert connection.idle
    assert got == {1: 101, 2: 102, 3: 103}


def test_requests_made_before_the_connect_is_done_are_sent_afterwards():
    got = []
    with LoopbackServer() as server:
        connection = NonBlockingConnection(server.address, 0.0, 3.0)
        connection.request(Command(34), 0.0, 3.0, got.append)
        assert connection.wants_write
        select.select([], [connection.socket], [], 3.0)
        connection.finish_connect()
        pump(connection, lambda: got)
        connection.socket.close()


def test_a_large_request_is_written_as_the_socket_takes_it(connected):
    got = []
    with LoopbackServer() as server:
        connection = connected(server)
        connection.request(Command(10, body=b"x" * (8 << 20)), 0.0, 9.0, got.append)
        pump(connection, lambda: got)
        assert not connection.wants_write
    assert len(server.requests[0].body) == 8 << 20


def test_what_the_socket_does_not_take_is_kept():
    with socket.create_server(("127.0.0.1", 0)) as nobody_reads:
        connection = NonBlockingConnection(f"127.0.0.1:{nobody_reads.getsockname()[1]}", 0.0, 3.0)
        select.select([], [connection.socket], [], 3.0)
        connection.finish_connect()
        connection.request(Command(10, body=b"x" * (15 << 20)), 0.0, 9.0, lambda _: None)
        connection.flush()
        assert connection.wants_write
        connection.fail(TransportError("over"))
        assert not connection.wants_write


def test_a_thousand_small_requests_arrive(connected):
    got = []
    with LoopbackServer() as server:
        connection = connected(server)
        for _ in range(1200):
            connection.request(Command(34), 0.0, 9.0, got.append)
        pump(connection, lambda: len(got) == 1200)
    assert len({answer.opaque for answer in got}) == 1200


@pytest.mark.rule("W1.4c")
def test_the_servers_own_requests_are_returned_and_can_be_answered(connected):
    asked = []
    with LoopbackServer() as server:
        connection = connected(server)
        connection.notify(Command(15))
        pump(connection, lambda: server.requests)
        server.push(Command(220, opaque=77))
        pump(connection, lambda: asked, requests=asked)
        assert [request.code for request in asked] == [220]
        connection.answer(response_to(asked[0], 3))
        pump(connection, lambda: len(server.requests) == 2)
    answer = server.requests[1]
    assert (answer.opaque, answer.code, answer.is_response) == (77, 3, True)


@pytest.mark.rule("W1.4a")
def test_a_notice_is_one_way_and_nothing_waits_for_it(connected):
    with LoopbackServer() as server:
        connection = connected(server)
        connection.notify(Command(15))
        assert connection.idle
        pump(connection, lambda: server.requests)
    assert server.requests[0].is_oneway


# ---- failures ------------------------------------------------------------------------------------


def test_a_refused_connect_says_what_to_check():
    address = f"127.0.0.1:{closed_port()}"
    connection = NonBlockingConnection(address, 0.0, 3.0)
    select.select([], [connection.socket], [], 3.0)
    with pytest.raises(
        TransportError, match=f"cannot connect to {address}: ECONNREFUSED; is it running"
    ):
        connection.finish_connect()
    connection.fail(TransportError("refused"))


def test_a_connect_that_takes_too_long_is_given_up():
    with LoopbackServer() as server:
        connection = NonBlockingConnection(server.address, 100.0, 3.0)
        connection.expire(102.9)
        with pytest.raises(UnreachableError, match="timed out"):
            connection.expire(103.1)
        connection.fail(TransportError("over"))


def test_a_request_over_its_time_is_given_up_with_the_dead_connection(connected):
    got = []
    with LoopbackServer(silent) as server:
        connection = connected(server)
        connection.request(Command(34), 10.0, 3.0, got.append)
        connection.expire(12.9)
        assert not got
        with pytest.raises(CallTimeoutError, match=r"did not answer within 3\.0 s"):
            connection.expire(13.1)
    assert isinstance(got[0], CallTimeoutError)


def test_a_slow_answer_does_not_end_a_connection_that_is_alive(connected):
    got, late = [], []
    with LoopbackServer(
        lambda request: None if request.code == 1 else response_to(request)
    ) as server:
        connection = connected(server)
        number = connection.request(Command(1), 10.0, 3.0, late.append)
        connection.request(Command(2), 10.0, 3.0, got.append)
        pump(connection, lambda: got, now=11.0)
        connection.expire(13.1)  # does not raise: something was heard since
        assert isinstance(late[0], CallTimeoutError)
        server.push(Command(0, opaque=number, flag=1))
        pump(connection, lambda: not select.select([connection.socket], [], [], 0.1)[0])
    assert len(late) == 1, "an answer that comes too late is ignored"


def test_a_closed_connection_is_noticed_when_reading(connected):
    with LoopbackServer() as server:
        connection = connected(server)
        pump(connection, lambda: server.open_connections)
        server.drop()
        with pytest.raises(TransportError, match="closed the connection"):
            pump(connection, lambda: False)


def test_bytes_of_another_protocol_are_a_protocol_error(connected):
    with LoopbackServer(raw=b"HTTP/1.1 400 Bad Request\r\n\r\n") as server:
        connection = connected(server)
        connection.request(Command(34), 0.0, 3.0, lambda _: None)
        with pytest.raises(ProtocolError):
            pump(connection, lambda: False)


def test_when_it_fails_everyone_who_waits_is_told_once(connected):
    got = []
    with LoopbackServer(silent) as server:
        connection = connected(server)
        for _ in range(3):
            connection.request(Command(34), 0.0, 3.0, got.append)
        error = TransportError("broken")
        connection.fail(error)
        connection.fail(error)
    assert got == [error] * 3
    assert connection.idle


def test_an_answer_that_makes_the_connection_fail_is_the_last_one(connected):
    """What came with it has been told of the failure already, and is not told again."""
    told = []
    with LoopbackServer(silent) as server:
        connection = connected(server)

        def fail(_answer):
            connection.fail(TransportError("no longer wanted"))

        numbers = [
            connection.request(Command(34), 0.0, 3.0, done)
            for done in (fail, told.append, told.append)
        ]
        answers = b"".join(
            encode_command(response_to(Command(34, opaque=number))) for number in numbers
        )
        connection.take_in(answers, 0.0)
    assert [type(one) for one in told] == [TransportError] * 2


def offer(connection, done, code=34, together=None):
    number = next_opaque()
    frame = encode_command(Command(code, opaque=number))
    return connection.offer(Offered(frame, {number: done}, 3.0), 0.0, together)


def test_a_frame_that_is_offered_leaves_with_what_waits_and_is_answered(connected):
    got = []
    with LoopbackServer(lambda request: response_to(request, request.code + 100)) as server:
        connection = connected(server)
        connection.request(Command(1), 0.0, 3.0, lambda answer: got.append(answer.code))
        assert offer(connection, lambda answer: got.append(answer.code), code=2)
        pump(connection, lambda: len(got) == 2)
    assert got == [101, 102]


PLACE = {"msgId": "7F", "queueId": "1", "queueOffset": "5"}


def answers_of(connection, *outcomes):
    """Answers to what waits, in its order: a code and fields each."""
    return b"".join(
        encode_command(response_to(Command(0, opaque=opaque), code, fields=fields))
        for opaque, (code, fields) in zip(connection._pending, outcomes, strict=True)
    )


def test_answers_that_say_stored_are_told_together_and_others_one_by_one(connected):
    with LoopbackServer(silent) as server:
        connection, told, alone = connected(server), {1: [], 2: []}, []
        ones = [object() for _ in range(4)]
        together = {
            1: lambda *stored: told[1].append(stored),
            2: lambda *stored: told[2].append(stored),
        }
        for one, whose in zip(ones, (1, 2, 1, 1), strict=True):
            assert offer(connection, one, together=together[whose])
        connection.request(Command(34), 0.0, 3.0, alone.append)
        assert offer(connection, alone.append, together=together[1])
        assert offer(connection, alone.append)
        plain, refused = (0, PLACE), (14, {})
        data = answers_of(connection, plain, plain, plain, plain, plain, refused, plain)
        connection.take_in(data[:-9], 0.0)
        connection.take_in(data[-9:], 0.0)
        assert connection.idle
    ((first, first_answers),), ((second, second_answers),) = told[1], told[2]
    assert (first, second) == ([ones[0], ones[2], ones[3]], [ones[1]])
    assert [one.place.queue_offset for one in first_answers + second_answers] == [5] * 4
    assert [(one.code, one.fields) for one in alone] == [(0, PLACE), (14, {}), (0, PLACE)]


def test_each_of_many_stored_answers_finds_who_waits_for_it(connected):
    with LoopbackServer(silent) as server:
        connection, told = connected(server), []

        def together(*stored):
            told.append(stored)

        for name in ("first", "second", "third"):
            offer(connection, name, together=together)
        places = [PLACE | {"queueOffset": str(offset)} for offset in (5, 6, 7)]
        connection.take_in(answers_of(connection, *((0, place) for place in places)), 0.0)
        assert connection.idle
    ((done, answers),) = told
    assert done == ["first", "second", "third"]
    assert [answer.place.queue_offset for answer in answers] == [5, 6, 7]


def test_an_answer_that_ends_the_connection_ends_all_that_wait_once(connected):
    with LoopbackServer(silent) as server:
        connection, stored, failed = connected(server), [], []

        def together(done, _answers):
            stored.extend(done)

        offer(connection, "before", together=together)
        connection.request(Command(34), 0.0, 3.0, lambda _: connection.fail(TransportError("over")))
        offer(connection, failed.append, together=together)
        connection.take_in(answers_of(connection, (0, PLACE), (0, {}), (0, PLACE)), 0.0)
    assert stored == ["before"]
    assert [str(error) for error in failed] == ["over"]


def test_what_was_stored_is_told_before_bytes_that_are_no_header_end_the_connection(connected):
    with LoopbackServer(silent) as server:
        connection, told = connected(server), []
        offer(connection, "first", together=lambda done, _: told.extend(done))
        data = answers_of(connection, (0, PLACE)) + b"\x00\x00\x00\x08\x00\x00\x00\x04nope"
        with pytest.raises(ProtocolError, match="not JSON"):
            connection.take_in(data, 0.0)
    assert told == ["first"]


def test_a_connection_that_is_not_open_signs_or_is_closed_takes_no_frames(connected):
    with LoopbackServer(silent) as server:
        opening = NonBlockingConnection(server.address, 0.0, 3.0)
        assert not offer(opening, pytest.fail)
        opening.fail(TransportError("over"))
        signing = connected(server, reach=Reach(credentials=Credentials("shop", "s3cret")))
        assert not offer(signing, pytest.fail)
        closed = connected(server)
        closed.fail(TransportError("over"))
        assert not offer(closed, pytest.fail)
        closed.flush()  # nothing to write, and nowhere


def test_every_frame_taken_while_it_fails_is_answered_once(connected):
    """Other threads offer and write while the owner closes: nothing is taken and then forgotten."""
    told, taken = [], []

    def offer_until_refused():
        while offer(connection, told.append):
            taken.append(1)
            connection.flush()

    with LoopbackServer(silent) as server:
        for _ in range(20):
            connection = connected(server)
            threads = [threading.Thread(target=offer_until_refused) for _ in range(4)]
            for thread in threads:
                thread.start()
            before = len(taken)
            while len(taken) < before + 20:
                pass
            connection.fail(TransportError("broken"))
            for thread in threads:
                thread.join(20.0)
            assert len(told) == len(taken)

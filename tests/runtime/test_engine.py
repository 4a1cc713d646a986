import asyncio
import socket
import sys
import threading
import time

import pytest

from gimbalmq.errors import BrokerError, CallTimeoutError, ProtocolError, StateError, TransportError
from gimbalmq.flows.effects import call, checked_call, notify, now, sleep
from gimbalmq.runtime import reconnect, resolving
from gimbalmq.runtime.engine import Engine
from gimbalmq.transport.nonblocking import Offered
from gimbalmq.transport.requests import next_opaque
from gimbalmq.wire.command import Command, encode_command, response_to
from transport.server import LoopbackServer, closed_port, silent
from waiting import eventually


class Client:
    """Keeps what the engine reports."""

    def __init__(self):
        self.connected = []
        self.lost = []
        self.asked = []
        self.changed = threading.Condition()

    def _note(self, notes, note):
        with self.changed:
            notes.append(note)
            self.changed.notify_all()

    def on_connected(self, address):
        self._note(self.connected, address)

    def on_disconnected(self, address, error):
        self._note(self.lost, (address, error))

    def on_request(self, address, request):
        self._note(self.asked, request)
        return None if request.is_oneway else response_to(request, 3, "not supported")

    def wait(self, condition):
        with self.changed:
            assert self.changed.wait_for(condition, 5.0)


@pytest.fixture
def client():
    return Client()


@pytest.fixture
def engine(client):
    engine = Engine("test", client)
    engine.start()
    yield engine
    engine.stop()


def result_of(engine, start):
    """Run `start(done)` on the engine thread and wait for what it hands to `done`."""
    got, there = [], threading.Event()

    def done(result):
        got.append(result)
        there.set()

    engine.post(lambda: start(done))
    assert there.wait(60.0)
    return got[0]


def ask(engine, address, code=34, timeout_s=20.0):
    return result_of(engine, lambda done: engine.call(address, Command(code), timeout_s, done))


def run(engine, flow):
    return result_of(engine, lambda done: engine.spawn(flow, done))


# ---- calls ---------------------------------------------------------------------------------------


def test_a_call_gets_its_answer(engine, client):
    with LoopbackServer(lambda request: response_to(request, remark="hello")) as server:
        assert ask(engine, server.address).remark == "hello"
        assert client.connected == [server.address]


def test_many_calls_share_a_connection(engine):
    with LoopbackServer() as server:
        for _ in range(5):
            ask(engine, server.address)
        assert server.connects == 1


def test_requests_of_one_round_are_in_flight_together(engine):
    seen = []

    def answer_when_all_are_there(request):
        seen.append(request)
        if len(seen) == 3:
            for earlier in seen[:2]:
                server.push(response_to(earlier))
            return response_to(request)
        return None

    with LoopbackServer(answer_when_all_are_there) as server:
        got = []

        def start(done):
            def one(answer):
                got.append(answer)
                if len(got) == 3:
                    done(got)

            for code in range(3):
                engine.call(server.address, Command(code), 3.0, one)

        assert all(answer.is_response for answer in result_of(engine, start))


def test_nobody_there_is_an_error_and_not_an_exception(engine):
    answer = ask(engine, f"127.0.0.1:{closed_port()}")
    assert isinstance(answer, TransportError)
    assert "ECONNREFUSED" in str(answer)


def test_a_host_that_cannot_be_resolved_is_an_error(engine):
    assert "cannot be resolved" in str(ask(engine, "no-such-host.invalid:1"))


class SlowResolver:
    """Knows where every name is, and says so when it is let go."""

    def __init__(self, server):
        self._server = server
        self.asked = []
        self.go_on = threading.Event()

    def __call__(self, address):
        self.asked.append(address)
        assert self.go_on.wait(20.0)
        return socket.AF_INET, ("127.0.0.1", self._server.port)


@pytest.fixture
def slow_resolver(monkeypatch):
    with LoopbackServer() as server:
        resolver = SlowResolver(server)
        monkeypatch.setattr(resolving, "resolve", resolver)
        yield resolver
        resolver.go_on.set()


def test_a_name_that_takes_long_to_resolve_keeps_nothing_else_waiting(engine, slow_resolver):
    got = []
    with LoopbackServer() as other:
        for code in (1, 2):
            engine.post(lambda code=code: engine.call("broker:1", Command(code), 20.0, got.append))
        assert ask(engine, other.address).code == 0
        result_of(engine, lambda done: engine.call_later(0.01, lambda: done(None)))
        assert got == []
        slow_resolver.go_on.set()
        assert eventually(lambda: len(got) == 2)
    assert [answer.code for answer in got] == [0, 0]
    assert slow_resolver.asked == ["broker:1"]


def test_a_name_that_takes_too_long_to_resolve_is_given_up_and_asked_for_once(
    client, slow_resolver
):
    engine = Engine("test", client, connect_timeout_s=0.05)
    engine.start()
    assert "cannot connect to broker:1: timed out" in str(ask(engine, "broker:1"))
    client.wait(lambda: client.lost)
    eventually(lambda: "timed out" in str(ask(engine, "broker:1")))
    assert slow_resolver.asked == ["broker:1"], "the second asks with the first"
    slow_resolver.go_on.set()
    assert eventually(lambda: not isinstance(ask(engine, "broker:1"), TransportError))
    engine.stop()


def test_an_engine_stops_while_a_name_is_looked_up(client, slow_resolver):
    engine = Engine("test", client)
    engine.start()
    got = []
    engine.post(lambda: engine.call("broker:1", Command(1), 20.0, got.append))
    eventually(lambda: slow_resolver.asked)
    engine.stop()
    assert "stopped" in str(got[0])
    slow_resolver.go_on.set()
    eventually(lambda: all(one.name != "gimbalmq-resolver" for one in threading.enumerate()))


def test_silence_ends_in_a_timeout_and_the_next_call_connects_anew(engine, client):
    with LoopbackServer(
        lambda request: response_to(request) if request.code == 2 else None
    ) as server:
        answer = ask(engine, server.address, 1, timeout_s=0.1)
        assert isinstance(answer, CallTimeoutError)
        client.wait(lambda: client.lost)
        time_out = time.monotonic() + 5.0
        while isinstance(ask(engine, server.address, 2), TransportError):
            assert time.monotonic() < time_out
        assert server.connects == 2


def test_another_protocol_is_told_to_who_asked(engine):
    with LoopbackServer(raw=b"HTTP/1.1 400 Bad Request\r\n\r\n") as server:
        assert isinstance(ask(engine, server.address), ProtocolError)


def test_a_lost_connection_fails_its_calls_and_is_reported(engine, client):
    with LoopbackServer(silent) as server:
        got = []
        engine.post(lambda: engine.call(server.address, Command(34), 9.0, got.append))
        deadline = time.monotonic() + 5.0
        while not server.requests:
            assert time.monotonic() < deadline
        server.drop()
        client.wait(lambda: client.lost)
        ((address, error),) = client.lost
    assert address == server.address
    assert got == [error]


@pytest.mark.rule("W1.7b")
def test_an_idle_connection_that_the_server_closes_is_opened_again(engine, client):
    with LoopbackServer() as server:
        ask(engine, server.address)
        server.drop()
        client.wait(lambda: client.lost)
        deadline = time.monotonic() + 5.0
        while isinstance(answer := ask(engine, server.address), TransportError):
            assert time.monotonic() < deadline, "a short pause comes first"
        assert (answer.code, answer.is_response) == (0, True)
        assert client.connected == [server.address] * 2, "so that the client registers again"


def test_a_one_way_request_to_nobody_is_not_an_error(engine):
    engine.post(lambda: engine.notify("no-such-host.invalid:1", Command(15)))
    with LoopbackServer() as server:
        ask(engine, server.address)


def test_disconnect_closes_and_fails_what_is_in_flight(engine):
    with LoopbackServer(silent) as server:

        def start(done):
            engine.call(server.address, Command(34), 9.0, done)
            engine.call_later(0.05, lambda: engine.disconnect(server.address))

        assert "no longer using" in str(result_of(engine, start))
        engine.post(lambda: engine.disconnect("127.0.0.1:1"))  # nothing there: harmless


# ---- back-off ------------------------------------------------------------------------------------


@pytest.mark.rule("B10.19a", "W8a")
def test_pitfall_19a_a_server_that_hangs_up_at_once_is_not_stormed(engine):
    with LoopbackServer(closes=True) as server:
        until = time.monotonic() + 1.0
        while time.monotonic() < until:
            assert isinstance(ask(engine, server.address), TransportError)
        # 0.1 s, then 0.2 s, 0.4 s, 0.8 s: four in the first second, give or take one.
        assert 2 <= server.connects <= 5


@pytest.mark.rule("B10.19a")
def test_during_the_pause_the_error_says_when_the_next_try_is(engine):
    address = f"127.0.0.1:{closed_port()}"

    def ask_again_at_once(done):
        def again(_refused):
            engine.call(address, Command(34), 3.0, done)

        engine.call(address, Command(34), 3.0, again)

    assert f"{address} could not be used 1 times in a row; trying again in 0.1 s" in str(
        result_of(engine, ask_again_at_once)
    )


def test_after_a_good_connection_the_pause_starts_short_again(engine, client, monkeypatch):
    monkeypatch.setattr(reconnect, "_GOOD_CONNECTION_S", 0.0)
    with LoopbackServer() as server:
        for number in range(1, 6):
            assert ask(engine, server.address).code == 0
            server.drop()
            client.wait(lambda number=number: len(client.lost) == number)
        assert server.connects == 5


# ---- the server asks -----------------------------------------------------------------------------


@pytest.mark.rule("W1.4c", "W1.4d")
def test_a_request_of_the_server_is_handed_over_and_answered(engine, client):
    with LoopbackServer() as server:
        ask(engine, server.address)
        server.push(Command(220, opaque=9))
        client.wait(lambda: client.asked)
        deadline = time.monotonic() + 5.0
        while len(server.requests) < 2:
            assert time.monotonic() < deadline
    answer = server.requests[1]
    assert (answer.is_response, answer.opaque, answer.code) == (True, 9, 3)


@pytest.mark.rule("W2.6b")
def test_a_notice_of_the_server_is_handed_over_without_answer(engine, client):
    with LoopbackServer() as server:
        ask(engine, server.address)
        server.push(Command(40, {"consumerGroup": "billing"}, opaque=9, flag=2))
        client.wait(lambda: client.asked)
        ask(engine, server.address)
    assert [request.is_response for request in server.requests] == [False, False]


# ---- flows, timers, posts ------------------------------------------------------------------------


def test_a_flow_runs_on_the_engine_thread_to_its_result(engine):
    def flow(address):
        before = yield from now()
        yield from notify(address, Command(15))
        yield from sleep(0.05)
        yield from checked_call(address, Command(34), 20.0)
        after = yield from now()
        return after.at_s - before.at_s, threading.current_thread().name

    with LoopbackServer() as server:
        took_s, thread = run(engine, flow(server.address))
    assert took_s >= 0.05
    assert thread == "gimbalmq-test"
    assert server.codes == [15, 34]


def test_a_flow_may_handle_a_failed_call(engine):
    def flow():
        try:
            yield from call(f"127.0.0.1:{closed_port()}", Command(34), 1.0)
        except TransportError:
            return "handled"

    assert run(engine, flow()) == "handled"


def test_the_error_that_ends_a_flow_is_its_result(engine):
    with LoopbackServer(lambda request: response_to(request, 1, "no")) as server:
        assert isinstance(run(engine, checked_call(server.address, Command(34), 20.0)), BrokerError)


def test_timers_run_in_order_and_not_when_cancelled(engine):
    ran = []

    def start(done):
        engine.call_later(0.06, lambda: done(ran))
        engine.call_later(0.04, lambda: ran.append("second"))
        engine.call_later(0.02, lambda: ran.append("first"))
        engine.call_later(0.03, lambda: ran.append("never")).cancel()

    assert result_of(engine, start) == ["first", "second"]


@pytest.mark.rule("B2.2e")
def test_a_fault_in_one_action_does_not_stop_the_others(engine, caplog):
    def fault():
        raise RuntimeError("a bug of ours")

    def start(done):
        engine.call_later(0.0, fault)
        engine.call_later(0.01, lambda: done("alive"))

    engine.post(fault)
    assert result_of(engine, start) == "alive"
    assert [record.exc_info[1].args[0] for record in caplog.records] == ["a bug of ours"] * 2


def test_time_limits_hold_after_a_callback_raised_at_one(engine, caplog):
    with LoopbackServer(silent) as server:
        engine.post(lambda: engine.call(server.address, Command(1), 0.1, lambda _late: 1 // 0))
        assert eventually(lambda: caplog.records)
        assert isinstance(ask(engine, server.address, 2, timeout_s=0.1), CallTimeoutError)


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, asyncio.CancelledError])
def test_a_callback_that_wants_to_end_its_thread_does_not_end_the_client(engine, caplog, kind):
    def leave(*_):
        raise kind

    with LoopbackServer() as server:
        engine.post(lambda: engine.call(server.address, Command(1), 3.0, leave))
        engine.post(leave)
        engine.post(lambda: engine.call_later(0.0, leave))
        assert eventually(lambda: caplog.text.count(f"raised {kind.__name__}, which is ign") == 3)
        assert ask(engine, server.address).code == 0


def test_a_callback_that_wants_to_end_its_thread_does_not_keep_a_client_from_stopping(client):
    engine = Engine("stopping", client)
    engine.start()
    with LoopbackServer(silent) as server:
        engine.post(lambda: engine.call(server.address, Command(34), 9.0, lambda _: sys.exit()))
        eventually(lambda: server.requests)
        engine.stop()
        eventually(lambda: not server.open_connections)
    with pytest.raises(StateError):
        engine.post(lambda: None)


def test_posts_of_many_threads_all_run(engine):
    ran = []
    threads = [
        threading.Thread(target=lambda: [engine.post(lambda: ran.append(1)) for _ in range(200)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20.0)
    result_of(engine, lambda done: done(None))
    assert len(ran) == 800


# ---- stopping ------------------------------------------------------------------------------------


@pytest.mark.rule("B5.4c")
def test_stop_ends_the_thread_closes_connections_and_fails_what_waits(client):
    engine = Engine("stopping", client)
    engine.start()
    got = []
    with LoopbackServer(silent) as server:
        engine.post(lambda: engine.call(server.address, Command(34), 9.0, got.append))
        deadline = time.monotonic() + 5.0
        while not server.requests:
            assert time.monotonic() < deadline
        engine.stop()
        while server.open_connections:
            assert time.monotonic() < deadline
    assert "gimbalmq-stopping" not in {thread.name for thread in threading.enumerate()}
    assert "stopped" in str(got[0])
    assert not client.lost, "what is closed on purpose is no loss"


def test_a_stopped_engine_says_so(client):
    engine = Engine("over", client)
    engine.start()
    engine.stop()
    with pytest.raises(StateError, match="make a new one"):
        engine.post(lambda: None)


# ---- errands -------------------------------------------------------------------------------------


class Errand:
    """User code on the engine thread that does not come back until it is let go."""

    def __init__(self, engine):
        self.engine = engine
        self.thread = None
        self.was_current = None
        self.began, self.go_on = threading.Event(), threading.Event()

    def __call__(self):
        self.thread = threading.current_thread()
        self.was_current = self.engine.is_current
        self.began.set()
        self.go_on.wait(10.0)

    def give(self):
        self.engine.post(lambda: self.engine.errand(self))
        assert self.began.wait(20.0)
        return self


def thread_of(engine):
    return result_of(engine, lambda done: done((threading.current_thread(), engine.is_current)))


def test_an_errand_runs_on_the_engine_thread_but_is_not_what_the_loop_runs(engine):
    before = thread_of(engine)
    errand = Errand(engine).give()
    errand.go_on.set()
    assert thread_of(engine) == before == (errand.thread, True)
    assert errand.was_current is False


def test_another_thread_goes_on_with_the_loop_while_an_errand_takes_too_long(engine):
    errand = Errand(engine).give()
    engine.replace(errand.thread.ident)
    engine.replace(errand.thread.ident)  # the second to notice changes nothing
    thread, current = thread_of(engine)
    assert current
    assert thread is not errand.thread
    errand.go_on.set()
    errand.thread.join(20.0)
    assert not errand.thread.is_alive(), "its errand was the last thing to do for it"
    assert thread_of(engine) == (thread, True)


def test_a_thread_that_is_on_no_errand_is_not_replaced(engine):
    before = thread_of(engine)
    engine.replace(before[0].ident)
    assert thread_of(engine) == before


def test_an_errand_that_wants_to_end_its_thread_does_not_end_the_client(engine, caplog):
    before = thread_of(engine)
    engine.post(lambda: engine.errand(sys.exit))
    assert thread_of(engine) == before
    assert eventually(lambda: "raised SystemExit, which is ignored there" in caplog.text)


def test_a_client_can_be_stopped_while_a_replaced_thread_is_still_away(client):
    engine = Engine("test", client)
    engine.start()
    errand = Errand(engine).give()
    engine.replace(errand.thread.ident)
    engine.stop()
    assert errand.thread.is_alive()
    errand.go_on.set()
    errand.thread.join(20.0)
    with pytest.raises(StateError):
        engine.post(lambda: None)


def offer(engine, address, done, code=34):
    number = next_opaque()
    frame = encode_command(Command(code, opaque=number))
    return engine.offer(address, Offered(frame, {number: done}, 3.0))


@pytest.mark.parametrize("count", [1, 5, 200])
def test_offered_frames_are_written_though_nobody_comes_again(engine, client, count):
    got = []
    with LoopbackServer() as server:
        assert not offer(engine, server.address, got.append), "there is no connection yet"
        engine.post(lambda: engine.notify(server.address, Command(1)))
        client.wait(lambda: client.connected)
        for _ in range(count):
            assert offer(engine, server.address, lambda answer: got.append(answer.code))
        eventually(lambda: len(got) == count)
    assert got == [0] * count


def test_offered_frames_are_failed_with_their_connection(engine, client):
    got = []
    with LoopbackServer(silent) as server:
        engine.post(lambda: engine.notify(server.address, Command(1)))
        client.wait(lambda: client.connected)
        for _ in range(3):
            assert offer(engine, server.address, got.append)
        server.drop()
        eventually(lambda: len(got) == 3)
    assert all(isinstance(one, TransportError) for one in got)


class Watched:
    """A connection of the engine's, as far as another thread may see it."""

    wants_write = False

    def __init__(self, *, takes_frames):
        self.takes_frames = takes_frames
        self.flushed = 0

    def offer(self, requests, now, together):
        return self.takes_frames

    def flush(self):
        self.flushed += 1


@pytest.mark.parametrize("takes_frames", [True, False])
def test_another_thread_writes_only_where_frames_leave_as_they_are(client, takes_frames):
    """With TLS, or while it is opened, a connection is the engine thread's alone."""
    engine = Engine("test", client)
    connection = engine._connections["a:1"] = Watched(takes_frames=takes_frames)
    assert offer(engine, "a:1", pytest.fail) == takes_frames
    engine._connections.clear()
    engine.start()
    engine.stop()
    assert connection.flushed == takes_frames

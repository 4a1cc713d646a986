import threading
import time

import pytest

from gimbalmq.errors import CallTimeoutError, StateError, TransportError
from gimbalmq.flows.effects import call, checked_call, notify, now, sleep, together
from gimbalmq.runtime import inline
from gimbalmq.runtime.inline import ConnectionPool, run_inline
from gimbalmq.transport import blocking
from gimbalmq.wire.command import Command, response_to
from transport.server import LoopbackServer, closed_port, silent
from waiting import eventually


@pytest.fixture
def pool():
    pool = ConnectionPool()
    yield pool
    pool.close()


def test_a_flow_runs_to_its_result_on_the_calling_thread(pool):
    def flow(address):
        before = yield from now()
        yield from notify(address, Command(15))
        yield from sleep(0.01)
        answer = yield from checked_call(address, Command(34), 20.0)
        after = yield from now()
        return answer.remark, after.at_s - before.at_s, threading.current_thread()

    with LoopbackServer(lambda request: response_to(request, remark="hello")) as server:
        remark, took_s, thread = run_inline(flow(server.address), pool)
    assert remark == "hello"
    assert took_s >= 0.01
    assert thread is threading.current_thread()
    assert server.codes == [15, 34]


def test_the_clocks_of_a_flow_are_the_machines(pool):
    instant = run_inline(now(), pool)
    assert abs(instant.wall_ms / 1000 - time.time()) < 5.0
    assert abs(instant.at_s - time.monotonic()) < 5.0


def test_a_failed_call_is_raised_inside_the_flow(pool):
    def flow():
        try:
            yield from call(f"127.0.0.1:{closed_port()}", Command(34), 1.0)
        except TransportError as error:
            return f"handled: {error}"

    assert run_inline(flow(), pool).startswith("handled: cannot connect")


def test_an_error_that_a_flow_does_not_handle_reaches_the_caller(pool):
    with LoopbackServer(silent) as server, pytest.raises(CallTimeoutError):
        run_inline(call(server.address, Command(34), 0.05), pool)


@pytest.fixture
def opened(monkeypatch):
    """The connections that a pool opens, each in a quarter of a second."""
    made, clock = [], [100.0]

    class Opened:
        def __init__(self, address, *, connect_timeout_s, reach):
            self.address, self.connect_timeout_s, self.timeouts_s = address, connect_timeout_s, []
            clock[0] += 0.25
            made.append(self)

        def call(self, *request_and_timeout_s):
            self.timeouts_s.append(request_and_timeout_s[-1])

        store = notify = call

        def healthy(self, *, look):
            return True

        def close(self):
            pass

    monkeypatch.setattr(inline, "BlockingConnection", Opened)
    monkeypatch.setattr(inline.time, "monotonic", lambda: clock[0])
    return made


@pytest.mark.parametrize(
    "ask",
    [
        lambda pool, timeout_s: pool.call("a:1", Command(34), timeout_s),
        lambda pool, timeout_s: pool.store("a:1", b"", 7, timeout_s),
        lambda pool, timeout_s: pool.notify("a:1", Command(34), timeout_s),
    ],
    ids=["call", "store", "notify"],
)
def test_a_new_connection_takes_half_of_the_time_at_most_and_its_request_the_rest(
    pool, opened, ask
):
    ask(pool, 1.0)
    ask(pool, 1.0)
    (connection,) = opened
    assert connection.connect_timeout_s == 0.5
    assert connection.timeouts_s == [0.75, 1.0], "one that is there takes no time"


def test_no_connection_takes_longer_than_the_pool_allows(pool, opened):
    pool.call("a:1", Command(34), 60.0)
    assert opened[0].connect_timeout_s == 3.0


def test_calls_in_turn_share_one_connection(pool):
    with LoopbackServer() as server:
        for _ in range(5):
            pool.call(server.address, Command(34), 20.0)
        assert server.connects == 1


def test_threads_at_the_same_time_do_not_share_one(pool):
    together = threading.Barrier(2, timeout=20.0)

    def both_at_once(request):
        together.wait()
        return response_to(request)

    with LoopbackServer(both_at_once) as server:
        threads = [
            threading.Thread(target=pool.call, args=(server.address, Command(34), 20.0))
            for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10.0)
        assert server.connects == 2


def test_a_connection_with_an_answer_on_its_way_is_not_used_again(pool):
    with LoopbackServer(
        lambda request: None if request.code == 1 else response_to(request)
    ) as server:
        with pytest.raises(CallTimeoutError):
            pool.call(server.address, Command(1), 0.05)
        assert pool.call(server.address, Command(2), 20.0).code == 0
        assert server.connects == 2


@pytest.mark.rule("W1.7b")
def test_an_idle_connection_that_died_is_replaced_without_an_error(pool, monkeypatch):
    monkeypatch.setattr(blocking, "_TRUSTED_IDLE_S", 0.0)
    with LoopbackServer() as server:
        pool.call(server.address, Command(34), 20.0)
        server.drop()
        deadline = time.monotonic() + 5.0
        while server.open_connections:
            assert time.monotonic() < deadline
        pool.call(server.address, Command(34), 20.0)
        assert server.connects == 2


def test_connections_that_were_not_used_for_long_are_closed_and_others_stay(pool):
    with LoopbackServer() as rarely, LoopbackServer() as often:
        pool.call(rarely.address, Command(34), 20.0)
        until = time.monotonic()
        pool.call(often.address, Command(34), 20.0)
        pool.drop_unused(until)
        eventually(lambda: rarely.open_connections == 0)
        pool.call(often.address, Command(34), 20.0)
        assert (often.connects, often.open_connections) == (1, 1)


def test_a_closed_pool_keeps_nothing_open_and_refuses_calls(pool):
    with LoopbackServer() as server:
        pool.call(server.address, Command(34), 20.0)
        pool.close()
        deadline = time.monotonic() + 5.0
        while server.open_connections:
            assert time.monotonic() < deadline
        with pytest.raises(StateError, match="make a new one"):
            pool.call(server.address, Command(34), 20.0)


def test_a_pool_that_was_not_used_has_opened_nothing():
    ConnectionPool().close()


def test_flows_side_by_side_wait_at_the_same_time(pool):
    all_are_here = threading.Barrier(3)

    def answer(request):
        all_are_here.wait(20.0)  # one after another, nobody would get past this
        return response_to(request, remark=str(request.code))

    with LoopbackServer(answer) as server:
        flows = [checked_call(server.address, Command(code), 20.0) for code in (5, 6, 7)]
        answers = run_inline(together(flows), pool)
    assert [one.remark for one in answers] == ["5", "6", "7"]


def test_of_flows_side_by_side_only_so_many_run_at_once(pool):
    running, most, lock = [], [], threading.Lock()
    two_are_here = threading.Barrier(2)

    def answer(request):
        with lock:
            running.append(request)
            most.append(len(running))
        two_are_here.wait(20.0)
        time.sleep(0.01)  # a third would have time to come
        with lock:
            running.remove(request)
        return response_to(request)

    with LoopbackServer(answer) as server:
        flows = [call(server.address, Command(number), 20.0) for number in range(1, 9)]
        assert len(run_inline(together(flows, at_once=2), pool)) == 8
        assert server.connects == 2
    assert max(most) == 2


def test_an_error_of_ours_is_a_result_of_flows_side_by_side_and_a_fault_is_raised(pool):
    def faulty():
        yield from now()
        raise ZeroDivisionError

    with LoopbackServer() as server:
        good, dead = call(server.address, Command(1), 20.0), f"127.0.0.1:{closed_port()}"
        answer, error = run_inline(together([good, call(dead, Command(1), 1.0)]), pool)
    assert answer.is_response
    assert isinstance(error, TransportError)
    with pytest.raises(ZeroDivisionError):
        run_inline(together([faulty(), now()]), pool)
    assert run_inline(together([]), pool) == []

"""What a member answers to tools: a message consumed on request, and where its threads are."""

import asyncio
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from gimbalmq.model.verdict import Commit, DeadLetter, RetryLater, Rollback, Suspend
from gimbalmq.runtime.inspection import consume_directly, thread_stacks
from gimbalmq.runtime.listening import ListenerSettings, Listening
from gimbalmq.runtime.tasks import LoopListening
from gimbalmq.wire.bodies import decode_running_info
from gimbalmq.wire.codes import RequestCode
from gimbalmq.wire.command import Command
from gimbalmq.wire.record import decode_records, encode_record
from runtime.group_stage import GROUP, ME, Stage

(MESSAGE,) = decode_records(encode_record(topic="orders", body=b"one book"), "broker-a")


def on_threads(listener, *, ordered=False, **settings):
    listening = Listening({"orders": listener}.get, ListenerSettings(**settings))
    return consume_directly(listening, MESSAGE, ordered=ordered)


def on_a_loop(listener, *, ordered=False, **settings):
    """A coroutine of the loop, asked for from the thread that answers."""

    async def listen(argument):
        await asyncio.sleep(0)
        return listener(argument)

    async def main():
        with ThreadPoolExecutor(1) as threads:
            options = ListenerSettings(**settings)
            listening = LoopListening({"orders": listen}.get, options, threads)
            return await asyncio.to_thread(consume_directly, listening, MESSAGE, ordered=ordered)

    return asyncio.run(main())


BOTH = pytest.mark.parametrize("consume", [on_threads, on_a_loop])


def raising(error):
    def listener(_message):
        raise error

    return listener


@BOTH
@pytest.mark.rule("W2.6d")
@pytest.mark.parametrize("batch_size", [1, 8])
def test_a_listener_that_returns_has_consumed_it(consume, batch_size):
    got = []
    result = consume(got.append, batch_size=batch_size)
    assert got == ([MESSAGE] if batch_size == 1 else [[MESSAGE]])
    assert (result.result, result.order, result.remark) == ("CR_SUCCESS", False, None)


@BOTH
@pytest.mark.rule("W2.6d")
@pytest.mark.parametrize(
    ("verdict", "expected"),
    [(None, "CR_SUCCESS"), (Commit, "CR_COMMIT"), (Rollback, "CR_ROLLBACK")],
)
def test_an_ordered_listener_commits_or_rolls_back(consume, verdict, expected):
    result = consume(lambda _message: verdict, ordered=True, auto_commit=False)
    assert (result.result, result.order, result.auto_commit) == (expected, True, False)


@BOTH
@pytest.mark.rule("W2.6d")
@pytest.mark.parametrize(
    "signal", [RetryLater(delay_level=2), Suspend(0.5), DeadLetter("no such customer")], ids=repr
)
def test_a_listener_that_wants_it_later_says_so(consume, signal):
    result = consume(raising(signal), ordered=isinstance(signal, Suspend))
    assert (result.result, result.remark) == ("CR_LATER", str(signal))


@BOTH
@pytest.mark.rule("W2.6d")
@pytest.mark.parametrize("ordered", [False, True], ids=["concurrent", "ordered"])
@pytest.mark.parametrize("error", [ValueError("no such customer"), SystemExit(3)], ids=repr)
def test_what_a_listener_raises_is_told_with_where(consume, ordered, error):
    result = consume(raising(error), ordered=ordered)
    assert (result.result, result.order) == ("CR_THROW_EXCEPTION", ordered)
    assert type(error).__name__ in result.remark
    assert str(error) in result.remark
    assert "test_inspection.py" in result.remark


def test_a_message_of_a_topic_without_a_listener_is_refused():
    listening = Listening({}.get, ListenerSettings())
    result = consume_directly(listening, MESSAGE, ordered=False)
    assert result.result == "CR_THROW_EXCEPTION"
    assert "no listener for topic orders" in result.remark


def test_how_long_it_took_is_told(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("gimbalmq.runtime.inspection.time.monotonic", lambda: now[0])

    def listener(_message):
        now[0] += 0.25

    assert on_threads(listener).spent_ms == 250


# ---- stacks --------------------------------------------------------------------------------------


@pytest.fixture
def waiting_thread():
    """A thread with a name of its own, that waits in a function with one."""
    leave = threading.Event()

    def stands_here_for_the_test():
        leave.wait(60.0)

    thread = threading.Thread(target=stands_here_for_the_test, name="the-one-that-waits")
    thread.start()
    yield thread
    leave.set()
    thread.join(20.0)


def stack_of(text, name):
    return text.split(f"{name}\n")[1]


def test_the_stacks_of_all_threads_are_told_by_name(waiting_thread):
    deadline = time.monotonic() + 20.0
    while "stands_here_for_the_test" not in stack_of(thread_stacks(), waiting_thread.name):
        assert time.monotonic() < deadline
    assert "MainThread" in thread_stacks()
    assert sys._getframe().f_code.co_name in thread_stacks()


@pytest.mark.rule("W2.6d")
@pytest.mark.parametrize("asked", [True, False])
def test_a_tool_gets_the_stacks_when_it_asks_for_them(waiting_thread, asked):
    stage = Stage().start()
    replies = []
    fields = {"consumerGroup": GROUP, "clientId": ME, "jstackEnable": str(asked).lower()}
    request = Command(int(RequestCode.GET_CONSUMER_RUNNING_INFO), fields)
    assert stage.host.on_request(request, replies.append)
    stacks = decode_running_info(replies[0].body).stacks
    assert (stacks is not None and waiting_thread.name in stacks) is asked
    assert (stacks is None) is not asked

import asyncio
import concurrent.futures
import functools
import threading
import time

import pytest

from gimbalmq.runtime.coroutines import CoroutineThread, is_coroutine_listener


@pytest.fixture
def coroutines():
    thread = CoroutineThread("test")
    yield thread
    thread.stop()
    assert not [one for one in threading.enumerate() if one.name == "gimbalmq-test-loop"]


async def echo(message):
    await asyncio.sleep(0)
    return message


class AsyncListener:
    async def __call__(self, message):
        return message


@pytest.mark.parametrize(
    ("listener", "expected"),
    [
        (echo, True),
        (functools.partial(echo), True),
        (AsyncListener(), True),
        (print, False),
        (lambda message: message, False),
    ],
)
def test_coroutine_listeners_are_recognised(listener, expected):
    assert is_coroutine_listener(listener) is expected


def test_a_coroutine_gives_its_result_to_the_thread_that_waits(coroutines):
    assert coroutines.blocking(echo)(7) == 7


def test_what_a_coroutine_raises_reaches_the_thread_that_waits(coroutines):
    async def fail(message):
        await asyncio.sleep(0)
        raise ValueError(message)

    with pytest.raises(ValueError, match="no"):
        coroutines.blocking(fail)("no")


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_a_coroutine_that_exits_does_not_end_the_loop_of_the_others(coroutines, kind):
    async def leave(message):
        await asyncio.sleep(0)
        raise kind(message)

    with pytest.raises(kind):
        coroutines.blocking(leave)("for good")
    assert coroutines.blocking(echo)(7) == 7


def test_all_coroutines_share_one_loop_and_run_side_by_side(coroutines):
    loops, arrived, all_there = set(), [], asyncio.Event()

    async def meet(count):
        loops.add(asyncio.get_running_loop())
        arrived.append(1)
        if len(arrived) == count:
            all_there.set()
        await asyncio.wait_for(all_there.wait(), 20.0)

    threads = [threading.Thread(target=coroutines.blocking(meet), args=(5,)) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20.0)
    assert all_there.is_set()
    assert len(loops) == 1


def test_the_stack_of_a_waiting_coroutine_shows_where_it_waits(coroutines):
    entered, leave = threading.Event(), asyncio.Event()

    async def inner_step():
        entered.set()
        await leave.wait()

    async def outer_step(_message):
        await inner_step()

    thread = threading.Thread(target=coroutines.blocking(outer_step), args=(1,))
    thread.start()
    assert entered.wait(20.0)
    deadline = time.monotonic() + 5.0
    while "inner_step" not in (stack := coroutines.stack_of(thread.ident) or ""):
        assert time.monotonic() < deadline, stack
    assert "outer_step" in stack
    coroutines._loop.call_soon_threadsafe(leave.set)
    thread.join(20.0)
    assert coroutines.stack_of(thread.ident) is None


def test_stopping_cancels_what_still_runs_and_starts_nothing_new(coroutines):
    entered, seen = threading.Event(), []

    async def hang(_message):
        entered.set()
        await asyncio.sleep(60.0)

    def wait():
        try:
            coroutines.blocking(hang)(1)
        except concurrent.futures.CancelledError as error:
            seen.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    assert entered.wait(20.0)
    coroutines.stop()
    thread.join(20.0)
    assert len(seen) == 1
    with pytest.raises(RuntimeError, match="has stopped"):
        coroutines.blocking(echo)(1)

import asyncio
import threading
from concurrent.futures import FIRST_EXCEPTION, as_completed, wait
from concurrent.futures import TimeoutError as FutureTimeout

import pytest

from gimbalmq.client.futures import SendFuture
from gimbalmq.errors import SendError
from gimbalmq.model.message import SendResult, SendStatus
from gimbalmq.model.queue import MessageQueue
from waiting import eventually

RESULT = SendResult(SendStatus.SEND_OK, "ID", "7F", MessageQueue("t", "a", 0), 1)


def test_a_finished_future_answers_without_waiting():
    future = SendFuture()
    assert future.running()
    assert not future.done()
    future.set_result(RESULT)
    assert (future.result(0), future.exception(0)) == (RESULT, None)
    assert future.done()
    assert not future.running()
    assert future._made is None  # nobody waited, nothing was made


def test_a_failed_future_raises_its_error():
    future, error = SendFuture(), SendError("no")
    future.set_exception(error)
    assert future.exception() is error
    with pytest.raises(SendError, match="no") as raised:
        future.result()
    assert raised.value.__context__ is None  # nothing else went wrong on the way


def test_what_has_left_cannot_be_cancelled():
    future = SendFuture()
    assert not future.cancel()
    assert not future.cancelled()


def test_a_waiting_thread_is_woken():
    future, got = SendFuture(), []
    threads = [threading.Thread(target=lambda: got.append(future.result(10.0))) for _ in range(4)]
    for thread in threads:
        thread.start()
    future.set_result(RESULT)
    for thread in threads:
        thread.join(10.0)
    assert got == [RESULT] * 4


def test_waiting_ends_with_its_time():
    with pytest.raises(FutureTimeout):
        SendFuture().result(0.001)


def test_callbacks_are_called_once_before_or_after_the_end():
    future, called = SendFuture(), []
    future.add_done_callback(called.append)
    assert called == []
    future.set_result(RESULT)
    future.add_done_callback(called.append)
    assert called == [future, future]


def test_wait_and_as_completed_see_it():
    futures = [SendFuture() for _ in range(3)]
    futures[0].set_result(RESULT)
    threading.Timer(0.01, futures[1].set_exception, [SendError("no")]).start()
    done, pending = wait(futures, timeout=10.0, return_when=FIRST_EXCEPTION)
    assert (done, pending) == ({futures[0], futures[1]}, {futures[2]})
    futures[2].set_result(RESULT)
    assert set(as_completed(futures, timeout=1.0)) == set(futures)


def test_asyncio_can_await_it():
    future = SendFuture()

    async def waited():
        threading.Timer(0.01, future.set_result, [RESULT]).start()
        return await asyncio.wrap_future(future)

    assert asyncio.run(waited()) == RESULT


def test_many_end_together_and_each_tells_those_who_wait_for_it():
    ended, called, got = [SendFuture() for _ in range(3)], [], []
    ended[0].add_done_callback(called.append)
    waiter = threading.Thread(target=lambda: got.append(ended[1].result(10.0)))
    waiter.start()
    eventually(lambda: ended[1]._made is not None)
    SendFuture.set_results(ended, [RESULT] * 3)
    waiter.join(10.0)
    assert (called, got) == ([ended[0]], [RESULT])
    assert [(one.done(), one.result(0), one.exception(0)) for one in ended] == [
        (True, RESULT, None)
    ] * 3


def test_no_wake_up_is_lost_whoever_comes_first():
    for _ in range(300):
        future, got = SendFuture(), []
        waiter = threading.Thread(target=lambda: got.append(future.result(10.0)))  # noqa: B023 - joined below
        caller = threading.Thread(target=lambda: future.add_done_callback(got.append))  # noqa: B023
        ender = threading.Thread(target=lambda: future.set_result(RESULT))  # noqa: B023
        for thread in (waiter, caller, ender):
            thread.start()
        for thread in (waiter, caller, ender):
            thread.join(10.0)
        assert len(got) == 2


def test_a_future_says_in_words_how_it_stands():
    future, failed = SendFuture(), SendFuture()
    assert "pending" in repr(future)
    future.set_result(RESULT)
    failed.set_exception(SendError("no"))
    assert "returned SendResult" in repr(future)
    assert "raised SendError" in repr(failed)


def test_a_future_that_nobody_waits_for_holds_its_result_and_nothing_else():
    future = SendFuture()
    future.set_result(RESULT)
    assert future.__dict__ == {}

"""What listeners return, where they should return nothing."""

import math
import time

import pytest

from gimbalmq.runtime.listening import ListenerSettings, Listening
from gimbalmq.runtime.running import RunningWork
from runtime.test_workers import consume_of

SIZES = pytest.mark.parametrize("batch_size", [1, 4])


def run(listener, count, batch_size):
    work = RunningWork(consume_of(count), 0, count, time.monotonic(), width=batch_size)
    settings = ListenerSettings(batch_size=batch_size)
    return Listening({"orders": listener}.get, settings).run(work, math.inf)


@SIZES
def test_a_return_value_means_nothing_which_is_told_once(caplog, batch_size):
    assert run(lambda _some: False, 8, batch_size).failures == ()
    (record,) = (one for one in caplog.records if "means nothing" in one.message)
    assert "a listener returned False" in record.message


@SIZES
def test_a_coroutine_that_nobody_awaits_fails_its_messages(caplog, batch_size):
    async def consume():
        raise AssertionError

    done = run(lambda _some: consume(), 8, batch_size)
    assert done.failures == tuple((position, 0) for position in range(8))
    assert "subscribe the coroutine function itself" in caplog.text

import asyncio
import gc
import itertools

import pytest

from gimbalmq.aio import shared
from gimbalmq.broker import EmbeddedCluster

_numbers = itertools.count()


@pytest.fixture(scope="module")
def cluster():
    with EmbeddedCluster(brokers=2) as running:
        yield running
    gc.collect()  # a socket that was not closed warns when it is collected


@pytest.fixture
def topic(cluster):
    """A new topic with two queues on each of the two brokers."""
    name = f"orders-{next(_numbers)}"
    cluster.create_topic(name, queues=2)
    return name


@pytest.fixture
def group():
    return f"group-{next(_numbers)}"


@pytest.fixture(autouse=True)
def nothing_is_left():
    """No instance outlives its users."""
    yield
    assert shared._instances == {}


@pytest.fixture
def run():
    """Run a coroutine on a loop of its own, which must be left without a task of ours."""

    def run_one(coroutine, timeout_s=90.0):
        faults = []

        async def main():
            asyncio.get_running_loop().set_exception_handler(
                lambda _loop, context: faults.append(context)
            )
            result = await asyncio.wait_for(coroutine, timeout_s)
            left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            assert left == []
            return result

        result = asyncio.run(main())
        assert faults == []
        return result

    return run_one


async def until(condition, timeout_s=60.0):
    """Poll until a condition holds."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - what is waited for happens elsewhere
            await asyncio.sleep(0.005)

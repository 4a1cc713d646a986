"""Tasks that run for each queue of a pull consumer, on threads and on an event loop."""

import asyncio
import threading

import pytest

from gimbalmq.aio.pull_schedule import LoopSchedule
from gimbalmq.client.pull_schedule import PullSchedule
from gimbalmq.model.queue import MessageQueue
from waiting import eventually

FIRST, SECOND = (MessageQueue("orders", "broker-a", number) for number in range(2))


class Task:
    """Notes how many of it run; goes on when it is let."""

    def __init__(self):
        self.begun = self.running = self.most = 0
        self.go_on = threading.Event()

    def __call__(self, _queue):
        self.begun += 1
        self.running += 1
        self.most = max(self.most, self.running)
        self.go_on.wait(10.0)
        self.running -= 1
        return 0.0


@pytest.fixture
def schedule():
    schedule = PullSchedule("audit", 4, lambda _delay_s, action: action())
    yield schedule
    schedule.stop()


def test_a_queue_that_comes_back_while_its_task_runs_waits_for_it(schedule):
    task = Task()
    schedule.update("orders", task, lambda: {FIRST})
    eventually(lambda: task.begun == 1)
    for held in ((), {FIRST}, (), {FIRST}):
        schedule.update("orders", task, lambda held=held: frozenset(held))
    other = Task()
    schedule.update("bills", other, lambda: frozenset({MessageQueue("bills", "broker-a", 0)}))
    eventually(lambda: other.begun == 1)  # after what was given to the threads before
    assert task.begun == 1
    task.go_on.set()
    other.go_on.set()
    eventually(lambda: task.begun > 3)
    assert task.most == 1


def test_a_queue_that_goes_again_before_its_turn_has_none(schedule):
    task = Task()
    for held in ({FIRST}, (), {FIRST}, ()):
        schedule.update("orders", task, lambda held=held: frozenset(held))
        eventually(lambda: task.begun == 1)
    task.go_on.set()
    eventually(lambda: not task.running)
    schedule.stop()
    assert task.begun == 1


class LoopTask:
    """As `Task`, a coroutine function."""

    def __init__(self):
        self.begun = self.running = self.most = 0
        self.go_on = asyncio.Event()

    async def __call__(self, _queue):
        self.begun += 1
        self.running += 1
        self.most = max(self.most, self.running)
        await self.go_on.wait()
        self.running -= 1
        return 0.0


async def turns(count=20):
    for _ in range(count):
        await asyncio.sleep(0)


def test_a_queue_that_comes_back_while_its_task_runs_on_a_loop_waits_for_it():
    async def main():
        schedule, task = LoopSchedule(4), LoopTask()
        for held in ({FIRST}, (), {FIRST}):
            schedule.update("orders", task, lambda held=held: frozenset(held))
            await turns()
        assert task.begun == 1
        task.go_on.set()
        await turns()
        assert (task.begun > 1, task.most) == (True, 1)
        await schedule.stop()

    asyncio.run(main())


def test_a_task_on_a_loop_may_stop_its_consumer_while_others_wait_for_their_turn():
    async def main():
        schedule, ended = LoopSchedule(1), asyncio.Event()

        async def task(_queue):
            await turns()
            await schedule.stop()
            ended.set()

        schedule.update("orders", task, lambda: frozenset({FIRST, SECOND}))
        async with asyncio.timeout(10.0):
            await ended.wait()

    asyncio.run(main())

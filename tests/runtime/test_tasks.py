import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from gimbalmq.core.consumer.effects import Permit
from gimbalmq.model.queue import MessageQueue
from gimbalmq.model.verdict import DeadLetter, RetryLater
from gimbalmq.runtime.listening import ListenerSettings
from gimbalmq.runtime.tasks import LoopListening, TaskPool
from runtime.test_listening import RETRY
from runtime.test_workers import QUEUE, consume_of


async def until(condition):
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - what is waited for happens elsewhere
            await asyncio.sleep(0)


class Stage:
    """A pool with its results, and threads for plain functions."""

    def __init__(self, listeners, workers=4, **settings):
        self.runs = []
        self.threads = ThreadPoolExecutor(workers)
        if callable(listeners):
            listeners = {QUEUE.topic: listeners}
        listening = LoopListening(listeners.get, ListenerSettings(**settings), self.threads)
        self.listening = listening
        self.pool = TaskPool(listening, self._finished, workers=workers)

    def _finished(self, done):
        self.pool.accounted(done)
        self.runs.append(done)

    def positions(self):
        return sorted(p for run in self.runs for p in range(run.first, run.until))

    async def wait(self, count):
        await until(lambda: len(self.positions()) >= count)

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        self.pool.stop()
        await self.pool.join(1.0)
        self.threads.shutdown()


def test_every_position_is_reported_once_with_its_failures():
    async def main():
        async def listen(message):
            if message.queue_offset == 3:
                raise RetryLater(delay_level=5)
            if message.queue_offset == 5:
                raise DeadLetter
            if message.queue_offset == 7:
                raise ValueError("no")

        async with Stage(listen) as stage:
            stage.pool.submit(consume_of(20))
            await stage.wait(20)
            assert stage.positions() == list(range(20))
            failures = sorted(failure for run in stage.runs for failure in run.failures)
            assert failures == [(3, 5), (5, -1), (7, 0)]

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["one", "batch", "ordered"])
@pytest.mark.parametrize("error", [SystemExit, asyncio.CancelledError])
@pytest.mark.parametrize("waits", [True, False], ids=["later", "at once"])
def test_a_coroutine_that_exits_or_is_cancelled_by_others_has_failed_and_the_loop_goes_on(
    kind, error, waits
):
    async def main():
        async def listen(_message):
            if waits:
                await asyncio.sleep(0)
            raise error

        async with Stage(listen, batch_size=2 if kind == "batch" else 1) as stage:
            consume = consume_of(2)
            for message in consume.batch.messages:
                message.attempts = 0
            stage.pool.submit(msgspec.structs.replace(consume, ordered=kind == "ordered"))
            await stage.wait(2)
            failures = sorted(failure for run in stage.runs for failure in run.failures)
            if kind == "ordered":
                assert (stage.runs[0].reached, stage.runs[0].suspend_s) == (0, 1.0)
            else:
                assert failures == [(0, 0), (1, 0)]
            assert stage.pool.cancel(QUEUE, 1) == 0

    asyncio.run(main())


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit])
@pytest.mark.parametrize("queue", [QUEUE, RETRY], ids=lambda queue: queue.topic)
def test_whatever_a_plain_listener_raises_on_its_thread_is_its_verdict(error, queue):
    async def main():
        def listen(_message):
            raise error

        async with Stage({"orders": listen}) as stage:
            stage.pool.submit(consume_of(2, queue, topics=["orders", "orders"]))
            await stage.wait(2)
            failures = sorted(failure for run in stage.runs for failure in run.failures)
            assert failures == [(0, 0), (1, 0)]

    asyncio.run(main())


def test_an_interrupt_on_the_thread_of_the_loop_is_not_the_listeners():
    """Ctrl-C while a coroutine computes: it is the program that is meant."""

    async def main():
        async def listen(_message):
            raise KeyboardInterrupt

        stage = Stage(listen)
        stage.pool.submit(consume_of(1))
        await stage.wait(1)

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())


def test_listeners_that_never_wait_leave_the_loop_its_turns():
    async def main():
        async def spin(_message):
            end = time.monotonic() + 0.001
            while time.monotonic() < end:
                pass

        async with Stage(spin, workers=1) as stage:
            stage.pool.submit(consume_of(100))
            turns = 0
            async with asyncio.timeout(10):
                while len(stage.positions()) < 100:
                    turns += 1
                    await asyncio.sleep(0)
            # A run is shared after 2 ms.
            assert turns >= 25

    asyncio.run(main())


def test_a_cancelled_queue_starts_nothing_new_and_says_what_still_runs():
    async def main():
        free = asyncio.Event()

        async def listen(_message):
            await free.wait()

        async with Stage(listen, workers=2) as stage:
            stage.pool.submit(consume_of(10))
            await until(lambda: len(stage.pool.running()) == 2)
            assert stage.pool.cancel(QUEUE, 1) == 2
            assert stage.pool.cancel(MessageQueue("other", "broker-a", 0), 1) == 0
            free.set()
            await stage.wait(2)
            assert stage.positions() == [0, 1]
            assert stage.pool.cancel(QUEUE, 1) == 0

    asyncio.run(main())


def test_what_was_claimed_before_messages_that_have_begun_is_finished_on_cancelling():
    """Otherwise the later ones would be delivered again, to the next owner of the queue."""

    async def main():
        free = asyncio.Event()

        async def listen(message):
            if message.queue_offset in {0, 5}:
                await free.wait()

        async with Stage(listen, workers=2) as stage:
            stage.pool._seconds_each = 0.0004  # so that a run is five messages
            stage.pool.submit(consume_of(10))
            await until(lambda: len(stage.pool.running()) == 2)
            await asyncio.sleep(0.01)  # longer than a run may take before it is shared
            assert stage.pool.cancel(QUEUE, 1) == 10
            free.set()
            await stage.wait(10)
            begun = sorted(
                position
                for run in stage.runs
                for position in range(run.first, run.until if run.reached is None else run.reached)
            )
            assert begun == list(range(6))

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["one", "batch", "ordered"])
def test_nothing_is_started_after_the_end_of_the_permit(kind):
    async def main():
        calls = []

        async def listen(message):
            calls.append(message)

        async with Stage(listen, batch_size=4 if kind == "batch" else 1) as stage:
            permit = Permit(time.monotonic() - 1.0)
            consume = msgspec.structs.replace(
                consume_of(4), permit=permit, ordered=kind == "ordered"
            )
            stage.pool.submit(consume)
            await until(lambda: stage.runs)
            assert stage.runs[0].reached == 0
            assert calls == []

    asyncio.run(main())


def test_messages_of_the_retry_topic_go_to_the_listener_of_their_own_topic():
    async def main():
        seen = []

        async def orders(message):
            seen.append(("orders", message.queue_offset))

        def bills(message):
            seen.append(("bills", message.queue_offset))

        async with Stage({"orders": orders, "bills": bills}) as stage:
            stage.pool.submit(consume_of(3, RETRY, topics=["orders", "bills", "gone"]))
            await stage.wait(3)
            assert sorted(seen) == [("bills", 1), ("orders", 0)]
            assert [failure for run in stage.runs for failure in run.failures] == [(2, 0)]

    asyncio.run(main())


@pytest.mark.parametrize("batch_size", [1, 2])
def test_a_plain_function_whose_thread_comes_late_gets_what_was_claimed_for_it(batch_size):
    async def main():
        free = threading.Event()
        async with Stage(lambda _messages: None, workers=1, batch_size=batch_size) as stage:
            stage.threads.submit(free.wait)
            stage.pool.submit(consume_of(2))
            await until(stage.pool.running)
            (work,) = stage.pool.running()
            work.since -= 1.0  # so long the thread was busy with something else
            free.set()
            await stage.wait(2)
            assert [(run.first, run.until) for run in stage.runs if run.first == run.until] == []

    asyncio.run(main())


def test_a_task_that_outlives_the_stop_is_cancelled():
    async def main():
        async def listen(_message):
            await asyncio.sleep(60)

        stage = Stage(listen)
        stage.pool.submit(consume_of(1))
        await asyncio.sleep(0)
        (work,) = stage.pool.running()
        assert "asyncio.sleep(60)" in stage.pool.stack_of(work.thread_id)
        stage.pool.stop()
        assert not await stage.pool.join(0.01)
        stage.threads.shutdown()
        assert stage.runs == []

    asyncio.run(main())

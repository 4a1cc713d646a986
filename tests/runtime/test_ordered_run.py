"""Ordered runs, on threads and on a loop alike: what a listener says about a batch, and turns."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from gimbalmq.core.consumer.effects import Consume, Permit
from gimbalmq.core.process_queue import Batch
from gimbalmq.model.queue import MessageQueue
from gimbalmq.model.verdict import Commit, DeadLetter, RetryLater, Rollback, Suspend
from gimbalmq.runtime.listening import ListenerSettings, Listening
from gimbalmq.runtime.running import RunningWork
from gimbalmq.runtime.tasks import LoopListening

QUEUE = MessageQueue("orders", "broker-a", 0)


def work_of(count, permit=None):
    messages = [
        SimpleNamespace(topic="orders", queue=QUEUE, queue_offset=number, attempts=0)
        for number in range(count)
    ]
    batch = Batch(messages, range(count), count)
    return RunningWork(Consume(QUEUE, 1, batch, 0, count, True, permit), 0, count, time.monotonic())


def on_threads(listener, work, **settings):
    return Listening({"orders": listener}.get, ListenerSettings(**settings)).run(work, 0.002)


def on_a_loop(listener, work, **settings):
    async def listen(messages):
        await asyncio.sleep(0)
        return listener(messages)

    async def main():
        with ThreadPoolExecutor(1) as threads:
            options = ListenerSettings(**settings)
            listening = LoopListening({"orders": listen}.get, options, threads)
            return await listening.run_async(work, 0.002)

    return asyncio.run(main())


BOTH = pytest.mark.parametrize("run", [on_threads, on_a_loop])


def numbers(messages):
    return [message.queue_offset for message in messages]


@BOTH
def test_a_batch_that_fails_stops_the_run_with_all_its_messages(run):
    got, work = [], work_of(7)

    def listener(messages):
        got.append(numbers(messages))
        if len(got) == 2:
            raise ValueError("no")

    done = run(listener, work, batch_size=3)
    assert got == [[0, 1, 2], [3, 4, 5]]
    assert (done.reached, done.failed_until, done.suspend_s) == (3, 6, 1.0)
    assert [one.attempts for one in work.consume.batch.messages] == [0, 0, 0, 1, 1, 1, 0]


@BOTH
def test_a_batch_that_is_given_up_is_given_up_whole(run):
    def listener(_messages):
        raise DeadLetter

    done = run(listener, work_of(5), batch_size=3)
    assert (done.reached, done.failed_until, done.buried, done.suspend_s) == (0, 3, True, None)


@BOTH
def test_of_a_batch_that_names_messages_to_retry_what_comes_before_them_is_done(run):
    """What comes after them comes again with them, because nothing may overtake."""
    work = work_of(5)

    def listener(messages):
        raise RetryLater(messages=messages[1:2])

    done = run(listener, work, batch_size=3)
    assert (done.reached, done.failed_until, done.suspend_s) == (1, 3, 1.0)
    assert [one.attempts for one in work.consume.batch.messages] == [0, 1, 1, 0, 0]


@BOTH
def test_a_batch_that_names_none_of_its_messages_is_done(run):
    def listener(_messages):
        raise RetryLater(messages=[])

    done = run(listener, work_of(5), batch_size=3)
    assert (done.reached, done.failed_until, done.suspend_s) == (None, None, None)


@BOTH
def test_what_a_batch_names_as_done_is_committed_only_where_that_goes_by_itself(run):
    def listener(messages):
        raise RetryLater(messages=messages[2:])

    done = run(listener, work_of(3), batch_size=3, auto_commit=False)
    assert (done.reached, done.uncommitted_from) == (2, 0)


@BOTH
def test_a_listener_chooses_the_pause_of_its_queue(run):
    def listener(_message):
        raise Suspend(0.25)

    assert run(listener, work_of(2)).suspend_s == 0.25


@BOTH
def test_a_commit_covers_what_came_before_and_a_rollback_ends_the_run(run):
    said = iter([None, Commit, None, Rollback])
    done = run(lambda _message: next(said), work_of(6), auto_commit=False)
    assert (done.reached, done.uncommitted_from) == (4, 2)
    assert (done.rolled_back, done.suspend_s) == (True, 1.0)


@BOTH
def test_a_run_ends_with_the_permit_of_its_queue(run):
    permit = Permit(time.monotonic() + 60.0)

    def listener(message):
        if message.queue_offset == 1:
            permit.valid_until = 0.0

    done = run(listener, work_of(4, permit))
    assert (done.reached, done.suspend_s) == (2, None)


@pytest.mark.rule("B5.2f")
@BOTH
def test_a_run_that_has_taken_a_second_tells_how_far_it_is_and_lets_others_run(run, monkeypatch):
    now, got = [100.0], []
    monkeypatch.setattr("gimbalmq.runtime.listening.time.monotonic", lambda: now[0])

    def listener(message):
        got.append(message.queue_offset)
        now[0] += 0.375

    done = run(listener, work_of(10))
    assert got == [0, 1, 2]
    assert (done.reached, done.suspend_s) == (3, None), "the rest waits for its next turn"
    assert done.took_s == 1.125


@pytest.mark.parametrize(("auto_commit", "told"), [(True, 1), (False, 0)])
@BOTH
def test_a_verdict_that_is_not_asked_for_means_nothing_and_is_told(run, caplog, auto_commit, told):
    done = run(lambda _message: Rollback, work_of(2), auto_commit=auto_commit)
    assert done.rolled_back is not auto_commit
    assert sum("means nothing" in one.message for one in caplog.records) == told

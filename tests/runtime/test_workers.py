import asyncio
import sys
import threading
import time
from types import SimpleNamespace

import msgspec
import pytest

from gimbalmq.core.consumer.effects import Consume, Permit
from gimbalmq.core.process_queue import Batch
from gimbalmq.model.queue import MessageQueue
from gimbalmq.model.verdict import DeadLetter, RetryLater
from gimbalmq.runtime.listening import ListenerSettings, Listening
from gimbalmq.runtime.running import RunningWork
from gimbalmq.runtime.workers import WorkerPool

QUEUE = MessageQueue("orders", "broker-a", 0)


def consume_of(count, queue=QUEUE, epoch=1, topics=None, first_offset=0):
    topics = topics or [queue.topic] * count
    messages = [
        SimpleNamespace(topic=topic, queue=queue, queue_offset=number, body=b"%d" % number)
        for number, topic in enumerate(topics, first_offset)
    ]
    batch = Batch(messages, list(range(first_offset, first_offset + count)), count)
    return Consume(queue, epoch, batch, 0, count)


class Results:
    """Takes what workers finish, and accounts for it as the owner does."""

    def __init__(self):
        self.pool = None
        self.account = True
        self.runs = []
        self._changed = threading.Condition()

    def __call__(self, done):
        if self.account:
            self.pool.accounted(done)
        with self._changed:
            self.runs.append(done)
            self._changed.notify_all()

    def positions(self):
        return sorted(p for run in self.runs for p in range(run.first, run.until))

    def failures(self):
        return sorted(failure for run in self.runs for failure in run.failures)

    def wait(self, count, timeout_s=60.0):
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.positions()) >= count, timeout_s)
        return self


@pytest.fixture
def results():
    return Results()


@pytest.fixture
def pool_with(results):
    pools = []

    def make(listener, *, workers=4, batch_size=1, listener_for=None):
        find = listener_for or {"orders": listener}.get
        listening = Listening(find, ListenerSettings(batch_size=batch_size))
        pool = WorkerPool("test", listening, results, workers=workers)
        results.pool = pool
        pools.append(pool)
        pool.start()
        return pool

    yield make
    for pool in pools:
        pool.stop()
        assert pool.join(20.0)


@pytest.mark.rule("B5.1a")
def test_every_message_reaches_the_listener_once(pool_with, results):
    got = []
    pool = pool_with(got.append)
    consume = consume_of(500)
    pool.submit(consume)
    results.wait(500)
    assert sorted(message.queue_offset for message in got) == list(range(500))
    assert results.positions() == list(range(500))
    assert results.failures() == []


def test_only_the_asked_part_of_a_batch_is_consumed(pool_with, results):
    got = []
    pool = pool_with(got.append)
    whole = consume_of(10)
    pool.submit(Consume(QUEUE, 1, whole.batch, 3, 5))
    results.wait(2)
    assert sorted(message.queue_offset for message in got) == [3, 4]


# ---- speed ---------------------------------------------------------------------------------------


@pytest.mark.rule("B5.1j")
def test_slow_listeners_share_one_queue(pool_with, results):
    all_are_here = threading.Barrier(20, timeout=20.0)
    pool = pool_with(lambda _: all_are_here.wait(), workers=20)
    pool.submit(consume_of(20))
    # One after the other, nobody would get past the barrier.
    assert results.wait(20).failures() == []


def test_slow_listeners_share_a_queue_also_after_quick_ones(pool_with, results):
    slow, all_are_here = threading.Event(), threading.Barrier(20, timeout=20.0)

    def listener(_message):
        if slow.is_set():
            all_are_here.wait()

    pool = pool_with(listener, workers=20)
    pool.submit(consume_of(2000))
    results.wait(2000)
    slow.set()
    # A worker that took a long run gives the rest of it to those that have nothing to do.
    pool.submit(consume_of(20, epoch=2))
    assert results.wait(2020).failures() == []


def test_quick_listeners_get_long_runs(pool_with, results):
    pool = pool_with(lambda _: None, workers=2)
    for epoch in range(20):
        pool.submit(consume_of(500, epoch=epoch))
    results.wait(10_000)
    assert len(results.runs) < 2_000
    assert results.positions().count(0) == 20


@pytest.mark.parametrize(("batch_size", "longest"), [(1, 128), (5, 125), (200, 200)])
def test_a_run_that_nobody_watches_is_short(pool_with, results, batch_size, longest):
    """With all workers busy nobody shares it out when its listeners turn slow."""
    pool = pool_with(lambda _: None, workers=1, batch_size=batch_size)
    pool._seconds_each = 1e-6
    pool.submit(consume_of(1000))
    results.wait(1000)
    assert max(run.until - run.first for run in results.runs) == longest


def test_a_hung_listener_does_not_hold_up_what_it_has_not_started(pool_with, results):
    stuck, go_on = threading.Event(), threading.Event()

    def listener(message):
        if message.queue_offset == 0:
            stuck.set()
            go_on.wait(60.0)

    pool = pool_with(listener, workers=2)
    pool.submit(consume_of(100))
    assert stuck.wait(20.0)
    results.wait(99)
    go_on.set()
    results.wait(100)


# ---- failures ------------------------------------------------------------------------------------


def test_a_message_whose_listener_raises_failed_and_the_others_did_not(pool_with, results, caplog):
    def listener(message):
        if message.queue_offset == 2:
            raise ValueError("no such customer")

    pool_with(listener).submit(consume_of(5))
    results.wait(5)
    assert results.failures() == [(2, 0)]
    assert "orders/broker-a/0 offset 2" in caplog.text
    assert "no such customer" in caplog.text


@pytest.mark.parametrize(
    ("verdict", "level"),
    [(RetryLater(), 0), (RetryLater(delay_level=5), 5), (DeadLetter("hopeless"), -1)],
    ids=repr,
)
@pytest.mark.rule("B5.3c")
def test_a_listener_may_say_what_happens_to_its_message(pool_with, results, verdict, level):
    def listener(_message):
        raise verdict

    pool_with(listener).submit(consume_of(1))
    assert results.wait(1).failures() == [(0, level)]


def test_asking_for_a_retry_is_no_warning(pool_with, results, caplog):
    def listener(_message):
        raise RetryLater

    pool_with(listener).submit(consume_of(1))
    results.wait(1)
    assert not caplog.records


NOT_EXCEPTIONS = pytest.mark.parametrize(
    "kind", [SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError]
)


@NOT_EXCEPTIONS
def test_whatever_a_listener_raises_is_its_verdict_and_its_thread_goes_on(pool_with, results, kind):
    def listener(message):
        if message.queue_offset == 1:
            raise kind

    pool = pool_with(listener, workers=1)
    pool.submit(consume_of(3))
    assert results.wait(3).failures() == [(1, 0)]
    assert pool.cancel(QUEUE, 1) == 0, "nothing counts as running for ever"


@NOT_EXCEPTIONS
def test_whatever_the_listener_of_a_batch_raises_is_its_verdict(pool_with, results, kind):
    def listener(_batch):
        raise kind

    pool_with(listener, workers=1, batch_size=2).submit(consume_of(4))
    assert results.wait(4).failures() == [(at, 0) for at in range(4)]


@NOT_EXCEPTIONS
def test_whatever_an_ordered_listener_raises_stops_its_queue_and_no_more(pool_with, results, kind):
    def listener(message):
        message.attempts = 0
        if message.queue_offset == 1:
            raise kind

    pool = pool_with(listener, workers=1)
    pool.submit(msgspec.structs.replace(consume_of(3), ordered=True))
    (done,) = results.wait(3).runs
    assert (done.reached, done.suspend_s) == (1, 1.0)
    pool.submit(consume_of(2, epoch=2))
    results.wait(5)


def test_a_listener_that_calls_exit_is_told_that_this_does_not_end_the_process(
    pool_with, results, caplog
):
    def listener(_message):
        sys.exit(1)

    pool_with(listener).submit(consume_of(1))
    results.wait(1)
    assert "sys.exit() in a listener does not end the process" in caplog.text
    assert "orders/broker-a/0 offset 0" in caplog.text


# ---- batches -------------------------------------------------------------------------------------


@pytest.mark.rule("B5.1a")
def test_a_batch_listener_gets_lists_of_at_most_its_size(pool_with, results):
    got = []
    pool_with(got.append, batch_size=8).submit(consume_of(20))
    results.wait(20)
    assert sorted(map(len, got), reverse=True) == [8, 8, 4]
    assert {type(batch) for batch in got} == {list}


@pytest.mark.rule("B5.1b")
def test_a_batch_listener_that_raises_fails_the_whole_batch(pool_with, results):
    def listener(batch):
        if batch[0].queue_offset == 4:
            raise ValueError("no")

    pool_with(listener, batch_size=4).submit(consume_of(8))
    assert results.wait(8).failures() == [(4, 0), (5, 0), (6, 0), (7, 0)]


@pytest.mark.rule("B5.1h")
def test_part_of_a_batch_can_be_asked_for_again(pool_with, results):
    def listener(batch):
        raise RetryLater(delay_level=3, messages=batch[1:3])

    pool_with(listener, batch_size=4).submit(consume_of(4))
    assert results.wait(4).failures() == [(1, 3), (2, 3)]


def test_a_batch_listener_may_change_its_list(pool_with, results):
    def listener(batch):
        first = batch[0].queue_offset
        batch.clear()
        if first == 8:
            raise ValueError("no")

    pool = pool_with(listener, workers=1, batch_size=4)
    pool._seconds_each = 1e-6
    pool.submit(consume_of(16))
    assert results.wait(16).failures() == [(8, 0), (9, 0), (10, 0), (11, 0)]
    assert [run.reached for run in results.runs] == [None] * len(results.runs)


def test_quick_batches_are_run_together_and_each_fails_by_itself(pool_with, results):
    def listener(batch):
        if batch[0].queue_offset == 104:
            raise RetryLater(delay_level=3, messages=batch[:1])

    pool = pool_with(listener, workers=1, batch_size=4)
    pool._seconds_each = 1e-6
    pool.submit(consume_of(200))
    assert results.wait(200).failures() == [(104, 3)]
    assert results.positions() == list(range(200))
    assert len(results.runs) < 50, "several batches a run"


def test_batches_of_a_listener_that_turns_out_slow_are_shared(pool_with, results):
    all_are_here = threading.Barrier(4, timeout=20.0)

    def listener(_batch):
        all_are_here.wait()

    pool = pool_with(listener, workers=5, batch_size=4)
    pool._seconds_each = 1e-6
    pool.submit(consume_of(16))
    assert results.wait(16).positions() == list(range(16))


# ---- giving queues up ----------------------------------------------------------------------------


class Gate:
    """A listener that stops at its first message until it is let go."""

    def __init__(self):
        self.entered = threading.Event()
        self.open = threading.Event()
        self.got = []

    def __call__(self, message):
        self.got.append(message.queue_offset)
        self.entered.set()
        self.open.wait(60.0)


@pytest.mark.rule("B5.1i")
def test_what_waits_of_a_cancelled_queue_is_not_started(pool_with, results):
    gate = Gate()
    pool = pool_with(gate, workers=1)
    pool.submit(consume_of(10))
    assert gate.entered.wait(20.0)
    assert pool.cancel(QUEUE, 1) == 1
    gate.open.set()
    results.wait(1)
    pool.submit(consume_of(1, epoch=2))
    results.wait(2)
    assert gate.got == [0, 0]


def test_cancelling_an_idle_queue_finds_nothing_running(pool_with):
    assert pool_with(lambda _: None).cancel(QUEUE, 1) == 0


def test_cancelling_leaves_other_queues_and_later_acquisitions_alone(pool_with, results):
    gate = Gate()
    pool = pool_with(gate, workers=1)
    other = MessageQueue("orders", "broker-a", 1)
    pool.submit(consume_of(1, epoch=1))
    assert gate.entered.wait(20.0)
    pool.submit(consume_of(3, epoch=1))
    pool.submit(consume_of(4, epoch=2))
    pool.submit(consume_of(5, other))
    pool.cancel(QUEUE, 1)
    gate.open.set()
    results.wait(10)
    assert (
        sorted(run.queue.queue_id for run in results.runs for _ in range(run.first, run.until))
        == [0] * 5 + [1] * 5
    )


def test_a_run_counts_as_running_until_its_result_was_taken_in(pool_with, results):
    results.account = False
    pool = pool_with(lambda _: None)
    pool.submit(consume_of(1))
    (run,) = results.wait(1).runs
    assert pool.cancel(QUEUE, 1) == 1
    pool.accounted(run)
    assert pool.cancel(QUEUE, 1) == 0


def test_a_cancelled_run_is_finished_when_later_messages_have_begun(pool_with, results):
    """Otherwise the later ones would be delivered again, to the next owner of the queue."""
    gate = threading.Event()
    entered, later = threading.Event(), threading.Event()

    def listener(message):
        if message.queue_offset == 5000:
            entered.set()
            gate.wait(60.0)
            time.sleep(0.01)  # longer than a run may take before it is shared
        if message.queue_offset == 6000:
            later.set()

    pool = pool_with(listener, workers=2)
    pool.submit(consume_of(5000))
    results.wait(5000)
    pool.submit(consume_of(50, first_offset=5000))
    assert entered.wait(20.0)
    pool.submit(consume_of(1, first_offset=6000))
    assert later.wait(20.0), "the second worker helps out"
    running = pool.cancel(QUEUE, 1)
    gate.set()
    results.wait(5001 + running)
    assert all(run.reached is None for run in results.runs), "every claimed message ran"


def test_a_run_goes_on_for_as_long_as_its_permit_is_renewed(monkeypatch):
    """Messages that were claimed before others must not be left behind by a release."""
    now = [1000.0]
    monkeypatch.setattr("gimbalmq.runtime.listening.time.monotonic", lambda: now[0])
    permit, got = Permit(1001.0), []

    def listener(message):
        got.append(message.queue_offset)
        now[0] += 0.6
        if message.queue_offset < 4:
            permit.valid_until = now[0] + 1.0

    consume = msgspec.structs.replace(consume_of(9), permit=permit)
    listening = Listening({"orders": listener}.get, ListenerSettings())
    done = listening.run(RunningWork(consume, 0, 9, now[0]), float("inf"))
    assert got == [0, 1, 2, 3, 4, 5], "two more after the last renewal"
    assert done.reached == 6


def test_a_slow_message_among_quick_ones_holds_up_nothing_else(pool_with, results):
    gate = threading.Event()
    entered = threading.Event()

    def listener(message):
        if message.queue_offset == 5000:
            entered.set()
            gate.wait(60.0)

    pool = pool_with(listener, workers=4)
    pool.submit(consume_of(5000))
    results.wait(5000)
    pool.submit(consume_of(1, first_offset=5000))
    assert entered.wait(20.0)
    pool.submit(consume_of(100, first_offset=6000))
    results.wait(5100)
    gate.set()
    results.wait(5101)


@pytest.mark.parametrize(
    ("seconds_each", "active", "standing_by", "woken"),
    [
        (1e-6, 1, True, 0),  # one works, one stands by: nobody else would be of use
        (1e-6, 1, False, 1),  # somebody has to stand by
        (1e-6, 0, True, 1),  # nobody works
        (0.01, 1, True, 1),  # slow listeners: all workers share what waits
        (None, 1, True, 1),  # not known yet
    ],
)
def test_a_worker_is_woken_only_where_it_is_of_use(
    results, seconds_each, active, standing_by, woken
):
    pool = WorkerPool("test", Listening({}.get, ListenerSettings()), results, workers=4)
    pool._active, pool._standing_by, pool._seconds_each = active, standing_by, seconds_each
    bells = []
    pool._parking.wake = lambda: bells.append("ring")
    pool.submit(consume_of(1))
    assert len(bells) == woken


def test_who_stands_by_looks_less_often_while_all_goes_well_and_soon_again_when_not(
    results, monkeypatch
):
    pool = WorkerPool("test", Listening({}.get, ListenerSettings()), results, workers=0)
    late = RunningWork(consume_of(1), 0, 1, since=90.0, thread_id=1)
    pauses = []

    def sleep(pause_s):
        pauses.append(pause_s)
        pool._claims.number += len(pauses) < 7  # others claim on and on
        pool._current = {1: late} if len(pauses) == 4 else {}

    clock = SimpleNamespace(sleep=sleep, monotonic=lambda: 100.0)
    monkeypatch.setattr("gimbalmq.runtime.workers.time", clock)
    with pool._lock:
        assert not pool._stand_by()
    assert pauses == [0.005, 0.01, 0.02, 0.02, 0.005, 0.01, 0.02]


def test_a_run_that_is_cancelled_in_its_middle_counts_the_rest_as_not_done(pool_with, results):
    """A long run of quick messages, the last of which turns slow while its queue is given up."""
    gate = threading.Event()
    entered = threading.Event()
    slow = [False]

    def listener(_message):
        if slow[0]:
            entered.set()
            gate.wait(60.0)
            time.sleep(0.01)  # longer than a run may take before it is shared

    pool = pool_with(listener, workers=1)
    pool.submit(consume_of(5000))
    results.wait(5000)
    slow[0] = True
    pool.submit(consume_of(50, epoch=2))
    assert entered.wait(20.0)
    running = pool.cancel(QUEUE, 2)
    gate.set()
    results.wait(5000 + running)
    late = [run for run in results.runs if run.epoch == 2]
    assert sum(run.until - run.first for run in late) == running
    reached = sum((run.until if run.reached is None else run.reached) - run.first for run in late)
    assert reached == 1, "only the message that ran is done"
    assert not any(run.failures for run in late)


def test_what_runs_can_be_looked_at(pool_with, results):
    gate = Gate()
    pool = pool_with(gate, workers=1)
    consume = consume_of(1)
    pool.submit(consume)
    assert gate.entered.wait(20.0)
    (running,) = pool.running()
    assert (running.consume, running.first, running.until) == (consume, 0, 1)
    assert running.since <= time.monotonic()
    gate.open.set()
    results.wait(1)
    assert pool.running() == []


# ---- stopping ------------------------------------------------------------------------------------


@pytest.mark.rule("B5.4c")
def test_stop_ends_the_threads_and_starts_nothing_new(pool_with, results):
    gate = Gate()
    pool = pool_with(gate, workers=1)
    pool.submit(consume_of(10))
    assert gate.entered.wait(20.0)
    pool.stop()
    assert not pool.join(0.05), "a listener is still running"
    gate.open.set()
    assert pool.join(20.0)
    assert gate.got == [0]


def test_a_listener_may_stop_the_pool(pool_with, results):
    pool = pool_with(lambda _: (pool.stop(), pool.join(1.0)), workers=2)
    pool.submit(consume_of(1))
    results.wait(1)


def test_a_run_says_which_message_its_listener_has(pool_with, results):
    gate, at = Gate(), []
    pool = pool_with(gate, workers=1)
    pool.submit(consume_of(3))
    assert gate.entered.wait(20.0)
    (running,) = pool.running()
    at.append(list(running.current()))
    gate.open.set()
    results.wait(3)
    assert at == [[0]]


def test_a_result_says_how_long_listeners_took(pool_with, results):
    pool_with(lambda _: time.sleep(0.02), workers=1).submit(consume_of(2))
    assert sum(run.took_s for run in results.wait(2).runs) >= 0.04

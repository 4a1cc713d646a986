"""Quick listeners on the thread that their messages come from, and what happens when one is not."""

import threading
import time

import msgspec
import pytest

from gimbalmq.core.consumer.effects import Permit
from gimbalmq.runtime.engine import Engine
from gimbalmq.runtime.listening import ListenerSettings, Listening
from gimbalmq.runtime.results import Results
from gimbalmq.runtime.workers import WorkerPool
from runtime.test_engine import Client
from runtime.test_workers import consume_of
from waiting import eventually

LIMIT_S = 20.0


class Stage:
    """A pool whose owner is an engine, and a listener that notes where it runs."""

    def __init__(self, workers=4, batch_size=1):
        self.engine = Engine("test", Client())
        self.engine.start()
        self.threads = set()
        self.special = lambda: None
        self.done = []
        settings = ListenerSettings(batch_size=batch_size)
        self.pool = WorkerPool(
            "test",
            Listening({"orders": self._listen}.get, settings),
            Results(self.engine.post, self._take),
            workers=workers,
            soon=self.engine.post,
            owner=self.engine,
        )
        self.pool.start()

    def _listen(self, got):
        self.threads.add(threading.current_thread())
        for message in got if isinstance(got, list) else [got]:
            if message.queue_offset == 7:
                self.special()

    def _take(self, done):
        self.pool.accounted(done)
        self.done.append(done)

    def ask(self):
        """Have the engine do something, and wait for it; the thread that did."""
        got, there = [], threading.Event()
        self.engine.post(lambda: (got.append(threading.current_thread()), there.set()))
        assert there.wait(LIMIT_S)
        return got[0]

    def submit(self, consume):
        self.engine.post(lambda: self.pool.submit(consume))

    def wait(self, condition):
        eventually(condition, LIMIT_S, pause_s=0.001)

    def positions(self):
        return sum(one.until - one.first for one in self.done)

    def consume(self, consume):
        """Submit, and wait until all of it is done."""
        wanted = self.positions() + consume.until
        self.submit(consume)
        self.wait(lambda: self.positions() >= wanted)

    def until_quick(self, **changes):
        """Messages of no interest, until the engine thread runs their listeners."""

        def once():
            self.threads.clear()
            self.consume(msgspec.structs.replace(consume_of(7), **changes))
            return self.threads == {self.ask()}

        self.wait(once)

    def on_engine(self, act):
        """Have a listener do something on the engine thread, and wait until it begins.

        A worker may take the message that is meant for it; then there is another one. Returns the
        thread, and the positions that were done before.
        """
        engine_thread, began = self.ask(), threading.Event()

        def special():
            if threading.current_thread() is engine_thread:
                began.set()
                act()

        def once():
            self.special = lambda: None
            self.until_quick()
            self.special, done = special, self.positions()
            self.submit(consume_of(30))
            self.wait(lambda: began.is_set() or self.positions() >= done + 30)
            return (done,) if began.is_set() else ()

        (done,) = eventually(once, LIMIT_S)
        self.special = lambda: None
        return engine_thread, done

    def close(self):
        self.pool.stop()
        assert self.pool.join(LIMIT_S)
        self.engine.stop()


@pytest.fixture
def stage():
    stage = Stage()
    yield stage
    stage.close()


def test_quick_listeners_come_to_run_where_their_messages_come_from(stage):
    stage.until_quick()


def test_so_do_quick_listeners_that_get_batches():
    stage = Stage(batch_size=4)
    stage.until_quick()
    stage.close()


@pytest.mark.parametrize("changes", [{"ordered": True}, {"permit": Permit(float("inf"))}])
def test_what_must_not_start_late_runs_on_workers_only(stage, changes):
    stage.until_quick()
    engine_thread = stage.ask()
    stage.threads.clear()
    for _ in range(20):
        stage.consume(msgspec.structs.replace(consume_of(7), **changes))
    assert stage.threads
    assert engine_thread not in stage.threads


def test_a_listener_that_hangs_on_the_engine_thread_holds_up_nothing_else(stage):
    go_on = threading.Event()
    held_up, done = stage.on_engine(lambda: go_on.wait(LIMIT_S))
    assert held_up.ident in {work.thread_id for work in stage.pool.running()}
    assert stage.ask() is not held_up, "a thread that is held up is replaced"
    stage.submit(consume_of(50, epoch=2))
    # All but the run up to the message that hangs; the rest of that was taken over.
    stage.wait(lambda: stage.positions() >= done + 50 + 22)
    assert held_up.ident in {work.thread_id for work in stage.pool.running()}
    go_on.set()
    stage.wait(lambda: not stage.pool.running())
    stage.wait(lambda: stage.positions() == done + 50 + 30)
    assert all(one.reached is None for one in stage.done)


def test_a_listener_may_wait_for_the_engine_that_it_runs_on(stage):
    """As one does that pauses its own consumer."""
    answers = []
    held_up, done = stage.on_engine(lambda: answers.append(stage.ask()))
    stage.wait(lambda: stage.positions() == done + 30)
    assert len(answers) == 1
    assert held_up not in answers


def test_the_engine_thread_is_left_alone_after_it_was_held_up(stage):
    _, done = stage.on_engine(stage.ask)
    stage.wait(lambda: stage.positions() == done + 30)
    assert stage.pool._alone_until > 0.0
    stage.pool._alone_until = time.monotonic() + LIMIT_S
    stage.threads.clear()
    for _ in range(20):
        stage.consume(consume_of(7))
    assert stage.ask() not in stage.threads


def test_stopping_waits_for_a_listener_on_the_engine_thread_but_not_for_ever():
    stage = Stage()
    go_on = threading.Event()
    stage.on_engine(lambda: go_on.wait(LIMIT_S))
    stage.pool.stop()
    assert not stage.pool.join(0.02)
    stage.engine.stop()
    go_on.set()
    assert stage.pool.join(LIMIT_S)

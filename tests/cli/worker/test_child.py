"""What a child says of its consumer when it is asked."""

import pytest

from gimbalmq import metrics
from gimbalmq.cli.worker.child import _status
from gimbalmq.client.push_consumer import PushConsumer
from gimbalmq.client.stats import Probe
from gimbalmq.errors import StateError


class Consumer(PushConsumer):
    def __init__(self, probe, assignment=()):
        self._probe, self._assignment = probe, assignment

    def probe(self, _timeout_s=2.0):
        return self._probe

    def assignment(self):
        if isinstance(self._assignment, Exception):
            raise self._assignment
        return self._assignment


def test_nothing_more_is_asked_of_a_consumer_whose_own_thread_does_not_answer(monkeypatch):
    monkeypatch.setattr(metrics, "collect", lambda: pytest.fail("it would wait for long"))
    dead = Probe(False, False, ("the client's own thread",), answered=False)
    said = _status(Consumer(dead, AssertionError("it would wait for long")), 7)
    assert (said.question, said.live, said.reasons) == (7, False, ("the client's own thread",))


def test_a_consumer_on_its_way_out_is_live_and_has_no_queues():
    leaving = Probe(True, False, ("the consumer is stopping",))
    said = _status(Consumer(leaving, StateError("not running")), 7)
    assert (said.live, said.ready, said.queues) == (True, False, 0)


def test_a_consumer_that_hangs_between_two_questions_is_silent():
    with pytest.raises(TimeoutError):
        _status(Consumer(Probe(True, True), TimeoutError()), 7)


def test_one_that_is_not_there_yet_is_starting():
    assert _status(None, 7).reasons == ("the consumer is starting",)

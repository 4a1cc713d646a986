"""Offset effects in, requests to the keeper out, answers as events."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from gimbalmq.core.consumer import effects as fx
from gimbalmq.core.consumer import events as ev
from gimbalmq.errors import TransportError
from gimbalmq.model.queue import MessageQueue
from gimbalmq.runtime.offset_calls import OffsetCalls

OLD, NEW = (MessageQueue("orders", "broker-a", number) for number in range(2))


class Keeper:
    """Keeps what it was asked, and who waits for the answer."""

    def __init__(self):
        self.asked = []
        self.waiting = []

    def find(self, queue, master, done, *, new):
        self.asked.append((queue, master, new))
        self.waiting.append(done)

    def commit(self, queue, master, offset):
        self.asked.append((queue, master, offset))

    def hand_over(self, queue, master, offset, done, *, force):
        self.asked.append((queue, master, offset, force))
        self.waiting.append(done)


@pytest.fixture
def keeper():
    return Keeper()


@pytest.fixture
def events():
    return []


@pytest.fixture
def calls(keeper, events):
    instance = SimpleNamespace(routes=SimpleNamespace(master=lambda queue: f"{queue.broker}:1"))
    return OffsetCalls(
        instance, keeper, events.append, all_found=lambda: events.append("all found")
    )


def test_a_queue_is_new_only_to_a_topic_that_was_known_without_it(calls, keeper):
    calls.find(fx.FindOffset(NEW, 1))
    calls.topic_known("orders", frozenset({OLD}))
    calls.topic_known("orders", frozenset({OLD, NEW}))
    calls.find(fx.FindOffset(OLD, 2))
    calls.find(fx.FindOffset(NEW, 3))
    assert keeper.asked == [
        (NEW, "broker-a:1", False),
        (OLD, "broker-a:1", False),
        (NEW, "broker-a:1", True),
    ]


def test_all_are_found_when_the_last_answer_was_taken_in(calls, keeper, events):
    calls.find(fx.FindOffset(OLD, 1))
    calls.find(fx.FindOffset(NEW, 2))
    first, second = keeper.waiting
    second(7)
    assert (events, calls.finding) == ([ev.OffsetFound(NEW, 2, 7)], True)
    first(TransportError("gone"))
    assert events[1:] == [ev.OffsetFound(OLD, 1, None, "gone"), "all found"]
    assert not calls.finding


def test_a_hand_over_is_answered_also_when_it_fails(calls, keeper, events):
    calls.commit(fx.Commit(OLD, 5))
    calls.hand_over(fx.HandOver(OLD, 1, 6, force=True))
    assert keeper.asked == [(OLD, "broker-a:1", 5), (OLD, "broker-a:1", 6, True)]
    (stored,) = keeper.waiting
    stored(None)
    stored(TransportError("gone"))
    assert events == [ev.HandedOver(OLD, 1, ""), ev.HandedOver(OLD, 1, "gone")]

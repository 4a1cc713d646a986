"""When the route of a retry topic is asked for again, and when no more."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from gimbalmq.core.routes import RouteTable
from gimbalmq.runtime.retry_route import RetryRouteWatch
from gimbalmq.wire.names import retry_topic
from runtime.group_stage import broker_set, route

RETRY = retry_topic("billing")


class Instance:
    """Routes, and timers that fire when they are told to."""

    def __init__(self):
        self.routes = RouteTable()
        self.asked = 0
        self.timers = []
        self.driver = SimpleNamespace(call_later=self._call_later)

    def _call_later(self, delay_s, action):
        timer = SimpleNamespace(delay_s=delay_s, fire=action, cancelled=False)
        timer.cancel = lambda: setattr(timer, "cancelled", True)
        self.timers.append(timer)
        return timer

    def refresh_route(self, topic):
        assert topic == RETRY
        self.asked += 1

    def fire(self):
        self.timers[-1].fire()


@pytest.fixture
def instance():
    made = Instance()
    made.routes.learn(route("orders", broker_set("a"), broker_set("b")))
    return made


def test_a_topic_that_is_everywhere_is_not_asked_for(instance):
    instance.routes.learn(route(RETRY, broker_set("b"), broker_set("a")))
    RetryRouteWatch(instance, "billing", ["orders", RETRY]).begin()
    assert (instance.timers, instance.asked) == ([], 0)


def test_a_group_without_retry_topic_looks_for_none(instance):
    RetryRouteWatch(instance, "billing", ["orders"]).begin()
    assert instance.timers == []


def test_it_is_asked_for_ever_less_often_and_not_for_ever(instance):
    RetryRouteWatch(instance, "billing", ["orders", RETRY]).begin()
    for _ in range(9):
        instance.fire()
    delays = [timer.delay_s for timer in instance.timers]
    assert delays == sorted(set(delays))
    assert (len(delays), instance.asked) == (6, 5)


def test_it_ends_once_the_last_broker_has_it_and_when_it_is_stopped(instance):
    watch = RetryRouteWatch(instance, "billing", ["orders", RETRY])
    watch.begin()
    instance.routes.learn(route(RETRY, broker_set("a")))
    instance.fire()
    assert instance.asked == 1
    watch.stop()
    assert instance.timers[-1].cancelled
    instance.routes.learn(route(RETRY, broker_set("a"), broker_set("b")))
    instance.fire()
    assert (instance.asked, len(instance.timers)) == (1, 2)

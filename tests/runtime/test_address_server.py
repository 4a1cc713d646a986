import threading
import time

import pytest

from gimbalmq.errors import TransportError, UnreachableError
from gimbalmq.flows.route import NameServers
from gimbalmq.runtime.address_server import NameServerRefresh
from gimbalmq.runtime.instance import ClientInstance, InstanceSettings
from runtime.fake_driver import FakeDriver


@pytest.fixture
def instance():
    instance = ClientInstance("me", NameServers(["a:1", "b:1"]), InstanceSettings())
    instance.attach(FakeDriver(lambda *_: TransportError("nobody")))
    return instance


def fire(instance, before):
    """Run the timer of the refresh and wait until it has planned the next one."""
    driver = instance.driver
    [timer] = [one for one in driver.timers if one not in before]
    known = len(driver.timers)
    timer.action()
    deadline = time.monotonic() + 5.0
    while len(driver.timers) == known:
        assert time.monotonic() < deadline
        threading.Event().wait(0.001)
    return timer


@pytest.mark.rule("B2.1e")
def test_the_address_server_is_asked_every_120_seconds(instance):
    answers = iter([("b:1", "c:1"), UnreachableError("down"), ("d:1",)])

    def ask():
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    seen = list(instance.driver.timers)
    NameServerRefresh(instance, ask)
    for wanted in (("b:1", "c:1"), ("b:1", "c:1"), ("d:1",)):
        timer = fire(instance, seen)
        assert timer.due - instance.driver.at_s == 120.0
        assert instance.nameservers.addresses == wanted
        seen.append(timer)

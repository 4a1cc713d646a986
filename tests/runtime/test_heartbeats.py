"""Heartbeats with fingerprints: subscriptions are left out only where they are remembered."""

import pytest

from gimbalmq.errors import TransportError
from gimbalmq.flows.route import NameServers
from gimbalmq.runtime.instance import ClientInstance, InstanceSettings
from gimbalmq.wire.bodies import decode_heartbeat
from gimbalmq.wire.command import response_to
from runtime.fake_driver import FakeDriver
from runtime.test_instance import BEAT, Cluster, Member, join, route

UNDERSTOOD = {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "false"}


class Remembering(Cluster):
    """Answers heartbeats with `fields`."""

    fields = UNDERSTOOD

    def __call__(self, address, command):
        if command.code == BEAT:
            return response_to(command, fields=self.fields)
        return super().__call__(address, command)


@pytest.fixture
def cluster():
    return Remembering(route("orders"))


@pytest.fixture
def driver(cluster):
    return FakeDriver(cluster)


@pytest.fixture
def instance(driver):
    settings = InstanceSettings(use_heartbeat_v2=True)
    instance = ClientInstance("me@gmq1-AVG", NameServers(["n:1"]), settings)
    instance.attach(driver)
    return instance


def beats(driver):
    return [decode_heartbeat(command.body) for command in driver.of(BEAT, "a:1")]


def is_full(beat):
    return not beat.without_subscriptions and all(one.subscriptions for one in beat.consumers)


@pytest.mark.rule("B8.2b")
def test_the_first_heartbeat_is_full_and_later_ones_leave_subscriptions_out(instance, driver):
    join(instance, Member("billing", "orders"))
    instance.heartbeat()
    first, later = beats(driver)[0], beats(driver)[-1]
    assert is_full(first)
    assert first.fingerprint
    assert later.without_subscriptions
    assert later.fingerprint == first.fingerprint
    assert [one.subscriptions for one in later.consumers] == [()]
    assert instance.registrations.version("a:1", "billing", "orders") == 7


@pytest.mark.rule("B8.2b")
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {**UNDERSTOOD, "IS_SUPPORT_HEART_BEAT_V2": "false"},
        {**UNDERSTOOD, "IS_SUB_CHANGE": "true"},
    ],
    ids=["4.9", "not supported", "subscription changed"],
)
def test_a_broker_that_does_not_say_that_it_understands_gets_everything(
    instance, driver, cluster, fields
):
    cluster.fields = fields
    join(instance, Member("billing", "orders"))
    instance.heartbeat()
    instance.heartbeat()
    assert all(is_full(beat) for beat in beats(driver)[-3:])


@pytest.mark.rule("B8.2b")
def test_a_change_of_subscriptions_or_of_their_versions_is_sent_in_full(instance, driver):
    join(instance, Member("billing", "orders"))
    join(instance, Member("shipping", "orders"))
    assert is_full(beats(driver)[-1])
    instance.heartbeat()
    assert not is_full(beats(driver)[-1])
    instance.registrations.forget_fingerprints()
    instance.heartbeat()
    assert is_full(beats(driver)[-1])


@pytest.mark.rule("B8.2b")
def test_a_new_connection_is_told_everything(instance, driver):
    join(instance, Member("billing", "orders"))
    instance.on_disconnected("a:1", TransportError("gone", address="a:1"))
    instance.on_connected("a:1")
    assert is_full(beats(driver)[-1])


def test_without_the_option_there_is_no_fingerprint(driver, cluster):
    instance = ClientInstance("me@gmq1-AVG", NameServers(["n:1"]), InstanceSettings())
    instance.attach(driver)
    join(instance, Member("billing", "orders"))
    instance.heartbeat()
    assert [(beat.fingerprint, is_full(beat)) for beat in beats(driver)[-2:]] == [(0, True)] * 2

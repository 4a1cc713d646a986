"""A member whose user pulls: it has a share, and nothing in hand."""

import pytest

from core.consumer.harness import ME, OTHER, QUEUES, one
from gimbalmq.core.allocation import strategy_named
from gimbalmq.core.consumer.effects import Announce, Warn
from gimbalmq.core.consumer.events import (
    MembersListed,
    OffsetsReset,
    RouteLearned,
    Started,
    StopRequested,
    Trigger,
    Unsubscribed,
    Woken,
)
from gimbalmq.core.consumer.passive import PassiveMachine
from gimbalmq.core.consumer.settings import ConsumerSettings


class Passive:
    def __init__(self):
        settings = ConsumerSettings(group="billing", client_id=ME, pull_idle_limit_s=None)
        self.machine = PassiveMachine(settings, strategy_named("AVG"), ["orders"])
        self.now = 100.0
        self.handle(RouteLearned("orders", frozenset(QUEUES)))
        self.handle(Started())

    def handle(self, event):
        self.now += 1.0
        return self.machine.handle(event, self.now)

    def members(self, *members):
        return self.handle(MembersListed(members))


@pytest.fixture
def passive():
    return Passive()


def test_its_share_follows_the_members(passive):
    assert one(passive.members(ME), Announce).report.acquired == QUEUES
    passive.handle(Woken(Trigger.NOTICE))
    assert one(passive.members(ME, OTHER), Announce).report.revoked == QUEUES[2:]
    assert passive.machine.assignment() == frozenset(QUEUES[:2])


@pytest.mark.rule("B5.6a")
def test_a_reset_is_the_users_business_and_is_told(passive):
    passive.members(ME)
    warning = one(passive.handle(OffsetsReset({QUEUES[0]: 7})), Warn)
    assert "orders/broker-a/0" in warning.text
    assert "keeps its offsets itself" in warning.text


def test_each_change_of_its_share_is_told_with_reasons(passive):
    report = one(passive.members(ME), Announce).report
    assert dict(report.moves) == dict.fromkeys(QUEUES, "newly assigned to this member")
    passive.handle(Woken(Trigger.NOTICE))
    report = one(passive.members(ME, OTHER), Announce).report
    assert dict(report.moves) == dict.fromkeys(QUEUES[2:], "assigned to another member")
    assert (report.reasons, report.mine) == (("assigned to another member",), QUEUES[:2])


@pytest.mark.parametrize(
    ("event", "trigger", "why"),
    [
        (StopRequested(0.0), Trigger.STOP, "stop"),
        (Unsubscribed("orders"), Trigger.SUBSCRIPTION, "topic no longer subscribed"),
    ],
)
def test_a_share_that_is_given_up_is_told(passive, event, trigger, why):
    passive.members(ME)
    report = one(passive.handle(event), Announce).report
    assert (report.trigger, dict(report.moves)) == (trigger, dict.fromkeys(QUEUES, why))
    assert report.mine == ()
    assert passive.machine.assignment() == frozenset()

import pytest

from core.consumer.harness import QUEUES, Harness, one, only
from gimbalmq.core.consumer.effects import (
    Consume,
    FindOffset,
    ListMembers,
    Pull,
    RenewHeartbeat,
    SendBack,
)
from gimbalmq.core.consumer.events import (
    Consumed,
    RouteLearned,
    Subscribed,
    Unsubscribed,
)
from gimbalmq.model.queue import MessageQueue


@pytest.mark.rule("B2.4", "B2.4g")
def test_a_broadcasting_member_takes_every_queue_and_asks_nobody():
    harness = Harness(broadcasting=True)
    effects = harness.start()
    assert not only(effects, ListMembers)
    assert {find.queue for find in only(effects, FindOffset)} == set(QUEUES)


@pytest.mark.rule("B5.1", "B5.1g")
def test_a_failure_of_a_broadcasting_member_is_not_delivered_again():
    harness = Harness(broadcasting=True)
    pull = only(harness.located(harness.start()), Pull)[0]
    consume = one(harness.deliver(pull, b"a"), Consume)
    effects = harness.handle(
        Consumed(pull.queue, pull.epoch, consume.batch, 0, 1, failures=((0, 0),))
    )
    assert not only(effects, SendBack)
    assert harness.machine.held[pull.queue].process.commit_offset == 1


@pytest.mark.rule("B4.2h")
@pytest.mark.parametrize(("broadcasting", "told"), [(True, 0), (False, 1)])
def test_a_broker_hears_of_the_offsets_of_a_clustering_group_only(broadcasting, told):
    harness = Harness(broadcasting=broadcasting)
    if broadcasting:
        pull = only(harness.located(harness.start()), Pull)[0]
    else:
        pull = harness.owning("a@gmq1-AVG")[QUEUES[0]]
    effects = harness.deliver(pull, b"a")
    batch = one(effects, Consume).batch
    harness.handle(Consumed(pull.queue, pull.epoch, batch, 0, 1))
    again = harness.deliver(one(effects, Pull), b"b")
    assert one(again, Pull).commit_offset == told


def test_a_new_queue_is_taken_when_the_route_shows_it():
    harness = Harness(broadcasting=True)
    harness.located(harness.start())
    harness.now += 1.0
    more = MessageQueue("orders", "broker-b", 0)
    effects = harness.handle(RouteLearned("orders", frozenset(QUEUES) | {more}))
    assert [find.queue for find in only(effects, FindOffset)] == [more]


@pytest.mark.rule("B2.3i", "B6.2b")
def test_subscribing_while_running_shares_out_the_topic_once_its_route_is_known():
    harness = Harness()
    harness.owning("a@gmq1-AVG")
    harness.now += 1.0
    assert one(harness.handle(Subscribed("refunds")), RenewHeartbeat).changed == ("refunds",)
    refund = MessageQueue("refunds", "broker-a", 0)
    assert only(harness.handle(RouteLearned("refunds", frozenset({refund}))), ListMembers)
    effects = harness.members("a@gmq1-AVG")
    assert [find.queue for find in only(effects, FindOffset)] == [refund]


def test_a_topic_that_is_unsubscribed_is_no_longer_owned():
    harness = Harness()
    harness.owning("a@gmq1-AVG")
    harness.handle(Unsubscribed("orders"))
    assert not harness.machine.assignment()

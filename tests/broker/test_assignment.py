"""Shares that the broker computes, for members that ask instead of computing them."""

from __future__ import annotations

import pytest

from gimbalmq.model.queue import MessageQueue
from gimbalmq.wire import bodies
from gimbalmq.wire.codes import RequestCode

ROUTE = tuple(
    MessageQueue("orders", broker, number)
    for broker in ("broker-a", "broker-b")
    for number in (0, 1)
)
EVERYTHING = [MessageQueue("orders", broker, -1) for broker in ("broker-a", "broker-b")]


def join(desk, count):
    """Members of a group, as they are sorted."""
    names = [f"member-{number}" for number in range(count)]
    for name in names:
        desk.heartbeat(desk.channel(), name, "billing")
    return names


def ask(desk, client_id, *, group="billing", route=ROUTE, **given):
    """What a member is told; `route` is what the name server knows of the topic."""
    channel = desk.channel()
    query = bodies.AssignmentQuery("orders", group, client_id, **given)
    body = bodies.encode_assignment_query(query)
    answer = desk.ask(channel, RequestCode.QUERY_ASSIGNMENT, body=body)
    for topic in desk.lookups:
        desk.take(desk.machine.routed(topic, route, desk.now_ms))
    desk.lookups.clear()
    if answer is None:
        ((_, answer),) = (one for one in desk.sent if one[0] is channel)
        desk.sent = [one for one in desk.sent if one[0] is not channel]
    assert answer.code == 0, answer.remark
    return bodies.decode_assignments(answer.body)


def queues(shares):
    return [share.queue for share in shares]


def set_mode(desk, topic="orders", mode="POP", share=0):
    body = bodies.encode_request_mode(bodies.RequestMode(topic, "billing", mode, share))
    return desk.ask(desk.channel(), RequestCode.SET_MESSAGE_REQUEST_MODE, body=body).code


@pytest.mark.rule("B2.9b")
@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("AVG", [(0, 1), (2,), (3,)]),
        ("AVG_BY_CIRCLE", [(0, 3), (1,), (2,)]),
    ],
)
def test_each_member_is_told_its_share_of_the_queues_of_all_brokers(desk, strategy, expected):
    for name, positions in zip(join(desk, 3), expected, strict=True):
        shares = ask(desk, name, strategy_name=strategy)
        assert queues(shares) == [ROUTE[position] for position in positions]
        assert {share.mode for share in shares} == {"PULL"}


@pytest.mark.rule("B2.9b")
@pytest.mark.parametrize(
    "strategy", ["CONFIG", "MACHINE_ROOM", "MACHINE_ROOM_NEARBY-AVG", "CONSISTENT_HASH", "none"]
)
def test_of_other_strategies_the_broker_has_no_opinion(desk, strategy):
    (name,) = join(desk, 1)
    assert ask(desk, name, strategy_name=strategy) is None


@pytest.mark.rule("B2.9b")
def test_who_is_no_member_has_no_share_and_who_knows_nobody_no_opinion(desk):
    (name,) = join(desk, 1)
    assert ask(desk, "stranger") == ()
    assert ask(desk, name, group="nobody") is None
    assert desk.ask(desk.channel(), RequestCode.QUERY_ASSIGNMENT).code == 1


def test_a_topic_that_has_just_been_made_is_asked_for_again(desk):
    (name,) = join(desk, 1)
    assert ask(desk, name, route=()) is None
    assert queues(ask(desk, name)) == list(ROUTE)


def test_a_broadcasting_member_is_told_every_queue(desk):
    assert queues(ask(desk, "one", message_model="BROADCASTING")) == list(ROUTE)


@pytest.mark.rule("B2.9c", "W2.7")
@pytest.mark.parametrize("share", [-1, 0, 2, 9])
def test_members_that_pop_have_every_queue_unless_few_are_to_share(desk, share):
    names = join(desk, 3)
    assert set_mode(desk, share=share) == 0
    for name in names:
        told = ask(desk, name)
        assert queues(told) == EVERYTHING
        assert {one.mode for one in told} == {"POP"}
    assert ask(desk, "stranger") == ()


@pytest.mark.rule("B2.9c", "W2.7")
@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("AVG", [(0, 1, 2), (2, 3), (3, 0, 1)]),
        ("AVG_BY_CIRCLE", [(0, 3, 1), (1, 2), (2, 0, 3)]),
    ],
)
def test_a_member_that_pops_also_has_the_shares_of_those_after_it(desk, strategy, expected):
    names = join(desk, 3)
    set_mode(desk, share=1)
    for name, positions in zip(names, expected, strict=True):
        shares = ask(desk, name, strategy_name=strategy)
        assert queues(shares) == [ROUTE[position] for position in positions]


@pytest.mark.rule("B2.9c", "W2.7")
def test_of_more_members_than_queues_each_pops_one(desk):
    names = join(desk, 6)
    set_mode(desk, share=1)
    # In whatever order the name server lists them, and whether the answer waited for it or not.
    for position, name in enumerate(names):
        shares = ask(desk, name, route=tuple(reversed(ROUTE)))
        assert queues(shares) == [ROUTE[position % 4]]


@pytest.mark.rule("W2.7")
def test_the_mode_is_kept_and_shown_and_never_that_of_a_retry_topic(desk):
    (name,) = join(desk, 1)
    assert set_mode(desk, share=3) == 0
    assert set_mode(desk, topic="%RETRY%billing") == 16
    assert set_mode(desk, mode="PUSH") == 29
    desk.restart()
    answer = desk.ask(desk.channel(), RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
    assert answer.body == (
        b'{"messageRequestModeMap":{"orders":{"billing":{"consumerGroup":"billing","mode":"POP",'
        b'"popShareQueueNum":3,"topic":"orders"}}}}'
    )
    join(desk, 1)
    assert queues(ask(desk, name)) == EVERYTHING

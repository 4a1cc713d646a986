"""What timers and thresholds do: each is given, and shows in what a consumer asks of its brokers."""

import asyncio
import itertools

import pytest

from client.small_cluster import SmallCluster
from client.virtual_time import GROUP, VirtualMember
from gimbalmq import (
    Admin,
    LitePullConsumer,
    MessageQueue,
    Producer,
    PullConsumer,
    PushConsumer,
    aio,
)
from gimbalmq.core.consumer.events import Consumed
from gimbalmq.errors import ConfigurationError
from gimbalmq.flows.effects import Call
from gimbalmq.runtime import aio as loop_driver
from gimbalmq.runtime import engine, inline
from gimbalmq.wire.bodies import encode_locked
from gimbalmq.wire.codes import RequestCode as R
from gimbalmq.wire.command import response_to

QUEUE = MessageQueue("orders", "broker-a", 0)
KINDS = [PushConsumer, LitePullConsumer, PullConsumer]
FETCHING = [PushConsumer, LitePullConsumer]


def times_of(member, code):
    """When commands of one code were sent, from now on; filled while time goes on."""
    times, answer = [], member.driver.answer

    def noted(address, command):
        if command.code == code:
            times.append(round(member.driver.at_s, 3))
        return answer(address, command)

    member.driver.answer = noted
    return times


def gaps(times):
    return [round(after - before, 3) for before, after in itertools.pairwise(times)]


# ---- how long others may take --------------------------------------------------------------------


@pytest.mark.rule("B6.5c")
@pytest.mark.parametrize("kind", KINDS)
def test_servers_are_waited_for_as_long_as_the_options_say(kind):
    given = {"mq_client_api_timeout_s": 7.0, "offset_timeout_s": 8.0}
    for options, in_general, about_offsets in (({}, 3.0, 5.0), (given, 7.0, 8.0)):
        member = VirtualMember(kind, **options).start()
        for code in (R.GET_ROUTEINFO_BY_TOPIC, R.HEART_BEAT, R.GET_CONSUMER_LIST_BY_GROUP):
            assert member.timeouts(code) == {in_general}
        if kind is not PullConsumer:  # which asks only when its user does
            assert member.timeouts(R.QUERY_CONSUMER_OFFSET) == {about_offsets}


@pytest.mark.rule("B6.5c")
@pytest.mark.parametrize(("options", "limit_s"), [({}, 1.0), ({"lock_timeout_s": 0.5}, 0.5)])
def test_locks_are_waited_for_as_long_as_the_option_says(options, limit_s):
    member = VirtualMember(PushConsumer, ordered=True, **options).start()
    assert member.timeouts(R.LOCK_BATCH_MQ) == {limit_s}


@pytest.mark.rule("B6.5c")
@pytest.mark.parametrize(
    ("kind", "options", "held_ms", "limit_s"),
    [
        (PushConsumer, {}, "15000", 30.0),
        (LitePullConsumer, {}, "20000", 30.0),
        *(
            (
                kind,
                {"broker_suspend_max_time_s": 5.0, "consumer_timeout_when_suspend_s": 9.0},
                "5000",
                9.0,
            )
            for kind in FETCHING
        ),
    ],
)
def test_a_pull_is_held_and_waited_for_as_long_as_the_options_say(kind, options, held_ms, limit_s):
    member = VirtualMember(kind, **options).start()
    assert {one.fields["suspendTimeoutMillis"] for one in member.of(R.PULL_MESSAGE)} == {held_ms}
    assert member.timeouts(R.PULL_MESSAGE) == {limit_s}


@pytest.mark.parametrize("kind", FETCHING)
def test_a_pull_must_be_waited_for_longer_than_it_is_held(kind):
    with pytest.raises(
        ConfigurationError, match=r"consumer_timeout_when_suspend_s \(4\) is shorter"
    ):
        kind(GROUP, nameserver="n:1", consumer_timeout_when_suspend_s=4.0)


@pytest.mark.rule("B6.5c")
@pytest.mark.parametrize(
    ("options", "wait_s", "limit_s"),
    [({}, 0.0, 10.0), ({}, 20.0, 30.0), ({"consumer_pull_timeout_s": 2.0}, 3.0, 5.0)],
)
def test_an_answer_to_a_pull_of_the_user_is_waited_for_beyond_its_own_wait(
    options, wait_s, limit_s
):
    member = VirtualMember(PullConsumer, **options).start()
    consumer = member.consumer
    consumer._routes["orders"] = member.instance.routes.route("orders")
    call = next(consumer._pull_flow(QUEUE, 0, 32, "*", wait_s))
    assert isinstance(call, Call)
    assert call.timeout_s == limit_s


@pytest.mark.rule("B6.5c")
@pytest.mark.parametrize("kind", [*KINDS, Producer, Admin])
def test_connections_may_take_as_long_as_the_option_says(kind, monkeypatch):
    limits = set()

    class NonBlocking(engine.NonBlockingConnection):
        def __init__(self, address, now, connect_timeout_s, *others):
            limits.add(connect_timeout_s)
            super().__init__(address, now, connect_timeout_s, *others)

    class Blocking(inline.BlockingConnection):
        def __init__(self, address, *, connect_timeout_s, **others):
            limits.add(connect_timeout_s)
            super().__init__(address, connect_timeout_s=connect_timeout_s, **others)

    monkeypatch.setattr(engine, "NonBlockingConnection", NonBlocking)
    monkeypatch.setattr(inline, "BlockingConnection", Blocking)
    with SmallCluster("orders") as cluster:
        for options, wanted in (({}, 3.0), ({"connect_timeout_s": 0.25}, 0.25)):
            limits.clear()
            name = () if kind is Admin else ("billing",)
            client = kind(*name, nameserver=cluster.address, **options)
            if kind in FETCHING:
                client.subscribe("orders", **({"listener": print} if kind is PushConsumer else {}))
            with client:
                if kind is Admin:
                    client.route("orders")
                elif kind is not PushConsumer:
                    client.queues("orders")
            assert max(limits) <= wanted
            if options or kind in {*FETCHING, Producer}:
                assert max(limits) == wanted, "others make inline calls, which leave less for it"
    with pytest.raises(ConfigurationError, match="connect_timeout_s is 0"):
        kind(*name, nameserver="127.0.0.1:1", connect_timeout_s=0)


@pytest.mark.rule("B6.5c")
def test_connections_on_a_loop_may_take_as_long_as_the_option_says(monkeypatch):
    made, driver = [], loop_driver.AioDriver

    class Driver(driver):
        def __init__(self, client, *, connect_timeout_s, **others):
            made.append(connect_timeout_s)
            super().__init__(client, connect_timeout_s=connect_timeout_s, **others)

    monkeypatch.setattr("gimbalmq.aio.shared.AioDriver", Driver)
    monkeypatch.setattr("gimbalmq.aio.admin.AioDriver", Driver)

    async def main(address):
        async with aio.Producer("shop", nameserver=address, connect_timeout_s=1.25) as producer:
            await producer.queues("orders")
        async with aio.Admin(address, connect_timeout_s=1.5) as admin:
            await admin.route("orders")

    with SmallCluster("orders") as cluster:
        asyncio.run(main(cluster.address))
    assert made == [1.25, 1.5]


# ---- pauses --------------------------------------------------------------------------------------


@pytest.mark.rule("B6.5c")
@pytest.mark.parametrize(("options", "pause_s"), [({}, 0.0), ({"pull_interval_s": 2.5}, 2.5)])
def test_a_queue_with_messages_is_pulled_again_after_the_interval(options, pause_s):
    member = VirtualMember(PushConsumer, **options)
    member.brokers.records[QUEUE] = [b"0", b"1"]
    times = times_of(member, R.PULL_MESSAGE)
    member.start(settle_s=20.0)
    pulls = [one for one in member.of(R.PULL_MESSAGE) if one.fields["topic"] == "orders"]
    assert [one.fields["queueOffset"] for one in pulls] == ["0", "2"]
    assert max(times) - min(times) == pause_s


@pytest.mark.rule("B6.5c")
@pytest.mark.parametrize("kind", FETCHING)
@pytest.mark.parametrize(
    ("code", "option", "default_s"),
    [
        (1, "pull_time_delay_when_exception_s", 1.0),
        (215, "pull_time_delay_when_flow_control_s", 0.02),
    ],
)
def test_a_pull_that_fails_is_made_again_after_the_delay(kind, code, option, default_s):
    for options, pause_s in (({}, default_s), ({option: 0.25}, 0.25)):
        member = VirtualMember(kind, **options)
        member.brokers.scripted[R.PULL_MESSAGE] = lambda _address, one: response_to(one, code)
        times = times_of(member, R.PULL_MESSAGE)
        member.start(settle_s=3 * pause_s)
        own = len({one.fields["topic"] for one in member.of(R.PULL_MESSAGE)})
        assert set(gaps(times[::own])) == {pause_s}


@pytest.mark.rule("B6.5c")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("options", "pause_s"), [({}, 0.05), ({"rebalance_min_interval_s": 1.0}, 1.0)]
)
def test_two_passes_are_apart_by_the_least_interval(kind, options, pause_s):
    member = VirtualMember(kind, **options).start(settle_s=10.0)
    times = times_of(member, R.GET_CONSUMER_LIST_BY_GROUP)
    for _ in range(3):
        member.host.on_notice()
    member.advance(5.0)
    assert gaps(times) == [pause_s], "one at once, and one for the rest"


@pytest.mark.rule("B6.5c")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("options", "pause_s"), [({}, 0.2), ({"rebalance_retry_s": 1.0}, 1.0)])
def test_a_pass_that_is_incomplete_is_repeated_after_a_pause_that_doubles(kind, options, pause_s):
    member = VirtualMember(kind, **options).start(settle_s=10.0)
    times = times_of(member, R.GET_CONSUMER_LIST_BY_GROUP)
    member.brokers.scripted[R.GET_CONSUMER_LIST_BY_GROUP] = lambda _address, one: response_to(
        one, 1
    )
    member.host.on_notice()
    member.advance(8 * pause_s)
    assert gaps(times)[:2] == [pause_s, 2 * pause_s]


@pytest.mark.rule("B6.5c")
@pytest.mark.parametrize(("options", "pause_s"), [({}, 0.1), ({"lock_retry_s": 0.5}, 0.5)])
def test_a_lock_that_is_refused_is_asked_for_again_after_the_pause(options, pause_s):
    member = VirtualMember(PushConsumer, ordered=True, **options)
    nothing = encode_locked(frozenset())
    member.brokers.scripted[R.LOCK_BATCH_MQ] = lambda _address, one: response_to(one, body=nothing)
    times = times_of(member, R.LOCK_BATCH_MQ)
    member.start(settle_s=0.9)
    assert gaps(sorted(set(times)))[0] == pause_s


@pytest.mark.rule("B6.5c")
@pytest.mark.parametrize(("options", "pause_s"), [({}, 5.0), ({"redeliver_s": 2.0}, 2.0)])
def test_a_message_that_no_broker_takes_back_is_delivered_again_after_the_pause(options, pause_s):
    member = VirtualMember(PushConsumer, **options)
    member.brokers.records[QUEUE] = [b"0"]
    for code in (R.CONSUMER_SEND_MSG_BACK, R.SEND_MESSAGE_V2):
        member.brokers.scripted[code] = lambda _address, one: response_to(one, 1)
    member.start(settle_s=1.0)
    (work,) = member.workers.got
    member.workers.got.clear()
    failed = Consumed(work.queue, work.epoch, work.batch, work.first, work.until, ((0, 0),))
    member.host.finished(failed)
    member.advance(pause_s - 0.001)
    assert member.workers.got == []
    member.advance(0.001)
    assert [one.queue for one in member.workers.got] == [QUEUE]


# ---- heartbeats ----------------------------------------------------------------------------------


@pytest.mark.rule("B6.5c")
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_may_leave_subscriptions_out_of_heartbeats(kind):
    for brief in (False, True):
        consumer = kind(GROUP, nameserver="n:1", use_heartbeat_v2=brief)
        assert consumer._membership._settings.use_heartbeat_v2 is brief


# ---- values --------------------------------------------------------------------------------------


@pytest.mark.rule("B6.5b")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "option",
    [
        "mq_client_api_timeout_s",
        "offset_timeout_s",
        "rebalance_min_interval_s",
        "rebalance_retry_s",
    ],
)
def test_a_time_below_zero_is_refused(kind, option):
    with pytest.raises(ConfigurationError, match=f"{option} is -1"):
        kind(GROUP, nameserver="n:1", **{option: -1})


@pytest.mark.rule("B6.5b")
def test_a_pull_interval_outside_of_javas_range_is_refused():
    with pytest.raises(ConfigurationError, match=r"pull_interval_s is 66: give 0 to 65\.535"):
        PushConsumer(GROUP, nameserver="n:1", pull_interval_s=66)

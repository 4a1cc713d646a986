import threading
import time
from datetime import datetime

import pytest

from client.small_cluster import SmallCluster
from gimbalmq import LitePullConsumer, PullConsumer, PushConsumer, aio
from gimbalmq.core.identity import capability
from gimbalmq.errors import ConfigurationError, GimbalError, StateError, TransportError
from gimbalmq.wire.bodies import decode_heartbeat
from gimbalmq.wire.codes import RequestCode
from transport.server import LoopbackServer, closed_port
from waiting import eventually

NOWHERE = "127.0.0.1:9876"


@pytest.fixture
def cluster():
    with SmallCluster("orders", bodies=[b"0", b"1", b"2"]) as cluster:
        yield cluster


def consumer_of(cluster, listener, **options):
    options = {"start_from": "first", "workers": 2, **options}
    consumer = PushConsumer("billing", nameserver=cluster.address, **options)
    consumer.subscribe("orders", listener=listener)
    return consumer


# ---- options -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"batch_size": 0}, "batch_size is 0"),
        ({"workers": 0}, "workers is 0"),
        ({"rebalance_interval_s": 0}, "rebalance_interval_s"),
        ({"heartbeat_broker_interval_s": -1}, "heartbeat_broker_interval_s"),
        ({"pull_batch_size": 2000}, "pull_batch_size is 2000: give 1 to 1024"),
        ({"start_from": "middle"}, "start_from is 'middle'"),
        ({"start_from": datetime(2030, 1, 1)}, "time zone"),  # noqa: DTZ001 - the point
        ({"allocation": "NO_SUCH"}, "NO_SUCH"),
        ({"client_id": "two words"}, "white space"),
        ({"nameserver": "nowhere"}, "host:port"),
    ],
    ids=str,
)
def test_a_wrong_option_is_named(options, complaint):
    with pytest.raises(GimbalError, match=complaint) as caught:
        PushConsumer("billing", **{"nameserver": NOWHERE, **options})
    assert isinstance(caught.value, ValueError)


@pytest.mark.rule("B2.9a")
@pytest.mark.parametrize("kind", [PushConsumer, aio.PushConsumer, LitePullConsumer, PullConsumer])
@pytest.mark.parametrize(
    "option",
    [
        {"client_rebalance": False},
        {"clientRebalance": False},
        {"pop_invisible_time_s": 60.0},
        {"pop_batch_nums": 32},
        {"pop_threshold_for_queue": 96},
    ],
    ids=lambda option: next(iter(option)),
)
def test_asking_for_the_pop_mode_is_a_clear_error(kind, option):
    (name,) = option
    with pytest.raises(ConfigurationError, match=f"'{name}' is for the POP mode.* not supported"):
        kind("billing", nameserver=NOWHERE, **option)


@pytest.mark.rule("B8.6a", "B8.6b")
def test_the_id_on_the_wire_is_unique_and_carries_the_strategy():
    one, two = (PushConsumer("g", nameserver=NOWHERE, allocation="AVG_BY_CIRCLE") for _ in "12")
    assert one.client_id != two.client_id
    assert capability(one.client_id).strategy == "AVG_BY_CIRCLE"
    named = PushConsumer("g", nameserver=NOWHERE, client_id="till-1")
    assert named.client_id == "till-1@gmq1-AVG"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"topic": "two words"}, "two words"),
        ({"topic": "orders", "tags": "||"}, "names no tag"),
        ({"topic": "orders", "tags": "a", "sql": "x > 1"}, "not by both"),
        ({"topic": "orders", "sql": " "}, "is empty"),
    ],
)
def test_a_wrong_subscription_is_the_callers_error(arguments, complaint):
    consumer = PushConsumer("billing", nameserver=NOWHERE)
    with pytest.raises(ConfigurationError, match=complaint):
        consumer.subscribe(**arguments, listener=print)


def test_subscribe_is_also_a_decorator():
    consumer = PushConsumer("billing", nameserver=NOWHERE)

    @consumer.subscribe("orders")
    def bill(message):
        return message

    assert bill(7) == 7


# ---- life ----------------------------------------------------------------------------------------


def test_nothing_subscribed_is_refused_at_start():
    with pytest.raises(StateError, match="subscribes to nothing"):
        PushConsumer("billing", nameserver=NOWHERE).start()


def test_using_it_before_start_says_so():
    with pytest.raises(StateError, match="is created, not running"):
        PushConsumer("billing", nameserver=NOWHERE).assignment()


def test_stop_before_start_is_harmless():
    PushConsumer("billing", nameserver=NOWHERE).stop()


@pytest.mark.rule("B6.1c")
def test_starting_twice_is_refused(cluster):
    with (
        consumer_of(cluster, lambda _: None) as consumer,
        pytest.raises(StateError, match="is running"),
    ):
        consumer.start()


def test_after_stop_it_is_over_and_stop_may_be_repeated(cluster):
    consumer = consumer_of(cluster, lambda _: None).start()
    consumer.stop()
    consumer.stop()
    with pytest.raises(StateError, match="stopped"):
        consumer.start()
    with pytest.raises(StateError, match="stopped"):
        consumer.assignment()


def test_an_unreachable_name_server_is_a_clear_error_at_once():
    consumer = PushConsumer("billing", nameserver=f"127.0.0.1:{closed_port()}")
    consumer.subscribe("orders", listener=print)
    started = time.monotonic()
    with pytest.raises(TransportError, match="no name server could be asked"):
        consumer.start()
    assert time.monotonic() - started < 3.0


@pytest.mark.parametrize(
    "options", [{"raw": b"HTTP/1.1 400 Bad\r\n\r\n"}, {"closes": True}], ids=["http", "hangs up"]
)
def test_a_server_of_another_kind_is_a_clear_error(options):
    with LoopbackServer(**options) as server:
        consumer = PushConsumer("billing", nameserver=server.address)
        consumer.subscribe("orders", listener=print)
        with pytest.raises(GimbalError):
            consumer.start()


@pytest.mark.rule("B6.1c")
def test_two_consumers_of_one_group_and_client_id_are_refused(cluster):
    with consumer_of(cluster, lambda _: None, client_id="till-1"):
        second = consumer_of(cluster, lambda _: None, client_id="till-1")
        with pytest.raises(StateError, match="use one consumer per group and client id"):
            second.start()


# ---- consuming -----------------------------------------------------------------------------------


def test_messages_reach_the_listener_and_their_offset_is_stored(cluster):
    got = []
    with consumer_of(cluster, lambda message: got.append(message.body)) as consumer:
        eventually(lambda: len(got) == 3)
        eventually(lambda: len(consumer.assignment()) == 3)  # two queues and the retry queue
    assert sorted(got) == [b"0", b"1", b"2"]
    assert cluster.committed["orders", 0] == 3


@pytest.mark.rule("B5.5d")
def test_a_restarted_member_goes_on_at_the_committed_offset(cluster):
    cluster.committed["orders", 0] = 2
    got = []
    with consumer_of(cluster, lambda message: got.append(message.body)):
        eventually(lambda: got)
    assert got == [b"2"]


@pytest.mark.rule("B6.1b", "W3.2b")
def test_the_retry_topic_is_subscribed_by_itself(cluster):
    with consumer_of(cluster, lambda _: None):
        pass
    beats = [decode_heartbeat(r.body) for r in cluster.requests if r.code == RequestCode.HEART_BEAT]
    topics = {s.topic for beat in beats for c in beat.consumers for s in c.subscriptions}
    assert topics == {"orders", "%RETRY%billing"}


@pytest.mark.rule("B4.2g")
def test_a_pull_asks_for_32_messages_and_may_be_held_for_15_seconds(cluster):
    got = []
    with consumer_of(cluster, got.append):
        eventually(lambda: got)
    pull = next(r for r in cluster.requests if r.code == RequestCode.PULL_MESSAGE)
    assert (pull.fields["maxMsgNums"], pull.fields["suspendTimeoutMillis"]) == ("32", "15000")
    assert int(pull.fields["sysFlag"]) & 2


@pytest.mark.rule("B4.2h")
def test_a_committed_offset_above_zero_rides_along_with_the_pull(cluster):
    cluster.committed["orders", 0] = 2

    def first_pull(queue_id):
        pulls = [r.fields for r in list(cluster.requests) if r.code == RequestCode.PULL_MESSAGE]
        its_own = ("orders", queue_id)
        return next((one for one in pulls if (one["topic"], one["queueId"]) == its_own), None)

    with consumer_of(cluster, lambda _: None):
        mine, young = (eventually(lambda one=one: first_pull(one)) for one in ("0", "1"))
    assert (mine["commitOffset"], int(mine["sysFlag"]) & 1) == ("2", 1)
    assert int(young["sysFlag"]) & 1 == 0


# ---- stopping ------------------------------------------------------------------------------------


@pytest.mark.rule("B5.4a", "B5.4b")
def test_stop_waits_for_listeners_then_stores_offsets_then_leaves(cluster):
    entered, finished = threading.Event(), []

    def listener(message):
        entered.set()
        time.sleep(0.2)
        finished.append(message.body)

    consumer = consumer_of(cluster, listener, workers=3).start()
    assert entered.wait(10.0)
    consumer.stop()
    unfinished = [number for number in range(4) if b"%d" % number not in finished]
    assert cluster.committed["orders", 0] == unfinished[0]
    codes = cluster.codes
    last_commit = max(
        n for n, code in enumerate(codes) if code == RequestCode.UPDATE_CONSUMER_OFFSET
    )
    assert last_commit < codes.index(RequestCode.UNREGISTER_CLIENT)


@pytest.mark.rule("B5.4c")
def test_after_stop_no_connection_is_left(cluster):
    consumer_of(cluster, lambda _: None).start().stop()
    eventually(lambda: not cluster.open_connections)


def test_a_listener_that_never_ends_delays_stop_by_the_drain_time_only(cluster):
    entered, go_on = threading.Event(), threading.Event()

    def listener(_message):
        entered.set()
        go_on.wait(20.0)

    consumer = consumer_of(cluster, listener).start()
    assert entered.wait(10.0)
    started = time.monotonic()
    consumer.stop(drain_s=0.2)
    took_s = time.monotonic() - started
    go_on.set()
    assert took_s < 10.0, "and not for as long as the listener waits"
    assert cluster.committed.get(("orders", 0), 0) == 0, "what is not done is not stored as done"


def test_callbacks_hear_of_each_change(cluster):
    reports = []
    consumer = consumer_of(cluster, lambda _: None)
    consumer.on_rebalance(reports.append)
    with consumer:
        eventually(lambda: sum(len(report.acquired) for report in reports) == 3)
    assert {report.group for report in reports} == {"billing"}


@pytest.mark.rule("B2.8a", "B2.8b")
def test_after_a_change_of_queues_the_brokers_hear_of_a_newer_subscription(cluster):
    def versions():
        beats = [
            decode_heartbeat(r.body)
            for r in list(cluster.requests)
            if r.code == RequestCode.HEART_BEAT
        ]
        return [
            subscription.version_ms
            for beat in beats
            for consumer in beat.consumers
            for subscription in consumer.subscriptions
            if subscription.topic == "orders"
        ]

    before_ms = time.time_ns() // 1_000_000
    with consumer_of(cluster, lambda _: None) as consumer:
        eventually(lambda: len(consumer.assignment()) == 3)
        eventually(lambda: len(set(versions())) > 1)
    assert versions() == sorted(versions())
    assert before_ms <= versions()[0] < versions()[-1] <= time.time_ns() // 1_000_000 + 5

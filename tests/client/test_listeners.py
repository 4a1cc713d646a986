"""Between a pulled batch and the listener, on the embedded cluster: expiry, keys, alarms, traces."""

import asyncio
import threading
import time
from collections import defaultdict

import pytest

from gimbalmq import Admin, DeadLetter, Message, Probe, Producer, PushConsumer, RetryLater
from gimbalmq.broker import EmbeddedCluster
from gimbalmq.errors import ConfigurationError, StateError
from waiting import eventually


@pytest.fixture(scope="module")
def cluster():
    with EmbeddedCluster() as cluster:
        yield cluster


@pytest.fixture
def wait_for():
    return eventually


@pytest.fixture
def topic(cluster, unique_name):
    name = unique_name("orders")
    cluster.create_topic(name, queues=1)
    return name


@pytest.fixture
def group(unique_name):
    return unique_name("billing")


@pytest.fixture
def send(cluster, topic):
    def send(*messages):
        with Producer("shop", nameserver=cluster.nameserver) as producer:
            return [
                producer.send(one if isinstance(one, Message) else Message(topic, one))
                for one in messages
            ]

    return send


@pytest.fixture
def consumer_of(cluster, topic, group):
    def make(listener, **options):
        options = {"start_from": "first", "workers": 4, **options}
        consumer = PushConsumer(group, nameserver=cluster.nameserver, **options)
        consumer.subscribe(topic, listener=listener)
        return consumer

    return make


# ---- side by side ---------------------------------------------------------------------------------


@pytest.mark.rule("B5.1j")
@pytest.mark.parametrize("quick", [0, 500], ids=["at once", "after quick ones"])
def test_twenty_slow_listeners_run_at_the_same_time_on_one_queue(
    consumer_of, send, wait_for, quick
):
    # Whoever waits here alone, or with less than all, waits in vain.
    all_are_here, met = threading.Barrier(20), []

    def listener(message):
        if message.body == b"slow":
            met.append(all_are_here.wait(60.0))

    with consumer_of(listener, workers=20) as consumer:
        send(*[b"quick"] * quick)
        wait_for(lambda: consumer.stats().consumed == quick)
        send(*[b"slow"] * 20)
        wait_for(lambda: consumer.stats().consumed == quick + 20)
    assert sorted(met) == list(range(20))


# ---- expired messages ----------------------------------------------------------------------------


@pytest.mark.rule("B3g")
def test_a_message_that_takes_too_long_is_sent_back_and_frees_the_offset(
    consumer_of, send, wait_for
):
    send(b"stuck", b"next")
    leave = threading.Event()

    def listener(message):
        if message.body == b"stuck":
            leave.wait(20.0)

    with consumer_of(listener, consume_timeout_s=0.3) as consumer:
        wait_for(lambda: consumer.stats().expired)
        wait_for(lambda: max((q.offset or 0) for q in consumer.stats().queues) == 2)
        stats = consumer.stats()
        assert (stats.expired, stats.retried) == (1, 1)
        assert stats.busy == 1, "its listener goes on"
        leave.set()


# ---- keys ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("ordered", [False, True], ids=["concurrent", "ordered"])
def test_keys_of_one_queue_run_in_parallel_and_each_in_order(
    consumer_of, send, wait_for, topic, ordered
):
    send(*(Message(topic, b"%d" % n, keys=f"k{n % 4}") for n in range(40)))
    got, lock = defaultdict(list), threading.Lock()
    running, most = set(), [0]

    def listener(message):
        (key,) = message.keys
        with lock:
            assert key not in running, "a key runs beside itself"
            running.add(key)
            most[0] = max(most[0], len(running))
        time.sleep(0.005)
        with lock:
            running.discard(key)
            got[key].append(int(message.body))

    with consumer_of(listener, parallel_by="key", ordered=ordered) as consumer:
        wait_for(lambda: consumer.stats().consumed == 40)
        assert consumer.stats().failed == 0
    assert {key: list(range(number, 40, 4)) for number, key in enumerate(sorted(got))} == got
    assert most[0] > 1, "several workers share the queue"


def test_a_failing_key_of_an_ordered_queue_holds_up_no_other(consumer_of, send, wait_for, topic):
    send(*(Message(topic, b"%d" % n, sharding_key=f"k{n % 2}") for n in range(10)))
    got, failing = [], [True]

    def listener(message):
        number = int(message.body)
        if number == 0 and failing[0]:
            raise ValueError("not yet")
        got.append(number)

    options = {"parallel_by": "key", "ordered": True, "suspend_current_queue_time_s": 0.05}
    with consumer_of(listener, **options):
        wait_for(lambda: len(got) == 5)
        assert got == [1, 3, 5, 7, 9]
        failing[0] = False
        wait_for(lambda: len(got) == 10)
    assert got[5:] == [0, 2, 4, 6, 8]


@pytest.mark.rule("B5.2d")
@pytest.mark.parametrize(
    ("error", "options"),
    [(DeadLetter("hopeless"), {}), (ValueError("no"), {"max_reconsume_times": 1})],
    ids=["given up", "too often"],
)
def test_a_batch_of_an_ordered_queue_goes_to_the_dead_letters_whole(
    cluster, group, consumer_of, send, wait_for, error, options
):
    send(*(b"%d" % number for number in range(8)))
    got = []

    def listener(messages):
        if messages[0].body == b"0":
            raise error
        got.extend(int(message.body) for message in messages)

    options = {"batch_size": 3, "ordered": True, "suspend_current_queue_time_s": 0.05, **options}
    with consumer_of(listener, **options), Admin(cluster.nameserver) as admin:
        wait_for(lambda: len(got) == 5)
        # They are stored before what follows them is delivered.
        dead = list(admin.tail(f"%DLQ%{group}", start_from="first", follow=False))
    assert sorted(letter.body for letter in dead) == [b"0", b"1", b"2"]
    assert got == [3, 4, 5, 6, 7]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"parallel_by": "topic"}, "give 'key'"),
        ({"parallel_by": "key", "batch_size": 2}, "leave batch_size at 1"),
        ({"parallel_by": "key", "ordered": True, "auto_commit": False}, "auto_commit=True"),
        ({"consume_timeout_s": 0}, "consume_timeout_s"),
        ({"hung_listener_s": -1}, "hung_listener_s"),
        ({"pull_threshold_for_topic": 0}, "pull_threshold_for_topic is 0"),
        ({"pull_threshold_size_for_topic": 10**6}, "give 1 to 102400"),
    ],
    ids=str,
)
@pytest.mark.rule("B6.5b")
def test_a_wrong_option_is_named(consumer_of, options, complaint):
    with pytest.raises(ConfigurationError, match=complaint):
        consumer_of(print, **options)


# ---- coroutines ----------------------------------------------------------------------------------


def test_coroutine_listeners_run_side_by_side_up_to_the_number_of_workers(
    consumer_of, send, wait_for
):
    send(*(b"%d" % n for n in range(12)))
    running, most, got = [0], [0], []

    async def listener(message):
        running[0] += 1
        most[0] = max(most[0], running[0])
        await asyncio.sleep(0.02)
        running[0] -= 1
        got.append(int(message.body))

    with consumer_of(listener, workers=3):
        wait_for(lambda: len(got) == 12)
    assert sorted(got) == list(range(12))
    assert 1 < most[0] <= 3


def test_what_a_coroutine_raises_is_its_verdict(consumer_of, send, wait_for):
    send(b"again")
    times = []

    async def listener(message):
        await asyncio.sleep(0)
        times.append(message.reconsume_times)
        if len(times) == 1:
            raise RetryLater(delay_level=1)

    with consumer_of(listener) as consumer:
        wait_for(lambda: len(times) == 2)
        assert consumer.stats().retried == 1
    assert times == [0, 1]


def test_stopping_waits_for_a_coroutine(consumer_of, send, wait_for):
    send(b"slow")
    entered, ended = threading.Event(), []

    async def listener(_message):
        entered.set()
        await asyncio.sleep(0.2)
        ended.append(1)

    with consumer_of(listener):
        assert entered.wait(10.0)
    assert ended == [1]


# ---- hung listeners ------------------------------------------------------------------------------


@pytest.mark.rule("B10.24")
@pytest.mark.parametrize("kind", ["function", "coroutine"])
def test_pitfall_24_a_hung_listener_raises_an_alarm_with_its_stack(
    consumer_of, send, wait_for, kind
):
    send(b"stuck")
    leave, found = threading.Event(), []

    def stuck_here(_message):
        leave.wait(20.0)

    async def stuck_there(_message):
        while not leave.is_set():  # noqa: ASYNC110 - what is waited for is a thread's
            await asyncio.sleep(0.01)

    listener = stuck_here if kind == "function" else stuck_there
    consumer = consumer_of(listener, hung_listener_s=0.1, workers=1)
    consumer.on_hung(found.append)
    with consumer:
        (hung,) = wait_for(lambda: list(found))
        assert listener.__name__ in hung.stack
        assert hung.queue_offset == 0
        stats, probe = consumer.stats(), consumer.probe()
        assert (stats.hung, stats.hung_now) == (1, 1)
        assert not probe.live
        assert "all 1 workers hang" in probe.reasons[0]
        leave.set()
        wait_for(lambda: consumer.probe().live)
        wait_for(lambda: consumer.stats().consumed == 1)


@pytest.mark.rule("B10.11")
@pytest.mark.parametrize("mode", ["ordered", "lease"])
def test_a_listener_that_outlives_the_lock_of_its_queue_is_an_alarm_and_counted(
    topic, group, wait_for, mode
):
    begun, leave = threading.Event(), threading.Event()

    def stuck(_message):
        begun.set()
        leave.wait(20.0)

    with EmbeddedCluster() as cluster:
        cluster.create_topic(topic, queues=1)
        with Producer("shop", nameserver=cluster.nameserver) as producer:
            producer.send(Message(topic, b"one"))
        # A busy machine misses many renewals before the lock counts as lost.
        times = {"lock_renew_s": 0.1, "lock_trust_s": 2.0, "take_over_grace_s": 2.5}
        consumer = PushConsumer(
            group,
            nameserver=cluster.nameserver,
            start_from="first",
            **{mode: True},
            **times,
        )
        consumer.subscribe(topic)(stuck)
        consumer.start()
        assert begun.wait(20.0)
        assert consumer.stats().outlived == 0
    # Nobody is left to renew its lock with.
    wait_for(lambda: consumer.stats().outlived == 1)
    leave.set()
    consumer.stop(drain_s=0.0)


# ---- hooks, numbers, probes ----------------------------------------------------------------------


def test_hooks_surround_the_listener(consumer_of, send, wait_for):
    send(b"a")
    calls = []
    consumer = consumer_of(lambda _message: calls.append("listener"))
    consumer.before(lambda message: calls.append(bytes(message.body)))
    consumer.after(lambda _message, error, _took_s: calls.append(error))
    with consumer:
        wait_for(lambda: len(calls) == 3)
    assert calls == [b"a", "listener", None]


def test_hooks_are_for_consumers_that_have_not_started(consumer_of):
    consumer = consumer_of(print)
    with consumer:
        for add in (consumer.before, consumer.after):
            with pytest.raises(StateError, match="add hooks before the start"):
                add(print)
    with pytest.raises(StateError, match="add hooks before the start"):
        consumer.before(print)


def test_stats_say_what_was_consumed_and_where_each_queue_stands(
    consumer_of, send, wait_for, topic, group
):
    send(b"a", b"b", b"c")

    def listener(message):
        if message.body == b"b":
            raise RetryLater(delay_level=18)

    def at_the_end():
        """Its numbers, when everything is done and the next pull is under way."""
        found = consumer.stats()
        states = {one.state for one in found.queues if one.queue.topic == topic}
        done = (found.consumed, found.retried, found.cached) == (2, 1, 0)
        return found if done and states == {"pull in flight"} else None

    with consumer_of(listener) as consumer:
        wait_for(lambda: consumer.probe().ready)
        stats = wait_for(at_the_end)
    assert (stats.group, stats.client_id) == (group, consumer.client_id)
    assert (stats.consumed, stats.failed, stats.cached, stats.lag) == (2, 1, 0, 0)
    assert stats.latency_s is not None
    assert stats.latency_s < 1.0
    assert stats.rebalances >= 1
    (queue,) = [one for one in stats.queues if one.queue.topic == topic]
    assert (queue.offset, queue.lag, queue.locked) == (3, 0, None)
    assert queue.state == "pull in flight"
    assert queue.pause_s is not None


def test_stats_of_an_ordered_group_know_the_locks(consumer_of, wait_for):
    with consumer_of(print, ordered=True) as consumer:
        wait_for(lambda: [one.locked for one in consumer.stats().queues if one.offset is not None])
        assert all(one.locked for one in consumer.stats().queues if one.offset is not None)


def test_a_probe_follows_the_life_of_a_consumer(consumer_of, wait_for):
    consumer = consumer_of(print)
    assert consumer.probe() == Probe(False, False, ("the consumer is created",))
    with consumer:
        wait_for(lambda: consumer.probe() == Probe(live=True, ready=True))
    assert consumer.probe().reasons == ("the consumer is stopped",)
    with pytest.raises(StateError):
        consumer.stats()


# ---- what the broker is asked --------------------------------------------------------------------


@pytest.mark.rule("W8a")
def test_an_sql_expression_that_the_broker_refuses_is_an_error_at_start(cluster, topic, group):
    consumer = PushConsumer(group, nameserver=cluster.nameserver)
    consumer.subscribe(topic, sql="amount >>> 3", listener=print)
    with pytest.raises(ConfigurationError, match="amount >>> 3") as raised:
        consumer.start()
    assert topic in str(raised.value)


@pytest.mark.rule("W8a")
def test_an_sql_expression_that_the_broker_refuses_is_an_error_while_running(
    cluster, topic, consumer_of, unique_name
):
    more, unborn = unique_name("more"), unique_name("unborn")
    cluster.create_topic(more, queues=1)
    with consumer_of(print) as consumer:
        with pytest.raises(ConfigurationError, match="amount >>> 3") as raised:
            consumer.subscribe(more, sql="amount >>> 3", listener=print)
        assert more in str(raised.value)
        assert {queue.topic for queue in consumer.assignment()} <= {
            topic,
            f"%RETRY%{consumer.group}",
        }
        consumer.subscribe(unborn, sql="amount > 3", listener=print)  # no broker to ask yet


def test_a_topic_with_a_good_sql_expression_may_be_added_while_running(
    cluster, consumer_of, wait_for, unique_name
):
    more, got = unique_name("more"), []
    cluster.create_topic(more, queues=1)
    with Producer("shop", nameserver=cluster.nameserver) as producer:
        producer.send(Message(more, b"small", properties={"amount": "1"}))
        producer.send(Message(more, b"large", properties={"amount": "9"}))
    with consumer_of(print) as consumer:
        consumer.subscribe(more, sql="amount > 3", listener=lambda one: got.append(one.body))
        wait_for(lambda: got)
    assert got == [b"large"]


def test_a_good_sql_expression_filters(cluster, topic, group, send, wait_for):
    send(Message(topic, b"small", properties={"amount": "1"}))
    send(Message(topic, b"large", properties={"amount": "9"}))
    got = []
    consumer = PushConsumer(group, nameserver=cluster.nameserver, start_from="first")
    consumer.subscribe(topic, sql="amount > 3", listener=lambda message: got.append(message.body))
    with consumer:
        wait_for(lambda: got)
    assert got == [b"large"]


@pytest.mark.rule("B10.8")
def test_pitfall_8_a_queue_added_while_running_is_read_from_its_beginning(
    cluster, topic, consumer_of, wait_for
):
    got = []
    options = {"start_from": "last", "poll_name_server_interval_s": 1.0}
    with consumer_of(lambda message: got.append(message.body), **options) as consumer:
        wait_for(lambda: consumer.probe().ready)
        cluster.create_topic(topic, queues=2)
        with Producer("shop", nameserver=cluster.nameserver) as producer:
            fresh = wait_for(lambda: [q for q in producer.queues(topic) if q.queue_id == 1])[0]
            producer.send(Message(topic, b"early"), queue=fresh)
        wait_for(lambda: got)
    assert got == [b"early"]


# ---- traces --------------------------------------------------------------------------------------


def test_traces_say_who_got_a_message_and_what_came_of_it(
    cluster, consumer_of, send, wait_for, group, unique_name
):
    trace_topic = unique_name("trace")
    cluster.create_topic(trace_topic, queues=1)
    (sent,) = send(b"a")
    with consumer_of(lambda _message: None, enable_trace=True, trace_topic=trace_topic) as one:
        wait_for(lambda: one.stats().consumed == 1)
    records = []
    reader = PushConsumer(unique_name("g"), nameserver=cluster.nameserver, start_from="first")
    reader.subscribe(
        trace_topic, listener=lambda m: records.extend(m.body.decode().split("\x02")[:-1])
    )
    with reader:
        wait_for(lambda: len(records) == 2)
    # They may come in two messages, which listeners get side by side.
    before, after = sorted((record.split("\x01") for record in records), reverse=True)
    assert (before[0], before[3], before[5]) == ("SubBefore", group, sent.message_id)
    assert (after[0], after[2], after[4], after[6]) == ("SubAfter", sent.message_id, "true", "0")
    assert before[4] == after[1], "joined by the id of the call"

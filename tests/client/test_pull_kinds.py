"""Consumers whose user reads: polling and classic pulling, on the embedded cluster."""

import contextlib
import itertools
import threading
import time

import pytest

from client.small_cluster import SmallCluster
from gimbalmq import (
    Admin,
    LitePullConsumer,
    Message,
    Probe,
    Producer,
    PullConsumer,
    PushConsumer,
    metrics,
)
from gimbalmq.broker import EmbeddedCluster
from gimbalmq.errors import ConfigurationError, OffsetError, StateError
from gimbalmq.runtime.pull_calls import PullCalls
from gimbalmq.wire.bodies import decode_heartbeat
from gimbalmq.wire.codes import RequestCode
from sharing import agreed, shared_out
from waiting import eventually


@pytest.fixture(scope="module")
def cluster():
    with EmbeddedCluster() as cluster:
        yield cluster


@pytest.fixture
def topic(cluster, unique_name):
    name = unique_name("orders")
    cluster.create_topic(name, queues=2)
    return name


@pytest.fixture
def group(unique_name):
    return unique_name("readers")


@pytest.fixture
def send(cluster, topic):
    """Sends so many messages to each queue; returns the queues."""

    def send(count, first=0):
        with Producer("shop", nameserver=cluster.nameserver) as producer:
            queues = producer.queues(topic)
            for queue in queues:
                for number in range(first, first + count):
                    producer.send(Message(topic, b"%d" % number), queue=queue)
        return queues

    return send


@pytest.fixture
def poller(cluster, group):
    """Makes polling consumers, which end with the test."""
    made = []

    def make(**options):
        options = {"start_from": "first", **options}
        made.append(LitePullConsumer(group, nameserver=cluster.nameserver, **options).start())
        return made[-1]

    yield make
    for one in made:
        one.stop()


@pytest.fixture
def puller(cluster, group):
    """Makes classic pull consumers, which end with the test."""
    made = []

    def make(**options):
        made.append(PullConsumer(group, nameserver=cluster.nameserver, **options).start())
        return made[-1]

    yield make
    for one in made:
        one.stop()


def read(consumer, count, got=None):
    """Poll until so many messages came; by queue, the offsets in order of arrival."""
    got = {} if got is None else got
    deadline = time.monotonic() + 60.0
    while sum(map(len, got.values())) < count:
        assert time.monotonic() < deadline, got
        for message in consumer.poll(0.2):
            got.setdefault(message.queue, []).append(message.queue_offset)
    return got


# ---- who they are --------------------------------------------------------------------------------


@pytest.mark.rule("B6.1a")
@pytest.mark.parametrize(
    ("kind", "called"),
    [
        (PushConsumer, "CONSUME_PASSIVELY"),
        (LitePullConsumer, "CONSUME_ACTIVELY"),
        (PullConsumer, "CONSUME_ACTIVELY"),
    ],
)
def test_a_heartbeat_names_the_kind(kind, called):
    with SmallCluster("orders") as cluster:
        consumer = kind("readers", nameserver=cluster.address)
        if kind is PushConsumer:
            consumer.subscribe("orders", listener=print)
        else:
            consumer.subscribe("orders")
        consumer.start()
        beats = [
            decode_heartbeat(one.body)
            for one in cluster.requests
            if one.code == RequestCode.HEART_BEAT
        ]
        consumer.stop()
    assert {one.consume_type for beat in beats for one in beat.consumers} == {called}


@pytest.mark.rule("W8a")
def test_pull_kinds_refuse_an_sql_expression_that_the_broker_refuses(
    poller, puller, cluster, topic, unique_name
):
    more = unique_name("more")
    cluster.create_topic(more, queues=1)
    reading, pulling = poller(), puller()
    reading.subscribe(topic)
    for consumer in (reading, pulling):
        with pytest.raises(ConfigurationError, match="amount >>> 3"):
            consumer.subscribe(more, sql="amount >>> 3")
        consumer.subscribe(more, sql="amount > 3")


# ---- polling -------------------------------------------------------------------------------------


@pytest.mark.rule("B6.3a")
def test_subscribe_and_assign_exclude_each_other_for_the_life_of_a_consumer(poller, topic, send):
    queues = send(1)
    subscribed = poller()
    subscribed.subscribe(topic)
    with pytest.raises(StateError, match="mutually exclusive"):
        subscribed.assign(queues)
    subscribed.unsubscribe(topic)
    with pytest.raises(StateError, match="mutually exclusive"):
        subscribed.assign(queues)
    assigned = poller()
    assigned.assign(queues)
    with pytest.raises(StateError, match="mutually exclusive"):
        assigned.subscribe(topic)
    assigned.assign(())
    with pytest.raises(StateError, match="mutually exclusive"):
        assigned.subscribe(topic)


@pytest.mark.rule("B6.3b")
def test_a_poll_hands_out_one_batch_and_later_ones_commit_it(poller, send):
    first, second = send(6)
    consumer = poller(auto_commit_interval_s=0.2, pull_batch_size=4)
    consumer.assign([first])
    batch = eventually(lambda: consumer.poll(1.0))
    assert [message.queue_offset for message in batch] == [0, 1, 2, 3]
    deadline = time.monotonic() + 0.6
    while time.monotonic() < deadline:  # three intervals, in which nothing is asked for
        assert not consumer.committed(first)
    assert [message.queue_offset for message in consumer.poll(60.0)] == [4, 5]
    eventually(lambda: consumer.committed(first) == 4)
    assert consumer.poll(0.0) == []
    eventually(lambda: consumer.committed(first) == 6)
    assert second not in consumer.assignment()


@pytest.mark.rule("B6.3b")
@pytest.mark.parametrize("how", ["raises", "leaves"])
def test_what_the_last_poll_returned_comes_again_after_a_stop(poller, send, cluster, group, how):
    first, _ = send(6)
    work = contextlib.nullcontext() if how == "leaves" else pytest.raises(ValueError, match="no")
    with (
        work,
        LitePullConsumer(
            group, nameserver=cluster.nameserver, start_from="first", pull_batch_size=3
        ) as consumer,
    ):
        consumer.assign([first])
        assert [one.queue_offset for one in consumer.poll(60.0)] == [0, 1, 2]
        assert [one.queue_offset for one in consumer.poll(60.0)] == [3, 4, 5]
        if how == "raises":
            raise ValueError("no")
    again = poller()
    again.assign([first])
    assert again.committed(first) == 3
    assert read(again, 3) == {first: [3, 4, 5]}


@pytest.mark.rule("B6.3b")
def test_a_commit_before_the_stop_makes_the_last_poll_count(poller, send, cluster, group):
    first, _ = send(3)
    with LitePullConsumer(group, nameserver=cluster.nameserver, start_from="first") as consumer:
        consumer.assign([first])
        read(consumer, 3)
        consumer.commit()
    again = poller()
    again.assign([first])
    assert again.committed(first) == 3


@pytest.mark.rule("B6.3c")
def test_seek_needs_an_assigned_queue_and_an_offset_that_is_stored(poller, send):
    first, second = send(5)
    consumer = poller()
    consumer.assign([first])
    read(consumer, 5)
    with pytest.raises(OffsetError, match="0 to 5: 6 is outside"):
        consumer.seek(first, 6)
    with pytest.raises(StateError, match="not assigned"):
        consumer.seek(second, 0)
    consumer.seek(first, 5)
    assert consumer.poll(0.2) == []
    consumer.seek(first, 3)
    assert read(consumer, 2) == {first: [3, 4]}


@pytest.mark.rule("B6.3c")
def test_seek_discards_what_is_cached(poller, send):
    first, _ = send(8)
    consumer = poller(pull_batch_size=4)
    consumer.assign([first])
    eventually(lambda: consumer.poll(1.0))
    # The second batch waits to be polled, or is on its way.
    consumer.seek(first, 1)
    assert read(consumer, 7) == {first: [1, 2, 3, 4, 5, 6, 7]}


@pytest.mark.parametrize(
    "limit",
    [{"pull_threshold_for_queue": 4}, {"consume_max_span": 4}, {"pull_threshold_for_all": 4}],
    ids=lambda limit: next(iter(limit)),
)
def test_what_was_polled_and_is_not_committed_is_no_reason_to_pause(poller, send, limit):
    first, _ = send(40)
    consumer = poller(auto_commit=False, pull_batch_size=4, **limit)
    consumer.assign([first])
    assert read(consumer, 40) == {first: list(range(40))}
    assert consumer.committed(first) in {None, 0}
    assert consumer.commit() == {first: 40}


def test_the_group_goes_on_where_it_was_sent_although_the_queue_is_let_go_at_once(poller, send):
    first, _ = send(8)
    consumer = poller()
    consumer.assign([first])
    read(consumer, 8)
    assert consumer.commit() == {first: 8}
    consumer.seek(first, 0)
    consumer.stop()
    again = poller()
    again.assign([first])
    assert again.committed(first) == 0
    assert read(again, 8) == {first: [0, 1, 2, 3, 4, 5, 6, 7]}


@pytest.mark.rule("B6.3d")
def test_pause_and_resume_apply_to_assigned_queues(poller, send):
    first, second = send(1)
    consumer = poller()
    consumer.assign([first])
    with pytest.raises(StateError, match="not assigned"):
        consumer.pause([first, second])
    consumer.assign([first, second])
    read(consumer, 2)
    consumer.pause([first])
    consumer.seek(first, 0)  # ends the pull that was on its way
    send(2, first=1)
    assert read(consumer, 2) == {second: [1, 2]}
    assert consumer.poll(0.3) == []
    consumer.resume([first])
    assert read(consumer, 3) == {first: [0, 1, 2]}


@pytest.mark.rule("B6.3e")
@pytest.mark.parametrize(
    ("options", "most"),
    [
        ({"pull_threshold_for_all": 3}, 4),
        ({"pull_threshold_for_queue": 3}, 8),
        ({"consume_max_span": 3}, 10),
    ],
    ids=["all queues", "one queue", "span"],
)
def test_pulls_stop_at_the_limits_and_go_on_when_messages_are_polled(poller, send, options, most):
    queues = send(20)
    consumer = poller(pull_batch_size=1, **options)
    consumer.assign(queues)

    def cached():
        return consumer._membership.ask(
            lambda host: {
                queue: (held.process.cached_count, held.state.value)
                for queue, held in host.machine.held.items()
                if held.process is not None
            }
        )

    def full():
        found = cached()
        return len(found) == 2 and all(state == "flow control" for _, state in found.values())

    eventually(full)
    assert sum(count for count, _ in cached().values()) <= most + 1
    assert {queue: list(range(20)) for queue in queues} == read(consumer, 40)


@pytest.mark.parametrize(("ahead", "early"), [(0, False), (4, True)])
def test_a_poller_pulls_ahead_as_far_as_its_option_says(poller, send, monkeypatch, ahead, early):
    asked, ask_early = [], PullCalls._ask_early

    def counted(self, *arguments):
        asked.append(self)
        ask_early(self, *arguments)

    monkeypatch.setattr(PullCalls, "_ask_early", counted)
    queues = send(50)
    consumer = poller(pull_batch_size=1, pulls_ahead=ahead)
    consumer.assign(queues)
    assert {queue: list(range(50)) for queue in queues} == read(consumer, 100)
    assert bool(asked) == early


@pytest.mark.rule("B2.7g")
def test_a_poller_that_loses_a_queue_commits_and_forgets_it(poller, cluster, topic, send, group):
    queues = set(send(3))
    first = poller(auto_commit_interval_s=600.0)
    first.subscribe(topic)
    read(first, 6)
    first.poll(0.0)
    second = poller()
    second.subscribe(topic)
    with Admin(cluster.nameserver) as admin:
        eventually(
            lambda: (
                len(second.assignment()) == 1
                and shared_out(admin, group, topic, (first, second), len(queues))
            )
        )
        (moved,) = second.assignment()
        assert moved in queues - first.assignment()
        # It lets go first and commits then; its next commit is far.
        eventually(lambda: admin.offsets(group, topic)[moved].committed == 3)


@pytest.mark.rule("B2.10i")
def test_a_poller_that_gets_a_queue_back_starts_at_the_stored_offset(poller, send):
    first, _ = send(3)
    consumer = poller()
    consumer.assign([first])
    read(consumer, 3)
    consumer.commit()
    consumer.assign([])
    eventually(lambda: not consumer.assignment())
    consumer.assign([first])
    send(1, first=3)
    assert read(consumer, 1) == {first: [3]}


# ---- numbers and probes --------------------------------------------------------------------------


def test_a_poller_says_what_was_consumed_and_where_each_queue_stands(poller, send):
    first, _ = send(6)
    consumer = poller(pull_batch_size=4)
    consumer.assign([first])
    assert len(eventually(lambda: consumer.poll(1.0))) == 4

    def waiting():
        (queue,) = consumer.stats().queues
        return (queue.queue, queue.offset, queue.cached, queue.lag)

    eventually(lambda: waiting() == (first, 0, 6, 6))
    assert len(consumer.poll(60.0)) == 2
    eventually(lambda: waiting() == (first, 4, 2, 2))
    stats = consumer.stats()
    assert (stats.consumed, stats.failed, stats.workers, stats.latency_s) == (4, 0, 0, None)
    assert f'group="{consumer.group}"' in metrics.text()
    consumer.stop()
    assert f'group="{consumer.group}"' not in metrics.text()


@pytest.mark.parametrize("classic", [False, True], ids=["polling", "classic"])
def test_a_probe_follows_the_life_of_a_pull_kind(poller, puller, topic, classic):
    consumer = puller() if classic else poller()
    assert not consumer.probe().ready
    consumer.subscribe(topic)
    eventually(lambda: consumer.probe() == Probe(live=True, ready=True))
    consumer.stop()
    assert consumer.probe() == Probe(False, False, ("the consumer is stopped",))


def test_a_poller_over_assigned_queues_is_ready_without_any_sharing(poller, send):
    consumer = poller()
    consumer.assign(send(1))
    eventually(lambda: consumer.probe() == Probe(live=True, ready=True))


# ---- listeners -----------------------------------------------------------------------------------


@pytest.mark.rule("B2.8f")
@pytest.mark.parametrize("classic", [False, True], ids=["polling", "classic"])
def test_pull_kinds_tell_the_listener_and_survive_what_it_raises(poller, puller, topic, classic):
    told = []

    def listener(*news):
        told.append(news)
        raise ValueError("not my day")

    def heard():
        """The queues that are held by what the listener was told."""
        held = set()
        for news in told:
            held = set(news[1]) if classic else (held | {*news[0].acquired}) - {*news[0].revoked}
        return held

    make = puller if classic else poller
    first = make()
    if classic:
        first.on_queues_changed(topic, listener)
    else:
        first.on_rebalance(listener)
        first.subscribe(topic)
    eventually(lambda: len(heard()) == 2)
    second = make()
    second.subscribe(topic)
    eventually(lambda: len(heard()) == 1)
    second.stop()
    eventually(lambda: len(heard()) == 2)
    assert len(told) >= 3
    # Told when it is taken, in hand when its offset was found.
    eventually(lambda: heard() == set(first.assignment(topic) if classic else first.assignment()))


# ---- scheduled pulling ---------------------------------------------------------------------------


@pytest.mark.rule("B6.4a")
def test_a_task_runs_for_each_held_queue_again_after_the_delay_that_it_chose(puller, send, topic):
    queues = send(5)
    consumer = puller()
    got, runs = {}, {}

    def task(queue):
        runs.setdefault(queue, []).append(time.monotonic())
        at = got.setdefault(queue, [])
        result = consumer.pull(queue, len(at), max_messages=2)
        at.extend(message.queue_offset for message in result.messages)
        return 1.0 if len(runs[queue]) == 2 else 0.0

    consumer.schedule(topic, task)
    everything = {queue: list(range(5)) for queue in queues}
    eventually(lambda: got == everything)
    consumer.stop()
    for times in runs.values():
        gaps = [after - before for before, after in itertools.pairwise(times)]
        assert gaps[1] >= 1.0
        assert gaps[0] < 1.0


@pytest.mark.rule("B6.4a")
@pytest.mark.parametrize("error", [ValueError("broken"), SystemExit(1)])
def test_a_task_that_raises_runs_again_after_a_second(puller, send, topic, caplog, error):
    send(0)
    times = {}

    def task(queue):
        times.setdefault(queue, []).append(time.monotonic())
        raise error

    puller().schedule(topic, task)
    eventually(lambda: len(times) == 2 and min(map(len, times.values())) >= 2)
    assert all(one[1] - one[0] >= 1.0 for one in times.values())
    assert "it runs again in 1 s" in caplog.text


@pytest.mark.rule("B6.4a")
def test_tasks_follow_the_queues(puller, send, topic, cluster, group):
    queues = set(send(0))
    runs = []

    def by(name):
        def task(queue):
            runs.append((name, queue))
            return 0.01

        return task

    first, second = puller(), puller()
    first.schedule(topic, by("first"))
    eventually(lambda: {("first", queue) for queue in queues} <= set(runs))
    second.schedule(topic, by("second"))
    with Admin(cluster.nameserver) as admin:
        eventually(
            lambda: (
                len(first.assignment(topic)) == len(second.assignment(topic)) == 1
                and agreed(admin, group, queues)
            )
        )
    (kept,), (moved,) = first.assignment(topic), second.assignment(topic)
    eventually(lambda: ("second", moved) in runs)

    def settled():
        runs.clear()
        eventually(lambda: len(runs) >= 20)
        return set(runs) == {("first", kept), ("second", moved)}

    eventually(settled)
    second.stop()
    eventually(lambda: {("first", kept), ("first", moved)} <= set(runs[-10:]))


def test_tasks_of_one_queue_never_run_at_once_and_a_task_may_stop_its_consumer(puller, send, topic):
    send(0)
    consumer = puller(pull_thread_nums=4)
    running, ended = set(), threading.Event()

    def task(queue):
        assert queue not in running
        running.add(queue)
        time.sleep(0.005)
        running.discard(queue)
        if len(runs) == 10:
            consumer.stop()
            ended.set()
        runs.append(queue)
        return 0.0

    runs = []
    consumer.schedule(topic, task)
    assert ended.wait(10.0)


def test_wrong_use_of_tasks_is_named(puller, topic, caplog):
    consumer = puller()
    consumer.schedule(topic, lambda _queue: -1)
    with pytest.raises(StateError, match="has a task already"):
        consumer.schedule(topic, print)
    eventually(lambda: "give seconds, 0 or more, or None" in caplog.text)
    with pytest.raises(ConfigurationError, match="pull_thread_nums is 0"):
        PullConsumer("g", nameserver="127.0.0.1:1", pull_thread_nums=0)

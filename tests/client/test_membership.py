"""The life of consumers: their states, starts and stops that are interrupted, errors that are kept."""

import threading
from concurrent.futures import Future

import pytest

from client.small_cluster import SmallCluster
from gimbalmq import LitePullConsumer, PullConsumer, PushConsumer
from gimbalmq.client import membership
from gimbalmq.errors import StateError, TransportError
from gimbalmq.wire.codes import RequestCode
from transport.server import closed_port
from waiting import eventually

KINDS = [PushConsumer, LitePullConsumer, PullConsumer]


@pytest.fixture
def cluster():
    with SmallCluster("orders", bodies=[b"0", b"1", b"2"]) as cluster:
        yield cluster


def consumer_of(kind, address, **options):
    consumer = kind("billing", nameserver=address, **options)
    if kind is PushConsumer:
        consumer.subscribe("orders", listener=print)
    else:
        consumer.subscribe("orders")
    return consumer


# ---- states --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_consumer_says_in_which_state_it_is(kind, cluster):
    consumer = consumer_of(kind, cluster.address)
    assert (consumer.state, consumer.start_error) == ("created", None)
    with consumer:
        assert consumer.state == "running"
    assert (consumer.state, consumer.start_error) == ("stopped", None)


@pytest.mark.parametrize("kind", KINDS)
def test_why_a_start_failed_is_kept_and_told_to_whoever_comes_later(kind):
    consumer = consumer_of(kind, f"127.0.0.1:{closed_port()}")
    with pytest.raises(TransportError) as failed:
        consumer.start()
    assert consumer.state == "failed to start"
    assert consumer.start_error is failed.value
    queue = object()
    later = [consumer.start, lambda: consumer._membership.ask(lambda _host: queue)]
    if kind is PushConsumer:
        later.append(lambda: consumer.subscribe("refunds", listener=print))
    for call in later:
        with pytest.raises(StateError, match=r"failed to start .*no name server could") as refused:
            call()
        assert refused.value.__cause__ is failed.value
    consumer.stop()
    assert consumer.state == "failed to start"


def test_a_poller_that_was_started_and_stopped_without_a_topic_stays_stopped(cluster):
    consumer = LitePullConsumer("billing", nameserver=cluster.address).start()
    with pytest.raises(StateError, match="started already"):
        consumer.start()
    consumer.stop()
    assert consumer.state == "stopped"
    with pytest.raises(StateError, match="is stopped"):
        consumer.subscribe("orders")


# ---- interrupted starts --------------------------------------------------------------------------


@pytest.fixture(params=["before it has joined", "just when it has joined"])
def interrupted(request, monkeypatch):
    """Let whoever waits to have joined be interrupted, as by Ctrl-C."""
    at_once = request.param == "before it has joined"

    class Interrupted(Future):
        def result(self, timeout=None):
            if not at_once:
                super().result(timeout)
            raise KeyboardInterrupt

    def interrupt(*, on):
        monkeypatch.setattr(membership, "Future", Interrupted if on else Future)

    return interrupt


@pytest.mark.parametrize("kind", KINDS)
def test_an_interrupted_start_leaves_no_member_behind(kind, cluster, interrupted):
    # Another consumer of the client keeps the instance running.
    with PullConsumer("audit", nameserver=cluster.address, client_id="till") as other:
        other.subscribe("orders")
        interrupted(on=True)
        consumer = consumer_of(kind, cluster.address, client_id="till")
        with pytest.raises(KeyboardInterrupt):
            consumer.start()
        assert consumer.state == "failed to start"
        assert isinstance(consumer.start_error, KeyboardInterrupt)
        members = other._membership.instance._members
        eventually(lambda: set(members) == {"audit"})
        eventually(lambda: "billing" in unregistered(cluster))
        interrupted(on=False)
        with consumer_of(kind, cluster.address, client_id="till") as again:
            assert again.state == "running"


def unregistered(cluster):
    """The groups that brokers were told to forget."""
    return [
        one.fields["consumerGroup"]
        for one in cluster.requests
        if one.code == RequestCode.UNREGISTER_CLIENT
    ]


def test_a_join_that_nobody_answers_ends(cluster, monkeypatch):
    monkeypatch.setattr(membership, "_JOIN_S", 0.05)
    monkeypatch.setattr(membership.ConsumerHost, "begin", lambda self, ready: None)
    consumer = consumer_of(PushConsumer, cluster.address)
    with pytest.raises(TransportError, match=r"group 'billing' was not joined within 0\.05 s"):
        consumer.start()


# ---- interrupted stops ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_stop_that_was_interrupted_is_finished_by_the_next_one(kind, cluster, monkeypatch):
    consumer = consumer_of(kind, cluster.address).start()

    def interrupt(_timeout_s):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(consumer._membership._ended, "wait", interrupt)
        with pytest.raises(KeyboardInterrupt):
            consumer.stop()
    assert consumer.state == "stopping"
    consumer.stop()
    assert consumer.state == "stopped"
    assert set(unregistered(cluster)) == {"billing"}


def test_a_stop_that_was_interrupted_while_threads_end_is_finished_by_the_next_one(
    cluster, monkeypatch, tmp_path
):
    consumer = consumer_of(
        PushConsumer,
        cluster.address,
        broadcasting=True,
        local_offset_store_dir=tmp_path,
        enable_trace=True,
    ).start()
    join = consumer._pool.join

    def interrupt_after(timeout_s):
        monkeypatch.setattr(consumer._pool, "join", join)
        join(timeout_s)
        raise KeyboardInterrupt

    monkeypatch.setattr(consumer._pool, "join", interrupt_after)
    with pytest.raises(KeyboardInterrupt):
        consumer.stop()
    consumer.stop()
    assert consumer.state == "stopped"


def test_who_comes_while_another_thread_stops_it_does_not_wait(cluster):
    entered, go_on = threading.Event(), threading.Event()

    def listen(_message):
        entered.set()
        assert go_on.wait(20.0)

    consumer = PushConsumer("billing", nameserver=cluster.address, start_from="first", workers=1)
    consumer.subscribe("orders", listener=listen)
    consumer.start()
    assert entered.wait(20.0)
    first = threading.Thread(target=consumer.stop)
    first.start()
    eventually(lambda: consumer.state == "stopping")
    consumer.stop()
    assert consumer.state == "stopping"
    go_on.set()
    first.join(20.0)
    assert consumer.state == "stopped"


def test_a_callback_that_exits_is_told_of(caplog):
    def exits(_news):
        raise SystemExit(1)

    membership._call_back("billing", exits, object())
    assert "billing" in caplog.text
    assert "SystemExit" in caplog.text

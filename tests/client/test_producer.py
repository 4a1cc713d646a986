import threading
import time

import pytest

from client.small_cluster import SmallCluster
from gimbalmq import Message, Producer, PushConsumer
from gimbalmq.client.sender import Sender
from gimbalmq.client.transaction import CheckWorker
from gimbalmq.errors import ConfigurationError, GimbalError, StateError, TopicNotFoundError
from gimbalmq.model.queue import MessageQueue
from gimbalmq.wire.codes import RequestCode
from transport.server import LoopbackServer, closed_port, silent
from waiting import eventually


@pytest.fixture
def cluster():
    with SmallCluster("orders", queues=4) as cluster:
        yield cluster


@pytest.fixture
def producer(cluster):
    with Producer("shop", nameserver=cluster.address) as producer:
        yield producer


# ---- options -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"timeout_s": 0}, "timeout_s"),
        ({"retries": -1}, "retries"),
        ({"heartbeat_broker_interval_s": 0}, "heartbeat_broker_interval_s"),
        ({"nameserver": "nowhere"}, "host:port"),
        ({"client_id": ""}, "client_id is empty"),
        ({"client_id": "two words"}, "white space"),
    ],
)
def test_a_wrong_option_is_named(options, complaint):
    with pytest.raises(ConfigurationError, match=complaint):
        Producer("shop", **{"nameserver": "127.0.0.1:9876", **options})


@pytest.mark.parametrize("group", ["", "two words", "x" * 121])
def test_a_group_name_that_brokers_refuse_is_refused(group):
    with pytest.raises(ConfigurationError):
        Producer(group, nameserver="127.0.0.1:9876")


def test_the_name_server_may_come_from_the_environment(monkeypatch, cluster):
    monkeypatch.setenv("NAMESRV_ADDR", cluster.address)
    with Producer("shop") as producer:
        assert len(producer.queues("orders")) == 4


def test_without_any_name_server_the_error_says_where_to_put_one(monkeypatch):
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    with pytest.raises(ConfigurationError, match="NAMESRV_ADDR"):
        Producer("shop")


@pytest.mark.rule("B8.6a")
def test_client_ids_are_unique_unless_named():
    ids = {Producer("shop", nameserver="127.0.0.1:1").client_id for _ in range(20)}
    assert len(ids) == 20
    named = Producer("shop", nameserver="127.0.0.1:1", client_id="till-1").client_id
    assert named == "till-1@gmq1-AVG"


# ---- life ----------------------------------------------------------------------------------------


def test_using_it_before_start_says_what_to_do():
    producer = Producer("shop", nameserver="127.0.0.1:9876")
    with pytest.raises(StateError, match=r"with statement, or call start\(\) first"):
        producer.send(Message("orders", b"x"))


def test_a_producer_says_in_which_state_it_is_and_runs_once(cluster):
    producer = Producer("shop", nameserver=cluster.address)
    producer.stop()  # nothing to stop: nothing happens
    assert (producer.state, producer.start_error) == ("created", None)
    assert producer.start().state == "running"
    with pytest.raises(StateError, match="producer of group 'shop' is running: make a new one"):
        producer.start()
    producer.stop()
    assert producer.state == "stopped"
    with pytest.raises(StateError, match="producer of group 'shop' is stopped: make a new one"):
        producer.start()
    with pytest.raises(StateError, match="producer of group 'shop' is stopped, not running"):
        producer.send(Message("orders", b"x"))


def test_a_start_that_failed_is_remembered_with_its_reason(producer, cluster):
    second = Producer("shop", nameserver=cluster.address, client_id="till")
    with Producer("shop", nameserver=cluster.address, client_id="till") as first:
        with pytest.raises(StateError, match="already has a producer") as refused:
            second.start()
        assert second.state == "failed to start"
        assert second.start_error is refused.value
        for use in (second.start, second.stats):
            with pytest.raises(
                StateError, match=r"failed to start \(StateError: .*has a prod"
            ) as why:
                use()
            assert why.value.__cause__ is refused.value
        second.stop()
        assert first.send(Message("orders", b"x")), "the first is still registered, and running"
    assert second.state == "failed to start"


def test_a_start_that_fails_late_leaves_nothing_behind(cluster, monkeypatch):
    def fail(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(CheckWorker, "start", fail)
    with Producer("other", nameserver=cluster.address, client_id="till") as other:
        other.send(Message("orders", b"x"))
        options = {"nameserver": cluster.address, "client_id": "till"}
        with pytest.raises(RuntimeError):
            Producer("shop", check=lambda _: True, **options).start()
        monkeypatch.undo()
        Producer("shop", check=lambda _: True, **options).start().stop()


def test_stop_in_a_callback_is_refused_and_can_be_done_elsewhere(cluster):
    told, refused = threading.Event(), []
    producer = Producer("shop", nameserver=cluster.address).start()

    def stop(_future):
        try:
            producer.stop()
        except StateError as error:
            refused.append(str(error))
        told.set()

    producer.send_async(Message("orders", b"x")).add_done_callback(stop)
    assert told.wait(20.0)
    assert "call it on another thread" in refused[0]
    assert producer.state == "running"
    producer.stop()
    assert cluster.codes.count(RequestCode.UNREGISTER_CLIENT) == 1


def test_an_interrupted_stop_still_unregisters_and_lets_go(cluster, monkeypatch):
    def interrupt(self, timeout_s):
        raise KeyboardInterrupt

    producer = Producer("shop", nameserver=cluster.address).start()
    producer.send(Message("orders", b"x"))
    monkeypatch.setattr(Sender, "flush", interrupt)
    with pytest.raises(KeyboardInterrupt):
        producer.stop()
    assert producer.state == "stopped"
    eventually(lambda: cluster.codes.count(RequestCode.UNREGISTER_CLIENT) == 1)
    eventually(lambda: not cluster.open_connections)
    producer.stop()


@pytest.mark.rule("B5.4c")
def test_stop_may_be_repeated_and_leaves_no_connection(cluster):
    producer = Producer("shop", nameserver=cluster.address).start()
    producer.send(Message("orders", b"x"))
    producer.stop()
    producer.stop()
    deadline = time.monotonic() + 60.0
    while cluster.open_connections:
        assert time.monotonic() < deadline
    with pytest.raises(StateError):
        producer.send(Message("orders", b"x"))


def test_stop_unregisters_the_group(cluster):
    with Producer("shop", nameserver=cluster.address) as producer:
        producer.send(Message("orders", b"x"))
    left = [one for one in cluster.requests if one.code == RequestCode.UNREGISTER_CLIENT]
    assert [one.fields["producerGroup"] for one in left] == ["shop"]


# ---- sending -------------------------------------------------------------------------------------


@pytest.mark.rule("B7.1a")
def test_a_thread_walks_over_the_queues_in_turn(producer):
    got = [producer.send(Message("orders", b"x")).queue.queue_id for _ in range(8)]
    assert got == [(got[0] + step) % 4 for step in range(8)]


@pytest.mark.rule("B7.1a")
def test_threads_start_at_random_queues(producer):
    starts = []
    for _ in range(24):
        thread = threading.Thread(
            target=lambda: starts.append(producer.send(Message("orders", b"x")).queue.queue_id)
        )
        thread.start()
        thread.join(20.0)
    # All 24 at one of four queues: once in 4 to the 23rd runs.
    assert len(set(starts)) > 1


def test_a_queue_of_ones_own_choice_is_used(producer):
    queue = MessageQueue("orders", "broker-a", 3)
    assert producer.send(Message("orders", b"x"), queue=queue).queue == queue
    picked = producer.send(Message("orders", b"x"), selector=lambda queues, _: queues[2])
    assert picked.queue.queue_id == 2


def test_a_queue_that_does_not_exist_is_refused(producer):
    with pytest.raises(ConfigurationError, match="orders/broker-a/9 is not one of the 4 queues"):
        producer.send(Message("orders", b"x"), queue=MessageQueue("orders", "broker-a", 9))


def test_a_queue_and_a_selector_together_are_refused(producer):
    queue = MessageQueue("orders", "broker-a", 0)
    with pytest.raises(ConfigurationError, match="not both"):
        producer.send(Message("orders", b"x"), queue=queue, selector=lambda queues, _: queues[0])


@pytest.mark.rule("B7.7e", "B7.7a", "B7.7b")
def test_an_unknown_topic_is_sent_by_the_template_with_what_the_broker_needs_to_make_it():
    with SmallCluster(queues=8, template=True) as cluster:
        with Producer("shop", nameserver=cluster.address) as producer:
            producer.send(Message("new-topic", b"x"))
            assert len(producer.queues("new-topic")) == 4
        (request,) = cluster.sent
    assert (request.fields["b"], request.fields["c"], request.fields["d"]) == (
        "new-topic",
        "TBW102",
        "4",
    )


@pytest.mark.rule("B7.7e")
def test_an_own_template_is_asked_for_when_the_route_is_refreshed_too():
    with SmallCluster("MINE", queues=8, template=True) as cluster:
        options = {"create_topic_key": "MINE", "default_topic_queue_nums": 2}
        with Producer(
            "shop", nameserver=cluster.address, poll_name_server_interval_s=0.02, **options
        ) as producer:
            assert len(producer.queues("new-topic")) == 2
            asked = [
                one.fields["topic"] for one in eventually(lambda: routes_asked(cluster, at_least=8))
            ]
            assert len(producer.queues("new-topic")) == 2
    assert set(asked) == {"new-topic", "MINE"}


def routes_asked(cluster, at_least):
    asked = [one for one in cluster.requests if one.code == RequestCode.GET_ROUTEINFO_BY_TOPIC]
    return asked if len(asked) >= at_least else None


def test_a_topic_that_a_consumer_made_known_stays_fresh_for_the_producer(cluster):
    options = {
        "nameserver": cluster.address,
        "client_id": "till",
        "poll_name_server_interval_s": 0.02,
    }
    consumer = PushConsumer("billing", **options)
    consumer.subscribe("orders", listener=print)
    with Producer("shop", **options) as producer:
        with consumer:
            producer.send(Message("orders", b"x"))
        cluster.requests.clear()
        eventually(lambda: routes_asked(cluster, at_least=3))
        producer.send(Message("orders", b"x"))
    assert {one.fields["topic"] for one in routes_asked(cluster, at_least=3)} == {"orders"}


@pytest.mark.rule("B7.7c")
def test_an_unknown_topic_without_template_is_an_error_that_names_it(producer):
    with pytest.raises(TopicNotFoundError, match="topic 'nowhere' does not exist"):
        producer.send(Message("nowhere", b"x"))


# ---- the wrong server ----------------------------------------------------------------------------


def test_an_unreachable_name_server_is_said_quickly():
    address = f"127.0.0.1:{closed_port()}"
    started = time.monotonic()
    complaint = f"no name server could be asked: cannot connect to {address}"
    with (
        Producer("shop", nameserver=address) as producer,
        pytest.raises(GimbalError, match=complaint),
    ):
        producer.send(Message("orders", b"x"))
    assert time.monotonic() - started < 3.0


@pytest.mark.parametrize(
    "options", [{"raw": b"HTTP/1.1 400 Bad\r\n\r\n"}, {"closes": True}], ids=["http", "hangs up"]
)
def test_a_server_of_another_kind_is_a_clear_error(options):
    with (
        LoopbackServer(**options) as server,
        Producer("shop", nameserver=server.address) as producer,
        pytest.raises(GimbalError),
    ):
        producer.send(Message("orders", b"x"))


@pytest.mark.rule("W8a")
def test_a_silent_name_server_is_given_up_after_its_time():
    with LoopbackServer(silent) as server:
        started = time.monotonic()
        with (
            Producer("shop", nameserver=server.address) as producer,
            pytest.raises(GimbalError, match=r"did not answer within 3\.0 s"),
        ):
            producer.send(Message("orders", b"x"))
        assert time.monotonic() - started < 8.0

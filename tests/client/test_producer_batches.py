"""Batches of a producer: those that users make, and those that gather by themselves."""

import threading

import pytest

from client.full_cluster import FullCluster, message
from client.small_cluster import HoldingCluster
from gimbalmq import Producer
from gimbalmq.client.batching import Batching
from gimbalmq.client.selectors import by_hash
from gimbalmq.errors import ConfigurationError, SendError, StateError
from gimbalmq.model.queue import MessageQueue
from gimbalmq.model.route import TopicRoute
from gimbalmq.wire.batch import decode_batch
from gimbalmq.wire.codes import RequestCode as R
from gimbalmq.wire.command import response_to
from gimbalmq.wire.properties import parse_properties
from waiting import eventually


@pytest.fixture
def cluster():
    with FullCluster("orders", queues=4) as cluster:
        yield cluster


# ---- batches -------------------------------------------------------------------------------------


@pytest.mark.rule("W2.3b", "W2.3c", "B7.8e")
def test_a_batch_is_one_request_with_one_result(cluster):
    with Producer("shop", nameserver=cluster.address) as producer:
        (result,) = producer.send_batch(message(b"%d" % number) for number in range(3))
    (request,) = cluster.batches
    assert (request.fields["m"], request.fields["f"]) == ("true", "0")
    assert parse_properties(request.fields["i"]) == {"WAIT": "true"}
    assert [entry.body for entry in decode_batch(request.body)] == [b"0", b"1", b"2"]
    assert result.queue_offset == 7
    assert len(result.message_id.split(",")) == len(result.offset_message_id.split(",")) == 3


@pytest.mark.rule("B7.8e")
def test_a_batch_above_the_limit_is_cut(cluster):
    with Producer("shop", nameserver=cluster.address, max_message_size=1000) as producer:
        results = producer.send_batch([message(b"x" * 300) for _ in range(5)])
    assert len(results) == len(cluster.batches) == 3


def test_the_ids_of_one_call_differ_however_many_there_are(cluster):
    with Producer("shop", nameserver=cluster.address) as producer:
        results = producer.send_batch([message()] * 70_000)
    ids = [one for result in results for one in result.message_id.split(",")]
    assert len(set(ids)) == len(ids) == 70_000


def test_a_batch_goes_where_its_key_its_queue_or_its_selector_says(cluster):
    queue = MessageQueue("orders", "broker-a", 3)
    with Producer("shop", nameserver=cluster.address) as producer:
        keyed = [message(sharding_key="order-1"), message(sharding_key="order-1")]
        assert producer.send_batch(keyed)[0].queue.queue_id == 2
        assert producer.send_batch([message()], queue=queue)[0].queue == queue
        assert producer.send_batch([message()], selector=by_hash("a"))[0].queue.queue_id == 1
        with pytest.raises(ConfigurationError, match="different sharding keys"):
            producer.send_batch([message(sharding_key="a"), message(sharding_key="b")])


def test_a_failing_batch_says_how_many_before_it_were_stored(cluster):
    with Producer("shop", nameserver=cluster.address, max_message_size=1000) as producer:
        accept = cluster._stored

        def once(request, ids):
            cluster._stored = lambda request, _: response_to(request, 13, "no more")
            return accept(request, ids)

        cluster._stored = once
        with pytest.raises(SendError, match=r"1 of 2 batches .* were stored.*no more") as caught:
            producer.send_batch([message(b"x" * 600) for _ in range(2)])
    assert caught.value.code == 13


# ---- automatic batches ---------------------------------------------------------------------------


def test_single_sends_gather_until_the_first_has_waited_long_enough(cluster):
    with Producer("shop", nameserver=cluster.address, batching=True) as producer:
        producer.queues("orders")
        futures = [producer.send_async(message(b"%d" % number)) for number in range(5)]
        results = [future.result(20.0) for future in futures]
    bodies = [entry.body for request in cluster.batches for entry in decode_batch(request.body)]
    assert bodies == [b"0", b"1", b"2", b"3", b"4"]
    assert len({result.message_id for result in results}) == 5
    assert cluster.sent == []


def test_each_message_of_a_batch_has_its_own_place(cluster):
    batching = Batching(hold_s=20.0)
    with Producer("shop", nameserver=cluster.address, batching=batching) as producer:
        futures = [producer.send_async(message()) for _ in range(3)]
        producer.flush(timeout_s=5.0)
        assert [future.result(0).queue_offset for future in futures] == [7, 8, 9]


def test_a_batch_leaves_when_it_is_large_enough(cluster):
    batching = Batching(hold_s=20.0, hold_bytes=900)
    with Producer("shop", nameserver=cluster.address, batching=batching) as producer:
        futures = [producer.send_async(message(b"x" * 400)) for _ in range(3)]
        assert futures[1].result(20.0)
        assert not futures[2].done()
        assert len(cluster.batches) == 1


def test_a_sync_send_gathers_too_and_waits(cluster):
    with Producer("shop", nameserver=cluster.address, batching=True) as producer:
        assert producer.send(message()).queue_offset == 7
    assert len(cluster.batches) == 1


def test_tags_topics_and_wanted_queues_do_not_mix(cluster):
    batching = Batching(hold_s=20.0)
    with Producer("shop", nameserver=cluster.address, batching=batching) as producer:
        for options in ({"tags": "a"}, {"tags": "b"}, {}, {"sharding_key": "k"}):
            producer.send_async(message(**options))
        producer.flush(timeout_s=5.0)
    assert len(cluster.batches) == 4


def test_what_a_batch_cannot_carry_is_sent_by_itself(cluster):
    batching = Batching(hold_s=20.0)
    with Producer("shop", nameserver=cluster.address, batching=batching) as producer:
        producer.send(message(delay_level=1))
        producer.send(message(b"x" * 5000))
    assert len(cluster.sent) == 2
    assert cluster.batches == []


@pytest.mark.parametrize("way", ["send", "send_async"])
def test_a_batch_that_is_refused_for_now_is_tried_again(cluster, way):
    cluster.refuse_once(2)
    with Producer("shop", nameserver=cluster.address, batching=True) as producer:
        sent = getattr(producer, way)(message())
        result = sent if way == "send" else sent.result(20.0)
    assert result.queue.topic == "orders"
    assert len(cluster.batches) == 2


def test_a_failed_batch_fails_each_of_its_messages(cluster):
    cluster.send_code = 13
    with Producer("shop", nameserver=cluster.address, batching=True) as producer:
        futures = [producer.send_async(message()) for _ in range(3)]
        assert all(isinstance(future.exception(5.0), SendError) for future in futures)
        producer.flush(timeout_s=5.0)


@pytest.mark.rule("B7.6b")
def test_a_gathered_batch_for_one_queue_makes_one_attempt(cluster):
    cluster.refuse_once(2)
    with (
        Producer("shop", nameserver=cluster.address, batching=True) as producer,
        pytest.raises(SendError, match="not now"),
    ):
        producer.send(message(sharding_key="order-1"))
    assert len(cluster.batches) == 1


def test_a_message_that_gathers_keeps_its_own_time_limit(cluster):
    cluster.send_code = None
    with (
        Producer("shop", nameserver=cluster.address, batching=True, timeout_s=20.0) as producer,
        pytest.raises(SendError, match=r"no time left of 0\.3 s"),
    ):
        producer.send(message(), timeout_s=0.3)


def test_a_callback_may_send_while_sends_gather(cluster):
    with Producer("shop", nameserver=cluster.address, batching=True) as producer:
        results, sent = [], threading.Event()

        def send_another(_first):
            results.append(producer.send(message(b"another")))
            sent.set()

        producer.send_async(message()).add_done_callback(send_another)
        assert sent.wait(10.0)
    assert results[0].queue.topic == "orders"


def test_what_has_gathered_leaves_without_asking_for_a_route_on_the_clients_own_thread(cluster):
    batching = Batching(hold_s=20.0)
    with Producer("shop", nameserver=cluster.address, batching=batching) as producer:
        future = producer.send_async(message())
        shared = producer._sender.shared
        nowhere = TopicRoute("orders", (), ())
        eventually(lambda: shared.instance.routes.route("orders") is not None)
        shared.run(lambda: shared.instance.publish_to(nowhere))
        asked = cluster.codes.count(R.GET_ROUTEINFO_BY_TOPIC)
        producer.flush(timeout_s=5.0)
        assert future.result(0).queue_offset == 7
        assert cluster.codes.count(R.GET_ROUTEINFO_BY_TOPIC) == asked


def test_what_gathers_while_the_producer_stops_is_told_so():
    with HoldingCluster("orders") as cluster:
        batching = Batching(hold_s=20.0)
        producer = Producer("shop", nameserver=cluster.address, batching=batching).start()
        sender = producer._sender
        held = producer.send_async(message(b"x" * 5000))
        cluster.wait_held(1)
        stopping = threading.Thread(target=producer.stop)
        stopping.start()
        eventually(lambda: sender.pipeline._waiting)
        late = sender.send_async(message(), None, None, 3.0)
        cluster.answer_all()
        assert held.result(20.0)
        assert isinstance(late.exception(20.0), StateError)
        stopping.join(20.0)
        with pytest.raises(StateError, match="stopped"):
            sender.send_async(message(), None, None, 3.0)


@pytest.mark.parametrize("options", [{"hold_s": 0}, {"hold_bytes": 100, "total_bytes": 99}])
def test_a_batching_that_makes_no_sense_is_refused(options):
    with pytest.raises(ConfigurationError, match="hold_s"):
        Batching(**options)

"""Sends that nobody waits for: bounds, back-pressure, flush, retries, one-way."""

import threading
import time

import pytest

from client.small_cluster import HoldingCluster, SmallCluster
from gimbalmq import Message, Producer
from gimbalmq.errors import ConfigurationError, SendError, StateError, TransportError
from gimbalmq.model.queue import MessageQueue
from gimbalmq.wire.codes import RequestCode
from gimbalmq.wire.command import response_to
from gimbalmq.wire.properties import parse_properties


@pytest.fixture
def holding():
    with HoldingCluster("orders", queues=4) as cluster:
        yield cluster


@pytest.fixture
def cluster():
    with SmallCluster("orders", queues=4) as cluster:
        yield cluster


def message(body=b"x", **options):
    return Message("orders", body, **options)


def test_a_future_has_the_result_of_its_own_message(cluster):
    with Producer("shop", nameserver=cluster.address) as producer:
        futures = [producer.send_async(message(b"%d" % number)) for number in range(100)]
        results = [future.result(10.0) for future in futures]
    assert [request.body for request in cluster.sent] == [b"%d" % number for number in range(100)]
    ids = [parse_properties(request.fields["i"])["UNIQ_KEY"] for request in cluster.sent]
    assert [result.message_id for result in results] == ids
    assert len(set(ids)) == 100
    assert [result.queue.queue_id for result in results] == [
        int(request.fields["e"]) for request in cluster.sent
    ]


def test_what_has_left_cannot_be_cancelled(holding):
    with Producer("shop", nameserver=holding.address) as producer:
        future = producer.send_async(message())
        assert not future.cancel()
        holding.wait_held(1)
        holding.answer_all()
        assert future.result(20.0).queue.topic == "orders"


@pytest.mark.rule("B7.5c")
@pytest.mark.parametrize(
    ("bounds", "body"),
    [
        ({"back_pressure_for_async_send_num": 4}, b"x"),
        ({"back_pressure_for_async_send_size": 400}, b"x" * 100),
    ],
    ids=["messages", "bytes"],
)
def test_a_caller_waits_while_too_much_is_in_flight(holding, bounds, body):
    with Producer("shop", nameserver=holding.address, timeout_s=20.0, **bounds) as producer:
        for _ in range(4):
            producer.send_async(message(body))
        holding.wait_held(4)
        fifth = []
        caller = threading.Thread(target=lambda: fifth.append(producer.send_async(message(body))))
        caller.start()
        caller.join(0.2)
        assert caller.is_alive()
        assert len(holding.held) == 4
        holding.answer_all()
        caller.join(10.0)
        holding.wait_held(1)
        holding.answer_all()
        assert fifth[0].result(20.0)


@pytest.mark.rule("B7.5c")
def test_no_room_in_time_is_an_error_that_says_what_is_in_flight(holding):
    options = {"back_pressure_for_async_send_num": 1, "timeout_s": 20.0}
    with Producer("shop", nameserver=holding.address, **options) as producer:
        first = producer.send_async(message())
        with pytest.raises(SendError, match="1 messages with 1 bytes are in flight"):
            producer.send_async(message(), timeout_s=0.05)
        holding.wait_held(1)
        holding.answer_all()
        assert first.result(20.0)


def test_a_message_larger_than_all_the_room_still_goes(cluster):
    options = {"back_pressure_for_async_send_size": 10}
    with Producer("shop", nameserver=cluster.address, **options) as producer:
        assert producer.send_async(message(b"x" * 100)).result(20.0)


def test_flush_waits_for_every_result(holding):
    with Producer("shop", nameserver=holding.address) as producer:
        futures = [producer.send_async(message()) for _ in range(10)]
        with pytest.raises(TransportError, match="10 messages with 10 bytes"):
            producer.flush(timeout_s=0.05)
        holding.wait_held(10)
        holding.answer_all()
        producer.flush(timeout_s=10.0)
        assert all(future.done() for future in futures)


def test_flush_with_nothing_in_flight_returns_at_once(cluster):
    with Producer("shop", nameserver=cluster.address) as producer:
        producer.flush(timeout_s=0.0)


def test_stop_waits_for_what_is_in_flight(cluster):
    with Producer("shop", nameserver=cluster.address) as producer:
        futures = [producer.send_async(message()) for _ in range(500)]
    assert all(future.done() for future in futures)
    assert len(cluster.sent) == 500


@pytest.mark.parametrize("wish", [{}, {"sharding_key": "one"}], ids=["plain", "keyed"])
def test_stop_ends_what_no_broker_answers_in_time(holding, wish):
    with Producer("shop", nameserver=holding.address, timeout_s=0.2) as producer:
        futures = [producer.send_async(message(**wish), timeout_s=60.0) for _ in range(3)]
        holding.wait_held(3)
    for future in futures:
        with pytest.raises(SendError):
            future.result(10.0)


def test_a_callback_may_send_again_without_waiting(cluster):
    done = threading.Event()
    options = {"back_pressure_for_async_send_num": 1}
    with Producer("shop", nameserver=cluster.address, **options) as producer:

        def again(_future):
            producer.send_async(message(b"again")).add_done_callback(lambda _: done.set())

        producer.send_async(message()).add_done_callback(again)
        assert done.wait(10.0)
    assert [request.body for request in cluster.sent] == [b"x", b"again"]


def test_flush_in_a_callback_is_refused_instead_of_blocking_forever(cluster):
    caught = []
    done = threading.Event()
    with Producer("shop", nameserver=cluster.address) as producer:

        def flush(_future):
            try:
                producer.flush()
            except StateError as error:
                caught.append(str(error))
            done.set()

        producer.send_async(message()).add_done_callback(flush)
        assert done.wait(10.0)
    assert "must not" in caught[0]


@pytest.mark.rule("B7.5a")
def test_a_refusal_is_not_tried_again():
    refusing = SmallCluster("orders")
    refusing._send = lambda request: (refusing.sent.append(request), response_to(request, 2))[1]
    with refusing, Producer("shop", nameserver=refusing.address) as producer:
        error = producer.send_async(message()).exception(10.0)
    assert isinstance(error, SendError)
    assert error.code == 2
    assert len(refusing.sent) == 1


def test_a_message_that_cannot_be_encoded_fails_alone(cluster):
    with Producer("shop", nameserver=cluster.address) as producer:
        with pytest.raises(ConfigurationError, match="a lone surrogate"):
            producer.send_async(message(properties={"p": "\ud800"}))
        assert producer.send_async(message()).result(20.0)
        producer.flush(timeout_s=5.0)
        assert producer.stats().in_flight == 0


@pytest.mark.rule("B7.5b")
def test_a_oneway_send_asks_for_no_answer_and_is_not_repeated(cluster):
    with Producer("shop", nameserver=cluster.address) as producer:
        queue = MessageQueue("orders", "broker-a", 2)
        assert producer.send_oneway(message(), queue=queue) is None
        deadline = time.monotonic() + 60.0
        while not cluster.sent:
            assert time.monotonic() < deadline
    (request,) = cluster.sent
    assert request.is_oneway
    assert (request.code, request.fields["e"]) == (RequestCode.SEND_MESSAGE_V2, "2")


@pytest.mark.rule("B7.5b")
def test_a_oneway_send_to_a_broker_that_is_gone_says_so():
    with SmallCluster("orders") as cluster:
        producer = Producer("shop", nameserver=cluster.address, timeout_s=0.5).start()
        producer.queues("orders")
    with pytest.raises(SendError, match="broker-a: cannot connect"):
        producer.send_oneway(message())
    producer.stop()

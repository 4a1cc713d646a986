"""Selectors, transactions, traces, namespaces and fault tolerance of a producer."""

import contextlib
import threading
import zlib
from datetime import UTC, datetime

import pytest

from client.full_cluster import OFFSET_ID, FullCluster, message
from client.small_cluster import Elsewhere
from gimbalmq import Message, Producer
from gimbalmq.client.selectors import by_hash, by_random, by_round_robin
from gimbalmq.core.fault import FaultTolerance
from gimbalmq.errors import ConfigurationError, SendError, StateError
from gimbalmq.flows.transaction import half_properties
from gimbalmq.model.route import BrokerSet, QueueData, TopicRoute
from gimbalmq.wire.bodies import encode_route
from gimbalmq.wire.codes import RequestCode as R
from gimbalmq.wire.codes import version_ordinal
from gimbalmq.wire.command import Command, response_to
from gimbalmq.wire.properties import encode_properties, parse_properties
from gimbalmq.wire.record import encode_record
from transport.server import closed_port
from waiting import eventually


@pytest.fixture
def cluster():
    with FullCluster("orders", "RMQ_SYS_TRACE_TOPIC", "shop%orders", queues=4) as cluster:
        yield cluster


@pytest.fixture
def producer(cluster):
    with Producer("shop", nameserver=cluster.address) as producer:
        yield producer


# ---- selectors -----------------------------------------------------------------------------------


def test_ready_made_selectors_choose_one_of_the_queues(cluster):
    with Producer("shop", nameserver=cluster.address) as producer:
        walk = by_round_robin()
        walked = [producer.send(message(), selector=walk).queue.queue_id for _ in range(5)]
        assert walked == [0, 1, 2, 3, 0]
        hashed = producer.send(message(), selector=by_hash("order-1")).queue
        assert hashed == producer.send(message(sharding_key="order-1")).queue
        assert producer.send(message(), selector=by_random).queue in producer.queues("orders")


def test_a_selector_that_finds_nothing_is_an_error(cluster):
    with (
        Producer("shop", nameserver=cluster.address) as producer,
        pytest.raises(ConfigurationError, match="returned None, which is no queue"),
    ):
        producer.send(message(), selector=lambda _queues, _message: None)


@pytest.mark.rule("B7.6b")
def test_with_a_selector_a_sync_send_makes_one_attempt(cluster):
    cluster.send_code = 2
    with Producer("shop", nameserver=cluster.address) as producer:
        with pytest.raises(SendError) as caught:
            producer.send(message(), selector=by_random)
        assert len(caught.value.attempts) == 1
        with pytest.raises(SendError) as caught:
            producer.send(message())
        assert len(caught.value.attempts) == 3


# ---- transactions --------------------------------------------------------------------------------


def ends(cluster):
    return [(one.fields["commitOrRollback"], one.remark) for one in cluster.ends]


@pytest.mark.rule("W2.3e", "W5.7b", "W8a")
def test_leaving_the_block_commits_once_with_the_place_of_the_half_message(cluster, producer):
    with producer.transaction(message()) as transaction:
        assert cluster.ends == []
        message_id = transaction.message_id
        assert transaction.result.queue_offset == 7
    (half,), (end,) = cluster.sent, cluster.ends
    properties = parse_properties(half.fields["i"])
    assert (properties["TRAN_MSG"], properties["PGROUP"]) == ("true", "shop")
    assert int(half.fields["f"]) & 4
    assert (end.fields["commitOrRollback"], end.fields["msgId"]) == ("8", message_id)
    assert (end.fields["tranStateTableOffset"], end.fields["commitLogOffset"]) == ("7", "1024")


@pytest.mark.rule("W5.7b")
def test_an_exception_rolls_back_once_and_goes_on_its_way(cluster, producer):
    with pytest.raises(KeyError), producer.transaction(message()):
        raise KeyError("stock")
    assert ends(cluster) == [("12", "KeyError: 'stock'")]


@pytest.mark.rule("W5.7b")
def test_a_block_may_choose_another_end(cluster):
    with Producer("shop", nameserver=cluster.address) as producer:
        with producer.transaction(message()) as transaction:
            transaction.rollback()
        with producer.transaction(message()) as transaction:
            transaction.leave()
        eventually(lambda: len(cluster.ends) == 2)
    assert [state for state, _ in ends(cluster)] == ["12", "0"]


def test_a_transaction_is_used_once(cluster):
    with Producer("shop", nameserver=cluster.address) as producer:
        transaction = producer.transaction(message())
        with pytest.raises(StateError, match="not open"):
            _ = transaction.message_id
        with transaction:
            pass
        with pytest.raises(StateError, match="used once"):
            transaction.__enter__()
        with pytest.raises(StateError, match="not open"):
            transaction.rollback()


def test_a_half_message_that_is_not_stored_safely_is_rolled_back_and_the_body_does_not_run(
    cluster, producer
):
    cluster.send_code = 10
    ran = []
    with (
        pytest.raises(SendError, match="FLUSH_DISK_TIMEOUT only"),
        producer.transaction(message()),
    ):
        ran.append(1)
    assert ran == []
    assert [state for state, _ in ends(cluster)] == ["12"]


@pytest.mark.rule("W2.3e")
def test_an_unconfirmed_commit_is_an_error_without_check_and_a_warning_with_it(
    cluster, producer, caplog
):
    cluster.end_code = 1
    with pytest.raises(SendError, match="was not confirmed"), producer.transaction(message()):
        pass
    with (
        Producer("shop", nameserver=cluster.address, check=lambda _: True) as checking,
        checking.transaction(message()),
    ):
        pass
    assert len(cluster.ends) == 2  # never repeated
    assert "was not confirmed" in caplog.text


@pytest.mark.parametrize("check", [None, lambda _: True], ids=["without check", "with check"])
def test_a_commit_that_finds_no_master_is_one_that_is_not_confirmed(cluster, caplog, check):
    slaves_only = TopicRoute(
        "orders",
        (BrokerSet("broker-a", "c", {1: cluster.address}),),
        (QueueData("broker-a", 4, 4, 6),),
    )
    failure = pytest.raises(SendError, match=r"was not confirmed by broker 'broker-a'.*no master")
    with (
        Producer("shop", nameserver=cluster.address, check=check) as producer,
        failure if check is None else contextlib.nullcontext(),
        producer.transaction(message()),
    ):
        shared = producer._sender.shared
        eventually(lambda: shared.instance.routes.route("orders") is not None)
        cluster._route = lambda request: response_to(request, body=encode_route(slaves_only))
        shared.run(lambda: shared.instance.publish_to(slaves_only))
    assert cluster.ends == []
    assert ("was not confirmed" in caplog.text) == (check is not None)


@pytest.mark.parametrize("words", ["\udcff", "x" * 20_000_000], ids=["no text", "too long"])
def test_whatever_the_block_raises_the_broker_hears_of_the_rollback(cluster, producer, words):
    with pytest.raises(OSError, match=words[:10]), producer.transaction(message()):
        raise OSError(words)
    ((state, remark),) = ends(cluster)
    assert (state, remark[:9]) == ("12", "OSError: ")


def question(group="shop", body=b"paid", topic="orders", **properties):
    properties = encode_properties({"UNIQ_KEY": "UNIQ", **half_properties(group), **properties})
    record = encode_record(topic=topic, body=body, properties=properties)
    fields = {"tranStateTableOffset": "11", "commitLogOffset": "2048", "msgId": "UNIQ"}
    return Command(R.CHECK_TRANSACTION_STATE, fields, record, opaque=9, flag=2)


def raises(_message):
    raise LookupError("database is down")


def exits(_message):
    raise SystemExit(1)


@pytest.mark.rule("W2.3e", "W5.7b")
@pytest.mark.parametrize(
    ("check", "state", "remark"),
    [
        (lambda _: True, "8", None),
        (lambda _: False, "12", None),
        (lambda _: None, "0", None),
        (raises, "0", "LookupError: database is down"),
        (exits, "0", "SystemExit: 1"),
    ],
    ids=["commit", "roll back", "unknown", "raises", "exits"],
)
def test_the_brokers_question_is_answered_by_check_on_a_thread_of_its_own(
    cluster, check, state, remark
):
    asked = []

    def noted(received):
        asked.append((received.body, threading.current_thread().name))
        return check(received)

    with Producer("shop", nameserver=cluster.address, check=noted) as producer:
        producer.send(message())
        eventually(lambda: R.HEART_BEAT in cluster.codes)
        cluster.push(question())
        eventually(lambda: cluster.ends)
    (end,) = cluster.ends
    assert asked == [(b"paid", "gimbalmq-check-shop")]
    assert (end.fields["commitOrRollback"], end.remark) == (state, remark)
    assert (end.fields["tranStateTableOffset"], end.fields["commitLogOffset"]) == ("11", "2048")
    assert end.fields["fromTransactionCheck"] == "true"


def test_a_question_for_nobody_is_logged_and_stays_open(cluster, caplog):
    with Producer("shop", nameserver=cluster.address) as producer:
        producer.send(message())
        eventually(lambda: R.HEART_BEAT in cluster.codes)
        cluster.push(question())
        eventually(lambda: "no check function" in caplog.text)
    assert cluster.ends == []


# ---- messages for later --------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["send", "send_async", "send_oneway"])
def test_a_time_is_refused_where_a_broker_would_deliver_at_once(cluster, way):
    cluster.version = version_ordinal("4.9.5")
    words = r"broker 'broker-a' .* is RocketMQ 4\.9\.5, which would deliver .* use delay_level"
    with Producer("shop", nameserver=cluster.address) as producer:
        for _ in range(2):
            with pytest.raises(ConfigurationError, match=words):
                getattr(producer, way)(message(deliver_at=datetime(2040, 1, 1, tzinfo=UTC)))
        producer.send(message(delay_level=3))
    assert [parse_properties(one.fields["i"])["DELAY"] for one in cluster.sent] == ["3"]


def test_a_broker_is_asked_for_its_version_once_and_only_for_a_time(cluster):
    with Producer("shop", nameserver=cluster.address) as producer:
        producer.send(message(delay_level=3))
        assert R.GET_MAX_OFFSET not in cluster.codes
        for _ in range(3):
            producer.send(message(deliver_at=datetime(2040, 1, 1, tzinfo=UTC)))
    assert cluster.codes.count(R.GET_MAX_OFFSET) == 1
    times = [parse_properties(one.fields["i"]).get("TIMER_DELIVER_MS") for one in cluster.sent]
    assert times == [None, *["2208988800000"] * 3]


def test_a_broker_that_does_not_say_its_version_is_an_error_of_the_send(cluster):
    with Elsewhere(f"127.0.0.1:{closed_port()}") as nowhere:
        later = message(deliver_at=datetime(2040, 1, 1, tzinfo=UTC))
        with (
            Producer("shop", nameserver=nowhere.address) as producer,
            pytest.raises(SendError, match="cannot connect"),
        ):
            producer.send(later)


# ---- traces --------------------------------------------------------------------------------------


def test_traces_are_written_in_javas_form_under_a_group_of_their_own(cluster):
    with Producer("shop", nameserver=cluster.address, enable_trace=True) as producer:
        result = producer.send(message(b"paid", tags="t", keys=["k1", "k2"]))
        producer.send(message(delay_level=1))
        with producer.transaction(message()):
            pass
    (trace,) = [one for one in cluster.sent if one.fields["b"] == "RMQ_SYS_TRACE_TOPIC"]
    assert trace.fields["a"] == "_INNER_TRACE_PRODUCER-shop"
    assert {result.message_id, "k1", "k2"} <= set(
        parse_properties(trace.fields["i"])["KEYS"].split(" ")
    )
    first, delayed, half, end = (
        one.split("\x01") for one in trace.body.decode().removesuffix("\x02").split("\x02")
    )
    assert (first[0], first[3:8]) == ("Pub", ["shop", "orders", result.message_id, "t", "k1 k2"])
    assert (first[8], first[9], first[11:]) == (cluster.address, "4", ["0", OFFSET_ID, "true"])
    assert (delayed[11], half[11]) == ("3", "1")
    assert (end[0], end[9], end[11:]) == ("EndTransaction", "2", ["COMMIT_MESSAGE", "false"])


def trace_messages(cluster):
    return [one for one in cluster.sent if one.fields["b"] == "RMQ_SYS_TRACE_TOPIC"]


def trace_records(cluster):
    """The fields of every trace record that was written."""
    bodies = [
        zlib.decompress(one.body) if one.fields["f"] != "0" else one.body
        for one in trace_messages(cluster)
    ]
    text = b"".join(bodies).decode()
    return [record.split("\x01") for record in text.removesuffix("\x02").split("\x02")]


@pytest.mark.rule("W5.9")
def test_the_end_of_a_transaction_is_traced_by_the_names_of_its_message(cluster):
    options = {"namespace": "shop", "enable_trace": True, "check": lambda _: True}
    with Producer("till", nameserver=cluster.address, **options) as producer:
        with producer.transaction(message(tags="t", keys=["k1"])):
            pass
        eventually(lambda: R.HEART_BEAT in cluster.codes)
        cluster.push(question("shop%till", topic="shop%orders", TAGS="t", KEYS="k2 k3"))
        eventually(lambda: len(cluster.ends) == 2)
    records = [one for one in trace_records(cluster) if one[0] == "EndTransaction"]
    assert [(one[4], one[6], one[7], one[-1]) for one in records] == [
        ("orders", "t", "k1", "false"),
        ("orders", "t", "k2 k3", "true"),
    ]
    keys = {
        key
        for one in trace_messages(cluster)
        for key in parse_properties(one.fields["i"])["KEYS"].split(" ")
    }
    assert {"k1", "UNIQ", "k2", "k3"} <= keys


def test_a_batch_with_more_ids_than_a_message_has_room_for_is_traced_and_so_are_others(cluster):
    with Producer("shop", nameserver=cluster.address, enable_trace=True) as producer:
        producer.send(message(keys=["before"]))
        (batch,) = producer.send_batch([message()] * 1200)
        producer.send(message(keys=["after"]))
        trace = producer._sender.trace
    before, traced, after = trace_records(cluster)
    assert (before[7], traced[5], after[7]) == ("before", batch.message_id, "after")
    assert trace.dropped == 0


def test_a_trace_that_comes_when_the_client_has_stopped_is_dropped_and_fails_nothing(cluster):
    with Producer("shop", nameserver=cluster.address, enable_trace=True) as producer:
        trace = producer._sender.trace
    trace.note("Pub\x02", ("key",))
    assert trace.dropped == 1


def test_without_the_option_nothing_is_traced(cluster):
    with Producer("shop", nameserver=cluster.address) as producer:
        producer.send(message())
    assert [one.fields["b"] for one in cluster.sent] == ["orders"]


# ---- namespaces, health, life --------------------------------------------------------------------


@pytest.mark.rule("W5.9")
def test_a_namespace_is_added_on_the_wire_and_taken_off_in_results(cluster):
    with Producer("till", nameserver=cluster.address, namespace="shop") as producer:
        result = producer.send(message())
        assert producer.queues("orders")[0].topic == "orders"
        assert producer.send(message(), queue=result.queue).queue == result.queue
    request = cluster.sent[0]
    assert (request.fields["a"], request.fields["b"]) == ("shop%till", "shop%orders")
    assert parse_properties(request.fields["i"])["INSTANCE_ID"] == "shop"
    assert result.queue.topic == "orders"


@pytest.mark.rule("W5.9")
@pytest.mark.parametrize("way", ["send", "send_async"])
def test_after_a_failure_the_route_of_the_namespaced_topic_is_asked_for(way):
    nowhere = f"127.0.0.1:{closed_port()}"
    with (
        Elsewhere(nowhere, "shop%orders") as cluster,
        Producer("till", nameserver=cluster.address, namespace="shop") as producer,
    ):
        producer.queues("orders")
        with pytest.raises(SendError, match="message for topic 'orders' was not sent"):
            getattr(producer, way)(message()).result(20.0)
        eventually(lambda: cluster.codes.count(R.GET_ROUTEINFO_BY_TOPIC) > 1)
    asked = [one for one in cluster.requests if one.code == R.GET_ROUTEINFO_BY_TOPIC]
    assert {one.fields["topic"] for one in asked} == {"shop%orders"}


@pytest.mark.rule("W5.9")
def test_check_gets_the_message_without_its_namespace_and_answers_with_it(cluster):
    asked = []

    def check(received):
        asked.append((received.topic, received.queue.topic))
        return True

    options = {"namespace": "shop", "check": check}
    with Producer("till", nameserver=cluster.address, **options) as producer:
        producer.send(message())
        eventually(lambda: R.HEART_BEAT in cluster.codes)
        cluster.push(question("shop%till", topic="shop%orders"))
        eventually(lambda: cluster.ends)
    assert asked == [("orders", "orders")]
    assert cluster.ends[0].fields["topic"] == "shop%orders"


@pytest.mark.rule("W5.9")
def test_names_must_not_be_too_long_with_their_namespace(cluster):
    options = {"nameserver": cluster.address, "namespace": "s" * 20}
    with pytest.raises(ConfigurationError, match="is no group name"):
        Producer("g" * 100, **options)
    with Producer("g" * 99, **options) as producer:
        for send in (producer.send, producer.send_async, producer.send_oneway):
            with pytest.raises(ConfigurationError, match="is no topic name"):
                send(Message("t" * 107, b"x"))
        with pytest.raises(ConfigurationError, match="is no topic name"):
            producer.send_batch([Message("t" * 107, b"x")])


@pytest.mark.rule("B7.3d")
def test_fault_tolerance_puts_a_refusing_broker_aside(cluster):
    with Producer("shop", nameserver=cluster.address, fault_tolerance=True) as producer:
        producer.send(message())
        assert producer.brokers()["broker-a"].aside_s == 0
        cluster.send_code = 2
        with pytest.raises(SendError):
            producer.send(message())
        health = producer.brokers()["broker-a"]
        assert 9.0 < health.aside_s <= 10.0
        assert not health.reachable
        cluster.send_code = 0
        producer.send(message())  # the only one there is
        assert producer.brokers()["broker-a"].reachable


def test_fault_tolerance_is_off_by_default(cluster):
    with Producer("shop", nameserver=cluster.address) as producer:
        producer.send(message())
        assert producer.brokers() == {}


@pytest.mark.rule("B7.3e")
def test_the_detector_finds_out_that_a_broker_is_back(cluster, monkeypatch):
    monkeypatch.setattr("gimbalmq.client.publishing._DETECT_EVERY_S", 0.05)
    tolerance = FaultTolerance(detector=True, detect_interval_s=0.05)
    with Producer("shop", nameserver=cluster.address, fault_tolerance=tolerance) as producer:
        cluster.send_code = 2
        with pytest.raises(SendError):
            producer.send(message())
        eventually(lambda: producer.brokers()["broker-a"].reachable)
    assert R.GET_MAX_OFFSET in cluster.codes


def test_two_producers_of_one_group_and_client_are_refused(cluster):
    options = {"nameserver": cluster.address, "client_id": "till"}
    with Producer("shop", **options), pytest.raises(StateError, match="one producer per group"):
        Producer("shop", **options).start()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"compress_type": "RAR"}, "there are LZ4, ZSTD, ZLIB"),
        ({"back_pressure_for_async_send_num": 0}, "back_pressure_for_async_send_num"),
        ({"retry_times_when_send_async_failed": -1}, "retries"),
        ({"send_msg_max_timeout_per_request_s": -1}, "send_msg_max_timeout_per_request_s is -1"),
        ({"compress_level": 99}, "compress_level is 99"),
        ({"compress_type": "ZSTD", "compress_level": 99}, "compress_level is 99"),
    ],
)
def test_a_wrong_option_is_named(options, complaint):
    with pytest.raises(ConfigurationError, match=complaint):
        Producer("shop", nameserver="127.0.0.1:1", **options)


def test_javas_default_group_is_refused():
    with pytest.raises(ConfigurationError, match="reserved"):
        Producer("DEFAULT_PRODUCER", nameserver="127.0.0.1:1")


def test_lz4_bodies_are_flagged(cluster):
    with Producer("shop", nameserver=cluster.address, compress_type="LZ4") as producer:
        producer.send(message(b"x" * 5000))
    assert cluster.sent[0].fields["f"] == str(0x101)

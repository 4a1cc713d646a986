import os
import threading

import msgspec
import pytest

from client.small_cluster import SmallCluster
from gimbalmq import Message, Producer, PushConsumer
from gimbalmq.client import shared as shared_instances
from gimbalmq.client.access import Access
from gimbalmq.client.shared import share
from gimbalmq.errors import ConfigurationError, StateError
from gimbalmq.runtime.instance import ClientInstance, InstanceSettings
from gimbalmq.transport.nameservers import NameServerSource
from gimbalmq.wire.bodies import decode_heartbeat
from gimbalmq.wire.codes import RequestCode
from waiting import eventually


def at(address):
    return Access(NameServerSource((address,)))


@pytest.fixture
def cluster():
    with SmallCluster("orders") as cluster:
        yield cluster


def test_equal_client_ids_share_one_instance_and_the_last_user_ends_it(cluster):
    one, two = (share("till", at(cluster.address), InstanceSettings()) for _ in "12")
    assert one is two
    one.release()
    assert two.run(lambda: "alive") == "alive"
    two.release()
    three = share("till", at(cluster.address), InstanceSettings())
    assert three is not one
    three.release()


def test_connections_that_callers_no_longer_use_are_closed(cluster, monkeypatch):
    monkeypatch.setattr(shared_instances, "_UNUSED_S", 0.01)
    monkeypatch.setattr(shared_instances, "_LOOK_EVERY_S", 0.05)
    with Producer("shop", nameserver=cluster.address) as producer:
        producer.send(Message("orders", b"x"))
        eventually(lambda: cluster.connects == 2)  # the caller's, and the client's own
        eventually(lambda: cluster.open_connections == 1)
        assert producer.send(Message("orders", b"y")).queue.topic == "orders"


def test_another_client_id_or_cluster_has_an_instance_of_its_own(cluster):
    made = [
        share("till", at(cluster.address), InstanceSettings()),
        share("till-2", at(cluster.address), InstanceSettings()),
        share("till", at("127.0.0.1:1"), InstanceSettings()),
    ]
    assert len({id(one) for one in made}) == 3
    for one in made:
        one.release()


@pytest.mark.parametrize("setting", InstanceSettings.__struct_fields__)
def test_all_that_share_a_client_id_have_the_same_timers(cluster, setting):
    have, want = InstanceSettings(), msgspec.structs.replace(InstanceSettings(), **{setting: 7})
    shared = share("till@gmq1-AVG", at(cluster.address), have)
    words = (
        f"client 'till@gmq1-AVG' is running with {setting}={getattr(have, setting)} instead of 7:"
    )
    with pytest.raises(ConfigurationError, match=words):
        share("till@gmq1-AVG", at(cluster.address), want)
    shared.release()
    share("till@gmq1-AVG", at(cluster.address), want).release()


def test_a_producer_joins_the_instance_of_its_name_whatever_its_strategy(cluster):
    options = {"nameserver": cluster.address, "client_id": "till"}
    consumer = PushConsumer("billing", allocation="CAPPED_HASH", **options)
    consumer.subscribe("orders", listener=print)
    with consumer, Producer("shop", **options) as producer, Producer("shop-2", **options) as second:
        assert producer.client_id == second.client_id == consumer.client_id
        assert consumer.client_id == "till@gmq1-CAPPED_HASH"
        producer.send_async(Message("orders", b"x")).result(20.0)
        beats = [one for one in cluster.requests if one.code == RequestCode.HEART_BEAT]
        assert decode_heartbeat(beats[-1].body).client_id == consumer.client_id
        assert {decode_heartbeat(one.body).client_id for one in beats} == {consumer.client_id}


def test_a_producer_prefers_its_own_id_and_joins_no_other_name_and_no_other_cluster(cluster):
    here, elsewhere = at(cluster.address), at("127.0.0.1:1")
    made = [
        share(client_id, access, InstanceSettings())
        for client_id, access in [
            ("till-2@gmq1-AVG", here),
            ("till@gmq1-CAPPED_HASH", elsewhere),
            ("till@gmq1-CAPPED_HASH", here),
            ("till@gmq1-AVG", here),
        ]
    ]
    joined = share("till@gmq1-AVG", here, InstanceSettings(), any_strategy=True)
    assert joined is made[3]
    joined.release()
    made.pop().release()
    joined = share("till@gmq1-AVG", here, InstanceSettings(), any_strategy=True)
    assert joined is made[2]
    joined.release()
    made.pop().release()
    alone = share("till@gmq1-AVG", here, InstanceSettings(), any_strategy=True)
    assert alone.instance.client_id == "till@gmq1-AVG"
    for one in [*made, alone]:
        one.release()


class SlowSource(NameServerSource):
    """An address server that answers when it is let go."""

    def addresses_now(self, timeout_s=3.0):
        self.asked.set()
        assert self.go_on.wait(20.0)
        return ("127.0.0.1:1",)

    asked, go_on = threading.Event(), threading.Event()


def test_nobody_waits_for_the_address_server_of_another(cluster):
    made = []
    slow = Access(SlowSource(server="127.0.0.1:1", path="/"))
    thread = threading.Thread(target=lambda: made.append(share("slow", slow, InstanceSettings())))
    thread.start()
    assert SlowSource.asked.wait(20.0)
    share("till", at(cluster.address), InstanceSettings()).release()
    assert not made
    SlowSource.go_on.set()
    thread.join(20.0)
    made[0].release()


def test_an_instance_that_cannot_be_started_is_closed(cluster, monkeypatch):
    started = []

    def fail(self, driver):
        started.append(driver)
        raise RuntimeError("cannot attach")

    monkeypatch.setattr(ClientInstance, "attach", fail)
    with pytest.raises(RuntimeError, match="cannot attach"):
        share("till", at(cluster.address), InstanceSettings())
    with pytest.raises(StateError, match="stopped"):
        started[0].post(print)
    monkeypatch.undo()
    share("till", at(cluster.address), InstanceSettings()).release()


def test_a_thread_that_cannot_be_started_leaves_no_socket(cluster, monkeypatch):
    def fail(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fail)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        share("till", at(cluster.address), InstanceSettings())


@pytest.mark.rule("B8.7c")
def test_clients_start_with_a_name_server_each_of_their_own(cluster):
    source = Access(NameServerSource(("127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3")))
    first = set()
    for number in range(40):
        shared = share(f"till-{number}", source, InstanceSettings())
        first.add(shared.instance.nameservers.in_turn()[0])
        shared.release()
    # One of three stays out: once in ten million runs.
    assert first == set(source.source.addresses)


def test_a_question_on_the_engine_thread_is_refused_instead_of_waiting_for_itself(cluster):
    shared = share("till", at(cluster.address), InstanceSettings())
    with pytest.raises(StateError, match="waits for that thread: hand it to another"):
        shared.run(lambda: shared.run(print))
    shared.release()


def test_an_engine_thread_that_does_not_come_back_is_named(cluster, monkeypatch):
    monkeypatch.setattr(shared_instances, "_ENGINE_ANSWER_S", 0.05)
    shared = share("till", at(cluster.address), InstanceSettings())
    go_on = threading.Event()
    shared.post(lambda: go_on.wait(20.0))
    with pytest.raises(StateError, match=r"client 'till' has been busy for 0\.05 s"):
        shared.run(print)
    go_on.set()
    shared.release()


def test_an_error_on_the_engine_thread_is_raised_where_it_was_asked_for(cluster):
    shared = share("till", at(cluster.address), InstanceSettings())
    with pytest.raises(ZeroDivisionError):
        shared.run(lambda: 1 // 0)
    shared.release()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_makes_clients_of_its_own(cluster):
    with Producer("shop", nameserver=cluster.address, client_id="till") as parent:
        parent.send(Message("orders", b"parent"))
        child = os.fork()
        if child == 0:
            try:
                with Producer("shop", nameserver=cluster.address, client_id="till") as producer:
                    producer.send(Message("orders", b"child"))
            except BaseException:  # noqa: BLE001 - the exit code is the child's only voice
                os._exit(1)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        parent.send(Message("orders", b"parent again"))
    assert [request.body for request in cluster.sent] == [b"parent", b"child", b"parent again"]

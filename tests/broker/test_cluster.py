"""The whole cluster: start, stop, kill, restart, threads and processes."""

from __future__ import annotations

import os
import pickle
import socket
import threading

import pytest

from gimbalmq.broker import Account, EmbeddedCluster
from gimbalmq.broker.ports import PortClaims
from gimbalmq.broker.store import FlushPolicy, StoreError, StoreOptions
from gimbalmq.errors import BrokerError, ConfigurationError, EngineError, StateError, TransportError
from gimbalmq.model.queue import MessageQueue
from gimbalmq.transport.blocking import BlockingConnection
from gimbalmq.wire import bodies
from gimbalmq.wire.codes import RequestCode
from gimbalmq.wire.command import Command
from gimbalmq.wire.headers import pull_request, route_request, send_request
from gimbalmq.wire.record import decode_records
from waiting import eventually

QUEUE = MessageQueue("orders", "broker-a", 0)


def call(address, command):
    with BlockingConnection(address) as connection:
        return connection.call(command, 20.0)


def send(cluster, body):
    request = send_request(group="shop", queue=QUEUE, body=body, properties="", born_timestamp_ms=1)
    answer = call(cluster.brokers[0].address, request)
    assert answer.code == 0, answer.remark


def stored(cluster):
    request = pull_request(group="reader", queue=QUEUE, offset=0, sys_flag=4, expression="*")
    answer = call(cluster.brokers[0].address, request)
    return [message.body for message in decode_records(answer.body, "broker-a")]


def brokers_of(cluster, topic="orders"):
    answer = call(cluster.nameserver, route_request(topic))
    return sorted(data.broker for data in bodies.decode_route(topic, answer.body).queues)


@pytest.mark.parametrize("processes", [False, True])
@pytest.mark.rule("B8.7a")
def test_a_cluster_of_two_serves_and_survives_the_death_of_one(processes):
    with EmbeddedCluster(2, processes=processes) as cluster:
        assert [broker.name for broker in cluster.brokers] == ["broker-a", "broker-b"]
        cluster.create_topic("orders", 4)
        assert brokers_of(cluster) == ["broker-a", "broker-b"]
        send(cluster, b"kept")
        cluster.kill("broker-a")
        assert not cluster.brokers[0].running
        eventually(lambda: brokers_of(cluster) == ["broker-b"])
        with pytest.raises(TransportError):
            stored(cluster)
        cluster.restart("broker-a")
        assert cluster.brokers[0].running
        assert stored(cluster) == [b"kept"]
        assert brokers_of(cluster) == ["broker-a", "broker-b"]


@pytest.mark.parametrize("processes", [False, True])
def test_brokers_find_a_name_server_that_was_away(processes):
    with EmbeddedCluster(processes=processes) as cluster:
        cluster.create_topic("orders", 4)
        cluster.kill("nameserver")
        with pytest.raises(TransportError):
            call(cluster.nameserver, route_request("orders"))
        send(cluster, b"meanwhile")
        cluster.restart("nameserver")
        assert brokers_of(cluster) == ["broker-a"]


@pytest.mark.rule("B8.7")
def test_every_name_server_knows_every_broker():
    with EmbeddedCluster(2, nameservers=2) as cluster:
        cluster.create_topic("orders", 4)
        first, second = cluster.nameserver.split(";")
        for address in (first, second):
            answer = call(address, route_request("orders"))
            assert len(bodies.decode_route("orders", answer.body).brokers) == 2
        cluster.kill("nameserver")
        cluster.create_topic("refunds", 4)
        assert call(second, route_request("refunds")).code == 0
        cluster.restart("nameserver")
        assert call(first, route_request("refunds")).code == 0


def test_data_outlives_the_cluster(tmp_path):
    with EmbeddedCluster(data=tmp_path) as cluster:
        cluster.create_topic("orders", 4)
        send(cluster, b"kept")
        port = int(cluster.brokers[0].address.rpartition(":")[2])
    with EmbeddedCluster(data=tmp_path, broker_ports=[port]) as cluster:
        assert stored(cluster) == [b"kept"]
        assert brokers_of(cluster) == ["broker-a"]


@pytest.mark.parametrize("flush", list(FlushPolicy))
def test_a_killed_process_loses_nothing_that_was_acknowledged(tmp_path, flush):
    store = StoreOptions(flush=flush, group_commit=flush is FlushPolicy.EACH)
    with EmbeddedCluster(data=tmp_path, store=store, processes=True) as cluster:
        cluster.create_topic("orders", 1)
        for number in range(30):
            send(cluster, b"%d" % number)
        cluster.kill("broker-a")
        cluster.restart("broker-a")
        assert stored(cluster) == [b"%d" % number for number in range(30)]


def test_a_folder_serves_one_cluster_at_a_time(tmp_path):
    with EmbeddedCluster(data=tmp_path), pytest.raises(StoreError, match="in use"):
        EmbeddedCluster(data=tmp_path).start()


def test_a_data_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()
    folder = tmp_path / "file" / "data"
    cluster = EmbeddedCluster(data=folder)
    with pytest.raises(StoreError, match=f"cannot make the data directory '{folder}'.*choose ano"):
        cluster.start()
    cluster.stop()


def test_nothing_is_left_behind():
    before = set(threading.enumerate())
    with EmbeddedCluster() as cluster:
        folder, address = cluster.folder, cluster.nameserver
        assert folder.exists()
    assert not folder.exists()
    # Those of earlier tests may end meanwhile.
    assert not set(threading.enumerate()) - before
    host, _, port = address.rpartition(":")
    with socket.socket() as probe:
        assert probe.connect_ex((host, int(port))) != 0


def test_a_process_can_be_frozen_and_a_thread_cannot():
    with EmbeddedCluster(processes=True) as cluster:
        cluster.create_topic("orders", 1)
        cluster.pause("broker-a")
        with (
            BlockingConnection(cluster.brokers[0].address) as connection,
            pytest.raises(TransportError),
        ):
            connection.call(Command(RequestCode.GET_BROKER_CONFIG), 0.3)
        cluster.resume("broker-a")
        send(cluster, b"awake")
    with EmbeddedCluster() as cluster, pytest.raises(ConfigurationError, match="processes=True"):
        cluster.pause("broker-a")


def test_a_given_port_is_used_and_a_taken_one_is_named():
    # Claimed to the end, so that it is nobody else's.
    with PortClaims() as claims:
        port = claims.choose()
        with socket.create_server(("127.0.0.1", port)), pytest.raises(EngineError, match=str(port)):
            EmbeddedCluster(nameserver_port=port).start()
        with EmbeddedCluster(nameserver_port=port) as cluster:
            assert cluster.nameserver == f"127.0.0.1:{port}"


def test_with_accounts_only_who_has_keys_gets_in():
    accounts = [Account(access_key="root", secret_key="secret", admin=True)]
    with EmbeddedCluster(accounts=accounts) as cluster:
        cluster.create_topic("orders", 4)
        answer = call(cluster.brokers[0].address, Command(RequestCode.GET_ALL_TOPIC_CONFIG))
        assert answer.code == 16


def test_a_topic_that_cannot_be_is_refused():
    with EmbeddedCluster() as cluster:
        with pytest.raises(BrokerError, match="refused"):
            cluster.create_topic("bad topic")
        with pytest.raises(ConfigurationError, match="no broker"):
            cluster.create_topic("orders", brokers=["stranger"])


def test_wrong_use_is_named():
    cluster = EmbeddedCluster()
    with pytest.raises(StateError, match="not running"):
        _ = cluster.nameserver
    with pytest.raises(ConfigurationError, match="1 to 26"):
        EmbeddedCluster(0)
    with pytest.raises(ConfigurationError, match="each once"):
        EmbeddedCluster(["a", "a"])
    with cluster:
        with pytest.raises(StateError, match="already running"):
            cluster.start()
        with pytest.raises(ConfigurationError, match="no server"):
            cluster.kill("stranger")
        with pytest.raises(TypeError, match="pickled"):
            pickle.dumps(cluster)


def test_on_every_interface_clients_are_told_the_address_that_was_advertised():
    with EmbeddedCluster(host="0.0.0.0", advertise="127.0.0.1") as cluster:
        cluster.create_topic("orders", 2)
        assert cluster.nameserver.startswith("127.0.0.1:")
        answer = call(cluster.nameserver, route_request("orders"))
        (broker,) = bodies.decode_route("orders", answer.body).brokers
        assert broker.master == cluster.brokers[0].address
        assert broker.master.startswith("127.0.0.1:")
        send(cluster, b"x")


def test_on_every_interface_an_address_must_be_advertised():
    with pytest.raises(ConfigurationError, match="advertise"):
        EmbeddedCluster(host="0.0.0.0").start()


def test_a_broker_knows_its_process():
    with EmbeddedCluster(processes=True) as cluster:
        before = cluster.brokers[0].pid
        cluster.restart("broker-a")
        assert before not in {cluster.brokers[0].pid, os.getpid()}
    with EmbeddedCluster() as cluster:
        assert cluster.brokers[0].pid == os.getpid()

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gimbalmq.broker.ports import PortClaims
from gimbalmq.broker.probe import ask, lists_brokers, write_queues
from gimbalmq.errors import BrokerError, ConfigurationError, EngineError, StateError, TransportError
from gimbalmq.model.message import Message
from gimbalmq.testing import ApacheRocketMQ
from gimbalmq.testing.cache import cache_folder
from gimbalmq.wire.codes import RequestCode


@pytest.mark.matrix
def test_a_started_cluster_lists_all_its_brokers(apache):
    assert [broker.name for broker in apache.brokers] == ["broker-a", "broker-b"]
    assert lists_brokers(apache.nameserver, [broker.address for broker in apache.brokers])
    apache.check()


@pytest.mark.matrix
def test_a_topic_has_its_queues_on_each_broker_as_soon_as_it_is_created(apache, topic_name):
    apache.create_topic(topic_name, queues=3)
    assert write_queues(apache.nameserver, topic_name) == {"broker-a": 3, "broker-b": 3}


def test_a_topic_can_live_on_chosen_brokers_only(apache, topic_name):
    apache.create_topic(topic_name, queues=2, brokers=["broker-b"])
    assert write_queues(apache.nameserver, topic_name) == {"broker-b": 2}


def test_a_topic_on_an_unknown_broker_is_refused_with_the_known_names(apache, topic_name):
    with pytest.raises(ConfigurationError, match="no broker 'nope': there are broker-a, broker-b"):
        apache.create_topic(topic_name, brokers=["nope"])


@pytest.mark.matrix
def test_a_name_that_rocketmq_does_not_allow_is_refused_with_its_words(apache):
    with pytest.raises(BrokerError, match="refused to make topic 'a b'"):
        apache.create_topic("a b")


@pytest.mark.matrix
def test_mqadmin_prints_its_answer_without_the_noise_of_its_log(apache, topic):
    topics = apache.mqadmin("topicList")
    assert topic in topics.split()
    assert "|-" not in topics


@pytest.mark.matrix
def test_mqadmin_lists_the_cluster(apache):
    listed = apache.mqadmin("clusterList")
    assert all(broker.address in listed for broker in apache.brokers)


@pytest.mark.product
def test_a_killed_broker_comes_back_on_its_address_with_its_messages(breakable_apache, topic_name):
    cluster, broker = breakable_apache, breakable_apache.brokers[0]
    cluster.create_topic(topic_name, queues=1, brokers=[broker.name])
    with cluster.java_peer() as peer:
        (sent,) = peer.producer("kill-test").send(Message(topic_name, b"before"))
    old_pid = broker.pid
    cluster.kill(broker.name)
    try:
        assert not broker.running
        with pytest.raises(EngineError, match=r"broker-a .* has ended"):
            cluster.check()
        with pytest.raises(TransportError):
            ask(broker.address, RequestCode.GET_BROKER_CONFIG)
        with PortClaims() as others, pytest.raises(EngineError, match="is taken"):
            others.take(port_of(broker.address), what="another server", option="port")
    finally:
        cluster.restart(broker.name)
    assert broker.pid != old_pid
    assert lists_brokers(cluster.nameserver, [broker.address])
    with cluster.java_peer() as peer:
        assert peer.admin().topic_offsets(topic_name) == {sent.queue: (0, 1)}


@pytest.mark.product
def test_a_paused_broker_does_not_answer_until_it_is_resumed(breakable_apache):
    broker = breakable_apache.brokers[1]
    breakable_apache.pause(broker.name)
    try:
        with pytest.raises(TransportError):
            ask(broker.address, RequestCode.GET_BROKER_CONFIG, timeout_s=0.3)
    finally:
        breakable_apache.resume(broker.name)
    assert ask(broker.address, RequestCode.GET_BROKER_CONFIG, timeout_s=30).code == 0


@pytest.mark.product
def test_a_restarted_name_server_knows_the_brokers_again(breakable_apache):
    breakable_apache.kill("nameserver")
    breakable_apache.restart("nameserver")
    addresses = [broker.address for broker in breakable_apache.brokers]
    assert lists_brokers(breakable_apache.nameserver, addresses)


def port_of(address):
    return int(address.rpartition(":")[2])


def test_its_ports_are_claimed_and_those_of_one_that_did_not_start_are_not(apache, tmp_path):
    own = {port_of(apache.nameserver)}
    for broker in apache.brokers:
        own |= {port_of(broker.address) + offset for offset in (-2, 0, 1)}
    assert own <= claimed()
    (tmp_path / "nameserver").write_text("where a folder is to be")
    before = claimed()
    with pytest.raises(OSError, match="nameserver"):
        ApacheRocketMQ(apache.version, data=tmp_path).start()
    assert claimed() == before


def claimed():
    """The ports for which this process holds a claim, as the kernel lists its open files."""
    found = set()
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed since they were listed
            file = path.readlink()
            if file.parent.name.startswith("gimbalmq-ports-"):
                found.add(int(file.name))
    return found


def test_an_unknown_process_is_named_together_with_the_known_ones(apache):
    with pytest.raises(ConfigurationError, match="there are nameserver, broker-a, broker-b"):
        apache.kill("broker-z")


def test_a_running_cluster_cannot_be_started_again(apache):
    with pytest.raises(StateError, match="already running"):
        apache.start()


def test_a_taken_port_is_named_with_the_option_that_changes_it(apache):
    port = int(apache.nameserver.rpartition(":")[2])
    with pytest.raises(EngineError, match=rf"port {port} .* is taken .* nameserver_port"):
        ApacheRocketMQ(apache.version, nameserver_port=port).start()


@pytest.mark.matrix
def test_a_broker_that_does_not_start_shows_the_end_of_its_log(rocketmq_version):
    # A replica whose id says that it is the original.
    cluster = ApacheRocketMQ(rocketmq_version, broker_config={"brokerRole": "SLAVE"})
    expected = r"(?s)broker-a .*did not start.*The end of .*brokerId must be > 0"
    with pytest.raises(EngineError, match=expected), cluster:
        pass
    with pytest.raises(StateError, match="not running"):
        _ = cluster.nameserver


@pytest.mark.product
def test_messages_survive_in_the_data_folder_and_a_second_cluster_may_not_share_it(
    rocketmq_version, tmp_path, topic_name
):
    # Two seconds, then SIGKILL: a full good-bye of 5.x takes twenty, and messages survive both.
    with ApacheRocketMQ(rocketmq_version, data=tmp_path, stop_timeout_s=2) as first:
        first.create_topic(topic_name, queues=1)
        with first.java_peer() as peer:
            peer.producer("data-test").send(Message(topic_name, b"kept"))
        with pytest.raises(EngineError, match="another cluster is using"):
            ApacheRocketMQ(rocketmq_version, data=tmp_path).start()
    with ApacheRocketMQ(rocketmq_version, data=tmp_path, stop_timeout_s=0) as second:
        second.create_topic(topic_name, queues=1)
        ((minimum, maximum),) = second.java_peer().admin().topic_offsets(topic_name).values()
    assert (minimum, maximum) == (0, 1)


def test_a_second_start_downloads_and_compiles_nothing(apache, capfd):
    before = {path: path.stat().st_mtime_ns for path in cache_folder().glob("*/*")}
    with apache.java_peer():
        pass
    assert {path: path.stat().st_mtime_ns for path in cache_folder().glob("*/*")} == before
    assert "download" not in capfd.readouterr().err


@pytest.mark.parametrize(
    "paused",
    [
        pytest.param(False, id="running"),
        pytest.param(True, id="paused", marks=pytest.mark.product),
    ],
)
def test_a_server_ends_when_the_process_that_started_it_is_killed(
    rocketmq_version, tmp_path, paused
):
    program = f"""
import time
from pathlib import Path
from gimbalmq.broker.ports import PortClaims
from gimbalmq.testing.classes import class_path
from gimbalmq.testing.servers import ServerFactory
factory = ServerFactory({rocketmq_version!r}, Path({str(tmp_path)!r}), class_path({rocketmq_version!r}))
claims = PortClaims()
server = factory.nameserver(claims.choose(), {{}})
server.start()
server.wait_for_line("boot success", timeout_s=60)
if {paused}:
    server.pause()
print(server.pid, flush=True)
time.sleep(600)
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        server_pid = int(parent.stdout.readline())
        parent.kill()
    try:
        _wait_until(lambda: _state(server_pid) in {"gone", "Z"})
    except TimeoutError:
        os.kill(server_pid, signal.SIGKILL)
        raise


def _wait_until(condition) -> None:
    deadline = time.monotonic() + 40
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.1)


def _state(pid: int) -> str:
    """The letter by which Linux tells what a process is doing."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return "gone"


def test_an_unsupported_version_is_refused_with_those_that_work():
    with pytest.raises(ConfigurationError, match=r"5\.3\.2 is not supported.*5\.5\.0 or 4\.9\.5"):
        ApacheRocketMQ("5.3.2")


@pytest.mark.parametrize("brokers", [0, 27, [], ["a", "a"], ["nameserver"]])
def test_a_wrong_number_or_list_of_brokers_is_refused(brokers):
    with pytest.raises(ConfigurationError, match="brokers="):
        ApacheRocketMQ(brokers=brokers)


def test_a_cluster_that_was_not_started_says_so_and_stops_without_complaint():
    cluster = ApacheRocketMQ()
    with pytest.raises(StateError, match="call start"):
        _ = cluster.brokers
    cluster.stop()


def listening_hosts(port):
    """The addresses on which a port is listened to, as the kernel writes them."""
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text("ascii").splitlines()[1:]:
            local, state = line.split()[1], line.split()[3]
            host, _, number = local.partition(":")
            if state == "0A" and int(number, 16) == port:
                found.add(host)
    return found


def test_loopback_is_where_it_listens_for_clients(apache):
    loopback = {"0100007F", "0000000000000000FFFF00000100007F"}  # 127.0.0.1, and mapped to IPv6
    addresses = [apache.nameserver, *(broker.address for broker in apache.brokers)]
    for address in addresses:
        hosts = listening_hosts(int(address.rpartition(":")[2]))
        assert hosts
        # RocketMQ 4.x has no setting for the interface.
        assert (hosts <= loopback) == (not apache.version.startswith("4.")), address

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import msgspec
import pytest

from gimbalmq.broker.access import Account
from gimbalmq.broker.probe import create_topic, lists_brokers, write_queues
from gimbalmq.broker.store import FlushPolicy
from gimbalmq.cli import cluster as cluster_module
from gimbalmq.cli.main import main
from gimbalmq.errors import EngineError
from gimbalmq.testing.engines import ClusterOptions, EmbeddedOptions, Engine


class _Broker(msgspec.Struct, frozen=True):
    name: str
    address: str


class _FakeCluster:
    """Stands in for an engine; `act` runs when it is asked whether all is well."""

    nameserver = "127.0.0.1:9876"
    brokers = (_Broker("broker-a", "127.0.0.1:10911"),)

    def __init__(self, act) -> None:
        self._act = act
        self.calls: list[str] = []

    def start(self) -> None:
        self.calls.append("start")

    def stop(self) -> None:
        self.calls.append("stop")

    def check(self) -> None:
        self._act()


@pytest.fixture
def run(monkeypatch, capsys):
    def run_up(act, *arguments: str):
        seen = []
        fake = _FakeCluster(act)

        def make(options):
            seen.append(options)
            return fake

        fake_engine = Engine("fake", lambda: ["4.9.5"], make)
        monkeypatch.setitem(cluster_module.ENGINES, "embedded", fake_engine)
        with pytest.raises(SystemExit) as caught:
            main(["cluster", "up", *arguments])
        return caught.value.code, fake, seen[0], capsys.readouterr()

    return run_up


def _signal_us(number: signal.Signals):
    return lambda: os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_it_and_is_fine(run, number):
    before = signal.getsignal(number)
    code, fake, _, told = run(_signal_us(number), "--json")
    assert code == 0
    assert fake.calls == ["start", "stop"]
    assert json.loads(told.out) == {
        "event": "ready",
        "nameserver": "127.0.0.1:9876",
        "brokers": [{"name": "broker-a", "address": "127.0.0.1:10911"}],
        "pid": os.getpid(),
    }
    assert told.err == ""
    assert signal.getsignal(number) == before


def test_people_are_told_how_to_connect_and_how_to_stop(run):
    _, _, _, told = run(_signal_us(signal.SIGINT))
    assert "export NAMESRV_ADDR=127.0.0.1:9876" in told.out
    assert "broker-a" in told.out
    assert "Ctrl-C" in told.out


def test_a_server_that_dies_stops_the_rest_and_is_a_failure(run):
    def die() -> None:
        raise EngineError("broker-a has ended")

    code, fake, _, told = run(die, "--json")
    assert code == 2
    assert fake.calls == ["start", "stop"]
    assert "broker-a has ended" in told.err


def test_the_options_reach_the_engine(run, tmp_path):
    arguments = ["--version", "4.9.5", "--brokers", "3", "--data", str(tmp_path)]
    _, _, options, _ = run(_signal_us(signal.SIGINT), *arguments, "--nameserver-port", "0")
    assert options == ClusterOptions(version="4.9.5", brokers=3, data=tmp_path)


def test_what_only_the_embedded_cluster_has_reaches_it(run, tmp_path):
    acl = tmp_path / "accounts.toml"
    acl.write_text('[[accounts]]\naccess_key = "root"\nsecret_key = "x"\nadmin = true\n', "utf-8")
    arguments = ["--flush", "each", "--acl", str(acl), "--faithful", "--interface", "0.0.0.0"]
    _, _, options, _ = run(_signal_us(signal.SIGINT), *arguments, "--advertise", "127.0.0.1")
    assert options.embedded == EmbeddedOptions(
        host="0.0.0.0",
        advertise="127.0.0.1",
        flush=FlushPolicy.EACH,
        faithful=True,
        accounts=(Account(access_key="root", secret_key="x", admin=True),),
    )


def test_the_defaults_are_one_broker_at_the_usual_port(run):
    _, _, options, _ = run(_signal_us(signal.SIGINT))
    assert options == ClusterOptions(nameserver_port=9876)


@pytest.mark.product
def test_a_real_cluster_runs_until_sigterm_and_leaves_no_process(rocketmq_version, tmp_path):
    command = [
        *(sys.executable, "-c", "from gimbalmq.cli.main import main; main()", "cluster", "up"),
        *("--engine", "apache", "--version", rocketmq_version, "--nameserver-port", "0", "--json"),
    ]
    with (
        (tmp_path / "stderr").open("wb") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        # Ends a start that hangs, so that the line below cannot wait for ever.
        bound = threading.Timer(120, process.kill)
        bound.start()
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        bound.cancel()
        assert ready["event"] == "ready"
        assert ready["pid"] == process.pid
        assert lists_brokers(ready["nameserver"], [ready["brokers"][0]["address"]])
        children = _children(process.pid)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert process.stdout.read() == ""
    assert len(children) == 2
    assert not any(Path(f"/proc/{pid}").exists() for pid in children)


def test_a_taken_port_is_a_failure_with_one_clear_line(cluster, capsys):
    port = cluster.nameserver.rpartition(":")[2]
    with pytest.raises(SystemExit) as caught:
        main(["cluster", "up", "--nameserver-port", port, "--json"])
    assert caught.value.code == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert f"cannot listen on 127.0.0.1:{port}" in told.err


def test_a_taken_port_is_a_failure_for_the_real_one_too(cluster, rocketmq_version, capsys):
    port = cluster.nameserver.rpartition(":")[2]
    with pytest.raises(SystemExit) as caught:
        main(["cluster", "up", "--engine", "apache", "--nameserver-port", port, "--json"])
    assert caught.value.code == 2
    assert f"port {port} for the name server is taken" in capsys.readouterr().err


def test_options_of_the_embedded_cluster_are_refused_for_the_real_one(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["cluster", "up", "--engine", "apache", "--faithful"])
    assert caught.value.code == 2
    assert "options of the embedded" in capsys.readouterr().err


def test_the_embedded_cluster_is_up_at_once_and_keeps_its_data(tmp_path):
    command = [
        *(sys.executable, "-c", "from gimbalmq.cli.main import main; main()", "cluster", "up"),
        *("--brokers", "2", "--data", str(tmp_path), "--nameserver-port", "0", "--json"),
    ]
    for first in (True, False):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            ready = json.loads(process.stdout.readline())
            assert (ready["event"], ready["pid"]) == ("ready", process.pid)
            assert [broker["name"] for broker in ready["brokers"]] == ["broker-a", "broker-b"]
            addresses = [broker["address"] for broker in ready["brokers"]]
            assert lists_brokers(ready["nameserver"], addresses)
            if first:
                create_topic(
                    addresses[0], "kept", queues=2, permission=6, order=False, attributes={}
                )
            else:
                assert write_queues(ready["nameserver"], "kept") == {"broker-a": 2}
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
            assert process.stdout.read() == ""


def test_a_signal_while_it_starts_stops_what_was_started(rocketmq_version):
    command = [
        *(sys.executable, "-c", "from gimbalmq.cli.main import main; main()", "cluster", "up"),
        *("--engine", "apache", "--version", rocketmq_version, "--nameserver-port", "0", "--json"),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 60
        while len(children := _children(process.pid)) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        assert process.stdout is not None
        assert process.stdout.read() == ""
    assert len(children) == 2
    assert not any(Path(f"/proc/{pid}").exists() for pid in children)


def _children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8")
    return [int(child) for child in text.split()]

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

from gimbalmq.cli import cluster as cluster_module
from gimbalmq.cli.main import main
from gimbalmq.errors import EngineError
from gimbalmq.testing.probe import lists_brokers


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

        monkeypatch.setitem(cluster_module._ENGINES, "apache", make)
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
    assert options == cluster_module._Options("4.9.5", 3, tmp_path, 0)


def test_the_defaults_are_one_broker_at_the_usual_port(run):
    _, _, options, _ = run(_signal_us(signal.SIGINT))
    assert options == cluster_module._Options(None, 1, None, 9876)


@pytest.mark.matrix
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


def test_a_taken_port_is_a_failure_with_one_clear_line(apache, capsys):
    port = apache.nameserver.rpartition(":")[2]
    with pytest.raises(SystemExit) as caught:
        main(["cluster", "up", "--nameserver-port", port, "--json"])
    assert caught.value.code == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert f"port {port} for the name server is taken" in told.err


def test_a_signal_while_it_starts_stops_what_was_started(rocketmq_version):
    command = [
        *(sys.executable, "-c", "from gimbalmq.cli.main import main; main()", "cluster", "up"),
        *("--version", rocketmq_version, "--nameserver-port", "0", "--json"),
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

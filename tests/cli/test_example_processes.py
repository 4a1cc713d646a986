"""Examples of commands that run until they are stopped: each as a process, ended by SIGTERM."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import urllib.request

import pytest

from cli.help_examples import run_by
from gimbalmq import Admin, Message, Producer
from gimbalmq.broker import EmbeddedCluster
from gimbalmq.errors import GimbalError
from waiting import eventually

GIMBALMQ = (sys.executable, "-c", "from gimbalmq.cli.main import main; main()")
#: The ports of the examples may be taken on this machine: any free one does.
FREE_PORT = {
    "nameserver": ("--port", "0"),
    "broker": ("--port", "0"),
    "cluster": ("--nameserver-port", "0"),
    "worker": (),
}

#: The module that the examples of the worker name.
BILLING = """
from gimbalmq import PushConsumer

consumer = PushConsumer("billing", start_from="first")

@consumer.subscribe("orders")
def bill(message):
    print("billed", message.body.decode(), flush=True)
"""


class Running:
    """A command that runs, and what it has said so far."""

    def __init__(self, words, folder, nameserver):
        self._log = folder / "said.txt"
        variables = {**os.environ, "NAMESRV_ADDR": nameserver} if nameserver else None
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*GIMBALMQ, *words],
                cwd=folder,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    @property
    def said(self):
        return self._log.read_text("utf-8")

    def address(self, before):
        """The address that it tells after this text, as soon as it does."""

        def told():
            assert self._process.poll() is None, self.said
            return re.search(rf"{before}(127\.0\.0\.1:[1-9][0-9]*)", self.said)

        return eventually(told, timeout_s=120.0)[1]

    def stop(self):
        """End it, as a service manager does."""
        self._process.send_signal(signal.SIGTERM)
        code = self._process.wait(60)
        assert (code, "Traceback" in self.said) == (0, False), self.said

    def kill(self):
        self._process.kill()
        self._process.wait()


@contextlib.contextmanager
def running(words, folder, nameserver=None):
    process = Running(words, folder, nameserver)
    try:
        yield process
        process.stop()
    finally:
        process.kill()


def brokers_at(nameserver):
    """How many brokers are known there; none while it cannot be asked."""
    with Admin(nameserver, timeout_s=20.0) as admin, contextlib.suppress(GimbalError):
        return len(admin.group("billing").brokers)
    return 0


@pytest.mark.parametrize("line", run_by("as processes"))
def test_an_example_runs_until_sigterm(line, tmp_path):
    _, command, *words = shlex.split(line)
    words += FREE_PORT[command]
    match command:
        case "nameserver":
            with running([command, *words], tmp_path) as server:
                address = server.address(r'(?:"address":\s*"|NAMESRV_ADDR=)')
                assert brokers_at(address) == 0
        case "broker":
            with (
                EmbeddedCluster(1) as cluster,
                running([command, *words, "--nameserver", cluster.nameserver], tmp_path) as server,
            ):
                if "--name" not in words:
                    # The cluster has one of that name already, and this one takes its place.
                    eventually(lambda: "broker-a serves" in server.said)
                eventually(lambda: brokers_at(cluster.nameserver) == words.count("--name") + 1)
        case "cluster":
            with running([command, *words], tmp_path) as server:
                address = server.address(r'(?:"nameserver":\s*"|NAMESRV_ADDR=)')
                wanted = words[words.index("--brokers") + 1] if "--brokers" in words else "1"
                eventually(lambda: brokers_at(address) == int(wanted))
        case "worker":
            run_worker([command, *words], tmp_path)
    if "--data" in words:
        assert (tmp_path / words[words.index("--data") + 1]).is_dir()


def run_worker(words, folder):
    """A worker with the module of the examples; all its members take part."""
    (folder / "shop").mkdir()
    (folder / "shop" / "billing.py").write_text(BILLING, "utf-8")
    processes = os.cpu_count() or 1
    if "--processes" in words:
        processes = int(words[words.index("--processes") + 1])
    words = ["0" if word == "8080" else word for word in words]
    with EmbeddedCluster(1) as cluster:
        cluster.create_topic("orders", queues=max(4, processes))
        with running(words, folder, cluster.nameserver) as worker:
            with Admin(cluster.nameserver) as admin:
                names = eventually(
                    lambda: (
                        len(found := admin.members("billing")) == processes
                        and [one.client_id for one in found]
                    )
                )
            with Producer("shop", nameserver=cluster.nameserver) as producer:
                producer.send(Message("orders", b"42"))
            eventually(lambda: "billed 42" in worker.said)
            if "--client-id" in words:
                assert [one.partition("@")[0] for one in names] == [
                    f"till-{number}" for number in range(1, processes + 1)
                ]
            if "--health-port" in words:
                address = worker.address("health at http://")
                with urllib.request.urlopen(f"http://{address}/ready", timeout=20) as answer:
                    assert answer.status == 200
        with Admin(cluster.nameserver) as admin:
            assert admin.members("billing") == ()

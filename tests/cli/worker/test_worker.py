"""Workers with real children, on an embedded cluster."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest

from gimbalmq import Admin, Message, Producer
from gimbalmq.broker import EmbeddedCluster
from gimbalmq.cli.main import main
from sharing import agreed

PATIENCE_S = 40.0

MODULE = """
import os, time
from gimbalmq import PushConsumer

consumer = PushConsumer({group!r}, start_from="first", workers=4)

@consumer.subscribe({topic!r})
def take(message):
    with open({begun!r}, "ab", buffering=0) as begun:
        begun.write(b".")
    while not os.path.exists({gate!r}):
        time.sleep(0.01)
    time.sleep({slow})
    line = f"{version} {{os.getpid()}} {{message.body.decode()}}\\n"
    with open({log!r}, "ab", buffering=0) as log:
        log.write(line.encode())
"""


@pytest.fixture(scope="module")
def cluster():
    with EmbeddedCluster(1) as cluster, Admin(cluster.nameserver) as admin:
        cluster.admin = admin
        yield cluster


class Job:
    """A module with a consumer, its topic, and what its listener got."""

    def __init__(self, cluster, folder, unique_name) -> None:
        self.cluster = cluster
        self.folder = folder
        self.topic, self.group = unique_name("orders"), unique_name("billing")
        self.log = folder / "got.log"
        self.log.touch()
        #: A byte for each message that a listener was given.
        self.begun = folder / "begun.log"
        self.begun.touch()
        #: Listeners finish when this file is there.
        self.gate = folder / "gate"
        self.gate.touch()
        cluster.admin.create_topic(self.topic, queues=4)
        self.written = 0
        self.write("v1")

    def write(self, version, slow=0.0) -> None:
        text = MODULE.format(
            group=self.group,
            topic=self.topic,
            log=str(self.log),
            begun=str(self.begun),
            gate=str(self.gate),
            slow=slow,
            version=version,
        )
        # Only a new size makes Python compile it again within a second.
        self.written += 1
        (self.folder / "shop.py").write_text(f"{text}\n{'#' * self.written}\n", "utf-8")

    def hold(self) -> None:
        """Keep listeners from finishing."""
        self.gate.unlink()

    def send(self, *bodies) -> None:
        with Producer("senders", nameserver=self.cluster.nameserver) as producer:
            for body in bodies:
                producer.send(Message(self.topic, str(body).encode()))

    def got(self) -> list[list[str]]:
        return [line.split() for line in self.log.read_text("utf-8").splitlines()]

    def bodies(self) -> set[str]:
        return {body for _, _, body in self.got()}

    def owners(self) -> dict[str, frozenset]:
        """Members and their queues of the topic."""
        return {
            member: frozenset(queue for queue in queues if queue.topic == self.topic)
            for member, queues in self.cluster.admin.assignments(self.group).items()
        }

    def covered(self, members) -> bool:
        owners = self.owners()
        queues = [queue for share in owners.values() for queue in share]
        shared = len(owners) == members and all(owners.values())
        whole = shared and len(queues) == 4 == len(set(queues))
        return whole and agreed(self.cluster.admin, self.group, queues)


@pytest.fixture
def job(cluster, tmp_path, unique_name):
    return Job(cluster, tmp_path, unique_name)


class Worker:
    """A running `gimbalmq worker --json`, and the events that it told."""

    def __init__(self, process) -> None:
        self.process = process
        self.events: list[dict] = []
        self.errors: list[str] = []
        self._new: queue.SimpleQueue = queue.SimpleQueue()
        self.threads = [
            threading.Thread(target=self._read, daemon=True),
            threading.Thread(target=self._read_errors, daemon=True),
        ]
        for thread in self.threads:
            thread.start()

    def _read(self) -> None:
        for line in self.process.stdout:
            self._new.put(json.loads(line))

    def _read_errors(self) -> None:
        self.errors.extend(self.process.stderr)

    def wait_for(self, event, times=1, **about) -> dict:
        """Wait until an event was told so many times."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            found = [
                one for one in self.events if one["event"] == event and about.items() <= one.items()
            ]
            if len(found) >= times:
                return found[-1]
            try:
                self.events.append(self._new.get(timeout=max(0.0, deadline - time.monotonic())))
            except queue.Empty:
                pytest.fail(f"no {event} {about} among {self.events}\n{''.join(self.errors)}")

    def signal(self, number) -> None:
        self.process.send_signal(number)

    def end(self) -> int:
        code = self.process.wait(PATIENCE_S)
        for thread in self.threads:
            thread.join(20.0)
        while not self._new.empty():
            self.events.append(self._new.get())
        return code


@contextmanager
def started(job, *options, target="shop:consumer", processes=2):
    command = [
        *(sys.executable, "-c", "from gimbalmq.cli.main import main; main()", "worker", target),
        *("--processes", str(processes), "--json", "--drain-s", "10", *options),
    ]
    environ = {**os.environ, "NAMESRV_ADDR": job.cluster.nameserver}
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=job.folder,
        env=environ,
    ) as process:
        worker = Worker(process)
        try:
            yield worker
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()


def eventually(condition, what) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"not within {PATIENCE_S:g} s: {what}")
        time.sleep(0.05)


def children(pid: int) -> set[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8")
    return {int(child) for child in text.split()}


def get(address, path) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()


def test_a_killed_child_is_replaced_and_its_queues_come_back(job):
    with started(job, "--client-id", "till", "--health-port", "0") as worker:
        address = worker.wait_for("health")["address"]
        first = worker.wait_for("starting", child=1)
        worker.wait_for("ready", child=1)
        worker.wait_for("ready", child=2)
        eventually(lambda: job.covered(2), "two members share the queues")
        before = set(job.owners())
        assert {name.partition("@")[0] for name in before} == {"till-1", "till-2"}
        os.kill(first["pid"], signal.SIGKILL)
        assert worker.wait_for("died", child=1)["text"] == "was ended by signal 9"
        again = worker.wait_for("ready", times=2, child=1)
        assert again["pid"] != first["pid"]
        eventually(lambda: job.covered(2), "the queues are shared again")
        assert set(job.owners()) == before, "a child keeps its name"
        job.send(*range(20))
        eventually(lambda: job.bodies() == set(map(str, range(20))), "all are consumed")
        detail = json.loads(get(address, "/")[1])
        assert [(one["number"], one["state"], one["restarts"]) for one in detail["children"]] == [
            (1, "ready", 1),
            (2, "ready", 0),
        ]
        assert get(address, "/live")[0] == get(address, "/ready")[0] == 200
        text = get(address, "/metrics")[1]
        assert 'gimbalmq_worker_children{state="ready"} 2\n' in text
        assert 'gimbalmq_worker_restarts_total{worker="1"} 1\n' in text
        worker.signal(signal.SIGTERM)
        assert worker.end() == 0


def test_sigterm_finishes_what_was_begun_commits_only_that_and_leaves_no_process(job):
    # Most of them are left when the signal comes, and when a child hears of it.
    job.hold()
    job.write("v1", slow=0.5)
    with started(job) as worker:
        worker.wait_for("ready", times=2)
        eventually(lambda: job.covered(2), "the queues are shared")
        pids = children(worker.process.pid)
        job.send(*range(100))
        eventually(lambda: job.begun.stat().st_size, "something is begun")
        worker.signal(signal.SIGTERM)
        worker.wait_for("draining", times=2)
        job.gate.touch()
        assert worker.end() == 0
        assert worker.events[-1]["event"] == "stopped"
    assert len(pids) == 2
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    consumed = len(job.got())
    committed = sum(
        max(offsets.committed or 0, 0)
        for offsets in job.cluster.admin.offsets(job.group, job.topic).values()
    )
    assert 0 < committed == consumed == job.begun.stat().st_size < 100
    job.write("v1")
    with started(job) as worker:
        eventually(lambda: job.bodies() == set(map(str, range(100))), "the rest is consumed")
        worker.signal(signal.SIGINT)
        assert worker.end() == 0


def test_the_second_signal_does_not_wait_for_listeners(job):
    job.hold()
    with started(job, "--drain-s", "120") as worker:
        worker.wait_for("ready", times=2)
        eventually(lambda: job.covered(2), "the queues are shared")
        job.send(*range(4))
        eventually(lambda: job.begun.stat().st_size == 4, "every message is with a listener")
        worker.signal(signal.SIGTERM)
        worker.wait_for("draining", times=2)
        worker.signal(signal.SIGTERM)
        assert worker.end() == 0


def test_a_worker_whose_processes_drain_stays_live(job):
    job.hold()
    with started(job, "--health-port", "0") as worker:
        address = worker.wait_for("health")["address"]
        worker.wait_for("ready", times=2)
        eventually(lambda: job.covered(2), "the queues are shared")
        job.send(*range(4))
        eventually(lambda: job.begun.stat().st_size == 4, "every message is with a listener")
        worker.signal(signal.SIGTERM)
        worker.wait_for("draining", times=2)
        answers, until = [get(address, "/live")], time.monotonic() + 2.0
        while worker.process.poll() is None:
            if time.monotonic() > until:
                job.gate.touch()
            try:
                answers.append(get(address, "/live"))
            except OSError:
                break  # it has just ended
        assert {status for status, _ in answers} == {200}, answers
        assert worker.end() == 0


@pytest.mark.parametrize("how", ["assignment", "probe"])
def test_a_child_that_cannot_say_how_it_is_can_still_be_drained(job, how):
    with (job.folder / "shop.py").open("a", encoding="utf-8") as module:
        module.write(f"consumer.{how} = lambda *_: time.sleep(3600)\n")
    with started(job, "--health-port", "0", processes=1) as worker:
        address = worker.wait_for("health")["address"]
        worker.wait_for("ready")
        assert "does not answer" in get(address, "/ready")[1]
        worker.signal(signal.SIGTERM)
        assert worker.end() == 0
        assert "killed" not in {one["event"] for one in worker.events}


def test_a_consumer_on_an_event_loop_is_run_as_well(job):
    text = (job.folder / "shop.py").read_text("utf-8")
    text = text.replace("from gimbalmq import", "from gimbalmq.aio import")
    text = text.replace("def take", "async def take")
    (job.folder / "shop.py").write_text(text, "utf-8")
    with started(job, "--health-port", "0") as worker:
        address = worker.wait_for("health")["address"]
        worker.wait_for("ready", times=2)
        eventually(lambda: job.covered(2), "the queues are shared")
        job.send(*range(20))
        eventually(lambda: job.bodies() == set(map(str, range(20))), "all are consumed")
        eventually(lambda: get(address, "/ready")[0] == 200, "it says that it is ready")
        assert get(address, "/live")[0] == 200
        assert (
            f'gimbalmq_consumer_ready{{group="{job.group}",worker="1"}} 1'
            in (get(address, "/metrics")[1])
        )
        worker.signal(signal.SIGTERM)
        assert worker.end() == 0
    offsets = job.cluster.admin.offsets(job.group, job.topic)
    assert sum(one.lag for one in offsets.values()) == 0


@pytest.mark.parametrize("processes", [1, 2])
def test_sighup_loads_the_new_code_and_the_group_is_never_without_members(job, processes):
    with started(job, "--health-port", "0", processes=processes) as worker:
        address = worker.wait_for("health")["address"]
        worker.wait_for("ready", times=processes)
        eventually(lambda: job.covered(processes), "the queues are shared")
        job.write("v2")
        watched = threading.Event()
        seen: list[int] = []
        live: list[tuple[int, str]] = []

        def watch() -> None:
            while not watched.is_set():
                seen.append(len(job.cluster.admin.members(job.group)))
                live.append(get(address, "/live"))

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            worker.signal(signal.SIGHUP)
            worker.wait_for("reloaded")
        finally:
            watched.set()
            thread.join()
        assert min(seen) >= 1
        assert {status for status, _ in live} == {200}, live
        eventually(lambda: job.covered(processes), "the queues are shared again")
        job.send(*range(8))
        eventually(lambda: len(job.bodies()) == 8, "all are consumed")
        assert {version for version, _, _ in job.got()} == {"v2"}
        worker.signal(signal.SIGTERM)
        assert worker.end() == 0


def test_a_reload_of_code_that_is_broken_keeps_the_rest_running(job):
    with started(job) as worker:
        worker.wait_for("ready", times=2)
        (job.folder / "shop.py").write_text("this is no Python", "utf-8")
        worker.signal(signal.SIGHUP)
        assert "SIGHUP again" in worker.wait_for("reload_halted")["text"]
        assert "SyntaxError" in worker.wait_for("failed")["text"]
        job.write("v3")
        worker.wait_for("ready", times=3)
        worker.signal(signal.SIGTERM)
        assert worker.end() == 0


def test_a_child_that_keeps_dying_is_given_up(job):
    (job.folder / "shop.py").write_text("import os; os._exit(7)", "utf-8")
    with started(job, "--give-up-after", "2", processes=1) as worker:
        assert worker.end() == 2
        told = [one["text"] for one in worker.events]
    assert "exited by itself with code 7" in told
    assert any("died 2 times" in text and "given up" in text for text in told)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("nowhere:consumer", "there is no module 'nowhere'"),
        ("shop:nothing", "module 'shop' has no 'nothing'; its consumers are shop:consumer"),
        ("shop:os", "shop:os is module, not a PushConsumer"),
        ("shop:take", "shop:take() failed: TypeError"),
    ],
)
def test_a_target_that_cannot_run_is_one_clear_error_and_two(job, target, words):
    with started(job, target=target) as worker:
        assert worker.end() == 2
        failed = [one["text"] for one in worker.events if one["event"] == "failed"]
    assert len(failed) == 1
    assert words in failed[0]


def test_servers_that_are_not_there_yet_are_waited_for(job):
    with started(job, "--nameserver", "127.0.0.1:1", processes=1) as worker:
        assert "127.0.0.1:1" in worker.wait_for("failed")["text"]
        assert worker.wait_for("died")["text"] == "starts again in 0.5 s"
        worker.signal(signal.SIGTERM)
        assert worker.end() == 0


def test_people_see_which_child_said_what(job):
    (job.folder / "shop.py").write_text(
        "print('hello')\nimport sys\nprint('oh', file=sys.stderr)\nraise ValueError('no luck')\n",
        "utf-8",
    )
    answer = subprocess.run(
        [
            *(sys.executable, "-c", "from gimbalmq.cli.main import main; main()"),
            *("worker", "shop:consumer", "--processes", "1"),
        ],
        cwd=job.folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert answer.returncode == 2
    assert answer.stdout == "[1] hello\n"
    lines = answer.stderr.splitlines()
    assert lines[0].startswith("[1] starting (process ")
    assert "[1] oh" in lines
    assert any("ValueError: no luck" in line and "line 4" in line for line in lines)


@pytest.mark.parametrize("stem", ["till 1", "till@gmq1-AVG", ""])
def test_a_name_for_the_processes_that_cannot_be_used_is_refused_before_any_starts(capsys, stem):
    with pytest.raises(SystemExit) as end:
        main(["worker", "shop:consumer", "--client-id", stem])
    told = capsys.readouterr()
    assert (end.value.code, told.out) == (2, "")
    assert told.err.startswith("gimbalmq: client_id ")
    assert told.err.count("\n") == 1

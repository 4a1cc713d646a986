"""`gimbalmq demo` as a command, its child processes, and the whole of it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from cli.demo_board import A0, summary_of
from gimbalmq.cli.demo import command, spark_count
from gimbalmq.cli.demo.checks import Check
from gimbalmq.cli.demo.processes import ReportingProcess
from gimbalmq.cli.demo.reports import LINE_BYTES_MAX, Owned, Received, decode, encode
from gimbalmq.cli.demo.summary import Summary
from gimbalmq.cli.main import main
from gimbalmq.errors import EngineError
from gimbalmq.model.queue import MessageQueue


def test_a_report_survives_the_pipe_and_fits_into_one_write():
    many = Owned(1.5, tuple(MessageQueue("orders", "broker-a", n) for n in range(50)))
    assert decode(encode(many)) == many
    assert len(encode(many)) <= LINE_BYTES_MAX
    assert decode(encode(Received(1.0, "k", A0))) == Received(1.0, "k", A0)


def test_a_child_that_fails_is_named_with_its_last_words(tmp_path):
    process = ReportingProcess(
        "python-9", "gimbalmq.no_such_module", (), log=tmp_path / "log", on_report=print
    )
    process.check()
    process.start()
    assert process.wait(30) != 0
    with pytest.raises(EngineError, match=r"(?s)python-9 ended by itself.*no_such_module"):
        process.check()


def test_a_member_without_name_server_says_why_and_ends(tmp_path):
    heard = []
    process = ReportingProcess(
        "python-9",
        "gimbalmq.cli.demo.member",
        ("127.0.0.1:1", "billing", "orders", "python-9"),
        log=tmp_path / "log",
        on_report=heard.append,
    )
    process.start()
    assert process.wait(60) == 1
    assert "127.0.0.1:1" in heard[-1].message


def run_with(monkeypatch, summary: Summary, *arguments: str, ended_by=signal.SIGTERM) -> int:
    class Cluster:
        nameserver = "127.0.0.1:1"

    class Stage:
        cluster = Cluster()

        @staticmethod
        @contextlib.contextmanager
        def opened(plan):
            yield Stage

    class Story:
        def __init__(self, *parts) -> None:
            pass

        def tell(self) -> Summary:
            return summary

        def keep(self) -> None:
            os.kill(os.getpid(), ended_by)
            signal.pause()

    monkeypatch.setattr(command, "Stage", Stage)
    monkeypatch.setattr(command, "Story", Story)
    with pytest.raises(SystemExit) as caught:
        main(["demo", *arguments])
    assert isinstance(caught.value.code, int)
    return caught.value.code


def test_a_failed_check_is_exit_code_one_and_a_clear_line(monkeypatch, capsys):
    failed = Check("nothing lost", False, "3 never came")
    assert run_with(monkeypatch, summary_of(failed)) == 1
    assert "FAILED: nothing lost: 3 never came" in capsys.readouterr().out


def test_json_is_one_document_and_all_else_goes_to_stderr(monkeypatch, capsys):
    assert run_with(monkeypatch, summary_of(Check("a", True, "b")), "--json") == 0
    told = capsys.readouterr()
    assert json.loads(told.out)["checks"] == [{"name": "a", "passed": True, "sentence": "b"}]
    assert "[1/8]" in told.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_keep_tells_how_to_connect_and_ends_well_with_a_signal(monkeypatch, capsys, number):
    before = signal.getsignal(number)
    assert run_with(monkeypatch, summary_of(), "--keep", ended_by=number) == 0
    assert "export NAMESRV_ADDR=127.0.0.1:1" in capsys.readouterr().out
    assert signal.getsignal(number) == before


def test_an_unknown_engine_is_wrong_use(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["demo", "--engine", "steam"])
    assert caught.value.code == 2


def test_a_version_that_the_engine_does_not_have_is_wrong_use(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["demo", "--version", "5.5.0"])
    assert caught.value.code == 2
    assert "no version '5.5.0'" in capsys.readouterr().err


def test_missing_spark_says_what_to_install(monkeypatch):
    monkeypatch.setattr(spark_count.importlib.util, "find_spec", lambda name: None)
    assert 'pip install "gimbalmq[spark]"' in (spark_count.spark_missing() or "")


DEMO = (sys.executable, "-c", "from gimbalmq.cli.main import main; main()", "demo")


def descendants(pid: int) -> set[int]:
    """Process ids of all children, their children and so on."""
    found: set[int] = set()
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, task.read_text(encoding="utf-8").split()):
            found |= {child, *descendants(child)}
    return found


@pytest.fixture(params=["embedded", pytest.param("apache", marks=pytest.mark.product)])
def engine(request, rocketmq_version):
    """Options that choose the engine."""
    if request.param == "embedded":
        return ("--engine", "embedded")
    return ("--engine", "apache", "--version", rocketmq_version)


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_the_demo_keeps_its_promises(engine):
    answer = subprocess.run(
        [*DEMO, *engine, "--json"],
        capture_output=True,
        text=True,
        timeout=580,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    summary = json.loads(answer.stdout)
    assert summary["passed"] is True
    assert len(summary["checks"]) == 7
    messages = summary["messages"]
    assert messages["sent"] > 300
    assert messages["lost"] == 0
    fates = {member["name"]: member["fate"] for member in summary["members"]}
    assert fates == {
        "python-1": "member",
        "python-2": "killed",
        "python-3": "left",
        "java-1": "member",
    }
    held = [queue for member in summary["members"] for queue in member["queues"]]
    assert sorted(held) == sorted(
        f"orders/{broker}/{number}" for broker in ("broker-a", "broker-b") for number in range(4)
    )
    assert [(change["kind"], change["member"]) for change in summary["changes"]] == [
        ("join", "python-1"),
        ("join", "python-2"),
        ("join", "python-3"),
        ("join", "java-1"),
        ("kill", "python-2"),
        ("leave", "python-3"),
    ]
    kill = summary["changes"][4]
    assert {move["queue"] for move in kill["moves"] if move["before"] == "python-2"}
    assert all(member["received"] for member in summary["members"])
    # A send without answer may have been stored, on a machine too busy to say so in time.
    assert 0 <= summary["spark"]["rows"] - messages["sent"] <= messages["unanswered"]
    assert sum(summary["spark"]["by_queue"].values()) == summary["spark"]["rows"]


def test_without_java_and_spark_it_is_quick_and_says_what_is_left_out():
    options = ("--no-java", "--no-spark", "--json")
    answer = subprocess.run(
        [*DEMO, *options], capture_output=True, text=True, timeout=280, check=False
    )
    assert answer.returncode == 0, answer.stderr
    summary = json.loads(answer.stdout)
    assert (summary["passed"], summary["engine"]) == (True, "embedded")
    assert len(summary["checks"]) == 6
    assert [member["language"] for member in summary["members"]] == ["python"] * 3
    assert "no Java member" in answer.stderr


@pytest.mark.timeout(400)
def test_an_interrupted_demo_leaves_no_process():
    with subprocess.Popen(
        [*DEMO, "--no-java", "--no-spark"], stdout=subprocess.PIPE, text=True
    ) as process:
        # Ends a demo that hangs, so that the loop below cannot wait for ever.
        bound = threading.Timer(300, process.kill)
        bound.start()
        assert process.stdout is not None
        for line in process.stdout:
            if "python-2 joins" in line:
                break
        started = descendants(process.pid)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        bound.cancel()
    # Name server, two brokers, two Python members.
    assert len(started) >= 5
    assert not [pid for pid in started if Path(f"/proc/{pid}").exists()]

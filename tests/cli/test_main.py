from __future__ import annotations

import os
import subprocess
import sys

import click
import pytest

from gimbalmq.cli import root as root_module
from gimbalmq.cli.main import main
from gimbalmq.errors import EngineError


def _code(*arguments: str) -> int:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    code = caught.value.code
    assert isinstance(code, int)
    return code


@pytest.fixture
def command(monkeypatch):
    """Adds a command `try` that does what the test says."""

    def add(body) -> None:
        monkeypatch.setattr(
            sys.modules[__name__], "_try", click.command("try")(body), raising=False
        )
        branch = root_module._Branch(__name__, "_try", "Only here.")
        monkeypatch.setitem(root_module._BRANCHES, "try", branch)

    return add


def test_help_lists_the_commands_and_is_fine(capsys):
    assert _code("--help") == 0
    assert {"cluster", "balance"} <= set(capsys.readouterr().out.split())


def test_help_imports_no_command():
    program = (
        "import sys\nfrom gimbalmq.cli.main import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "heavy = {'rich', 'gimbalmq.cli.cluster', 'gimbalmq.cli.balance', 'subprocess'}\n"
        "sys.exit(str(sorted(heavy & set(sys.modules))) if heavy & set(sys.modules) else 0)\n"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stderr


@pytest.mark.parametrize("arguments", [["nope"], ["cluster", "up", "--brokers", "x"], ["cluster"]])
def test_wrong_use_is_two(arguments, capsys):
    assert _code(*arguments) == 2


def test_an_error_of_ours_is_one_clear_line_and_two(command, capsys):
    def fail() -> None:
        raise EngineError("no Java: install it")

    command(fail)
    assert _code("try") == 2
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", "gimbalmq: no Java: install it\n")


def test_a_finding_is_one(command):
    command(lambda: click.get_current_context().exit(1))
    assert _code("try") == 1


def test_a_command_that_ends_is_zero(command):
    command(lambda: None)
    assert _code("try") == 0


def test_a_refusal_by_click_is_two(command, capsys):
    def fail() -> None:
        raise click.ClickException("that does not work")

    command(fail)
    assert _code("try") == 2
    assert "that does not work" in capsys.readouterr().err


def test_a_bug_of_ours_shows_where_and_is_two(command, capsys):
    def fail() -> None:
        raise ZeroDivisionError

    command(fail)
    assert _code("try") == 2
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_ctrl_c_is_the_code_that_shells_expect(command):
    def fail() -> None:
        raise KeyboardInterrupt

    command(fail)
    assert _code("try") == 130


@pytest.mark.parametrize(
    "line",
    [
        "click.echo('x' * 100_000)",
        "print_json('x' * 100_000)",
        "print_table(('x',), [('x' * 100_000,)])",
    ],
)
def test_a_reader_that_has_seen_enough_is_fine(line):
    program = (
        "import sys, click\nfrom gimbalmq.cli import root\nfrom gimbalmq.cli.main import main\n"
        "from gimbalmq.cli.output import print_json, print_table\n"
        f"def body():\n    while True:\n        {line}\n"
        "command = click.command('try')(body)\nsys.modules['here'] = sys.modules['__main__']\n"
        "root._BRANCHES['try'] = root._Branch('here', 'command', '')\nmain(['try'])\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.read(1)
        process.stdout.close()
        assert process.stderr is not None
        complaints = process.stderr.read()
        assert (process.wait(30), complaints) == (0, b"")


def test_help_that_nobody_reads_is_fine():
    line = "from gimbalmq.cli.main import main; main(['--help'])"
    reader, writer = os.pipe()
    os.close(reader)
    try:
        answer = subprocess.run([sys.executable, "-c", line], stdout=writer, check=False)
    finally:
        os.close(writer)
    assert answer.returncode == 0


def test_an_exit_code_that_a_command_chose_is_kept(command):
    def leave() -> None:
        sys.exit(7)

    command(leave)
    assert _code("try") == 7


def test_what_the_system_refuses_is_one_clear_line_and_two(command, capsys, tmp_path):
    missing = tmp_path / "missing"

    def fail() -> None:
        missing.read_text()

    command(fail)
    assert _code("try") == 2
    told = capsys.readouterr().err
    assert told.startswith(f"gimbalmq: No such file or directory for '{missing}', says the system")
    assert told.count("\n") == 1


def test_a_time_limit_of_ours_that_nobody_caught_shows_where(command, capsys):
    def fail() -> None:
        raise TimeoutError

    command(fail)
    assert _code("try") == 2
    assert "in fail" in capsys.readouterr().err


def test_a_missing_extra_names_the_command_that_installs_it(command, capsys):
    def fail() -> None:
        raise ModuleNotFoundError("No module named 'pyspark'", name="pyspark.sql")

    command(fail)
    assert _code("try") == 2
    assert 'pip install "gimbalmq[spark]"' in capsys.readouterr().err


def test_without_click_the_command_line_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "click", None)
    assert _code("--help") == 2
    assert 'pip install "gimbalmq[cli]"' in capsys.readouterr().err


def test_the_version_is_printed(capsys):
    assert _code("--version") == 0
    assert capsys.readouterr().out.startswith("gimbalmq ")


@pytest.mark.parametrize(
    ("word", "hint"),
    [("topi", " Did you mean 'topic'?"), ("grou", " Did you mean 'group'?"), ("zzz", "")],
)
def test_a_command_that_is_mistyped_is_guessed(capsys, word, hint):
    assert _code(word, "list") == 2
    assert f"No such command '{word}'.{hint}\n" in capsys.readouterr().err

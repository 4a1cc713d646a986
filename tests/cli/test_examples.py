"""Every example that `--help` shows is a command line that the command takes."""

from __future__ import annotations

import re
import shlex

import click
import pytest
from click.shell_completion import BashComplete

from gimbalmq.cli.root import root

#: Branches whose commands are described here; a command takes its example when it can parse it.
BRANCHES = ("topic", "group", "message", "balance")


def commands(command, path=()):
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from commands(command.get_command(context, name), (*path, name))


def examples():
    for branch in BRANCHES:
        for path, command in commands(root.get_command(click.Context(root), branch), (branch,)):
            text = re.sub(r" \\\n\s+", " ", command.help or "")
            for line in re.findall(r"^ +(gimbalmq .+)$", text, re.MULTILINE):
                # Two blanks begin a remark; what follows a < is the shell's.
                yield pytest.param(re.split(r" {2,}| < ", line)[0], id=f"{' '.join(path)}: {line}")


def test_every_branch_has_examples():
    shown = " ".join(one.id for one in examples())
    assert all(f"gimbalmq {branch} " in shown for branch in BRANCHES)
    assert shown.count(": gimbalmq") > 30


@pytest.mark.parametrize("line", list(examples()))
def test_an_example_is_taken_by_its_command(line):
    program, *words = shlex.split(line)
    assert program == "gimbalmq"
    command = root
    context = click.Context(root)
    while isinstance(command, click.Group):
        command = command.get_command(context, words.pop(0))
        assert command is not None, line
    made = command.make_context("example", words, parent=context)
    assert made.params is not None


def test_the_shell_completes_commands():
    complete = BashComplete(root, {}, "gimbalmq", "_GIMBALMQ_COMPLETE")
    assert {one.value for one in complete.get_completions(["group"], "do")} == {"doctor"}
    options = {one.value for one in complete.get_completions(["group", "guard"], "--")}
    assert {"--act", "--grace", "--json"} <= options

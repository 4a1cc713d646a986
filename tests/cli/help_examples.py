"""The examples that `--help` shows, and who runs each of them.

Every example is run by the tests of one place, which take it from here by the place's name. So one
that is added is run, or falls to nobody, which a test finds.
"""

from __future__ import annotations

import re

import click
import pytest

from gimbalmq.cli.root import root

#: Who runs the examples that begin so.
PLACES = {
    "against a cluster": ("topic", "group", "message", "balance", "pipeline list", "pipeline init"),
    "as processes": ("nameserver", "broker", "cluster up", "worker"),
    "on Spark": ("pipeline run",),
    "as a demo": ("demo",),
}

#: Run by `make matrix` and not by `make test`, and why.
BY_MATRIX_ONLY = {
    "gimbalmq cluster up --engine apache --json": "the real RocketMQ takes long to start",
    "gimbalmq demo --engine apache --keep": "the real RocketMQ takes long to start",
    "gimbalmq demo --no-java --no-spark --json": "`gimbalmq demo` shows all of it, and more",
}

#: Run by nobody, only parsed, and why.
NOT_RUN: dict[str, str] = {}


def commands(command=root, path=()):
    """Every command with its name in parts."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from commands(command.get_command(context, name), (*path, name))


def examples():
    """The text of each example, once, as it is typed."""
    found = {}
    for _, command in commands():
        text = re.sub(r" \\\n\s+", " ", command.help or "")
        for line in re.findall(r"^ +(gimbalmq .+)$", text, re.MULTILINE):
            # Two blanks begin a remark; what follows a < is the shell's.
            found[re.split(r" {2,}| < ", line)[0]] = None
    return list(found)


def places_of(line):
    """Who runs an example."""
    words = f"{line.removeprefix('gimbalmq ')} "
    return [
        place
        for place, beginnings in PLACES.items()
        if any(words.startswith(f"{beginning} ") for beginning in beginnings)
    ]


def _marks(line):
    needed = [pytest.mark.apache] * ("--engine apache" in line)
    return needed + [pytest.mark.product] * (line in BY_MATRIX_ONLY)


def run_by(place):
    """The examples that the tests of one place run."""
    assert place in PLACES
    return [
        pytest.param(line, id=line, marks=_marks(line))
        for line in examples()
        if place in places_of(line) and line not in NOT_RUN
    ]

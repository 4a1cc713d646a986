"""Writes reference pages from the code: `python tools/reference.py --write`.

docs/reference/cli.md is the command line, docs/reference/api.md the public names with their
methods. Decides how they look on the page; what they are and say is read from the code. A test
compares the pages with what this script would write.
"""

from __future__ import annotations

import argparse
import enum
import inspect
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import click

import gimbalmq
from gimbalmq.cli.root import root

__all__ = ["PAGES", "api_page", "cli_page", "main"]

FOLDER: Final = Path(__file__).parents[1] / "docs" / "reference"
#: Taken by every command that talks to a cluster; listed once, at the top.
_ACCESS: Final = frozenset(
    {
        "nameserver", "access_key", "secret_key", "tls", "tls_ca_file", "tls_cert_file",
        "tls_key_file", "namespace",
    }
)  # fmt: skip
_SHARED: Final = _ACCESS | {"as_json"}
#: A command that has them all.
_EXAMPLE: Final = ("topic", "list")

_OPENING: Final = """\
# The command line

Written by `python tools/reference.py --write` from the commands; a test checks that it is up to date. `gimbalmq COMMAND
--help` says the same in the terminal.

| exit code | meaning |
|---|---|
| 0 | fine |
| 1 | a finding: what `group doctor` or the demo's checks look for is there |
| 2 | wrong use, or the cluster could not be asked |
| 130 | Ctrl-C, where that is no regular end |

## Options of most commands

A command says which of these it takes.
"""


def commands(
    command: click.Command, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command below one, with the words that call it, in the order of `--help`."""
    if not isinstance(command, click.Group):
        yield path, command
        return
    context = click.Context(command, info_name="gimbalmq")
    for name in command.list_commands(context):
        below = command.get_command(context, name)
        assert below is not None, f"{name} is listed"
        yield from commands(below, (*path, name))


def cli_page() -> str:
    """The whole page."""
    found = list(commands(root))
    shared = next(command for path, command in found if path == _EXAMPLE)
    parts = [_OPENING, "\n".join(_table(shared, shared=True)) + "\n"]
    group = ""
    for path, command in found:
        if path[0] != group:
            group = path[0]
            parts.append(f"## {group}\n")
        parts.extend(_command(path, command))
    return "\n".join(parts)


def _command(path: tuple[str, ...], command: click.Command) -> Iterator[str]:
    context = click.Context(command, info_name=" ".join(("gimbalmq", *path)))
    usage = " ".join((context.info_name or "", *command.collect_usage_pieces(context)))
    if len(path) > 1:
        yield f"### {' '.join(path)}\n"
    yield f"```text\n{usage}\n```\n"
    yield from _prose(command.help or "")
    rows = list(_table(command, shared=False))
    if len(rows) > 2:
        yield "\n".join(rows) + "\n"
    yield from _also(command)


def _also(command: click.Command) -> Iterator[str]:
    """Which of the options of most commands this one takes."""
    names = {parameter.name for parameter in command.params}
    words = []
    if names >= _ACCESS:
        words.append("how to reach a cluster (`--nameserver` to `--namespace`)")
    elif "nameserver" in names:
        words.append("`--nameserver`")
    if "as_json" in names:
        words.append("`--json`")
    if words:
        yield f"Also takes {', and '.join(words)}.\n"


def _prose(text: str) -> Iterator[str]:
    """The help text: paragraphs, and what is not to be wrapped as it stands."""
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        if paragraph.startswith("\b"):
            yield f"```text\n{paragraph.removeprefix(chr(8)).strip(chr(10))}\n```\n"
        elif paragraph.strip():
            yield _marked(" ".join(paragraph.split())) + "\n"


def _table(command: click.Command, *, shared: bool) -> Iterator[str]:
    context = click.Context(command)
    yield "| option | meaning |"
    yield "|---|---|"
    for parameter in command.params:
        if not isinstance(parameter, click.Option) or (parameter.name in _SHARED) is not shared:
            continue
        record = parameter.get_help_record(context)
        if record is not None:
            name, meaning = record
            escaped = " ".join(meaning.split()).replace("|", "\\|")
            yield f"| `{name.replace('|', chr(92) + '|')}` | {_marked(escaped)} |"


def _marked(text: str) -> str:
    """Options as code, because a page would join their dashes."""
    return re.sub(r"(?<![\w`-])(--[a-z][\w-]*)", r"`\1`", text).replace("*", r"\*")


_API_OPENING: Final = """\
# Names and methods

Written by `python tools/reference.py --write` from the code; a test checks that it is up to date. Options of constructors
are in [Options](options.md), errors in [Errors](errors.md). `gimbalmq.aio` has the classes `Producer`, `PushConsumer`,
`LitePullConsumer`, `PullConsumer` and `Admin`, too; there, methods that wait are coroutines.

`help(gimbalmq.Producer.send)` says more about each.

## Everything in gimbalmq

| name | what it is |
|---|---|
"""
#: Classes whose methods are listed.
_SERVICES: Final = ("Producer", "PushConsumer", "LitePullConsumer", "PullConsumer", "Admin")


def api_page() -> str:
    """The public names, and the methods of the classes that do something."""
    names = sorted(gimbalmq.__all__, key=str.lower)
    rows = (f"| `{name}` | {_sentence(getattr(gimbalmq, name))} |\n" for name in names)
    parts = [_API_OPENING, *rows]
    for name in _SERVICES:
        parts.append(f"\n## {name}\n\n| method | what it does |\n|---|---|\n")
        kind = getattr(gimbalmq, name)
        methods = (one for one in dir(kind) if not one.startswith("_"))
        parts.extend(
            f"| `{_call(kind, one)}` | {_sentence(getattr(kind, one))} |\n" for one in methods
        )
    parts.append("\n## balance\n\n| function | what it does |\n|---|---|\n")
    for name in sorted(gimbalmq.balance.__all__):
        value = getattr(gimbalmq.balance, name)
        if inspect.isfunction(value):
            parts.append(f"| `{_call(gimbalmq.balance, name)}` | {_sentence(value)} |\n")
    return "".join(parts)


def _call(home: object, name: str) -> str:
    """How something is called: its parameters without their types; a property has none."""
    if isinstance(inspect.getattr_static(home, name), property):
        return name
    parameters = [
        one.replace(annotation=inspect.Parameter.empty)
        for one in inspect.signature(getattr(home, name)).parameters.values()
        if one.name != "self"
    ]
    return f"{name}{inspect.Signature(parameters)}"


def _sentence(value: object) -> str:
    """The first sentence of a docstring, or what a constant stands for, fit for a table."""
    if isinstance(value, enum.Enum):
        return f"{str(value.value).capitalize()}."
    paragraph = " ".join((inspect.getdoc(value) or "").split("\n\n")[0].split())
    first = re.split(r"(?<=[.:]) (?=[A-Z])", paragraph)[0].rstrip(":")
    return first.replace("|", "\\|")


#: What is written, by file name.
PAGES: Final = {"api.md": api_page, "cli.md": cli_page}


def main(arguments: Sequence[str] | None = None) -> int:
    """Say which pages are not up to date, or write them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the pages")
    write: bool = parser.parse_args(arguments).write
    old = [
        name
        for name, page in PAGES.items()
        if not (FOLDER / name).exists() or (FOLDER / name).read_text("utf-8") != page()
    ]
    for name in old:
        if write:
            (FOLDER / name).write_text(PAGES[name](), "utf-8")
        print(f"{name}: {'written' if write else 'not up to date'}")
    return 1 if old and not write else 0


if __name__ == "__main__":
    sys.exit(main())

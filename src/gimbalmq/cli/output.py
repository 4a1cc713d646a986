"""How commands speak: JSON for programs, tables for people, notices on stderr.

With `--json` a command prints JSON to stdout and nothing else.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
import msgspec

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.table import Table

__all__ = [
    "json_option",
    "nameserver_option",
    "notice",
    "print_json",
    "print_table",
    "show_table",
]

#: No table is wider than this.
_WIDEST: Final = 10_000

F = TypeVar("F", bound=Callable[..., Any])


def json_option(command: F) -> F:
    """Add `--json`, passed as `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")(
        command
    )


def nameserver_option(command: F) -> F:
    """Add `--nameserver`, read from `NAMESRV_ADDR` when it is not given; None when neither is."""
    return click.option(
        "--nameserver",
        envvar="NAMESRV_ADDR",
        metavar="HOST:PORT[;...]",
        help="Name servers of the cluster. [default: the variable NAMESRV_ADDR]",
    )(command)


def print_json(value: Any) -> None:
    """Print one JSON document on a line of its own and flush, so that a reader of a pipe gets it."""
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
    sys.stdout.flush()


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None = None
) -> None:
    """Print a table; a None is shown as `-`. Columns of numbers only are aligned to the right."""
    from rich.table import Table
    from rich.text import Text

    listed = [tuple(row) for row in rows]
    table = Table()
    for number, column in enumerate(columns):
        cells = [row[number] for row in listed if row[number] is not None]
        numeric = bool(cells) and all(isinstance(cell, int | float) for cell in cells)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in listed:
        # Text, not str: names of topics and groups may contain what rich takes for mark-up.
        table.add_row(*(Text("-" if cell is None else str(cell)) for cell in row))
    show_table(table, title)


def show_table(table: Table, title: str | None = None) -> None:
    """Print a table as wide as the terminal; into a file or pipe, as wide as it is.

    A name that is cut in two cannot be searched for or copied.
    """
    from rich.console import Console
    from rich.text import Text

    console = Console(soft_wrap=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = max(
            console.width, console.measure(table, options=_unbounded(console)).maximum
        )
    if title is not None:
        console.print(Text(title, style="bold"), soft_wrap=True)
    console.print(table)


def _unbounded(console: Console) -> ConsoleOptions:
    return console.options.update(max_width=_WIDEST, width=_WIDEST)


def notice(message: str) -> None:
    """Tell people something beside the output: on stderr."""
    click.echo(message, err=True)

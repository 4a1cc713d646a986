"""What several commands ask of people: a time, and whether they are sure."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

import click

from gimbalmq.cli.output import notice

__all__ = ["confirm", "moment", "yes_option"]

F = TypeVar("F", bound=Callable[..., Any])


def yes_option(command: F) -> F:
    """Add `--yes`, passed as `yes`."""
    return click.option("--yes", is_flag=True, help="Do not ask whether you are sure.")(command)


def confirm(question: str, *, yes: bool) -> None:
    """Go on only when the user is sure; without a terminal to ask on, `--yes` must be given."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} There is no terminal to ask on: add --yes to do it.")
    if not click.confirm(question, err=True):
        notice("nothing was changed")
        click.get_current_context().exit(2)


def moment(text: str, option: str, *, words: str = "") -> datetime:
    """A time as ISO 8601; without a zone it is meant in the zone of this machine.

    `words` are what may be given instead of a time, for the error.

    >>> moment("2026-03-01T12:00:00+00:00", "--to").timestamp()
    1772366400.0
    """
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError:
        raise click.BadParameter(
            f"'{text}' is no time: write {f'{words}, or ' if words else ''}a time like "
            "2026-03-01T12:00:00+01:00",
            param_hint=option,
        ) from None

"""What a pipeline says when it is done: facts, tables, and perhaps a picture. Pure values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

__all__ = ["Report", "bar"]


class Report(msgspec.Struct, frozen=True):
    """The outcome of a run; with `--json` printed as it stands."""

    pipeline: str
    facts: Mapping[str, Any]
    tables: Mapping[str, Sequence[Mapping[str, Any]]] = {}
    #: For terminals only.
    picture: str = ""


def bar(value: float, largest: float, *, width: int = 40) -> str:
    """A bar for a terminal.

    >>> bar(5, 10, width=4)
    '██'
    """
    return "█" * round(width * value / largest) if largest > 0 else ""

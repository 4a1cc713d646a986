"""Where the demo is shown: tables that live on a terminal, lines that can be read anywhere else."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.text import Text

from gimbalmq.cli.demo.board import Board, View
from gimbalmq.cli.demo.changes import Outcome
from gimbalmq.cli.demo.checks import Check
from gimbalmq.cli.demo.tables import (
    ASCII,
    UNICODE,
    change_lines,
    changes_table,
    ownership_table,
)

__all__ = ["Screen"]

_FRAMES_PER_S = 8
#: Of a log or a pipe; wide enough that no table wraps.
_PLAIN_COLUMNS = 110
#: From here on there is room for everything.
_WIDE_COLUMNS = 100
#: Of the live tables beside members and changes, and of a change.
_ROWS_OF_THE_REST = 12
_ROWS_PER_CHANGE = 2


class Screen:
    """Shows steps, and a board while it is watched.

    `console` is for tests; without it output goes to stdout, or to stderr when `aside`.
    """

    def __init__(self, steps: int, *, aside: bool = False, console: Console | None = None) -> None:
        self.console = console or Console(stderr=aside, highlight=False)
        if not self.live:
            self.console.width = _PLAIN_COLUMNS
        self.marks = ASCII if self.console.options.ascii_only else UNICODE
        self._steps = steps
        self._step = 0

    @property
    def live(self) -> bool:
        """Whether tables change in place."""
        return self.console.is_terminal

    def step(self, title: str) -> None:
        """The next step begins."""
        self._step += 1
        self.console.print(
            Text.assemble((f"[{self._step}/{self._steps}] ", "bold blue"), (title, "bold")),
            soft_wrap=True,
        )

    def say(self, text: str, *, style: str = "") -> None:
        """A line below the step."""
        self.console.print(Text(f"      {text}", style), soft_wrap=True)

    def verdict(self, check: Check) -> None:
        """A check and how it ended."""
        sign, style = (
            (self.marks.passed, "bold green") if check.passed else (self.marks.failed, "bold red")
        )
        self.console.print(
            Text.assemble("      ", (sign, style), (f" {check.name}: ", "bold"), check.sentence),
            soft_wrap=True,
        )

    def show(self, renderable: RenderableType) -> None:
        """A table."""
        self.console.print(self._indented(renderable))

    def show_beside(self, *tables: RenderableType) -> None:
        """Tables side by side where there is room, else one below the other."""
        self.show(Columns(tables, padding=(1, 4)))

    def board(self, view: View) -> None:
        """All there is on the board."""
        self.show(self._tables(view, None))

    @contextlib.contextmanager
    def waiting(self, text: str) -> Iterator[None]:
        """Say what takes a moment: as a spinner, or as a line."""
        if not self.live:
            self.say(f"{text} ...")
            yield
            return
        with self.console.status(Text(text)):
            yield

    @contextlib.contextmanager
    def watching(self, board: Board) -> Iterator[None]:
        """Show the board as it changes; only on a terminal."""
        if not self.live:
            yield
            return

        def frame() -> RenderableType:
            view = board.view(time.monotonic())
            # Old changes make room: a frame that is too high would be cut at its end.
            room = self.console.height - _ROWS_OF_THE_REST - len(view.members)
            return self._indented(self._tables(view, max(1, room // _ROWS_PER_CHANGE)))

        with Live(
            get_renderable=frame,
            console=self.console,
            refresh_per_second=_FRAMES_PER_S,
            transient=True,
        ):
            yield

    def settled(self, outcome: Outcome, board: Board) -> None:
        """A change came to its end; where tables do not live, say what it did."""
        if self.live:
            return
        for line in change_lines(outcome, self.marks):
            self.say(line)
        self.show(ownership_table(board.view(time.monotonic()), self.marks))

    def _tables(self, view: View, latest: int | None) -> RenderableType:
        return Group(
            ownership_table(view, self.marks),
            "",
            changes_table(view, self.marks, latest=latest, brief=self._narrow),
        )

    @property
    def _narrow(self) -> bool:
        return self.console.width < _WIDE_COLUMNS

    def _indented(self, renderable: RenderableType) -> RenderableType:
        return Padding(renderable, (1, 0, 1, 1 if self._narrow else 6), expand=False)

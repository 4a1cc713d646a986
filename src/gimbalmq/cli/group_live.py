"""`gimbalmq group show --live`: members, queues, lag and recent moves, drawn again and again.

Decides how the picture looks and which moves it remembers; the rows come from `group show`.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

import msgspec
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from gimbalmq.cli.ending import stopped_by_signals
from gimbalmq.client.admin import Member

__all__ = ["LivePicture", "Look", "QueueRow", "watch"]

_MOVES_SHOWN: Final = 8


class QueueRow(msgspec.Struct, frozen=True):
    """One queue, as `group show` tells of it."""

    topic: str
    broker: str
    queue_id: int
    owner: str | None
    committed: int | None
    minimum: int
    maximum: int
    lag: int | None

    @property
    def path(self) -> str:
        """`topic/broker/queue`."""
        return f"{self.topic}/{self.broker}/{self.queue_id}"


class Look(msgspec.Struct, frozen=True):
    """What is known of a group at one time; `silent` members do not say what they hold."""

    members: Sequence[Member]
    rows: Sequence[QueueRow]
    silent: frozenset[str] = frozenset()


class LivePicture:
    """What is drawn: it compares each look with the one before."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._owners: dict[str, str | None] | None = None
        self.moves: deque[tuple[str, str, str | None, str | None]] = deque(maxlen=_MOVES_SHOWN)

    def see(self, look: Look, at: str) -> Group:
        """Note what moved since the last look, and draw."""
        rows = look.rows
        owners = {row.path: row.owner for row in rows}
        if self._owners is not None:
            for path, owner in owners.items():
                before = self._owners.get(path)
                if before != owner:
                    self.moves.appendleft((at, path, before, owner))
        self._owners = owners
        return Group(self._member_table(look), _queue_table(rows), self._move_table())

    def _member_table(self, look: Look) -> Table:
        title = f"Group {self._group}: {len(look.members)} members"
        table = _table(title, "client id", "queues", "lag")
        for member in look.members:
            if member.client_id in look.silent:
                _add(table, member.client_id, None, None)
                continue
            own = [row for row in look.rows if row.owner == member.client_id]
            _add(table, member.client_id, len(own), sum(row.lag or 0 for row in own))
        return table

    def _move_table(self) -> Table:
        table = _table("Recent moves", "at", "queue", "from", "to")
        for move in self.moves:
            _add(table, *move)
        return table


def _queue_table(rows: Sequence[QueueRow]) -> Table:
    table = _table("Queues", "queue", "owner", "committed", "maximum", "lag")
    for row in rows:
        _add(table, row.path, row.owner, row.committed, row.maximum, row.lag)
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _add(table: Table, *cells: object) -> None:
    # Text, not str: names of topics and groups may contain what rich takes for mark-up.
    table.add_row(*(Text("-" if cell is None else str(cell)) for cell in cells))


def watch(
    group: str,
    look: Callable[[], Look],
    *,
    interval_s: float,
    duration_s: float | None,
) -> None:
    """Draw the group until Ctrl-C, or for some time."""
    picture = LivePicture(group)
    end = float("inf") if duration_s is None else time.monotonic() + duration_s
    endless = duration_s is None
    with (
        stopped_by_signals() if endless else contextlib.nullcontext(),
        Live(console=Console(), auto_refresh=False) as live,
    ):
        while True:
            seen = look()
            at = datetime.now().astimezone().strftime("%H:%M:%S")
            live.update(picture.see(seen, at), refresh=True)
            if time.monotonic() + interval_s > end:
                return
            time.sleep(interval_s)

"""The demo's tables, from what the board shows: members by queues, changes, figures.

Pure: builds what rich draws; knows neither the terminal nor the clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from rich import box
from rich.table import Table
from rich.text import Text

from gimbalmq.cli.demo.board import MemberView, View
from gimbalmq.cli.demo.changes import Kind, Move, Outcome, owners
from gimbalmq.cli.demo.reports import Predicted
from gimbalmq.cli.demo.summary import SparkSummary, Summary
from gimbalmq.model.queue import MessageQueue, sorted_queues

__all__ = [
    "ASCII",
    "UNICODE",
    "Marks",
    "change_lines",
    "changes_table",
    "count_table",
    "figures_table",
    "load_table",
    "moves_text",
    "ownership_table",
    "queue_label",
    "queues_text",
    "spread_table",
]


class Marks(NamedTuple):
    """The signs that a terminal can show."""

    held: str
    free: str
    arrow: str
    passed: str
    failed: str
    bar: str


UNICODE: Final = Marks("●", "·", "→", "✓", "✗", "█")
ASCII: Final = Marks("#", ".", "->", "ok", "NO", "#")

_BAR_WIDTH: Final = 16

#: One per member, in the order in which they joined.
_COLOURS: Final = ("cyan", "magenta", "yellow", "green", "blue", "red")
_VERBS: Final[Mapping[Kind, str]] = {"join": "joins", "kill": "killed (-9)", "leave": "leaves"}


def queue_label(queue: MessageQueue) -> str:
    """A queue in three letters: the last part of its broker's name, and its number.

    >>> queue_label(MessageQueue("orders", "broker-a", 3))
    'a3'
    """
    return f"{queue.broker.rpartition('-')[2]}{queue.queue_id}"


def ownership_table(view: View, marks: Marks) -> Table:
    """Members by queues: who holds what, how much came, and what waits in each queue."""
    table = _table(padding=0)
    table.add_column("member", no_wrap=True, min_width=10)
    table.add_column("", no_wrap=True, min_width=8)
    for queue in view.queues:
        table.add_column(queue_label(queue), justify="right", no_wrap=True, min_width=4)
    table.add_column("messages", justify="right", no_wrap=True, min_width=9)
    for member, colour in zip(view.members, _cycle(len(view.members)), strict=True):
        table.add_row(*_member_cells(member, view.queues, colour, marks))
    table.add_section()
    held = owners({member.name: member.queues for member in view.members}, view.queues)
    table.add_row("owners", "", *(_owners_cell(len(held[queue])) for queue in view.queues), "")
    sent = [view.sent.get(queue, 0) for queue in view.queues]
    table.add_row("sent", "", *(f"{count:,}" for count in sent), f"{view.traffic.sent:,}")
    lags = [view.offsets[queue].lag if queue in view.offsets else 0 for queue in view.queues]
    table.add_row("lag", "", *(f"{lag:,}" for lag in lags), f"{sum(lags):,}", style="dim")
    if view.streamed:
        read = [view.streamed.get(queue, 0) for queue in view.queues]
        cells = (f"{offset:,}" for offset in read)
        table.add_row("Spark", "stream", *cells, f"{sum(read):,}", style="blue")
    return table


def _member_cells(
    member: MemberView, queues: Iterable[MessageQueue], colour: str, marks: Marks
) -> list[Text]:
    gone = member.fate in {"killed", "left"}
    style = "dim" if gone else f"bold {colour}"
    state = member.fate if member.fate != "member" else member.language
    cells = [Text(member.name, f"{style} strike" if gone else style)]
    cells.append(Text(state, "bold red" if member.fate == "killed" else "dim"))
    cells += [
        Text(marks.held, style) if queue in member.queues else Text(marks.free, "dim")
        for queue in queues
    ]
    return [*cells, Text(f"{member.received:,}", style)]


def _owners_cell(number: int) -> Text:
    return Text(str(number), {0: "bold red", 1: "green"}.get(number, "bold yellow"))


def changes_table(
    view: View, marks: Marks, *, latest: int | None = None, brief: bool = False
) -> Table:
    """Changes of members: what moved, why, and how long it took.

    Only the `latest` when given; `brief` leaves out why.
    """
    table = _table()
    table.add_column("change", no_wrap=True)
    table.add_column("queues that moved", no_wrap=True)
    if not brief:
        table.add_column("because of", overflow="fold")
    for heading in ("no owner", "settled", "delivers"):
        table.add_column(heading, justify="right", no_wrap=True, min_width=6)
    for outcome in view.outcomes[-latest:] if latest else view.outcomes:
        change = outcome.change
        table.add_row(
            Text(f"{change.member} {_VERBS[change.kind]}", "red" if change.kind == "kill" else ""),
            moves_text(outcome.moves, marks, separator="\n"),
            *(() if brief else (outcome.trigger or "",)),
            _seconds(outcome.unowned_s if outcome.settled_s is not None else None),
            _seconds(outcome.settled_s),
            _seconds(outcome.delivered_s),
        )
    return table


def moves_text(moves: Iterable[Move], marks: Marks, *, separator: str = ", ") -> str:
    """Queues by their new owner.

    >>> queue = MessageQueue("orders", "broker-a", 3)
    >>> moves_text([Move(queue, "python-2", "java-1")], ASCII)
    'a3 -> java-1'
    """
    by_owner: dict[str, list[MessageQueue]] = {}
    for move in moves:
        by_owner.setdefault(move.after or "nobody", []).append(move.queue)
    listed = (f"{queues_text(queues)} {marks.arrow} {name}" for name, queues in by_owner.items())
    return separator.join(listed) or "none"


def queues_text(queues: Iterable[MessageQueue]) -> str:
    """Labels of queues, neighbours drawn together.

    >>> queues_text(MessageQueue("orders", "broker-a", number) for number in (0, 1, 2, 5))
    'a0-2 a5'
    """
    runs: list[list[MessageQueue]] = []
    for queue in sorted_queues(queues):
        last = runs[-1][-1] if runs else None
        if last is not None and (last.broker, last.queue_id + 1) == (queue.broker, queue.queue_id):
            runs[-1].append(queue)
        else:
            runs.append([queue])
    return " ".join(_run_text(run) for run in runs)


def _run_text(run: list[MessageQueue]) -> str:
    # Two neighbours are as short, and plainer, side by side.
    if len(run) < 3:
        return " ".join(map(queue_label, run))
    return f"{queue_label(run[0])}-{run[-1].queue_id}"


def change_lines(outcome: Outcome, marks: Marks) -> tuple[str, ...]:
    """A change in a few words: what moved, and how long it took."""
    change = outcome.change
    subject = f"{change.member} {_VERBS[change.kind]}"
    if outcome.settled_s is None:
        return (f"{subject}: the queues are not settled",)
    times = [f"settled after {outcome.settled_s:.2f} s", f"no owner: {outcome.unowned_s:.2f} s"]
    if outcome.delivered_s is not None:
        times.append(f"all deliver after {outcome.delivered_s:.2f} s")
    if outcome.trigger:
        times.append(f"because of: {outcome.trigger}")
    moved = f"{len(outcome.moves)} queues moved: {moves_text(outcome.moves, marks)}"
    return f"{subject}, {moved}", f"  {', '.join(times)}"


def count_table(view: View, rows: Mapping[str, int]) -> Table:
    """What Spark's files hold beside what was sent."""
    table = _table(padding=0)
    table.add_column("", no_wrap=True, min_width=7)
    for queue in view.queues:
        table.add_column(queue_label(queue), justify="right", no_wrap=True, min_width=4)
    table.add_column("total", justify="right", no_wrap=True, min_width=8)
    counted = {queue: rows.get(queue.path, 0) for queue in view.queues}
    for name, counts in (("sent", view.sent), ("files", counted)):
        cells = (f"{counts.get(queue, 0):,}" for queue in view.queues)
        table.add_row(name, *cells, f"{sum(counts.values()):,}")
    return table


def load_table(view: View, loads: Mapping[str, int], marks: Marks) -> Table:
    """The load of each queue, whose it is now, and its share of the whole."""
    table = _table()
    table.add_column("queue", no_wrap=True)
    table.add_column("owner", no_wrap=True)
    table.add_column("messages", justify="right", no_wrap=True)
    table.add_column("share", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True, min_width=_BAR_WIDTH)
    held = owners({member.name: member.queues for member in view.members}, view.queues)
    total, most = sum(loads.values()), max(loads.values(), default=0)
    colours = dict(zip((one.name for one in view.members), _cycle(len(view.members)), strict=True))
    for queue in view.queues:
        load, owner = loads.get(queue.path, 0), ", ".join(held[queue])
        table.add_row(
            queue_label(queue),
            Text(owner, colours.get(owner, "")),
            f"{load:,}",
            f"{load / total:.0%}" if total else "",
            Text(marks.bar * round(_BAR_WIDTH * load / most) if most else "", "yellow"),
        )
    return table


def spread_table(spread: Iterable[Predicted], *, now: str) -> Table:
    """The load of the busiest member under each strategy, for groups of several sizes.

    The strategy in use is `now`; the best of each size is green. A group of one is left out.
    """
    by_size: dict[int, dict[str, float]] = {}
    for row in spread:
        if row.members != 1:
            by_size.setdefault(row.members, {})[row.strategy] = row.busiest
    table = _table()
    table.add_column("busiest member, in averages", no_wrap=True)
    for size in by_size:
        table.add_column(f"of {size}", justify="right", no_wrap=True)
    for strategy in dict.fromkeys(name for size in by_size.values() for name in size):
        cells = (_busiest_cell(size.get(strategy), min(size.values())) for size in by_size.values())
        label = f"{strategy} (now)" if strategy == now else strategy
        table.add_row(Text(label, "bold" if strategy == now else ""), *cells)
    return table


def _busiest_cell(value: float | None, best: float) -> Text:
    if value is None:
        return Text("")
    return Text(f"{value:.2f}", "bold green" if value == best else "")


def figures_table(summary: Summary) -> Table:
    """The demo in a few figures."""
    table = Table(box=box.SIMPLE, show_header=False, show_edge=False, pad_edge=False)
    table.add_column("what", no_wrap=True, style="bold")
    table.add_column("figures", overflow="fold")
    messages = summary.messages
    table.add_row(
        "messages",
        f"{messages['sent']:,} acknowledged, {messages['consumed']:,} consumed, "
        f"{messages['lost']:,} lost, {messages['duplicates']:,} delivered again",
    )
    if messages["unanswered"]:
        table.add_row(
            "sends without answer",
            f"{messages['unanswered']:,}, of which {messages['unacknowledged']:,} were stored",
        )
    for change in summary.changes:
        if change.kind != "join":
            table.add_row(
                f"{change.member} {_VERBS[change.kind]}",
                f"{len(change.moves)} queues moved, all owned again after "
                f"{_seconds(change.unowned_s)}, delivering after {_seconds(change.delivered_s)}",
            )
    table.add_row("Spark", _spark_figures(summary.spark))
    kept = len(summary.checks) - len(summary.failed())
    style = "bold red" if summary.failed() else "bold green"
    table.add_row("checks", Text(f"{kept} of {len(summary.checks)} passed", style))
    return table


def _spark_figures(spark: SparkSummary) -> str:
    if spark.skipped is not None:
        return spark.skipped
    if spark.rows is None:
        return "failed"
    return (
        f"{spark.rows:,} rows streamed into files by Spark {spark.version}, read again and "
        f"profiled in {_seconds(spark.seconds)}"
    )


def _seconds(value: float | None) -> str:
    return "..." if value is None else f"{value:.2f} s"


def _table(*, padding: int = 1) -> Table:
    return Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, padding, 0, 0),
        header_style="bold dim",
    )


def _cycle(number: int) -> list[str]:
    return [_COLOURS[index % len(_COLOURS)] for index in range(number)]

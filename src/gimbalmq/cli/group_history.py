"""`gimbalmq group history`: who gave which queue to whom, when, why, and how long it stood still."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click

from gimbalmq.cli.access import access_option, access_options
from gimbalmq.cli.arguments import moment
from gimbalmq.cli.output import json_option, nameserver_option, notice, print_json, print_table
from gimbalmq.client.admin import Admin
from gimbalmq.client.events import EVENTS_TOPIC, read_log, read_topic
from gimbalmq.core.history import Move, RebalanceEvent, moves_of
from gimbalmq.errors import ConfigurationError, TopicNotFoundError

__all__ = ["history_command"]

_HISTORY_HELP: Final = f"""\
Show how queues changed hands: when, which, from whom to whom, why, and the pause between.

Members keep the history: give `on_rebalance` of a consumer an EventLog (a file) or an EventTopic
(a topic, {EVENTS_TOPIC} by default). Java members keep none, so a queue that comes from or goes to
one has a - in its place, and a member that died has said nothing about it.

\b
Examples:
  gimbalmq group history billing
  gimbalmq group history billing --log rebalances.jsonl
  gimbalmq group history billing --since 2026-03-01T12:00:00+01:00 --json

\b
JSON, one object per move and line:
  {{"at","queue","from","to","trigger","pause_s"}}
"""


@click.command("history", help=_HISTORY_HELP)
@click.argument("name", metavar="GROUP")
@click.option(
    "--log",
    "logs",
    multiple=True,
    type=click.Path(path_type=Path),
    help="A file that members write; may be repeated.",
)
@click.option("--topic", help=f"The topic of events. [default: {EVENTS_TOPIC}, without --log]")
@click.option("--since", metavar="TIME", help="Leave out what was before.")
@nameserver_option
@access_option
@json_option
def history_command(
    name: str,
    nameserver: str | None,
    *,
    logs: tuple[Path, ...],
    topic: str | None,
    since: str | None,
    as_json: bool,
) -> None:
    """Show how queues changed hands."""
    start = None if since is None else moment(since, "--since")
    events = [event for path in logs for event in read_log(path, name, start)]
    if topic is not None or not logs:
        with Admin(nameserver, **access_options()) as admin:
            events += _told_in(admin, name, topic or EVENTS_TOPIC, start)
    moves = list(moves_of(events))
    if as_json:
        for move in moves:
            print_json(_document(move))
        return
    if not moves:
        notice(f"no move of group '{name}' is recorded there")
        return
    rebalances = sum(event.decides for event in events)
    print_table(
        ("at", "queue", "from", "to", "trigger", "pause s"),
        [tuple(_document(move).values()) for move in moves],
        title=f"Group {name}: {len(moves)} moves in {rebalances} rebalances",
    )


def _told_in(admin: Admin, name: str, topic: str, start: datetime | None) -> list[RebalanceEvent]:
    try:
        return read_topic(admin, name, topic, start)
    except TopicNotFoundError:
        raise ConfigurationError(
            f"topic '{topic}' does not exist, so nobody has told of rebalances there: give members "
            f'the option events="{topic}", or name the files that they write with --log'
        ) from None


def _document(move: Move) -> dict[str, object]:
    at = datetime.fromtimestamp(move.at_ms / 1000, UTC)
    return {
        "at": at.isoformat(timespec="milliseconds"),
        "queue": move.queue,
        "from": move.before,
        "to": move.after,
        "trigger": move.why,
        "pause_s": move.pause_s,
    }

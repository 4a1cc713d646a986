"""`gimbalmq group reset`: move a group to other messages of a topic."""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal

import click

from gimbalmq.cli.access import access_option, access_options
from gimbalmq.cli.arguments import confirm, moment, yes_option
from gimbalmq.cli.group_doctor import unknown_group
from gimbalmq.cli.output import json_option, nameserver_option, print_json, print_table
from gimbalmq.client.admin import Admin
from gimbalmq.errors import ConfigurationError
from gimbalmq.model.queue import MessageQueue, parse_queue, sorted_queues

__all__ = ["reset_command"]

_RESET_HELP: Final = """\
Move a group to other messages of a topic.

Going back makes the group read messages again, going forward makes it skip some. Running members
follow with their next pull (RocketMQ before 5.1: after about 10 seconds, and to a time only).

\b
Examples:
  gimbalmq group reset billing orders --to earliest
  gimbalmq group reset billing orders --to latest --yes
  gimbalmq group reset billing orders --to earliest --dry-run
  gimbalmq group reset billing orders --to 2026-03-01T12:00:00+01:00
  gimbalmq group reset billing orders --offset broker-a/0=120 --offset broker-a/1=95

\b
JSON (null = nothing was committed):
  {"group","topic","queues":[{"broker","queue_id","before","after"}]}
  and with --dry-run also "dry_run":true
"""


@click.command("reset", help=_RESET_HELP)
@click.argument("name", metavar="GROUP")
@click.argument("topic")
@click.option("--to", "where", metavar="WHERE", help="earliest, latest, or a time.")
@click.option(
    "--offset",
    "offsets",
    multiple=True,
    metavar="BROKER/QUEUE=OFFSET",
    help="The next offset of one queue; may be repeated. Other queues stay where they are.",
)
@click.option("--dry-run", is_flag=True, help="Show where each queue would go, and change nothing.")
@yes_option
@nameserver_option
@access_option
@json_option
def reset_command(
    name: str,
    topic: str,
    nameserver: str | None,
    *,
    where: str | None,
    offsets: tuple[str, ...],
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Move a group to other messages of a topic."""
    if (where is None) == (not offsets):
        raise click.UsageError("say where to: either --to or --offset")
    to = _to(where) if where is not None else dict(_offset(topic, text) for text in offsets)
    with Admin(nameserver, **access_options()) as admin:
        if name not in (known := admin.groups(internal=True)):
            raise unknown_group(name, known)
        before = admin.offsets(name, topic)
        if dry_run:
            after = admin.reset(name, topic, to, dry_run=True)
        else:
            # As it was understood: a time may have been given without a zone.
            target = to.isoformat() if isinstance(to, datetime) else where or ", ".join(offsets)
            confirm(f"Move group '{name}' in topic '{topic}' to {target}?", yes=yes)
            after = admin.reset(name, topic, to)
    queues = [
        {
            "broker": queue.broker,
            "queue_id": queue.queue_id,
            "before": before[queue].committed if queue in before else None,
            "after": after[queue],
        }
        for queue in sorted_queues(after)
    ]
    if as_json:
        document = {"group": name, "topic": topic, "queues": queues}
        print_json({**document, "dry_run": True} if dry_run else document)
    else:
        print_table(
            ("broker", "queue", "before", "after"),
            [tuple(one.values()) for one in queues],
            title=f"Group {name} in topic {topic}" + (" (dry run)" if dry_run else ""),
        )


def _to(text: str) -> datetime | Literal["earliest", "latest"]:
    if text == "earliest":
        return "earliest"
    if text == "latest":
        return "latest"
    return moment(text, "--to", words="earliest, latest")


def _offset(topic: str, text: str) -> tuple[MessageQueue, int]:
    place, separator, number = text.rpartition("=")
    try:
        queue = parse_queue(f"{topic}/{place}")
    except ConfigurationError:
        separator = ""
    if not (separator and number.isascii() and number.isdigit()):
        raise click.BadParameter(
            f"'{text}': write BROKER/QUEUE=OFFSET, for example broker-a/0=120",
            param_hint="--offset",
        )
    return queue, int(number)

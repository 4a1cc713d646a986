"""`gimbalmq group explain`: why a queue belongs to its owner, and what if somebody left.

Decides the form of the answers; they come from `Admin.explain`.
"""

from __future__ import annotations

from typing import Final

import click

from gimbalmq.cli.access import access_option, access_options
from gimbalmq.cli.group_doctor import unknown_group
from gimbalmq.cli.output import json_option, nameserver_option, print_json, print_table
from gimbalmq.client.admin import Admin
from gimbalmq.model.queue import parse_queue
from gimbalmq.model.sharing import WithoutMembers

__all__ = ["explain_command"]

_EXPLAIN_HELP: Final = """\
Say which member a queue belongs to, and why.

QUEUE is TOPIC/BROKER/NUMBER. Every member is asked what it holds, and one of ours why: members know
which absent ones they still count, which published weights they use and what their zones are. Java's
members do not say by what they share out, so what they hold is compared with what Java's strategies
give. What is not as the rule says, and what cannot be known, is told.

--without tells what would change if a member left: who would get this queue, and all the moves.
--strategy tells what another strategy would give.

\b
Examples:
  gimbalmq group explain billing orders/broker-a/3
  gimbalmq group explain billing orders/broker-a/3 --strategy AVG_BY_CIRCLE
  gimbalmq group explain billing orders/broker-a/3 --without till-2

\b
JSON:
  {"queue","owner","rule","data","sentence","holders":[],"told_by","absent":{MEMBER:SECONDS},
   "weights":{"topic","version","weight"},"fallback","differences":[],"unknown":[],"without"}
weights and without may be null; with --without it is
  {"members":[],"owner","sentence","moves":[{"queue","from","to"}],"strategy","reason","waits_s"}
"""


@click.command("explain", help=_EXPLAIN_HELP)
@click.argument("name", metavar="GROUP")
@click.argument("path", metavar="QUEUE")
@click.option("--strategy", help="Say what this strategy would give.")
@click.option(
    "--without",
    multiple=True,
    metavar="MEMBER",
    help="What if this member left? A client id, or the name given to it; may be repeated.",
)
@nameserver_option
@access_option
@json_option
def explain_command(
    name: str,
    path: str,
    nameserver: str | None,
    *,
    strategy: str | None,
    without: tuple[str, ...],
    as_json: bool,
) -> None:
    """Say which member a queue belongs to, and why."""
    queue = parse_queue(path)
    with Admin(nameserver, **access_options()) as admin:
        if not admin.members(name) and name not in (known := admin.groups(internal=True)):
            raise unknown_group(name, known)
        found = admin.explain(name, queue, without=without, strategy=strategy)
    if as_json:
        print_json(found)
        return
    click.echo(found.sentence)
    if found.without is not None:
        click.echo(_later_text(found.without))
        print_table(
            ("queue", "from", "to"),
            [(one.queue, one.origin, one.to) for one in found.without.moves],
            title=f"{len(found.without.moves)} queues would move",
        )


def _later_text(later: WithoutMembers) -> str:
    kept = (
        ""
        if later.waits_s is None
        else f"for {later.waits_s:g} s nothing would move, because their queues would be kept for "
        "them (rejoin_grace_s). Then: "
    )
    fallen_back = f" {later.reason}." if later.reason else ""
    return f"Without {', '.join(later.members)}: {kept}{later.sentence}{fallen_back}"

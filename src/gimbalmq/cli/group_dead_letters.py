"""`gimbalmq group dead-letters`: what a group gave up on, and giving it another chance."""

from __future__ import annotations

import sys
from typing import Final

import click

from gimbalmq.cli.access import access_option, access_options
from gimbalmq.cli.arguments import confirm, yes_option
from gimbalmq.cli.group_doctor import unknown_group
from gimbalmq.cli.message import message_document, message_line
from gimbalmq.cli.output import json_option, nameserver_option, notice, print_json
from gimbalmq.client.admin import Admin
from gimbalmq.client.dead_letters import DeadLetters
from gimbalmq.errors import OffsetError
from gimbalmq.wire.received import ReceivedMessage

__all__ = ["dead_letters_command"]

_HELP: Final = """\
List the dead letters of a group, or give them to the group again.

A message becomes a dead letter when a group has failed on it too often. --redrive sends those
listed to the group's retry topic: this group alone gets them again, their attempts counted anew.
Those that were re-driven are not listed any more, unless --all is given.

\b
Examples:
  gimbalmq group dead-letters billing
  gimbalmq group dead-letters billing --redrive
  gimbalmq group dead-letters billing --redrive --id 0A000007125B4E1A2B0047B760000000 --yes

\b
JSON, one object per message and line: as of `gimbalmq message show`; with --redrive also
"redriven":true.
"""


@click.command("dead-letters", help=_HELP)
@click.argument("name", metavar="GROUP")
@click.option("--all", "again", is_flag=True, help="Also those that were re-driven before.")
@click.option("--id", "ids", multiple=True, help="Only the message with this id; may be repeated.")
@click.option("--redrive", is_flag=True, help="Give them to the group again.")
@yes_option
@nameserver_option
@access_option
@json_option
def dead_letters_command(
    name: str,
    nameserver: str | None,
    *,
    again: bool,
    ids: tuple[str, ...],
    redrive: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """List the dead letters of a group, or give them to the group again."""
    with Admin(nameserver, **access_options()) as admin:
        if name not in (known := admin.groups(internal=True)):
            raise unknown_group(name, known)
        letters = DeadLetters(admin, name)
        found = [one for one in letters.waiting(again=again) if not ids or _wanted(one, ids)]
        known_ids = {one for it in found for one in (it.message_id, it.offset_message_id)}
        if absent := [one for one in ids if one not in known_ids]:
            hint = "" if again else "; --all also looks among those that were re-driven before"
            raise OffsetError(f"{', '.join(absent)}: no dead letter of '{name}' has this id{hint}")
        if redrive and found:
            confirm(f"Give {len(found)} dead letters to group '{name}' again?", yes=yes)
            with click.progressbar(found, label="re-driving", file=sys.stderr) as listed:
                for message in listed:
                    letters.redrive(message)
    for message in found:
        if as_json:
            document = message_document(message)
            print_json({**document, "redriven": True} if redrive else document)
        else:
            click.echo(message_line(message))
    if not as_json:
        notice(f"{len(found)} dead letters{' re-driven' if redrive else ''}")


def _wanted(message: ReceivedMessage, ids: tuple[str, ...]) -> bool:
    return message.message_id in ids or message.offset_message_id in ids

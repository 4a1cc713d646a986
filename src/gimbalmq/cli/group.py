"""`gimbalmq group`: who is in a group, who holds which queue and why, how far it is, moving it.

Decides the form of the answers; they come from `Admin` and `gimbalmq.balance`.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import click
import msgspec

from gimbalmq.cli.access import access_option, access_options
from gimbalmq.cli.group_dead_letters import dead_letters_command
from gimbalmq.cli.group_doctor import doctor_command, guard_command, unknown_group
from gimbalmq.cli.group_explain import explain_command
from gimbalmq.cli.group_history import history_command
from gimbalmq.cli.group_live import Look, QueueRow, watch
from gimbalmq.cli.group_reset import reset_command
from gimbalmq.cli.output import json_option, nameserver_option, notice, print_json, print_table
from gimbalmq.client.admin import Admin, GroupView, Member
from gimbalmq.core.explanation import quoted
from gimbalmq.core.group_facts import MemberFacts
from gimbalmq.errors import TopicNotFoundError
from gimbalmq.flows.admin_facts import ask_members
from gimbalmq.model.queue import MessageQueue, sorted_queues
from gimbalmq.wire.names import RETRY_PREFIX

__all__ = ["group"]

#: The queues of each member; None for one that did not answer.
_Held: TypeAlias = dict[str, frozenset[MessageQueue] | None]

_GROUP_HELP: Final = """\
Look at consumer groups: members, queues, owners, lag; and move them.

The members of a group share out the queues of the topics they subscribe to: each queue belongs to
one member. They compute the shares themselves, all by the same rule, from the same two lists.

\b
Examples:
  gimbalmq group list
  gimbalmq group show billing
  gimbalmq group explain billing orders/broker-a/3
  gimbalmq group doctor billing
  gimbalmq group reset billing orders --to earliest
"""

_LIST_HELP: Final = """\
List the consumer groups that brokers know, whether members run or not.

\b
Examples:
  gimbalmq group list
  gimbalmq group list --all --json

\b
JSON: a list of names.
  ["billing","shipping"]
"""

_SHOW_HELP: Final = """\
Show the members of a group, and for each queue its owner and how far the group is.

Owners are what the members themselves say, so they show what is, not what should be. Lag is the
number of messages that the group has not finished. A - means unknown: nobody holds the queue, or
nothing is committed. The %RETRY% topic brings failed messages back to the group.

--live draws it again every second, with the queues that moved since it began.

\b
Examples:
  gimbalmq group show billing
  gimbalmq group show billing --json
  gimbalmq group show billing --live --interval 2

\b
JSON (null = unknown):
  {"group","members":[{"client_id","language","version","strategy"}],
   "queues":[{"topic","broker","queue_id","owner",
              "committed","minimum","maximum","lag"}]}
"""


@click.group(help=_GROUP_HELP)
def group() -> None:
    """Look at consumer groups, and move them."""


for _command in (
    explain_command,
    doctor_command,
    guard_command,
    history_command,
    reset_command,
    dead_letters_command,
):
    group.add_command(_command)


@group.command("list", help=_LIST_HELP)
@click.option("--all", "internal", is_flag=True, help="RocketMQ's own groups, too.")
@nameserver_option
@access_option
@json_option
def list_command(nameserver: str | None, *, internal: bool, as_json: bool) -> None:
    """List the consumer groups."""
    with Admin(nameserver, **access_options()) as admin:
        groups = admin.groups(internal=internal)
    if as_json:
        print_json(groups)
    else:
        print_table(("group",), [(name,) for name in groups])


# ---- show ------------------------------------------------------------------------------------


@group.command("show", help=_SHOW_HELP)
@click.argument("name", metavar="GROUP")
@click.option("--live", is_flag=True, help="Draw it again and again, until Ctrl-C.")
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(min=0.1),
    default=1.0,
    show_default=True,
    help="Seconds between two looks, with --live.",
)
@click.option("--for", "duration_s", type=click.FloatRange(min=0.1), help="End --live after that.")
@nameserver_option
@access_option
@json_option
def show_command(
    name: str,
    nameserver: str | None,
    *,
    live: bool,
    interval_s: float,
    duration_s: float | None,
    as_json: bool,
) -> None:
    """Show members, owners and progress of a group."""
    if live and as_json:
        raise click.UsageError("--live draws for people: ask again and again with --json instead")
    with Admin(nameserver, **access_options()) as admin:
        view = admin.group(name)
        members = view.members
        if not members and name not in (known := admin.groups(internal=True)):
            raise unknown_group(name, known)
        if live:
            watch(name, lambda: _look(admin, name), interval_s=interval_s, duration_s=duration_s)
            return
        held = _held(admin, view)
        rows = _rows(admin, view, held)
    if as_json:
        print_json({"group": name, "members": [_shown(one) for one in members], "queues": rows})
        return
    print_table(
        ("client id", "language", "version", "strategy", "queues"),
        [(*_shown(one).values(), _count(one.client_id, held, rows)) for one in members],
        title=f"Group {name}: {len(members)} members",
    )
    print_table(
        ("topic", "broker", "queue", "owner", "committed", "minimum", "maximum", "lag"),
        [msgspec.structs.astuple(row) for row in rows],
        title="Queues",
    )


def _look(admin: Admin, name: str) -> Look:
    view = admin.group(name)
    held = _held(admin, view)
    silent = frozenset(one for one, queues in held.items() if queues is None)
    return Look(view.members, _rows(admin, view, held), silent)


def _count(client_id: str, held: _Held, rows: list[QueueRow]) -> int | None:
    """How many queues a member has; None when it does not say."""
    if held.get(client_id, ()) is None:
        return None
    return sum(row.owner == client_id for row in rows)


def _shown(member: Member) -> dict[str, str | None]:
    return {
        "client_id": member.client_id,
        "language": member.language,
        "version": member.version,
        "strategy": member.strategy,
    }


def _rows(admin: Admin, view: GroupView, held: _Held) -> list[QueueRow]:
    owners = _owners(held)
    read = {queue.topic for queue in admin.consume_stats(view.group).queues}
    rows = []
    for topic in sorted(view.topics | read):
        try:
            offsets = admin.offsets(view.group, topic)
        except TopicNotFoundError:
            # A retry topic is made when it is first needed.
            if not topic.startswith(RETRY_PREFIX):
                notice(f"the group subscribes to topic '{topic}', which does not exist")
            continue
        for queue in sorted_queues(offsets):
            one = offsets[queue]
            rows.append(
                QueueRow(
                    *(queue.topic, queue.broker, queue.queue_id, owners.get(queue)),
                    *(one.committed, one.minimum, one.maximum, one.lag),
                )
            )
    return rows


def _held(admin: Admin, view: GroupView) -> _Held:
    """What each member says that it holds; those that do not answer are told of."""
    if view.broadcasting:
        notice("this group broadcasts: every member reads every queue, so queues have no owner")
        return {}
    on_wire = msgspec.structs.replace(view, group=admin.namespace.wire(view.group))
    told = admin.run(lambda _servers, timeout_s: ask_members(on_wire, timeout_s))
    silent = [one.client_id for one in told if one.held is None]
    if silent:
        notice(f"{quoted(silent)} did not answer: which queues are held there is not known")
    return {one.client_id: _queues_of(one, admin) for one in told}


def _queues_of(member: MemberFacts, admin: Admin) -> frozenset[MessageQueue] | None:
    if member.held is None:
        return None
    held = (queue for queue, hold in member.held.items() if not hold.releasing)
    return frozenset(admin.namespace.user_queues(held))


def _owners(held: _Held) -> dict[MessageQueue, str]:
    owners: dict[MessageQueue, str] = {}
    for client_id in sorted(held):
        for queue in held[client_id] or ():
            if queue in owners:
                notice(f"{queue.path} is held by '{owners[queue]}' and by '{client_id}'")
            owners.setdefault(queue, client_id)
    return owners

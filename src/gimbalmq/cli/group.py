"""`gimbalmq group`: who is in a group, who holds which queue and why, how far it is, moving it.

Decides the form of the answers; they come from `Admin` and `gimbalmq.balance`.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Final, Literal

import click
import msgspec

from gimbalmq import balance
from gimbalmq.cli.arguments import confirm, moment, yes_option
from gimbalmq.cli.output import json_option, nameserver_option, notice, print_json, print_table
from gimbalmq.client.admin import Admin, GroupView, Member
from gimbalmq.core.identity import (
    FALLBACK_STRATEGY,
    agreed_strategy,
    allocation_members,
    capability,
)
from gimbalmq.errors import (
    AllocationError,
    BrokerError,
    ConfigurationError,
    StateError,
    TopicNotFoundError,
    TransportError,
)
from gimbalmq.model.queue import MessageQueue, parse_queue, sorted_queues
from gimbalmq.wire.names import RETRY_PREFIX

__all__ = ["group"]

_GROUP_HELP: Final = """\
Look at consumer groups: members, queues, owners, lag; and move them.

The members of a group share out the queues of the topics they subscribe to: each queue belongs to
one member. They compute the shares themselves, all by the same rule, from the same two lists.

\b
Examples:
  gimbalmq group list
  gimbalmq group show billing
  gimbalmq group explain billing orders/broker-a/3
  gimbalmq group reset billing orders --to earliest
"""

_LIST_HELP: Final = """\
List the consumer groups that brokers know, whether members run or not.

\b
JSON: a list of names.
  ["billing","shipping"]
"""

_SHOW_HELP: Final = """\
Show the members of a group, and for each queue its owner and how far the group is.

Owners are what the members themselves say, so they show what is, not what should be. Lag is the
number of messages that the group has not finished. A - means unknown: nobody holds the queue, or
nothing is committed. The %RETRY% topic brings failed messages back to the group.

\b
JSON (null = unknown):
  {"group","members":[{"client_id","language","version","strategy"}],
   "queues":[{"topic","broker","queue_id","owner",
              "committed","minimum","maximum","lag"}]}
"""

_EXPLAIN_HELP: Final = """\
Say which member a queue belongs to, and why.

QUEUE is TOPIC/BROKER/NUMBER. The members are those of this moment. The strategy is the one that
their client ids carry; Java's members do not say theirs, and a group of only such members is
taken to use AVG, Java's default, unless --strategy names another.

\b
Examples:
  gimbalmq group explain billing orders/broker-a/3
  gimbalmq group explain billing orders/broker-a/3 --strategy AVG_BY_CIRCLE

\b
JSON:
  {"owner","rule","data","sentence"}
"""

_RESET_HELP: Final = """\
Move a group to other messages of a topic.

Going back makes the group read messages again, going forward makes it skip some. Running members
follow with their next pull (RocketMQ before 5.1: after about 10 seconds, and to a time only).

\b
Examples:
  gimbalmq group reset billing orders --to earliest
  gimbalmq group reset billing orders --to latest --yes
  gimbalmq group reset billing orders --to 2026-03-01T12:00:00+01:00
  gimbalmq group reset billing orders --offset broker-a/0=120 --offset broker-a/1=95

\b
JSON (null = nothing was committed):
  {"group","topic","queues":[{"broker","queue_id","before","after"}]}
"""


@click.group(help=_GROUP_HELP)
def group() -> None:
    """Look at consumer groups, and move them."""


@group.command("list", help=_LIST_HELP)
@click.option("--all", "internal", is_flag=True, help="RocketMQ's own groups, too.")
@nameserver_option
@json_option
def list_command(nameserver: str | None, *, internal: bool, as_json: bool) -> None:
    """List the consumer groups."""
    with Admin(nameserver) as admin:
        groups = admin.groups(internal=internal)
    if as_json:
        print_json(groups)
    else:
        print_table(("group",), [(name,) for name in groups])


# ---- show ------------------------------------------------------------------------------------


class _Row(msgspec.Struct, frozen=True):
    """One queue, as `group show` tells of it."""

    topic: str
    broker: str
    queue_id: int
    owner: str | None
    committed: int | None
    minimum: int
    maximum: int
    lag: int | None


@group.command("show", help=_SHOW_HELP)
@click.argument("name", metavar="GROUP")
@nameserver_option
@json_option
def show_command(name: str, nameserver: str | None, *, as_json: bool) -> None:
    """Show members, owners and progress of a group."""
    with Admin(nameserver) as admin:
        view = admin.group(name)
        members = view.members
        if not members and name not in admin.groups(internal=True):
            raise _unknown(name)
        rows = _rows(admin, view)
    if as_json:
        print_json({"group": name, "members": [_shown(one) for one in members], "queues": rows})
        return
    print_table(
        ("client id", "language", "version", "strategy", "queues"),
        [
            (*_shown(one).values(), sum(row.owner == one.client_id for row in rows))
            for one in members
        ],
        title=f"Group {name}: {len(members)} members",
    )
    print_table(
        ("topic", "broker", "queue", "owner", "committed", "minimum", "maximum", "lag"),
        [msgspec.structs.astuple(row) for row in rows],
        title="Queues",
    )


def _unknown(name: str) -> ConfigurationError:
    return ConfigurationError(
        f"no broker knows group '{name}': check the name with `gimbalmq group list`"
    )


def _shown(member: Member) -> dict[str, str | None]:
    return {
        "client_id": member.client_id,
        "language": member.language,
        "version": member.version,
        "strategy": member.strategy,
    }


def _rows(admin: Admin, view: GroupView) -> list[_Row]:
    owners = _owners(admin, view)
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
                _Row(
                    *(queue.topic, queue.broker, queue.queue_id, owners.get(queue)),
                    *(one.committed, one.minimum, one.maximum, one.lag),
                )
            )
    return rows


def _owners(admin: Admin, view: GroupView) -> dict[MessageQueue, str]:
    if view.broadcasting:
        notice("this group broadcasts: every member reads every queue, so queues have no owner")
        return {}
    try:
        held = admin.assignments(view.group)
    except (BrokerError, TransportError) as error:
        notice(f"owners are unknown, because a member does not answer: {error}")
        return {}
    owners: dict[MessageQueue, str] = {}
    for client_id in sorted(held):
        for queue in held[client_id]:
            if queue in owners:
                notice(f"{queue.path} is held by '{owners[queue]}' and by '{client_id}'")
            owners.setdefault(queue, client_id)
    return owners


# ---- explain ---------------------------------------------------------------------------------


@group.command("explain", help=_EXPLAIN_HELP)
@click.argument("name", metavar="GROUP")
@click.argument("path", metavar="QUEUE")
@click.option("--strategy", help="The strategy that the members are known to use.")
@nameserver_option
@json_option
def explain_command(
    name: str, path: str, nameserver: str | None, *, strategy: str | None, as_json: bool
) -> None:
    """Say which member a queue belongs to, and why."""
    queue = parse_queue(path)
    with Admin(nameserver) as admin:
        view = admin.group(name)
        ids = [member.client_id for member in view.members]
        _check_shared(admin, view, queue)
        queues = _shared_queues(admin, view.topics | {queue.topic}, queue.topic)
    explanation = balance.explain(
        strategy or _strategy(ids),
        queue=queue,
        queues=queues,
        members=allocation_members(ids),
        group=name,
    )
    if as_json:
        print_json(explanation)
    else:
        click.echo(explanation.sentence)


def _check_shared(admin: Admin, view: GroupView, queue: MessageQueue) -> None:
    """Refuse what nobody shares out."""
    if not view.members:
        if view.group not in admin.groups(internal=True):
            raise _unknown(view.group)
        raise StateError(f"group '{view.group}' has no member now, so nobody owns {queue.path}")
    if view.broadcasting:
        raise StateError(
            f"group '{view.group}' broadcasts: every member reads every queue, {queue.path} too"
        )
    if queue.topic not in view.topics:
        subscribed = ", ".join(sorted(view.topics)) or "nothing"
        raise StateError(
            f"group '{view.group}' does not subscribe to topic '{queue.topic}', so nobody owns "
            f"{queue.path}; it subscribes to {subscribed}"
        )


def _shared_queues(admin: Admin, topics: Iterable[str], asked: str) -> list[MessageQueue]:
    queues: list[MessageQueue] = []
    for topic in sorted(topics):
        try:
            queues += admin.route(topic).subscribe_queues()
        except TopicNotFoundError:
            if topic == asked:
                raise
    return queues


def _strategy(client_ids: list[str]) -> str:
    """What the group shares out with, from what the client ids say."""
    promised = filter(None, map(capability, client_ids))
    used = {agreed_strategy(client_ids, one.strategy).strategy for one in promised}
    if len(used) > 1:
        raise AllocationError(
            f"the members use different strategies ({', '.join(sorted(used))}), so their shares "
            "do not fit together: give all the same; --strategy explains what one of them thinks"
        )
    return used.pop() if used else FALLBACK_STRATEGY


# ---- reset -----------------------------------------------------------------------------------


@group.command("reset", help=_RESET_HELP)
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
@yes_option
@nameserver_option
@json_option
def reset_command(
    name: str,
    topic: str,
    nameserver: str | None,
    *,
    where: str | None,
    offsets: tuple[str, ...],
    yes: bool,
    as_json: bool,
) -> None:
    """Move a group to other messages of a topic."""
    if (where is None) == (not offsets):
        raise click.UsageError("say where to: either --to or --offset")
    to = _to(where) if where is not None else dict(_offset(topic, text) for text in offsets)
    with Admin(nameserver) as admin:
        if name not in admin.groups(internal=True):
            raise _unknown(name)
        before = admin.offsets(name, topic)
        target = where if where is not None else ", ".join(offsets)
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
        print_json({"group": name, "topic": topic, "queues": queues})
    else:
        print_table(
            ("broker", "queue", "before", "after"),
            [tuple(one.values()) for one in queues],
            title=f"Group {name} in topic {topic}",
        )


def _to(text: str) -> datetime | Literal["earliest", "latest"]:
    if text == "earliest":
        return "earliest"
    if text == "latest":
        return "latest"
    return moment(text, "--to")


def _offset(topic: str, text: str) -> tuple[MessageQueue, int]:
    place, separator, number = text.rpartition("=")
    if not (separator and number.isascii() and number.isdigit()):
        raise click.BadParameter(
            f"'{text}': write BROKER/QUEUE=OFFSET, for example broker-a/0=120",
            param_hint="--offset",
        )
    return parse_queue(f"{topic}/{place}"), int(number)

"""`gimbalmq topic`: list, make, look at and remove topics.

Decides the form of the answers; they come from `Admin`.
"""

from __future__ import annotations

from typing import Any, Final

import click

from gimbalmq.cli.access import access_option, access_options
from gimbalmq.cli.arguments import confirm, yes_option
from gimbalmq.cli.output import json_option, nameserver_option, print_json, print_table
from gimbalmq.client.admin import Admin
from gimbalmq.model.queue import sorted_queues
from gimbalmq.wire.codes import perm_text

__all__ = ["topic"]

_PERMS: Final = {"rw": 6, "r": 4, "w": 2}

_GROUP_HELP: Final = """\
List, make, look at and remove topics.

A topic is a name for messages of one kind. It is split into queues, so many per broker; a queue
is what a consumer group shares out among its members, so a group can have at most as many busy
members as the topic has queues.

\b
Examples:
  gimbalmq topic create orders --queues 8
  gimbalmq topic show orders
  gimbalmq topic list --json
"""

_LIST_HELP: Final = """\
List the topics.

RocketMQ's own topics, and the retry and dead-letter topics of groups, are left out unless --all
is given.

\b
Examples:
  gimbalmq topic list
  gimbalmq topic list --all --json

\b
JSON: a list of names.
  ["orders","payments"]
"""

_CREATE_HELP: Final = """\
Make a topic, or change one that exists, and wait until clients can see it.

--queues is per broker: 8 queues on 2 brokers are 16 queues to share out. Messages with equal
sharding keys may move to another queue when the number changes.

\b
Examples:
  gimbalmq topic create orders --queues 8
  gimbalmq topic create orders --queues 4 --broker broker-a --broker broker-b
  gimbalmq topic create archive --perm r        nobody can send to it any more

JSON: the same object as of `topic show`.
"""

_SHOW_HELP: Final = """\
Show where a topic lives and what its queues hold.

minimum is the first offset that is still stored, maximum one past the last: their difference is
the number of messages.

\b
Examples:
  gimbalmq topic show orders
  gimbalmq topic show orders --json

\b
JSON:
  {"topic","brokers":[{"name","cluster","addresses","read_queues","write_queues","perm"}],
   "queues":[{"broker","queue_id","minimum","maximum"}]}
"""

_DELETE_HELP: Final = """\
Remove a topic with all its messages, from every broker.

This cannot be undone. Consumers that still subscribe to it find nothing; producers make it again
with their next message where brokers allow that.

\b
Example:
  gimbalmq topic delete orders --yes
"""


@click.group(help=_GROUP_HELP)
def topic() -> None:
    """List, make, look at and remove topics."""


@topic.command("list", help=_LIST_HELP)
@click.option("--all", "internal", is_flag=True, help="RocketMQ's own topics, too.")
@nameserver_option
@access_option
@json_option
def list_command(nameserver: str | None, *, internal: bool, as_json: bool) -> None:
    """List the topics."""
    with Admin(nameserver, **access_options()) as admin:
        topics = admin.topics(internal=internal)
    if as_json:
        print_json(topics)
    else:
        print_table(("topic",), [(name,) for name in topics])


@topic.command("create", help=_CREATE_HELP)
@click.argument("name", metavar="TOPIC")
@click.option(
    "--queues",
    type=click.IntRange(1, 65536),
    default=8,
    show_default=True,
    help="How many queues on each broker.",
)
@click.option(
    "--broker",
    "brokers",
    multiple=True,
    metavar="NAME",
    help="A broker that gets the topic; may be repeated. [default: all]",
)
@click.option(
    "--perm",
    type=click.Choice(list(_PERMS)),
    default="rw",
    show_default=True,
    help="What clients may do: read, write or both.",
)
@click.option(
    "--order",
    is_flag=True,
    help="Keep the list of queues when a broker is down, for strictly ordered messages.",
)
@nameserver_option
@access_option
@json_option
def create_command(
    name: str,
    nameserver: str | None,
    *,
    queues: int,
    brokers: tuple[str, ...],
    perm: str,
    order: bool,
    as_json: bool,
) -> None:
    """Make a topic, or change one that exists."""
    with Admin(nameserver, **access_options()) as admin:
        admin.create_topic(
            name, queues=queues, brokers=brokers or None, perm=_PERMS[perm], order=order
        )
        document = _document(admin, name)
    _print(document, as_json=as_json)


@topic.command("show", help=_SHOW_HELP)
@click.argument("name", metavar="TOPIC")
@nameserver_option
@access_option
@json_option
def show_command(name: str, nameserver: str | None, *, as_json: bool) -> None:
    """Show where a topic lives and what its queues hold."""
    with Admin(nameserver, **access_options()) as admin:
        document = _document(admin, name)
    _print(document, as_json=as_json)


@topic.command("delete", help=_DELETE_HELP)
@click.argument("name", metavar="TOPIC")
@yes_option
@nameserver_option
@access_option
@json_option
def delete_command(name: str, nameserver: str | None, *, yes: bool, as_json: bool) -> None:
    """Remove a topic with all its messages."""
    with Admin(nameserver, **access_options()) as admin:
        held = admin.topic_stats(name).queues.values()
        count = sum(one.max_offset - one.min_offset for one in held)
        confirm(f"Remove topic '{name}' with {count} messages for good?", yes=yes)
        admin.delete_topic(name)
    if as_json:
        print_json({"topic": name, "deleted": True, "messages": count})
    else:
        click.echo(f"topic '{name}' is removed")


def _document(admin: Admin, name: str) -> dict[str, Any]:
    route = admin.route(name)
    stats = admin.topic_stats(name)
    brokers = []
    for data in sorted(route.queues, key=lambda one: one.broker):
        found = route.broker(data.broker)
        addresses = {} if found is None else found.addresses
        brokers.append(
            {
                "name": data.broker,
                "cluster": None if found is None else found.cluster,
                "addresses": {str(number): address for number, address in addresses.items()},
                "read_queues": data.read_queues,
                "write_queues": data.write_queues,
                "perm": data.perm,
            }
        )
    queues = [
        {
            "broker": queue.broker,
            "queue_id": queue.queue_id,
            "minimum": stats.queues[queue].min_offset,
            "maximum": stats.queues[queue].max_offset,
        }
        for queue in sorted_queues(stats.queues)
    ]
    return {"topic": name, "brokers": brokers, "queues": queues}


def _print(document: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(document)
        return
    print_table(
        ("broker", "cluster", "addresses", "read queues", "write queues", "perm"),
        [
            (
                one["name"],
                one["cluster"],
                ", ".join(one["addresses"].values()) or None,
                one["read_queues"],
                one["write_queues"],
                perm_text(one["perm"]),
            )
            for one in document["brokers"]
        ],
        title=f"Topic {document['topic']}",
    )
    print_table(
        ("broker", "queue", "minimum", "maximum", "messages"),
        [
            (
                one["broker"],
                one["queue_id"],
                one["minimum"],
                one["maximum"],
                one["maximum"] - one["minimum"],
            )
            for one in document["queues"]
        ],
        title="Queues",
    )

"""`gimbalmq group explain`: why a queue belongs to its owner, and what if somebody left.

Decides the form of the answers; they come from `gimbalmq.balance`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import click
import msgspec

from gimbalmq import balance
from gimbalmq.cli.access import access_option, access_options
from gimbalmq.cli.group_doctor import unknown_group
from gimbalmq.cli.output import json_option, nameserver_option, print_json, print_table
from gimbalmq.client.admin import Admin, GroupView
from gimbalmq.core.identity import (
    FALLBACK_STRATEGY,
    agreed_strategy,
    allocation_members,
    capability,
    stem_of,
)
from gimbalmq.errors import AllocationError, ConfigurationError, StateError, TopicNotFoundError
from gimbalmq.model.queue import MessageQueue, parse_queue, sorted_queues

__all__ = ["explain_command", "shared_queues", "strategy_of"]

_EXPLAIN_HELP: Final = """\
Say which member a queue belongs to, and why.

QUEUE is TOPIC/BROKER/NUMBER. The members are those of this moment. The strategy is the one that
their client ids carry; Java's members do not say theirs, and a group of only such members is
taken to use AVG, Java's default, unless --strategy names another.

--without tells what would change if a member left: who would get this queue, and all the moves.

\b
Examples:
  gimbalmq group explain billing orders/broker-a/3
  gimbalmq group explain billing orders/broker-a/3 --strategy AVG_BY_CIRCLE
  gimbalmq group explain billing orders/broker-a/3 --without till-2

\b
JSON:
  {"owner","rule","data","sentence"}
  and with --without also
  "without":{"members","owner","sentence","moves":[{"queue","from","to"}]}
"""


@click.command("explain", help=_EXPLAIN_HELP)
@click.argument("name", metavar="GROUP")
@click.argument("path", metavar="QUEUE")
@click.option("--strategy", help="The strategy that the members are known to use.")
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
        view = admin.group(name)
        ids = [member.client_id for member in view.members]
        _check_shared(admin, view, queue)
        queues = shared_queues(admin, view.topics | {queue.topic}, queue.topic)
    chosen = strategy or strategy_of(ids)
    if chosen.rpartition("-")[2].startswith("WEIGHTED."):
        raise StateError(
            f"the members use {chosen}, with weights that only they know: --strategy WEIGHTED "
            "explains what equal weights would give"
        )
    if chosen.startswith("ZONED."):
        raise StateError(
            f"the members use {chosen}, with zones that only they know: --strategy CAPPED_HASH "
            "explains what one zone for all would give"
        )
    explanation = balance.explain(
        chosen, queue=queue, queues=queues, members=allocation_members(ids), group=name
    )
    later = _without(chosen, queue, queues, ids, _named(ids, without)) if without else None
    if as_json:
        print_json(_document(explanation, later))
        return
    click.echo(explanation.sentence)
    if later is not None:
        click.echo(f"Without {', '.join(later.members)}: {later.sentence}")
        print_table(
            ("queue", "from", "to"),
            [(one["queue"], one["from"], one["to"]) for one in later.moves],
            title=f"{len(later.moves)} queues would move",
        )


class _Later(msgspec.Struct, frozen=True):
    """What would be if some members left."""

    members: tuple[str, ...]
    owner: str | None
    sentence: str
    moves: tuple[dict[str, str | None], ...]


def _document(explanation: balance.Explanation, later: _Later | None) -> dict[str, Any]:
    document = msgspec.structs.asdict(explanation)
    return document if later is None else {**document, "without": msgspec.structs.asdict(later)}


def _named(ids: list[str], names: tuple[str, ...]) -> tuple[str, ...]:
    """The client ids that are meant, which may be given without the part that we append."""
    chosen = []
    for name in names:
        found = [one for one in dict.fromkeys(ids) if name in {one, stem_of(one)}]
        if not found:
            raise ConfigurationError(
                f"'{name}' is no member of the group: it has {', '.join(sorted(set(ids)))}"
            )
        chosen += found
    return tuple(chosen)


def _without(
    strategy: str,
    queue: MessageQueue,
    queues: list[MessageQueue],
    ids: list[str],
    leaving: tuple[str, ...],
) -> _Later:
    rest = [one for one in ids if one not in leaving]
    if not rest:
        raise StateError(f"without {', '.join(leaving)} nobody is left to own {queue.path}")
    # A strategy that needed every member's consent may come back when a foreign one leaves.
    then = strategy if strategy_of(ids) != strategy else strategy_of(rest)
    before = _owners(strategy, queues, ids)
    after = _owners(then, queues, rest)
    explanation = balance.explain(
        then, queue=queue, queues=queues, members=allocation_members(rest)
    )
    moves = tuple(
        {"queue": one.path, "from": before.get(one), "to": after.get(one)}
        for one in sorted_queues(queues)
        if before.get(one) != after.get(one)
    )
    return _Later(leaving, explanation.owner, explanation.sentence, moves)


def _owners(strategy: str, queues: list[MessageQueue], ids: list[str]) -> dict[MessageQueue, str]:
    shares = balance.allocate(strategy, queues=queues, members=allocation_members(ids))
    return {queue: member for member, share in shares.items() for queue in share}


def _check_shared(admin: Admin, view: GroupView, queue: MessageQueue) -> None:
    """Refuse what nobody shares out."""
    if not view.members:
        if view.group not in admin.groups(internal=True):
            raise unknown_group(view.group)
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


def shared_queues(admin: Admin, topics: Iterable[str], asked: str | None) -> list[MessageQueue]:
    """The queues of the topics; one that does not exist is an error only when it was asked for."""
    queues: list[MessageQueue] = []
    for topic in sorted(topics):
        try:
            queues += admin.route(topic).subscribe_queues()
        except TopicNotFoundError:
            if topic == asked:
                raise
    return queues


def strategy_of(client_ids: list[str]) -> str:
    """What the group shares out with, from what the client ids say."""
    promised = filter(None, map(capability, client_ids))
    used = {agreed_strategy(client_ids, one.strategy).strategy for one in promised}
    if len(used) > 1:
        raise AllocationError(
            f"the members use different strategies ({', '.join(sorted(used))}), so their shares "
            "do not fit together: give all the same; --strategy explains what one of them thinks"
        )
    return used.pop() if used else FALLBACK_STRATEGY

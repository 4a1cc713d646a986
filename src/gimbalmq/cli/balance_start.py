"""What a simulation begins with: queues and members on paper, or those of a running group.

Decides what is learned of a running group: its queues, members, and the weights by which they share
out, as far as those can be known from outside. What is made of it is not known here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click
import msgspec

from gimbalmq.balance import strategy
from gimbalmq.cli.access import access_options
from gimbalmq.cli.group_doctor import unknown_group
from gimbalmq.client.admin import Admin, GroupView
from gimbalmq.core.identity import capability
from gimbalmq.errors import AllocationError, StateError, TopicNotFoundError
from gimbalmq.flows.admin_weights import GroupWeights, fetch_group_weights
from gimbalmq.model.queue import MessageQueue

__all__ = ["Start", "Weights", "live_start", "member_name", "paper_start", "room_name"]

_WEIGHED: Final = "WEIGHTED."


class Weights(msgspec.Struct, frozen=True):
    """The options of WEIGHTED, where they are from in words and as data, or why there are none."""

    options: dict[str, dict[str, float]] = {}
    told: str = ""
    data: dict[str, Any] | None = None
    trouble: str = ""


class Start(msgspec.Struct, frozen=True):
    """What is shared out, and among whom, before anything happens."""

    title: str
    queues: list[MessageQueue]
    members: list[str]
    weights: Weights


def room_name(number: int) -> str:
    """The name of a simulated room."""
    return f"room{number + 1}"


def member_name(number: int, rooms: int) -> str:
    """The name of a simulated member, which has its room in it."""
    # The zeros make who joins later sort later.
    return f"member-{number:06d}@{room_name(number % rooms)}"


def paper_start(queues: int, members: int, brokers: int, rooms: int, file: Path | None) -> Start:
    """So many queues of one topic, and so many members."""
    topic = [
        MessageQueue("simulated", f"{room_name(at % rooms)}@broker-{at:03d}", number // brokers)
        for number, at in ((number, number % brokers) for number in range(queues))
    ]
    present = [member_name(number, rooms) for number in range(members)]
    title = f"{queues} queues, {members} members at the start"
    return Start(title, topic, present, _by_hand(file, topic))


def live_start(group: str, nameserver: str | None, file: Path | None) -> Start:
    """What a running group shares out now, its retry topic aside.

    Raises:
        StateError: nobody is in the group, or there is nothing to share out.
    """
    with Admin(nameserver, **access_options()) as admin:
        view = admin.group(group)
        queues: list[MessageQueue] = []
        for topic in sorted(topic for topic in view.topics if not topic.startswith("%")):
            try:
                queues += admin.route(topic).subscribe_queues()
            except TopicNotFoundError:
                continue  # subscribed to, and not made yet
        members = list(view.client_ids)
        if not members and group not in (known := admin.groups(internal=True)):
            raise unknown_group(group, known)
        if not members or not queues:
            raise StateError(
                f"group '{group}' has {len(members)} members and {len(queues)} queues now: start a "
                "member first, or give --queues and --members"
            )
        weights = _by_hand(file, queues)
        if "weights" not in weights.options:
            weights = _learned(admin, view, group, weights)
    title = f"Group {group}: {len(queues)} queues, {len(members)} members at the start"
    return Start(title, queues, members, weights)


# ---- weights ---------------------------------------------------------------------------------


def _read_file(path: Path) -> dict[str, dict[str, float]]:
    """The weights and capacities in a file."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, dict[str, float]])
    except msgspec.DecodeError as error:
        raise click.BadParameter(
            f'{path}: {error}; write {{"weights": {{"topic/broker/0": 4}}}}',
            param_hint="--weights",
        ) from error


def _by_hand(file: Path | None, queues: list[MessageQueue]) -> Weights:
    if file is None:
        return Weights()
    options = _read_file(file)
    try:
        strategy("WEIGHTED", **options)
    except AllocationError as error:
        raise click.BadParameter(f"{file}: {error}", param_hint="--weights") from error
    told = f"weights: {file}"
    absent = sorted(options.get("weights", {}).keys() - {queue.path for queue in queues})
    if absent:
        told += f"; {len(absent)} of its queues are not there, such as {absent[0]}"
    return Weights(options, told, {"source": "file", "file": str(file)})


def _learned(admin: Admin, view: GroupView, group: str, given: Weights) -> Weights:
    """With the weights by which the members share out, if those are published."""
    on_wire = msgspec.structs.replace(view, group=admin.namespace.wire(group))
    try:
        found = admin.run(
            lambda servers, timeout_s: fetch_group_weights(
                servers, on_wire, admin.namespace, timeout_s
            )
        )
    except StateError as error:
        return Weights(trouble=f"WEIGHTED needs --weights: {error}")
    if found is not None:
        data = {"source": "published", "topic": found.topic, "versions": dict(found.versions)}
        return Weights({**given.options, "weights": dict(found.weights)}, _told(found), data)
    promised = [one.strategy for one in map(capability, view.client_ids) if one is not None]
    configured = next((one for one in promised if _WEIGHED in one), None)
    if configured is None or given.options:
        return given
    return Weights(
        told=(
            f"weights: the members have their own ({configured}), which cannot be seen from here: "
            "every queue counts 1, unless --weights says otherwise"
        )
    )


def _told(found: GroupWeights) -> str:
    match list(found.versions.items()):
        case []:
            said = f"published, none yet in topic '{found.topic}': every queue counts 1"
        case [(_, version)]:
            said = f"published, version {version}"
        case several:
            said = ", ".join(f"version {version} of {topic}" for topic, version in several)
            said = f"published, {said}"
    return f"weights: {said}"

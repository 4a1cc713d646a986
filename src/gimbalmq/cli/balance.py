"""`gimbalmq balance`: share out queues on paper, and try out what a change of members would do.

Decides the form of questions and answers. The answers themselves come from `gimbalmq.balance`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any, Final

import click
import msgspec

from gimbalmq.balance import allocate
from gimbalmq.cli.balance_simulate import simulate_command, zone_separator
from gimbalmq.core.identity import NEARBY_PREFIX
from gimbalmq.errors import AllocationError
from gimbalmq.model.queue import MessageQueue

__all__ = ["balance"]


# In click, \b keeps the lines of the paragraph that follows as they are.
_GROUP_HELP: Final = """\
Share out queues on paper: what would each strategy do?

Nothing here talks to a broker, unless a live group is given as the start.

\b
Compare all strategies when one member joins and one leaves:
  gimbalmq balance simulate --queues 64 --members 8 --then +1,-1
"""

_ALLOCATE_HELP: Final = """\
Share out queues: one JSON object per line in, the same with `shares` out.

Each line has `strategy`, `queues` as [topic, broker, id] and `members`; `options` and `group`
may be left out. `shares` has one list per member, in the order of `members`, with indexes into
`queues`. Queues and members may be in any order: they are sorted before sharing out, as every
RocketMQ client does. A line that cannot be answered gives {"error": "..."} in its place; the
exit code stays 0, because each line has its own answer.

\b
Options by strategy:
  CONSISTENT_HASH      {"virtual_nodes": 10}
  MACHINE_ROOM         {"rooms": ["room1"]}     brokers are named room@name
  MACHINE_ROOM_NEARBY  {"inner": "AVG", "zone": "prefix:-"}
                       the room is the text before the first "-"
  WEIGHTED             {"weights": {"t/a/0": 4}, "capacities": {"c0": 2}}
  ZONED                {"inner": "CAPPED_HASH", "zone": "prefix:-"}
  CONFIG               {"queues": {"member": [0, 1]}}   indexes into queues

\b
Example:
  echo '{"strategy":"AVG","members":["c0","c1"],
         "queues":[["t","a",0],["t","a",1],["t","a",2]]}' | tr -d '\\n' |
    gimbalmq balance allocate
  {"strategy":"AVG", ... "shares":[[0,1],[2]]}
"""


@click.group(help=_GROUP_HELP)
def balance() -> None:
    """Share out queues on paper: what would each strategy do?"""


balance.add_command(simulate_command)


# ---- allocate --------------------------------------------------------------------------------


class _Question(msgspec.Struct):
    """One line of input."""

    strategy: str
    queues: list[tuple[str, str, int]]
    members: list[str]
    options: dict[str, Any] = {}
    group: str = ""


@balance.command("allocate", help=_ALLOCATE_HELP)
def allocate_command() -> None:
    """Share out queues: one JSON object per line in, the same with `shares` out."""
    answers = sys.stdout.buffer
    for number, line in enumerate(sys.stdin.buffer, start=1):
        if not line.strip():
            continue
        text = json.dumps(_answer(line, number), ensure_ascii=False, separators=(",", ":"))
        # Half a surrogate pair cannot be written as UTF-8; as \udxxx it is the JSON it came from.
        answers.write(text.encode("utf-8", "backslashreplace") + b"\n")
        answers.flush()  # the other end may wait for this answer before it asks again


def _answer(line: bytes, number: int) -> dict[str, Any]:
    try:
        document = json.loads(line)
        question = msgspec.convert(document, _Question)
        return {**document, "shares": _shares(question)}
    except ValueError as error:  # not JSON, not such an object, or an AllocationError
        return {"error": f"line {number}: {error}"}


def _shares(question: _Question) -> list[list[int]]:
    queues = [MessageQueue(*queue) for queue in question.queues]
    shares = allocate(
        question.strategy,
        queues=queues,
        members=question.members,
        group=question.group,
        options=_options(question, queues),
    )
    index = {queue: number for number, queue in enumerate(queues)}
    return [[index[queue] for queue in shares[member]] for member in question.members]


def _options(question: _Question, queues: list[MessageQueue]) -> dict[str, Any]:
    """The options as `allocate` takes them: rooms as functions, queues as values."""
    options = dict(question.options)
    if f"{question.strategy}-".startswith(NEARBY_PREFIX) and "zone" in options:
        zone = _zone(options.pop("zone"))
        options["room_of_queue"] = lambda queue: zone(queue.broker)
        options["room_of_member"] = zone
    elif question.strategy == "ZONED" and "zone" in options:
        zone = _zone(options.pop("zone"))
        options["zone_of_queue"] = lambda queue: zone(queue.broker)
        options["zone_of_member"] = zone
    if isinstance(lists := options.get("queues"), dict):
        options["queues"] = {
            member: [_queue_at(at, member, queues) for at in indexes]
            for member, indexes in msgspec.convert(lists, dict[str, list[int]]).items()
        }
    return options


def _zone(text: object) -> Callable[[str], str]:
    separator = zone_separator(text)
    return lambda name: name.partition(separator)[0]


def _queue_at(at: int, member: str, queues: list[MessageQueue]) -> MessageQueue:
    if not 0 <= at < len(queues):
        raise AllocationError(
            f"option queues gives '{member}' the queue with index {at}, but the indexes go from "
            f"0 to {len(queues) - 1}"
        )
    return queues[at]

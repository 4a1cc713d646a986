"""`gimbalmq balance`: share out queues on paper, and try out what a change of members would do.

Decides the form of questions and answers. The answers themselves come from `gimbalmq.balance`;
no broker is asked.
"""

from __future__ import annotations

import json
import random
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final

import click
import msgspec
from rich.console import Console
from rich.table import Table

from gimbalmq.balance import Measures, Strategy, allocate, measure, strategy, strategy_names
from gimbalmq.core.identity import NEARBY_PREFIX
from gimbalmq.errors import AllocationError
from gimbalmq.model.queue import MessageQueue

__all__ = ["balance"]


# In click, \b keeps the lines of the paragraph that follows as they are.
_GROUP_HELP: Final = """\
Share out queues on paper: what would each strategy do?

Nothing here talks to a broker.

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

_SIMULATE_HELP: Final = """\
Let members join and leave, and compare what each strategy moves.

\b
moves        queues that change hands
least moves  the fewest with which shares that differ by at most one can be reached
spread       largest share minus smallest share afterwards
fairness     Jain's index: 1 when all have the same, 1/members when one has all

A strategy can move less than the least when it does not keep the shares even. CONFIG is not
simulated: fixed lists never move.

\b
Examples:
  gimbalmq balance simulate --queues 64 --members 8 --then +1
  gimbalmq balance simulate --queues 256 --members 15 --then +1,-1 \\
    --strategy AVG,CONSISTENT_HASH
  gimbalmq balance simulate --queues 64 --members 8 --then +1 --json
"""


@click.group(help=_GROUP_HELP)
def balance() -> None:
    """Share out queues on paper: what would each strategy do?"""


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
    kind, _, separator = str(text).partition(":")
    if kind != "prefix" or not separator:
        raise AllocationError(
            f"option zone is {text!r}: write prefix: and the text that ends the room's name, "
            "for example prefix:-"
        )
    return lambda name: name.partition(separator)[0]


def _queue_at(at: int, member: str, queues: list[MessageQueue]) -> MessageQueue:
    if not 0 <= at < len(queues):
        raise AllocationError(
            f"option queues gives '{member}' the queue with index {at}, but the indexes go from "
            f"0 to {len(queues) - 1}"
        )
    return queues[at]


# ---- simulate --------------------------------------------------------------------------------

_EVENT: Final = re.compile(r"[+-][1-9][0-9]*")


class _Step(msgspec.Struct, frozen=True):
    """What one event did under one strategy."""

    event: str
    strategy: str
    measures: Measures

    def as_json(self) -> dict[str, Any]:
        return {
            "event": self.event,
            "strategy": self.strategy,
            **msgspec.structs.asdict(self.measures),
        }


@balance.command("simulate", help=_SIMULATE_HELP)
@click.option("--queues", type=click.IntRange(min=1), required=True, help="Queues of the topic.")
@click.option("--members", type=click.IntRange(min=1), required=True, help="Members at the start.")
@click.option(
    "--then",
    "events",
    default="",
    metavar="EVENTS",
    help="What happens, one after the other: +1 a member joins, -2 two leave. "
    "Nothing: the start itself is measured.",
)
@click.option(
    "--strategy",
    "names",
    default="all",
    show_default=True,
    metavar="NAMES",
    help="Names separated by commas, or all.",
)
@click.option(
    "--brokers",
    type=click.IntRange(min=1),
    default=2,
    show_default=True,
    help="Brokers that the queues are spread over.",
)
@click.option(
    "--rooms",
    type=click.IntRange(min=1),
    default=2,
    show_default=True,
    help="Rooms that brokers and members are spread over, for the room and zone strategies.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Chooses who leaves.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of a table.")
def simulate_command(
    *,
    queues: int,
    members: int,
    events: str,
    names: str,
    brokers: int,
    rooms: int,
    seed: int,
    as_json: bool,
) -> None:
    """Let members join and leave, and compare what each strategy moves."""
    plan = _events(events)
    strategies = list(_chosen(names, rooms))
    topic = [
        MessageQueue("simulated", f"{_room(at % rooms)}@broker-{at:03d}", number // brokers)
        for number, at in ((number, number % brokers) for number in range(queues))
    ]
    try:
        history = list(_histories(plan, members, rooms, seed))
        steps = [step for event in _run(strategies, topic, history) for step in event]
    except AllocationError as error:
        raise click.UsageError(str(error)) from error
    if as_json:
        click.echo(json.dumps({"steps": [step.as_json() for step in steps]}))
    else:
        Console().print(_table(steps, f"{queues} queues, {members} members at the start"))


def _events(text: str) -> list[str]:
    events = [part.strip() for part in text.split(",") if part.strip()]
    for event in events:
        if not _EVENT.fullmatch(event):
            raise click.BadParameter(
                f"'{event}' is not an event: write +1 for a member that joins, -2 for two that "
                "leave, and commas between events",
                param_hint="--then",
            )
    return events


def _chosen(text: str, rooms: int) -> Iterator[Strategy]:
    known = [name for name in strategy_names() if name != "CONFIG"]
    if text == "all":
        for name in known:
            try:
                yield _simulated(name, rooms)
            except AllocationError as error:  # one from outside that cannot do without options
                click.echo(f"left out: {error}", err=True)
        return
    names = [part.strip() for part in text.split(",") if part.strip()]
    if "CONFIG" in names or not names:
        raise click.BadParameter(
            f"'{text}': fixed lists never move, so there is nothing to simulate for CONFIG; "
            f"name some of {', '.join(known)}, or all",
            param_hint="--strategy",
        )
    for name in names:
        try:
            yield _simulated(name, rooms)
        except AllocationError as error:
            raise click.BadParameter(str(error), param_hint="--strategy") from error


def _simulated(name: str, rooms: int) -> Strategy:
    """The strategy with options that fit the simulated names."""
    options: dict[str, Any] = {}
    if name == "MACHINE_ROOM":
        options["rooms"] = [_room(number) for number in range(rooms)]
    elif f"{name}-".startswith(NEARBY_PREFIX):
        inner = name.removeprefix(NEARBY_PREFIX)
        options["inner"] = _simulated("AVG" if inner == name else inner, rooms)
        options["room_of_queue"] = lambda queue: queue.broker.partition("@")[0]
        options["room_of_member"] = lambda client_id: client_id.partition("@")[2]
    elif name == "ZONED":
        options["zone_of_queue"] = lambda queue: queue.broker.partition("@")[0]
        options["zone_of_member"] = lambda client_id: client_id.partition("@")[2]
    return strategy(name, **options)


def _room(number: int) -> str:
    return f"room{number + 1}"


def _member(number: int, rooms: int) -> str:
    # The zeros make who joins later sort later.
    return f"member-{number:06d}@{_room(number % rooms)}"


def _histories(
    events: list[str], members: int, rooms: int, seed: int
) -> Iterator[tuple[str, list[str]]]:
    """The member list after the start and after each event; the same for every strategy."""
    chance = random.Random(seed)  # noqa: S311 a reproducible choice, not a secret
    present = [_member(number, rooms) for number in range(members)]
    joined = members
    yield "start", list(present)
    for event in events:
        count = int(event[1:])
        if event.startswith("+"):
            present += (_member(joined + number, rooms) for number in range(count))
            joined += count
        elif count >= len(present):
            raise AllocationError(
                f"{event}: only {len(present)} members are left and one has to stay; "
                "start with more --members"
            )
        else:
            for member in chance.sample(present, count):
                present.remove(member)
        yield event, list(present)


def _run(
    strategies: list[Strategy],
    queues: list[MessageQueue],
    history: list[tuple[str, list[str]]],
) -> Iterator[list[_Step]]:
    shares = [allocate(one, queues=queues, members=history[0][1]) for one in strategies]
    # The start is a step of its own only when nothing follows: it has nothing to be compared with.
    for event, members in history[1:] or history:
        before = shares
        shares = [allocate(one, queues=queues, members=members) for one in strategies]
        yield [
            _Step(event, one.name, measure(old, new))
            for one, old, new in zip(strategies, before, shares, strict=True)
        ]


def _table(steps: list[_Step], title: str) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("event")
    table.add_column("strategy")
    for column in ("moves", "least moves", "spread", "fairness"):
        table.add_column(column, justify="right")
    previous = ""
    for step in steps:
        if previous and step.event != previous:
            table.add_section()
        measures = step.measures
        table.add_row(
            step.event,
            step.strategy,
            str(measures.moves),
            str(measures.least_moves),
            str(measures.spread),
            f"{measures.fairness:.3f}",
        )
        previous = step.event
    return table

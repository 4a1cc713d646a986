"""`gimbalmq balance simulate`: let members and queues come and go, and compare the strategies.

Decides which strategies are compared, with which options, and how the answer looks. What happens to
the group, and what each strategy moves, is worked out by `balance_steps`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click
import msgspec
from rich.table import Table

from gimbalmq.balance import Measures, Strategy, strategy, strategy_names
from gimbalmq.cli.access import access_option
from gimbalmq.cli.balance_start import Weights, live_start, paper_start, room_name
from gimbalmq.cli.balance_steps import EVENT, Step, histories, steps_of
from gimbalmq.cli.output import json_option, nameserver_option, show_table
from gimbalmq.core.identity import NEARBY_PREFIX
from gimbalmq.errors import AllocationError

__all__ = ["simulate_command", "zone_separator"]

_SIMULATE_HELP: Final = """\
Let members join and leave and topics grow, and compare what each strategy moves.

\b
moves        queues that change hands
least moves  the fewest with which shares that differ by at most one can be reached
spread       largest share minus smallest share afterwards
fairness     Jain's index: 1 when all have the same, 1/members when one has all
pause        seconds for which queues stand still, all together: --hand-over-s for each move

A strategy can move less than the least when it does not keep the shares even. CONFIG is not
simulated: fixed lists never move.

\b
Examples:
  gimbalmq balance simulate --queues 64 --members 8 --then +1
  gimbalmq balance simulate --queues 256 --members 15 --then +1,-1 \\
    --strategy AVG,CONSISTENT_HASH
  gimbalmq balance simulate --queues 64 --members 8 --then queues+8
  gimbalmq balance simulate --queues 64 --members 8 --then restart --json
  gimbalmq balance simulate --group billing --then +2

With --group the queues and members are those of a running group, its retry topic aside. The room
and zone strategies then need --zone, which says where a zone's name ends in broker names and
client ids. Where the members read published weights, WEIGHTED uses these, and the version is named.

--weights is a JSON file {"weights":{"orders/broker-a/3":4},"capacities":{"till-1":2}} for WEIGHTED;
weights in it go before published ones.

\b
JSON:
  {"steps":[{"event","strategy","moves","least_moves","spread","fairness","pause_s"}],
   "weights":{"source":"published","topic","versions":{topic:version}}}
  weights may also be {"source":"file","file"}; it is there where weights are
"""

_BAR_WIDTH: Final = 24


class _Settings(msgspec.Struct, frozen=True):
    """What strategies are given; `separator` ends the name of a zone, None: simulated rooms."""

    rooms: int
    separator: str | None
    weights: Weights
    live: bool

    def zone_of(self, name: str, *, member: bool) -> str:
        if self.separator is not None:
            return name.partition(self.separator)[0]
        # Simulated names: room@broker and member@room.
        return name.partition("@")[2 if member else 0]


@click.command("simulate", help=_SIMULATE_HELP)
@click.option("--queues", type=click.IntRange(min=1), help="Queues of the topic.")
@click.option("--members", type=click.IntRange(min=1), help="Members at the start.")
@click.option("--group", "live", metavar="GROUP", help="Start with a running group instead.")
@click.option(
    "--then",
    "events",
    default="",
    metavar="EVENTS",
    help="What happens, one after the other: +1 a member joins, -2 two leave, queues+8 as many "
    "are added to each topic, restart: each leaves and comes back in turn. Nothing: the start "
    "itself is measured.",
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
@click.option("--zone", metavar="prefix:TEXT", help="Zones are named before this text.")
@click.option(
    "--weights",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A JSON file with weights and capacities, for WEIGHTED.",
)
@click.option(
    "--hand-over-s",
    type=click.FloatRange(min=0.0),
    default=1.0,
    show_default=True,
    help="How long a queue stands still when it moves.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Chooses who leaves.")
@nameserver_option
@access_option
@json_option
def simulate_command(
    nameserver: str | None,
    *,
    queues: int | None,
    members: int | None,
    live: str | None,
    events: str,
    names: str,
    brokers: int,
    rooms: int,
    zone: str | None,
    weights: Path | None,
    hand_over_s: float,
    seed: int,
    as_json: bool,
) -> None:
    """Let members and queues come and go, and compare what each strategy moves."""
    plan = _events(events)
    separator = None if zone is None else zone_separator(zone)
    if live is not None and (queues, members) == (None, None):
        start = live_start(live, nameserver, weights)
    elif live is None and queues is not None and members is not None:
        start = paper_start(queues, members, brokers, rooms, weights)
    else:
        raise click.UsageError("give --queues and --members, or --group alone")
    settings = _Settings(rooms, separator, start.weights, live is not None)
    strategies = list(_chosen(names, settings))
    try:
        history = list(histories(plan, start, rooms, seed))
        steps = [step for event in steps_of(strategies, history, hand_over_s) for step in event]
    except AllocationError as error:
        raise click.UsageError(str(error)) from error
    if as_json:
        document: dict[str, Any] = {"steps": [step.as_json() for step in steps]}
        if start.weights.data is not None:
            document["weights"] = start.weights.data
        click.echo(json.dumps(document))
    else:
        show_table(_table(steps), start.title)
        if start.weights.told:
            click.echo(start.weights.told)
        for line in _picture(steps):
            click.echo(line)


def zone_separator(text: object) -> str:
    """The text that ends the name of a zone, from `prefix:TEXT`.

    >>> zone_separator("prefix:-")
    '-'
    """
    kind, _, separator = str(text).partition(":")
    if kind != "prefix" or not separator:
        raise AllocationError(
            f"option zone is {text!r}: write prefix: and the text that ends the room's name, "
            "for example prefix:-"
        )
    return separator


def _events(text: str) -> list[str]:
    events = [part.strip() for part in text.split(",") if part.strip()]
    for event in events:
        if not EVENT.fullmatch(event):
            raise click.BadParameter(
                f"'{event}' is not an event: write +1 for a member that joins, -2 for two that "
                "leave, queues+8 for queues that are added, restart, and commas between events",
                param_hint="--then",
            )
    return events


def _chosen(text: str, settings: _Settings) -> Iterator[Strategy]:
    known = [name for name in strategy_names() if name != "CONFIG"]
    if text == "all":
        for name in known:
            try:
                yield _simulated(name, settings)
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
            yield _simulated(name, settings)
        except AllocationError as error:
            raise click.BadParameter(str(error), param_hint="--strategy") from error


def _simulated(name: str, settings: _Settings) -> Strategy:
    """The strategy with options that fit the names of queues and members."""
    options: dict[str, Any] = {}
    nearby = f"{name}-".startswith(NEARBY_PREFIX)
    if (name in {"MACHINE_ROOM", "ZONED"} or nearby) and settings.live and not settings.separator:
        raise AllocationError(f"{name} needs --zone for a running group")
    if name == "MACHINE_ROOM":
        if settings.live:
            raise AllocationError(f"{name} needs brokers named room@name: compare NEARBY instead")
        options["rooms"] = [room_name(number) for number in range(settings.rooms)]
    elif nearby or name == "ZONED":
        kind = "room" if nearby else "zone"
        if nearby:
            inner = name.removeprefix(NEARBY_PREFIX)
            options["inner"] = _simulated("AVG" if inner == name else inner, settings)
        options[f"{kind}_of_queue"] = lambda queue: settings.zone_of(queue.broker, member=False)
        options[f"{kind}_of_member"] = lambda one: settings.zone_of(one, member=True)
    elif name == "WEIGHTED":
        if settings.weights.trouble:
            raise AllocationError(settings.weights.trouble)
        options.update(settings.weights.options)
    return strategy(name, **options)


def _table(steps: list[Step]) -> Table:
    table = Table()
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


def _picture(steps: list[Step]) -> Iterator[str]:
    """Moves as bars, with a mark where the fewest possible are, and the pause they cost."""
    most = max((max(one.measures.moves, one.measures.least_moves) for one in steps), default=0)
    if not most:
        return
    yield "Moves (| is the least) and the pause that they cost:"
    wide = max(len(one.strategy) for one in steps)
    tall = max(7, *(len(one.event) for one in steps))
    for step in steps:
        bar = _bar(step.measures, most)
        yield f"{step.event:>{tall}} {step.strategy:<{wide}} {bar:<{_BAR_WIDTH + 1}} {step.pause_s:g} s"


def _bar(measures: Measures, most: int) -> str:
    cells = ["#"] * round(measures.moves * _BAR_WIDTH / most)
    mark = round(measures.least_moves * _BAR_WIDTH / most)
    cells += [" "] * (mark + 1 - len(cells))
    cells[mark] = "|"
    return "".join(cells)

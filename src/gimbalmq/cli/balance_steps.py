"""What a simulated group goes through, and what each strategy does about it.

Decides which members and queues are there after each event, and what is counted of the shares that
the strategies then give. Must not know the command line, nor how the counts look there.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from gimbalmq.balance import Measures, Strategy, allocate, measure
from gimbalmq.cli.balance_start import Start, member_name
from gimbalmq.errors import AllocationError
from gimbalmq.model.queue import MessageQueue

__all__ = ["EVENT", "Moment", "Step", "histories", "steps_of"]

#: How an event is written.
EVENT: Final = re.compile(r"[+-][1-9][0-9]*|queues\+[1-9][0-9]*|restart")
_GROWTH: Final = "queues+"


class Step(msgspec.Struct, frozen=True):
    """What one event did under one strategy."""

    event: str
    strategy: str
    measures: Measures
    pause_s: float

    def as_json(self) -> dict[str, Any]:
        """As programs read it."""
        return {
            "event": self.event,
            "strategy": self.strategy,
            **msgspec.structs.asdict(self.measures),
            "pause_s": self.pause_s,
        }


class Moment(msgspec.Struct, frozen=True):
    """Who is there, and what is to be shared out."""

    queues: list[MessageQueue]
    members: list[str]


def histories(
    events: list[str], start: Start, rooms: int, seed: int
) -> Iterator[tuple[str, list[Moment]]]:
    """What each event leads through; the same for every strategy."""
    chance = random.Random(seed)  # noqa: S311 a reproducible choice, not a secret
    queues, present = start.queues, list(start.members)
    joined = len(present)
    yield "start", [Moment(queues, list(present))]
    for event in events:
        if event == "restart":
            if len(present) < 2:
                raise AllocationError("restart: a lone member leaves its queues to nobody")
            lists = ([one for one in present if one != gone] for gone in tuple(present))
            steps = [step for without in lists for step in (without, list(present))]
            yield event, [Moment(queues, members) for members in steps]
            continue
        count = int(event.removeprefix(_GROWTH).lstrip("+-"))
        if event.startswith(_GROWTH):
            queues = _grown(queues, count)
        elif event.startswith("+"):
            present += (member_name(joined + number, rooms) for number in range(count))
            joined += count
        elif count >= len(present):
            raise AllocationError(
                f"{event}: only {len(present)} members are left and one has to stay; "
                "start with more --members"
            )
        else:
            for member in chance.sample(present, count):
                present.remove(member)
        yield event, [Moment(queues, list(present))]


def _grown(queues: list[MessageQueue], count: int) -> list[MessageQueue]:
    """The queues, and `count` more of each topic, where it has fewest; numbers go on."""
    numbers: dict[str, dict[str, int]] = {}
    for queue in queues:
        brokers = numbers.setdefault(queue.topic, {})
        brokers[queue.broker] = max(brokers.get(queue.broker, 0), queue.queue_id + 1)
    more = []
    for topic, brokers in sorted(numbers.items()):
        for _ in range(count):
            broker = min(sorted(brokers), key=brokers.__getitem__)
            more.append(MessageQueue(topic, broker, brokers[broker]))
            brokers[broker] += 1
    return [*queues, *more]


def steps_of(
    strategies: list[Strategy], history: list[tuple[str, list[Moment]]], hand_over_s: float
) -> Iterator[list[Step]]:
    """For each event, what it did under each strategy."""
    first = history[0][1][0]
    shares = [allocate(one, queues=first.queues, members=first.members) for one in strategies]
    # The start is a step of its own only when nothing follows: it has nothing to be compared with.
    for event, moments in history[1:] or history:
        steps = []
        for number, one in enumerate(strategies):
            parts = []
            for moment in moments:
                after = allocate(one, queues=moment.queues, members=moment.members)
                parts.append(measure(shares[number], after))
                shares[number] = after
            total = _total(parts)
            steps.append(Step(event, one.name, total, total.moves * hand_over_s))
        yield steps


def _total(parts: list[Measures]) -> Measures:
    """All moves on the way, and how even it is at the end."""
    return msgspec.structs.replace(
        parts[-1],
        moves=sum(part.moves for part in parts),
        least_moves=sum(part.least_moves for part in parts),
    )

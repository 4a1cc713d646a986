"""How long a group needs to settle after a join, a clean leave and a kill, ours beside Java's.

Sixteen members share 256 queues that all get messages the whole time. Fifteen live in one process;
the sixteenth, in a process of its own, joins, leaves, joins again and is killed. Settled means:
every queue that changed hands has delivered a message at its new owner. The clock runs from the
request to start, to stop, or from the kill. Before that a member of another group has come and gone
in each process, so that loading classes or modules is not measured. Runs of the two sides
alternate; rows are medians.
"""

from __future__ import annotations

import itertools
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from gimbalmq import Message, MessageQueue, Producer
from gimbalmq.testing import ApacheRocketMQ
from harness import Row, arguments, run
from settle_sides import JavaProcess, Process, PythonProcess, wait_until

QUEUES: Final = 256
MEMBERS: Final = 16
#: Each queue gets a message this often, so a delivery may come that much after the hand-over.
TRAFFIC_S: Final = 0.1
EVENTS: Final = ("join", "leave", "kill")
TOPIC: Final = "settle"

Owners = dict[MessageQueue, tuple[str, int]]
_T = TypeVar("_T")
_groups = itertools.count(1)


class Traffic:
    """Sends one message to every queue again and again, on a thread of its own."""

    def __init__(self, nameserver: str) -> None:
        self._producer = Producer("settle-traffic", nameserver=nameserver)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> None:
        self._producer.__enter__()
        self._thread.start()

    def __exit__(self, *_ending: object) -> None:
        self._over.set()
        self._thread.join()
        self._producer.__exit__(None, None, None)

    def _run(self) -> None:
        queues = self._producer.queues(TOPIC)
        while not self._over.wait(TRAFFIC_S):
            for queue in queues:
                self._producer.send_async(Message(TOPIC, b"x"), queue=queue)
            self._producer.flush()


def owners(rest: Process, single: Process | None) -> Owners | None:
    """Who owns each queue; None while one has no owner or two."""
    sharing: Owners = {}
    held = 0
    for name, process in (("rest", rest), ("single", single)):
        for number, queues in enumerate(process.owned() if process else ()):
            held += len(queues)
            sharing |= dict.fromkeys(queues, (name, number))
    return sharing if held == len(sharing) == QUEUES else None


def found(condition: Callable[[], _T | None]) -> _T:
    """What a question is answered with in the end."""
    answers: list[_T | None] = []

    def answered() -> bool:
        answers.append(condition())
        return answers[-1] is not None

    wait_until(answered)
    answer = answers[-1]
    assert answer is not None
    return answer


def settled_ms(rest: Process, single: Process | None, before: Owners) -> int | None:
    """When the last of the moved queues delivered at its new owner; None while one has not."""
    after = owners(rest, single)
    if after is None or (single is not None and all(one[0] == "rest" for one in after.values())):
        return None
    first: dict[tuple[str, int], dict[MessageQueue, int]] = {}
    for name, process in (("rest", rest), ("single", single)):
        for number, times in enumerate(process.firsts() if process else ()):
            first[name, number] = times
    moved = [queue for queue, owner in after.items() if before.get(queue) != owner]
    delivered = [first[after[queue]][queue] for queue in moved if queue in first[after[queue]]]
    return max(delivered) if moved and len(delivered) == len(moved) else None


def measure(
    rest: Process, single: Process | None, before: Owners, event: Callable[[], object]
) -> float:
    """Seconds from the event until settled."""
    rest.mark()
    started_ms = time.time_ns() // 1_000_000
    event()
    return (found(lambda: settled_ms(rest, single, before)) - started_ms) / 1000


def one_run(
    kind: type[JavaProcess | PythonProcess], nameserver: str, *, ordered: bool
) -> dict[str, float]:
    """A join, a leave and a kill in a new group; seconds by event."""
    group = f"settle-{next(_groups)}"
    taken: dict[str, float] = {}
    rest = kind(nameserver, group, TOPIC, ordered=ordered)
    single = kind(nameserver, group, TOPIC, ordered=ordered)
    try:
        for process in (rest, single):
            process.rehearse()
        rest.open(MEMBERS - 1)
        before = found(lambda: owners(rest, None))
        taken["join"] = measure(rest, single, before, lambda: single.open(1))
        before = found(lambda: owners(rest, single))
        taken["leave"] = measure(rest, None, before, single.close)
        single.open(1)
        before = found(lambda: joined(rest, single))
        taken["kill"] = measure(rest, None, before, single.kill)
        rest.close()
    finally:
        single.end()
        rest.end()
    return taken


def joined(rest: Process, single: Process) -> Owners | None:
    """Who owns each queue, once the single member has its share."""
    now = owners(rest, single)
    return now if now and ("single", 0) in now.values() else None


def rows(only: str, rounds: int) -> Iterator[Row]:
    """Six rows: both kinds of groups, three events."""
    kinds = [
        ordered
        for ordered in (False, True)
        if any(only in case_name(event, ordered=ordered) for event in EVENTS)
    ]
    with ApacheRocketMQ("5.5.0", benchmark=True) as cluster:
        cluster.create_topic(TOPIC, queues=QUEUES)
        with Traffic(cluster.nameserver):
            for ordered in kinds:
                ours: list[dict[str, float]] = []
                java: list[dict[str, float]] = []
                for number in range(1, rounds + 1):
                    ours.append(one_run(PythonProcess, cluster.nameserver, ordered=ordered))
                    java.append(one_run(JavaProcess, cluster.nameserver, ordered=ordered))
                    print(f"round {number}: {ours[-1]} / {java[-1]}", file=sys.stderr, flush=True)
                for event in EVENTS:
                    if only in case_name(event, ordered=ordered):
                        yield row(case_name(event, ordered=ordered), event, ours, java)


def case_name(event: str, *, ordered: bool) -> str:
    """The name of a case."""
    return f"settle/{'ordered' if ordered else 'concurrent'}/{event}"


def row(case: str, event: str, ours: list[dict[str, float]], java: list[dict[str, float]]) -> Row:
    """Medians of both sides."""
    mine, theirs = ([one[event] for one in side] for side in (ours, java))
    note = f"median of {len(mine)}, {min(mine):.2f} to {max(mine):.2f} s"
    return Row(case, statistics.median(mine), statistics.median(theirs), "java", "s", note)


if __name__ == "__main__":
    parser = arguments(
        "How long a group needs to settle, the Python client beside the Java client."
    )
    parser.add_argument("--rounds", type=int, default=5, help="runs of each side (%(default)s)")
    given = parser.parse_args()
    raise SystemExit(run(rows(given.only, given.rounds), as_json=given.json))

"""The Python client beside the Java client: same broker, same run, both warmed up.

Rounds alternate between the two, so that whatever else the machine does hits both; a row has the
medians. Java's compiler doubles its speed in the first million messages, hence the warm-up. What it
makes of a producer, or of the broker, differs from one start to the next by more than the clients
do; so sends are measured in several sittings, each with new processes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import client_consume
import client_send
from client_stage import Stage, add_options
from harness import Row, arguments, run

SITTINGS: Final = 3


def rows(stage: Stage) -> Iterator[Row]:
    sent: dict[str, Row] = {}
    for _ in range(SITTINGS if client_send.cases(stage) else 0):
        with stage:
            sent |= {row.case: row for row in client_send.rows(stage)}
    yield from sent.values()
    with stage:
        yield from client_consume.rows(stage)


if __name__ == "__main__":
    parser = arguments(
        "Send and consume with the Python and the Java client on one RocketMQ 5.5.0 broker."
    )
    add_options(parser)
    given = parser.parse_args()
    stage = Stage(given.only, rounds=given.rounds, warm=given.warm)
    raise SystemExit(run(rows(stage), as_json=given.json))

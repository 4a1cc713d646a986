"""Boards, changes and summaries for tests of the demo."""

from __future__ import annotations

from gimbalmq.cli.demo.board import Board, Traffic
from gimbalmq.cli.demo.changes import Change, Holding, Outcome, judge_change
from gimbalmq.cli.demo.checks import Check
from gimbalmq.cli.demo.summary import (
    SparkSummary,
    Summary,
    summarise_changes,
    summarise_members,
    summarise_traffic,
)
from gimbalmq.model.queue import MessageQueue

QUEUES = tuple(
    MessageQueue("orders", broker, n) for broker in ("broker-a", "broker-b") for n in (0, 1)
)
A0, A1, B0, B1 = QUEUES
IDS = {"python-1": "python-1@gmq1-AVG", "python-2": "python-2@gmq1-AVG"}


def holding(at: float, member: str, *queues: MessageQueue) -> Holding:
    return Holding(at, member, frozenset(queues))


def everything_to(member: str) -> dict[MessageQueue, str]:
    return dict.fromkeys(QUEUES, member)


def kill_of_python_2(*later: Holding, deliveries=(), until: float = 20.0) -> Outcome:
    """python-2 holds the queues of broker-b and is killed at 10."""
    before = [holding(1, "python-1", A0, A1), holding(2, "python-2", B0, B1)]
    return judge_change(
        Change("kill", "python-2", 10.0),
        holdings=[*before, holding(10, "python-2"), *later],
        deliveries=deliveries,
        target=everything_to("python-1"),
        until=until,
    )


def board_of_two() -> Board:
    """python-1 and python-2 share the queues; python-2 joined at 5 and had settled at 6."""
    board = Board(reversed(QUEUES))
    board.joining("python-1", "python", IDS["python-1"], 1.0)
    board.owns("python-1", QUEUES, 2.0)
    board.joining("python-2", "python", IDS["python-2"], 5.0)
    board.rebalanced("python-2", "start", 5.1)
    board.rebalanced("python-1", "notice from a broker", 5.2)
    board.owns("python-1", (A0, A1), 5.5)
    board.owns("python-2", (B0, B1), 6.0)
    return board


def summary_of(*checks: Check, spark: SparkSummary | None = None) -> Summary:
    board = board_of_two()
    board.gone("python-2", "killed", 7.0)
    board.owns("python-1", QUEUES, 7.25)
    board.end(8.0)
    view = board.view(8.0)
    return Summary(
        passed=all(check.passed for check in checks),
        engine="apache",
        version="5.5.0",
        nameserver="127.0.0.1:1",
        topic="orders",
        group="billing",
        brokers=2,
        queues=4,
        seconds=1.0,
        messages=summarise_traffic(Traffic(sent=1, unanswered=2, consumed=2, deliveries=2, lost=0)),
        members=summarise_members(view),
        changes=summarise_changes(view),
        spark=spark or SparkSummary(skipped="left out"),
        checks=checks,
    )

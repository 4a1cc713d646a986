"""Boards, a stage that needs no process, and summaries for tests of the demo."""

from __future__ import annotations

import time
from types import SimpleNamespace

from gimbalmq.cli.demo.board import Board, Offsets, Traffic
from gimbalmq.cli.demo.changes import Change, Holding, Outcome, judge_change
from gimbalmq.cli.demo.checks import Check
from gimbalmq.cli.demo.reports import Archived, Predicted, Profiled
from gimbalmq.cli.demo.spark_stream import SparkResult
from gimbalmq.cli.demo.summary import (
    SparkSummary,
    Summary,
    summarise_changes,
    summarise_members,
    summarise_traffic,
)
from gimbalmq.errors import EngineError
from gimbalmq.model.queue import MessageQueue
from gimbalmq.spark.pipelines.spread import predict, skew

QUEUES = tuple(
    MessageQueue("orders", broker, n) for broker in ("broker-a", "broker-b") for n in (0, 1)
)
A0, A1, B0, B1 = QUEUES
IDS = {"python-1": "python-1@gmq1-AVG", "python-2": "python-2@gmq1-AVG"}
#: Messages by queue: nearly all in neighbours, which AVG gives to one member.
SKEWED = {A0: 1, A1: 2, B0: 40, B1: 30}


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


def profile_of(loads: dict[MessageQueue, int]) -> Profiled:
    spread = tuple(
        Predicted(one.strategy, one.members, one.busiest, one.fairness)
        for one in predict(loads, (1, 2, 3))
    )
    by_path = {queue.path: load for queue, load in loads.items()}
    return Profiled(0.0, by_path, skew(loads.values()), spread)


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


class PlayedStage:
    """A stage whose members take their shares at once; `spark` is its result, or its failure."""

    def __init__(self, *, spark: SparkResult | EngineError | None = None) -> None:
        self.board = Board(QUEUES)
        self.queues = QUEUES
        self.cluster = SimpleNamespace(nameserver="127.0.0.1:1")
        self.java = None
        self.python = {f"python-{number}": self._member(f"python-{number}") for number in (1, 2, 3)}
        self.orders = SimpleNamespace(rate_per_s=1, start=self._send, stop=self._consume)
        self.progress = SimpleNamespace(start=int, look=self._look, members=self._listed)
        self.spark = None if spark is None else self._spark(spark)

    def wait_until(self, condition, limit_s) -> bool:
        return bool(condition())

    def _member(self, name: str) -> SimpleNamespace:
        def join() -> None:
            self.board.joining(name, "python", name, time.monotonic())
            self._settle()

        def go(fate: str) -> None:
            self.board.gone(name, fate, time.monotonic())
            self._settle()

        return SimpleNamespace(
            name=name, start=join, kill=lambda: go("killed"), leave=lambda: go("left")
        )

    def _settle(self) -> None:
        target = self.board.target()
        for name in set(target.values()):
            held = [queue for queue, owner in target.items() if owner == name]
            self.board.owns(name, held, time.monotonic())

    def _send(self) -> None:
        for queue, count in SKEWED.items():
            for number in range(count):
                self.board.sent(f"{queue.path}-{number}", queue)

    def _consume(self) -> None:
        for queue, count in SKEWED.items():
            for number in range(count):
                owner = self.board.target()[queue]
                self.board.received(owner, f"{queue.path}-{number}", queue, time.monotonic())

    def _look(self) -> bool:
        self.board.reached({queue: Offsets(count, count) for queue, count in SKEWED.items()})
        return True

    def _listed(self) -> dict[str, list[str]]:
        return {"broker-a": [*{*self.board.target().values()}]}

    def _spark(self, end: SparkResult | EngineError) -> SimpleNamespace:
        def finish() -> SparkResult:
            if isinstance(end, EngineError):
                raise end
            return end

        return SimpleNamespace(
            version="4.3.0",
            running=True,
            start=lambda: self.board.streamed(SKEWED),
            finish=finish,
        )


def spark_result(rows: dict[MessageQueue, int] | None = None) -> SparkResult:
    """What Spark finds when the files hold `rows` (by default what was sent), each once."""
    held = {queue.path: count for queue, count in (rows or SKEWED).items()}
    return SparkResult("4.3.0", Archived(0.0, held, held), profile_of(SKEWED), 1.5)

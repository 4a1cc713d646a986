"""The demo from beginning to end: what happens, in which order, and how long it may take."""

from __future__ import annotations

import time
from typing import Final

from gimbalmq.cli.demo.board import STRATEGY, View
from gimbalmq.cli.demo.checks import (
    Check,
    check_all_consumed,
    check_members_listed,
    check_offsets,
    check_one_owner,
    check_settled,
    check_shares,
    check_spark,
)
from gimbalmq.cli.demo.members import JavaMember, PythonMember
from gimbalmq.cli.demo.screen import Screen
from gimbalmq.cli.demo.spark_count import SparkCounter, spark_missing
from gimbalmq.cli.demo.stage import (
    BROKERS,
    GROUP,
    PYTHON_MEMBERS,
    QUEUES_PER_BROKER,
    TOPIC,
    Plan,
    Stage,
)
from gimbalmq.cli.demo.summary import (
    SparkSummary,
    Summary,
    summarise_changes,
    summarise_members,
    summarise_traffic,
)
from gimbalmq.cli.demo.tables import count_table
from gimbalmq.errors import EngineError

__all__ = ["STEPS", "Story"]

STEPS: Final = 8

_KILLED: Final = "python-2"
_LEAVING: Final = "python-3"
_KEEP_RATE_PER_S: Final = 10.0
#: A Java member that missed a notice looks again after 20 s.
_SETTLE_LIMIT_S: Final = 45.0
_DELIVER_LIMIT_S: Final = 5.0
_CONSUME_LIMIT_S: Final = 60.0
_COMMIT_LIMIT_S: Final = 15.0
#: How long a state stays for people to see it.
_PAUSE_S: Final = 1.0


class Story:
    """Tells the demo on a stage."""

    def __init__(self, plan: Plan, screen: Screen, stage: Stage, began_at: float) -> None:
        self._plan = plan
        self._screen = screen
        self._stage = stage
        self._board = stage.board
        self._began_at = began_at

    def tell(self) -> Summary:
        """All of it but the start of the cluster; what still runs at the end goes on."""
        with self._screen.watching(self._board):
            self._start_traffic()
            self._let_join()
            self._kill()
            self._leave()
            self._drain()
        view = self._now()
        self._screen.board(view)
        checks = self._check(view)
        spark, counted = self._count(view)
        return self._summarise(view, (*checks, *counted), spark)

    def keep(self) -> None:
        """Go on until interrupted, with the members that are left and a slow producer."""
        self._stage.orders.restart(_KEEP_RATE_PER_S)
        with self._screen.watching(self._board):
            self._stage.wait_until(lambda: False, float("inf"))

    # ---- steps -------------------------------------------------------------------------------

    def _start_traffic(self) -> None:
        stage = self._stage
        self._screen.step(
            f"A producer sends {stage.orders.rate_per_s:g} orders a second, round robin over "
            f"{len(stage.queues)} queues"
        )
        if stage.java is not None:
            # Its JVM takes seconds; they are used for what comes first.
            stage.java.prepare()
        stage.progress.start()
        stage.orders.start()

    def _let_join(self) -> None:
        java = self._stage.java
        also = " and a Java member" if java is not None else ""
        self._screen.step(
            f"{len(PYTHON_MEMBERS)} Python members{also} join group {GROUP} ({STRATEGY})"
        )
        if self._plan.no_java is not None:
            self._screen.say(f"no Java member: {self._plan.no_java}", style="yellow")
        members: list[PythonMember | JavaMember] = [*self._stage.python.values()]
        for member in members if java is None else [*members, java]:
            member.start()
            self._settle(member.name)

    def _kill(self) -> None:
        self._screen.step(f"{_KILLED} is killed with kill -9: no good-bye, no commit")
        self._stage.python.pop(_KILLED).kill()
        self._settle(_KILLED)

    def _leave(self) -> None:
        self._screen.step(f"{_LEAVING} leaves cleanly: drains, commits, says good-bye")
        self._stage.python.pop(_LEAVING).leave()
        self._settle(_LEAVING)

    def _settle(self, member: str) -> None:
        """Wait until a change by `member` has come to its end, and show it."""

        def settled() -> bool:
            outcome = self._board.outcome(time.monotonic())
            return (
                outcome is not None
                and outcome.change.member == member
                and outcome.settled_s is not None
            )

        def delivered() -> bool:
            outcome = self._board.outcome(time.monotonic())
            return outcome is not None and outcome.delivered_s is not None

        if self._stage.wait_until(settled, _SETTLE_LIMIT_S):
            self._stage.wait_until(delivered, _DELIVER_LIMIT_S)
        outcome = self._board.outcome(time.monotonic())
        if outcome is not None:
            self._screen.settled(outcome, self._board)
        time.sleep(_PAUSE_S)

    def _drain(self) -> None:
        """Stop the producer and wait for the group to come to the end of every queue."""
        stage, board = self._stage, self._board
        stage.orders.stop()
        board.end(time.monotonic())
        stage.wait_until(lambda: not self._now().traffic.lost, _CONSUME_LIMIT_S)
        stage.wait_until(self._all_committed, _COMMIT_LIMIT_S)

    def _check(self, view: View) -> list[Check]:
        self._screen.step("The producer has stopped: is everything consumed, by one owner each?")
        checks = [
            check_settled(view, limit_s=_SETTLE_LIMIT_S),
            check_all_consumed(view),
            check_one_owner(view),
            check_shares(view, self._board.target()),
            check_members_listed(view, self._stage.progress.members()),
            check_offsets(view),
        ]
        for check in checks:
            self._screen.verdict(check)
        return checks

    def _all_committed(self) -> bool:
        seen = self._stage.progress.look()
        return seen and not any(one.lag for one in self._now().offsets.values())

    def _now(self) -> View:
        return self._board.view(time.monotonic())

    def _count(self, view: View) -> tuple[SparkSummary, list[Check]]:
        screen = self._screen
        screen.step('Spark counts the topic with spark.read.format("rocketmq")')
        reason = "left out (--no-spark)" if not self._plan.spark else spark_missing()
        if reason is not None:
            screen.say(reason, style="yellow")
            return SparkSummary(skipped=reason), []
        counter = SparkCounter(
            nameserver=self._stage.cluster.nameserver,
            topic=TOPIC,
            logs=self._stage.logs,
            on_session=lambda version: screen.say(f"Spark {version} runs, reading the topic"),
        )
        try:
            with screen.waiting("starting Spark, about ten seconds"):
                counter.start()
                count = counter.wait()
        except EngineError as error:
            check = Check("Spark counts the same", False, str(error))
            screen.verdict(check)
            return SparkSummary(), [check]
        finally:
            counter.stop()
        screen.show(count_table(view, count.rows))
        check = check_spark(count.rows, view.sent, view.traffic.unanswered)
        screen.verdict(check)
        summary = SparkSummary(
            count.version, sum(count.rows.values()), count.rows, round(count.seconds, 3)
        )
        return summary, [check]

    def _summarise(self, view: View, checks: tuple[Check, ...], spark: SparkSummary) -> Summary:
        return Summary(
            passed=all(check.passed for check in checks),
            engine=self._plan.engine_name,
            version=self._plan.version,
            nameserver=self._stage.cluster.nameserver,
            topic=TOPIC,
            group=GROUP,
            brokers=BROKERS,
            queues=BROKERS * QUEUES_PER_BROKER,
            seconds=round(time.monotonic() - self._began_at, 1),
            messages=summarise_traffic(view.traffic),
            members=summarise_members(view),
            changes=summarise_changes(view),
            spark=spark,
            checks=checks,
        )

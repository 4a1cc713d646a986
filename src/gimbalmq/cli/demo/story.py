"""The demo from beginning to end: what happens, in which order, and how long it may take."""

from __future__ import annotations

import time
from typing import Final

from gimbalmq.cli.demo.board import STRATEGY, View
from gimbalmq.cli.demo.checks import (
    Check,
    check_all_consumed,
    check_archive,
    check_better,
    check_members_listed,
    check_offsets,
    check_one_owner,
    check_prediction,
    check_profile,
    check_settled,
    check_shares,
)
from gimbalmq.cli.demo.members import JavaMember, PythonMember
from gimbalmq.cli.demo.screen import Screen
from gimbalmq.cli.demo.spark_stream import SparkResult
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
from gimbalmq.cli.demo.tables import count_table, load_table, spread_table
from gimbalmq.errors import EngineError

__all__ = ["STEPS", "Story"]

STEPS: Final = 10

_KILLED: Final = "python-2"
_LEAVING: Final = "python-3"
_KEEP_RATE_PER_S: Final = 10.0
#: A Java member that missed a notice looks again after 20 s.
_SETTLE_LIMIT_S: Final = 45.0
_DELIVER_LIMIT_S: Final = 5.0
_CONSUME_LIMIT_S: Final = 60.0
_COMMIT_LIMIT_S: Final = 15.0
_SPARK_LIMIT_S: Final = 120.0
#: The strategy that takes loads into account.
_BETTER: Final = "WEIGHTED"
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
            self._follow()
            self._kill()
            self._leave()
            self._drain()
        view = self._now()
        self._screen.board(view)
        checks = self._check(view)
        result, spark, ended = self._end_stream(view)
        checks += [*ended, *self._profile(view, result)]
        return self._summarise(view, tuple(checks), spark)

    def keep(self) -> None:
        """Go on until interrupted, with the members that are left and a slow producer."""
        self._stage.orders.restart(_KEEP_RATE_PER_S)
        with self._screen.watching(self._board):
            self._stage.wait_until(lambda: False, float("inf"))

    # ---- steps -------------------------------------------------------------------------------

    def _start_traffic(self) -> None:
        stage = self._stage
        self._screen.step(
            f"A producer sends {stage.orders.rate_per_s:g} orders a second over "
            f"{len(stage.queues)} queues, by customer: a few customers order most"
        )
        # Their JVMs take seconds; they are used for what comes first.
        if stage.java is not None:
            stage.java.prepare()
        if stage.spark is not None:
            stage.spark.start()
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

    def _follow(self) -> None:
        """Wait for the stream's first batch: it reads the topic while members come and go."""
        spark = self._stage.spark
        self._screen.step('Spark streams the topic into files: readStream.format("rocketmq")')
        if spark is None:
            self._screen.say(f"no Spark: {self._plan.no_spark}", style="yellow")
            return

        def under_way() -> bool:
            # The first batch reads nothing: it writes down where the stream starts.
            return any(self._now().streamed.values()) or not spark.running

        self._stage.wait_until(under_way, _SPARK_LIMIT_S)
        read = sum(self._now().streamed.values())
        if read:
            self._screen.say(f"Spark {spark.version} has read {read:,} messages, and goes on")

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

    def _end_stream(self, view: View) -> tuple[SparkResult | None, SparkSummary, list[Check]]:
        """Let Spark's stream come to its end, and see whether its files hold what was sent."""
        screen, spark = self._screen, self._stage.spark
        screen.step("Spark's stream ends: do its files hold every message once?")
        if spark is None:
            reason = self._plan.no_spark
            screen.say(f"no Spark: {reason}", style="yellow")
            return None, SparkSummary(skipped=reason), []
        try:
            with screen.waiting("reading the files again, profiling the load"):
                result = spark.finish()
        except EngineError as error:
            check = Check("Spark takes part", False, str(error))
            screen.verdict(check)
            return None, SparkSummary(), [check]
        archived, profiled = result.archived, result.profiled
        screen.show(count_table(view, archived.rows))
        check = check_archive(archived.rows, archived.different, view.sent, view.traffic.unanswered)
        screen.verdict(check)
        summary = SparkSummary(
            version=result.version,
            rows=sum(archived.rows.values()),
            by_queue=archived.rows,
            loads=profiled.loads,
            skew=profiled.skew,
            spread=profiled.spread,
            seconds=round(result.seconds, 3),
        )
        return result, summary, [check]

    def _profile(self, view: View, result: SparkResult | None) -> list[Check]:
        """Show the load that Spark measured, and what each strategy would make of it."""
        screen = self._screen
        screen.step("The load profile: how uneven is it, and what would a better allocation give?")
        if result is None:
            screen.say("left out: it is measured with Spark", style="yellow")
            return []
        profiled = result.profiled
        screen.show_beside(
            load_table(view, profiled.loads, screen.marks),
            spread_table(profiled.spread, now=STRATEGY),
        )
        left = sum(member.fate == "member" for member in view.members)
        checks = [
            check_profile(profiled.loads, view.sent, view.traffic.unanswered),
            check_prediction(view, profiled.loads, profiled.spread),
            check_better(profiled.spread, members=max(left, 2), better=_BETTER),
        ]
        for check in checks:
            screen.verdict(check)
        return checks

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

"""Everything that runs during a demo, started in order and ended in the reverse one."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from gimbalmq.cli.demo.board import Board
from gimbalmq.cli.demo.members import JavaMember, PythonMember
from gimbalmq.cli.demo.spark_stream import SparkStream
from gimbalmq.cli.demo.traffic import OrderStream, Progress
from gimbalmq.model.queue import MessageQueue
from gimbalmq.testing.engines import Cluster, ClusterOptions, Engine

__all__ = ["BROKERS", "GROUP", "PYTHON_MEMBERS", "QUEUES_PER_BROKER", "TOPIC", "Plan", "Stage"]

TOPIC: Final = "orders"
GROUP: Final = "billing"
BROKERS: Final = 2
QUEUES_PER_BROKER: Final = 4
PYTHON_MEMBERS: Final = ("python-1", "python-2", "python-3")
JAVA_MEMBER: Final = "java-1"

_RATE_PER_S: Final = 150.0
#: The producer's end should the demo hang: 200 s at its rate.
_MESSAGES_MAX: Final = 30_000
_POLL_S: Final = 0.05


class Plan(msgspec.Struct, frozen=True):
    """What was asked for."""

    engine_name: str
    engine: Engine
    version: str
    java_version: str
    #: Why there is no Java member; None when there is one.
    no_java: str | None = None
    #: Why there is no Spark; None when there is.
    no_spark: str | None = None


class Stage:
    """A running cluster with its topic, and who plays on it: nobody has started yet."""

    def __init__(self, cluster: Cluster, plan: Plan, logs: Path) -> None:
        self.cluster = cluster
        self.queues = tuple(
            MessageQueue(TOPIC, broker.name, number)
            for broker in cluster.brokers
            for number in range(QUEUES_PER_BROKER)
        )
        self.board = Board(self.queues)
        self.orders = OrderStream(
            self.board,
            nameserver=cluster.nameserver,
            topic=TOPIC,
            rate_per_s=_RATE_PER_S,
            count_max=_MESSAGES_MAX,
        )
        self.progress = Progress(
            self.board, brokers=cluster.brokers, queues=self.queues, group=GROUP
        )
        self.java = (
            JavaMember(
                JAVA_MEMBER,
                nameserver=cluster.nameserver,
                version=plan.java_version,
                group=GROUP,
                topic=TOPIC,
                board=self.board,
            )
            if plan.no_java is None
            else None
        )
        self.spark = (
            SparkStream(nameserver=cluster.nameserver, topic=TOPIC, logs=logs, board=self.board)
            if plan.no_spark is None
            else None
        )
        self.python = {
            name: PythonMember(
                name,
                nameserver=cluster.nameserver,
                group=GROUP,
                topic=TOPIC,
                board=self.board,
                logs=logs,
            )
            for name in PYTHON_MEMBERS
        }

    @classmethod
    @contextlib.contextmanager
    def opened(cls, plan: Plan) -> Iterator[Stage]:
        """Start the cluster, make the topic; at the end stop all that runs by then."""
        with contextlib.ExitStack() as things:
            logs = Path(things.enter_context(tempfile.TemporaryDirectory(prefix="gimbalmq-demo-")))
            options = ClusterOptions(version=plan.version, brokers=BROKERS, processes=True)
            cluster = plan.engine.make(options)
            things.callback(cluster.stop)
            cluster.start()
            cluster.create_topic(TOPIC, queues=QUEUES_PER_BROKER)
            stage = cls(cluster, plan, logs)
            things.callback(stage.progress.stop)
            if stage.java is not None:
                things.callback(stage.java.stop)
            if stage.spark is not None:
                things.callback(stage.spark.stop)
            for member in stage.python.values():
                things.callback(member.stop)
            things.callback(stage.orders.stop)
            yield stage

    def wait_until(self, condition: Callable[[], bool], limit_s: float) -> bool:
        """Wait for a condition, and say whether it came in time; errors of what runs are raised."""
        deadline = time.monotonic() + limit_s
        while not condition():
            self.check()
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_S)
        return True

    def check(self) -> None:
        """Raise what went wrong in the background, if anything did.

        Spark is left out: the group goes on without it, and a check tells.
        """
        self.cluster.check()
        self.orders.check()
        self.progress.check()
        if self.java is not None:
            self.java.check()
        for member in self.python.values():
            member.check()

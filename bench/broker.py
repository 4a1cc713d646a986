"""The embedded broker beside the Java broker: the same load over plain sockets, in one run.

Rounds alternate between the two, so that whatever else the machine does hits both; a row has the
medians. The last row is the memory that each broker's process takes for a million messages more,
without what it only maps from files.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from broker_load import pull, send, send_frames
from gimbalmq.broker import EmbeddedCluster
from gimbalmq.broker.cluster import EmbeddedBroker
from gimbalmq.testing import ApacheBroker, ApacheRocketMQ
from harness import Row, arguments, run, undisturbed

SIZES: Final = {"1KiB": 1024, "100B": 100}
CONNECTIONS: Final = {"1-connection": 1, "16-connections": 16}
QUEUES: Final = 16
BROKER: Final = "broker-a"
#: Different requests that are sent over and over.
FRAMES: Final = 1_000
MEMORY_CASE: Final = "memory/1000000-messages/100B"


class Side:
    """One broker under load."""

    def __init__(self, cluster: EmbeddedCluster | ApacheRocketMQ) -> None:
        self.cluster = cluster
        self.broker: EmbeddedBroker | ApacheBroker = cluster.brokers[0]
        self._filled: set[str] = set()

    def send(self, size: str, count: int, connections: int) -> float:
        topic = self._topic("send", size)
        frames = send_frames(topic, BROKER, QUEUES, SIZES[size], FRAMES)
        with undisturbed():
            return send(self.broker.address, frames, count, connections)

    def pull(self, size: str, count: int, connections: int) -> float:
        topic = self._topic("pull", size)
        if topic not in self._filled:
            frames = send_frames(topic, BROKER, QUEUES, SIZES[size], QUEUES)
            send(self.broker.address, frames, count, 1)
            self._filled.add(topic)
        with undisturbed():
            return pull(self.broker.address, topic, BROKER, QUEUES, count // QUEUES, connections)

    def anonymous_bytes(self) -> int:
        """Memory of the broker's process that is no file's."""
        text = Path(f"/proc/{self.broker.pid}/status").read_text("utf-8")
        line = next(line for line in text.splitlines() if line.startswith("RssAnon"))
        return int(line.split()[1]) * 1024

    def _topic(self, use: str, size: str) -> str:
        topic = f"{use}-{size}"
        self.cluster.create_topic(topic, queues=QUEUES)
        return topic


class Bench:
    """Both sides, and how much they get to do."""

    def __init__(self, only: str, *, rounds: int, count: int, warm: int, million: int) -> None:
        self._only = only
        self._rounds = rounds
        self._count = count // QUEUES * QUEUES
        self._warm = warm // QUEUES * QUEUES
        self._million = million // QUEUES * QUEUES
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Self:
        enter = self._open.enter_context
        self._ours = Side(enter(EmbeddedCluster(processes=True)))
        self._java = Side(enter(ApacheRocketMQ("5.5.0", benchmark=True)))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open.close()

    def rows(self) -> Iterator[Row]:
        with self:
            for side in (self._ours, self._java):
                side.send("100B", self._warm, 16)
            for way in ("send", "pull"):
                for name, connections in CONNECTIONS.items():
                    for size in SIZES:
                        case = f"{way}/{name}/{size}"
                        if self._only in case:
                            yield self._compare(case, way, size, connections)
            if self._only in MEMORY_CASE:
                yield self._memory()

    def _compare(self, case: str, way: str, size: str, connections: int) -> Row:
        def rate(side: Side) -> float:
            work: Callable[[str, int, int], float] = side.send if way == "send" else side.pull
            return self._count / work(size, self._count, connections)

        mine: list[float] = []
        theirs: list[float] = []
        for number in range(1, self._rounds + 1):
            mine.append(rate(self._ours))
            theirs.append(rate(self._java))
            print(
                f"{case} round {number}: {mine[-1]:,.0f} / {theirs[-1]:,.0f}",
                file=sys.stderr,
                flush=True,
            )
        note = f"median of {self._rounds}, {min(mine):,.0f} to {max(mine):,.0f}"
        ours, anchor = statistics.median(mine), statistics.median(theirs)
        return Row(case, ours, anchor, "java-broker", "messages/s", note)

    def _memory(self) -> Row:
        def growth(side: Side) -> float:
            before = side.anonymous_bytes()
            side.send("100B", self._million, 16)
            return (side.anonymous_bytes() - before) * (1_000_000 / self._million) / (1 << 20)

        ours, anchor = growth(self._ours), growth(self._java)
        note = f"after {self._million:,} messages; a heap may shrink meanwhile"
        return Row(MEMORY_CASE, ours, anchor, "java-broker", "MiB", note)


if __name__ == "__main__":
    parser = arguments("The embedded broker and the Java broker under the same load.")
    parser.add_argument("--rounds", type=int, default=5, help="rounds per case (%(default)s)")
    parser.add_argument(
        "--count", type=int, default=40_000, help="messages of a round (%(default)s)"
    )
    parser.add_argument(
        "--warm", type=int, default=300_000, help="messages before the first round (%(default)s)"
    )
    parser.add_argument(
        "--million", type=int, default=1_000_000, help="messages of the memory case (%(default)s)"
    )
    given = parser.parse_args()
    bench = Bench(
        given.only,
        rounds=given.rounds,
        count=given.count,
        warm=given.warm,
        million=given.million,
    )
    raise SystemExit(run(bench.rows(), as_json=given.json))

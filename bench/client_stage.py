"""What the cases of the client benchmark share: a broker, a warm Java client, fair rounds."""

from __future__ import annotations

import argparse
import contextlib
import gc
import statistics
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from gimbalmq.testing import ApacheRocketMQ, JavaPeer
from harness import Row

__all__ = ["SIZES", "Stage", "add_options"]

#: Body sizes by the name they have in cases.
SIZES: Final = {"1KiB": 1024, "100B": 100}


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of the client benchmark."""
    parser.add_argument(
        "--rounds",
        type=int,
        default=9,
        help="rounds of a consumer, and of a producer in each sitting (%(default)s)",
    )
    parser.add_argument(
        "--warm", type=int, default=1_000_000, help="messages that warm Java up (%(default)s)"
    )


class Stage:
    """One broker with the memory and the compiler that measurements need, and a Java process."""

    def __init__(self, only: str, *, rounds: int, warm: int) -> None:
        self.only = only
        self.rounds = rounds
        self.warm = warm
        #: The rates of both, by case.
        self._taken: dict[str, tuple[list[float], list[float]]] = {}
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self.cluster = self._open.enter_context(ApacheRocketMQ("5.5.0", benchmark=True))
        # The full compiler, unlike in tests: this one runs for minutes.
        self.java: JavaPeer = self._open.enter_context(
            JavaPeer(self.cluster.nameserver, version="5.5.0", heap_mb=1024, jvm_flags=())
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open.close()

    @property
    def nameserver(self) -> str:
        """Where the broker is registered."""
        return self.cluster.nameserver

    def wanted(self, case: str) -> bool:
        """Whether the command line asks for this case."""
        return self.only in case

    def compare(
        self,
        case: str,
        count: int,
        ours: Callable[[], float],
        java: Callable[[], float],
        *,
        rounds: int,
    ) -> Row:
        """Messages per second of both; each function handles `count` and returns the seconds.

        Who goes first alternates too: what one side leaves behind is for both to bear. A case that
        was compared before goes on: the row is about all its rounds.
        """
        mine, theirs = self._taken.setdefault(case, ([], []))

        def take_ours() -> None:
            # The collector stays on, as in Java and as users have it; but each round begins clean.
            gc.collect()
            mine.append(count / ours())

        def take_theirs() -> None:
            theirs.append(count / java())

        for number in range(1, rounds + 1):
            sides = (take_ours, take_theirs) if number % 2 else (take_theirs, take_ours)
            for take in sides:
                take()
            print(
                f"{case} round {number}: {mine[-1]:,.0f} / {theirs[-1]:,.0f}",
                file=sys.stderr,
                flush=True,
            )
        note = f"median of {len(mine)}, {min(mine):,.0f} to {max(mine):,.0f}"
        return Row(
            case,
            statistics.median(mine),
            statistics.median(theirs),
            "java",
            "messages/s",
            note,
            tuple(one / other for one, other in zip(mine, theirs, strict=True)),
        )

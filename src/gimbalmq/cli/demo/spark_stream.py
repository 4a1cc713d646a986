"""Spark's part of the demo, seen from the demo: a child process, and what it found."""

from __future__ import annotations

import importlib.util
import time
from pathlib import Path
from typing import Final

import msgspec

from gimbalmq.cli.demo.board import Board
from gimbalmq.cli.demo.processes import ReportingProcess
from gimbalmq.cli.demo.reports import (
    FINISH,
    Archived,
    Failed,
    Profiled,
    Report,
    SessionReady,
    Streamed,
)
from gimbalmq.errors import EngineError
from gimbalmq.model.queue import parse_queue

__all__ = ["SparkResult", "SparkStream", "spark_missing"]

_LIMIT_S: Final = 180.0


class SparkResult(msgspec.Struct, frozen=True):
    """What the files hold, and the load profile."""

    version: str
    archived: Archived
    profiled: Profiled
    #: From the word to finish until all was told.
    seconds: float


def spark_missing() -> str | None:
    """What to install before Spark can take part; None when all is there."""
    for module in ("pyspark", "pyarrow", "numpy"):
        if importlib.util.find_spec(module) is None:
            return f'{module} is not installed: pip install "gimbalmq[spark]"'
    return None


class SparkStream:
    """One stream: `start` it, `finish` it, and take what it found; `stop` is always safe."""

    def __init__(self, *, nameserver: str, topic: str, logs: Path, board: Board) -> None:
        self._board = board
        self._session: SessionReady | None = None
        self._archived: Archived | None = None
        self._profiled: Profiled | None = None
        self._failure: str | None = None
        self._process = ReportingProcess(
            "Spark",
            "gimbalmq.cli.demo.streaming",
            (nameserver, topic, str(logs / "archive")),
            log=logs / "spark.log",
            on_report=self._heard,
        )

    def start(self) -> None:
        """Start Spark and its stream; returns at once."""
        self._process.start()

    @property
    def version(self) -> str | None:
        """Spark's version, once it runs."""
        return None if self._session is None else self._session.spark_version

    @property
    def running(self) -> bool:
        """Whether its process has not ended."""
        return self._process.running

    def finish(self) -> SparkResult:
        """Let the stream come to the end of the topic, read its files, profile the load; wait.

        Raises:
            EngineError: it did not come to its end; with Spark's last words.
        """
        began = time.monotonic()
        self._process.say(FINISH)
        code = self._process.wait(_LIMIT_S)
        if self._session is None or self._archived is None or self._profiled is None:
            why = self._failure or self._process.last_words() or f"exit code {code}"
            raise EngineError(
                f"Spark did not come to its end ({time.monotonic() - began:.0f} s): {why}"
            )
        return SparkResult(
            self._session.spark_version,
            self._archived,
            self._profiled,
            self._profiled.at - began,
        )

    def stop(self) -> None:
        """Make sure that it is gone."""
        if self._process.running:
            self._process.finish(5.0)

    def _heard(self, report: Report) -> None:
        match report:
            case SessionReady():
                self._session = report
            case Streamed(offsets=offsets):
                self._board.streamed({parse_queue(path): at for path, at in offsets.items()})
            case Archived():
                self._archived = report
            case Profiled():
                self._profiled = report
            case Failed(message=message):
                self._failure = message
            case _:
                raise AssertionError(f"Spark does not report {report}")

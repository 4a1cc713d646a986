"""Has Spark count the topic, in a child process, and hands back what it found."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from gimbalmq.cli.demo.processes import ReportingProcess
from gimbalmq.cli.demo.reports import Counted, Failed, Report, SessionReady
from gimbalmq.errors import EngineError

__all__ = ["SparkCount", "SparkCounter", "spark_missing"]

_LIMIT_S: Final = 180.0


class SparkCount(msgspec.Struct, frozen=True):
    """Rows of each queue, by its path."""

    version: str
    rows: dict[str, int]
    #: From the ready session to the result.
    seconds: float


def spark_missing() -> str | None:
    """What to install before Spark can count; None when all is there."""
    for module in ("pyspark", "pyarrow", "numpy"):
        if importlib.util.find_spec(module) is None:
            return f'{module} is not installed: pip install "gimbalmq[spark]"'
    return None


class SparkCounter:
    """One count: `start` it, then `wait` for it; `stop` is always safe."""

    def __init__(
        self,
        *,
        nameserver: str,
        topic: str,
        logs: Path,
        on_session: Callable[[str], None],
    ) -> None:
        self._on_session = on_session
        self._session: SessionReady | None = None
        self._counted: Counted | None = None
        self._failure: str | None = None
        self._process = ReportingProcess(
            "the Spark count",
            "gimbalmq.cli.demo.counting",
            (nameserver, topic),
            log=logs / "spark.log",
            on_report=self._heard,
        )

    def start(self) -> None:
        """Start Spark; returns at once."""
        self._process.start()

    def wait(self) -> SparkCount:
        """The result.

        Raises:
            EngineError: there is none; with Spark's last words.
        """
        begun = time.monotonic()
        code = self._process.wait(_LIMIT_S)
        if self._counted is None or self._session is None:
            why = self._failure or self._process.last_words() or f"exit code {code}"
            raise EngineError(
                f"Spark did not count the topic ({time.monotonic() - begun:.0f} s): {why}"
            )
        return SparkCount(
            self._session.spark_version, self._counted.rows, self._counted.at - self._session.at
        )

    def stop(self) -> None:
        """Make sure that it is gone."""
        if self._process.running:
            self._process.finish(5.0)

    def _heard(self, report: Report) -> None:
        match report:
            case SessionReady():
                self._session = report
                self._on_session(report.spark_version)
            case Counted():
                self._counted = report
            case Failed(message=message):
                self._failure = message
            case _:
                raise AssertionError(f"a count does not report {report}")

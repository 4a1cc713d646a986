"""Ready-made pipelines: small PySpark programs with options, progress and a report.

    gimbalmq pipeline run archive --option topic=orders --option path=/data/orders

Each is a module of this package with `Options`, a frozen value, and `run`. Importing this package
loads neither PySpark nor any of the pipelines.
"""

from __future__ import annotations

import difflib
from importlib import import_module
from typing import Any, Final

import msgspec

from gimbalmq.errors import ConfigurationError

__all__ = ["PIPELINES", "PipelineInfo", "find_pipeline"]


class PipelineInfo(msgspec.Struct, frozen=True):
    """A pipeline: what it is called, where it is and what it does."""

    name: str
    module: str
    summary: str

    def load(self) -> Any:
        """The module, with `Options` and `run(spark, options, tell) -> Report`."""
        return import_module(f"gimbalmq.spark.pipelines.{self.module}")


#: Every pipeline by name.
PIPELINES: Final = {
    info.name: info
    for info in (
        PipelineInfo("archive", "archive", "Topics to Parquet files by day, exactly once."),
        PipelineInfo("transform", "transform", "Messages through a SQL text to another topic."),
        PipelineInfo(
            "load-profile", "load_profile", "Load by queue and key; what each strategy makes of it."
        ),
        PipelineInfo(
            "group-health", "group_health", "Lag, fairness, moves and pauses of a group over time."
        ),
        PipelineInfo(
            "replay", "replay", "A time range, or a group's dead letters, back to a topic."
        ),
    )
}


def find_pipeline(name: str) -> PipelineInfo:
    """The pipeline of a name.

    Raises:
        ConfigurationError: there is none.
    """
    if name in PIPELINES:
        return PIPELINES[name]
    close = difflib.get_close_matches(name, PIPELINES, n=1)
    hint = f"did you mean '{close[0]}'? " if close else ""
    raise ConfigurationError(
        f"there is no pipeline '{name}': {hint}There are {', '.join(PIPELINES)}"
    )

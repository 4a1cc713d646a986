"""`load-profile`: load by queue and by key, skew and growth, and what each strategy makes of it.

Reads a topic once, in the given range of time. The weights that follow from it can be published
for the strategy WEIGHTED.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from gimbalmq.errors import ConfigurationError
from gimbalmq.model.queue import MessageQueue
from gimbalmq.spark.pipelines.profile_page import profile_page
from gimbalmq.spark.pipelines.report import Report, bar
from gimbalmq.spark.pipelines.settings import PipelineOptions, client_options, source_options
from gimbalmq.spark.pipelines.spread import predict, skew, weights_of
from gimbalmq.spark.pipelines.weights import WEIGHTS_TOPIC, publish_weights

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Options", "run"]

_COLUMNS: Final = "topic,broker,queue_id,keys,body,store_timestamp"
_BAR_WIDTH: Final = 30


class Options(PipelineOptions, frozen=True, kw_only=True, rename="camel"):
    """Options of `load-profile`."""

    topic: str
    #: The range of time to look at, ISO-8601 with a zone or milliseconds.
    starting_timestamp: str | None = None
    ending_timestamp: str | None = None
    #: What counts as load.
    by: Literal["messages", "bytes"] = "messages"
    #: Group sizes to predict for, separated by commas.
    group_sizes: str = "2,3,4,6,8"
    keys: int = 10
    #: A file for the report as a page.
    html: str | None = None
    #: Whether to publish the weights, and where.
    publish: bool = False
    weights_topic: str = WEIGHTS_TOPIC


def run(spark: SparkSession, options: Options, tell: Callable[[str], None]) -> Report:
    """Measure, predict, and publish if that is wanted."""
    sizes = _sizes(options.group_sizes)
    source = source_options(
        options,
        topic=options.topic,
        startingTimestamp=options.starting_timestamp,
        endingTimestamp=options.ending_timestamp,
        columns=_COLUMNS,
    )
    frame = spark.read.format("rocketmq").options(**source).load()
    tell(f"reading topic '{options.topic}'")
    queues = _by_queue(frame)
    if not queues:
        raise ConfigurationError(
            f"topic '{options.topic}' has no messages in that range: there is no load to profile"
        )
    tell(f"{sum(row['messages'] for row in queues):,} messages in {len(queues)} queues")
    loads = {
        MessageQueue(options.topic, row["broker"], row["queue_id"]): float(row[options.by])
        for row in queues
    }
    keys = _by_key(frame, options.keys)
    spreads = [
        {"strategy": s.strategy, "members": s.members, "busiest": s.busiest, "fairness": s.fairness}
        for s in predict(loads, sizes)
    ]
    facts: dict[str, Any] = {
        "topic": options.topic,
        "by": options.by,
        "messages": sum(row["messages"] for row in queues),
        "bytes": sum(row["bytes"] for row in queues),
        "skew": skew(loads.values()),
    }
    if options.publish:
        published = publish_weights(
            options.topic,
            weights_of(loads),
            nameserver=options.nameserver,
            weights_topic=options.weights_topic,
            **client_options(options),
        )
        facts |= {"weights_version": published.version, "weights_topic": options.weights_topic}
    report = Report(
        "load-profile",
        facts,
        {"queues": queues, "keys": keys, "spread": spreads},
        _picture(queues, options.by),
    )
    if options.html is not None:
        Path(options.html).write_text(profile_page(report), "utf-8")
        tell(f"page written to {options.html}")
    return report


def _sizes(text: str) -> list[int]:
    try:
        sizes = [int(part) for part in text.split(",")]
    except ValueError:
        sizes = []
    if not sizes or min(sizes) < 1:
        raise ConfigurationError(
            f"option 'groupSizes' is '{text}': write numbers from 1 on, separated by commas"
        )
    return sizes


def _by_queue(frame: DataFrame) -> list[dict[str, Any]]:
    """Load and growth of every queue; growth is the second half of the time against the first."""
    from pyspark.sql import functions as f

    bounds = frame.agg(f.min("store_timestamp"), f.max("store_timestamp")).first()
    if bounds is None or bounds[0] is None:
        return []
    middle = bounds[0] + (bounds[1] - bounds[0]) / 2
    late = f.sum((f.col("store_timestamp") > f.lit(middle)).cast("long"))
    counted = (
        frame.groupBy("broker", "queue_id")
        .agg(
            f.count("*").alias("messages"),
            f.sum(f.length("body")).alias("bytes"),
            late.alias("late"),
        )
        .orderBy("broker", "queue_id")
        .collect()
    )
    return [
        {
            "broker": row["broker"],
            "queue_id": row["queue_id"],
            "messages": row["messages"],
            "bytes": row["bytes"],
            "growth": _growth(row["messages"] - row["late"], row["late"]),
        }
        for row in counted
    ]


def _growth(early: int, late: int) -> float | None:
    return round(late / early, 2) if early else None


def _by_key(frame: DataFrame, count: int) -> list[dict[str, Any]]:
    from pyspark.sql import functions as f

    total = frame.filter("keys is not null").count()
    rows = (
        frame.filter("keys is not null")
        .groupBy("keys")
        .agg(f.count("*").alias("messages"), f.sum(f.length("body")).alias("bytes"))
        .orderBy(f.desc("messages"), "keys")
        .limit(count)
        .collect()
    )
    return [
        {
            "keys": row["keys"],
            "messages": row["messages"],
            "bytes": row["bytes"],
            "share": round(row["messages"] / total, 4),
        }
        for row in rows
    ]


def _picture(queues: Sequence[Mapping[str, Any]], by: str) -> str:
    most = max(row[by] for row in queues)
    names = [f"{row['broker']}/{row['queue_id']}" for row in queues]
    width = max(map(len, names))
    return "\n".join(
        f"{name:<{width}}  {bar(row[by], most, width=_BAR_WIDTH):<{_BAR_WIDTH}}  {row[by]:,}"
        for name, row in zip(names, queues, strict=True)
    )

"""`replay`: messages of a time range, or the dead letters of a group, back to a topic.

Goes by one task at a given rate, so that consumers are not flooded. A dry run counts and writes
nothing. Messages keep body, keys, tags and properties; they are new messages otherwise, with the
id of their row: a replay that is run twice can be told by it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from gimbalmq.errors import ConfigurationError
from gimbalmq.spark.pipelines.report import Report
from gimbalmq.spark.pipelines.settings import PipelineOptions, source_options
from gimbalmq.wire.names import check_group, dlq_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Options", "run"]

_COLUMNS: Final = "topic,broker,queue_id,queue_offset,message_id,keys,tags,body,properties"


class Options(PipelineOptions, frozen=True, kw_only=True, rename="camel"):
    """Options of `replay`."""

    #: What to replay: a topic and a range of time, or the dead letters of a group.
    topic: str | None = None
    starting_timestamp: str | None = None
    ending_timestamp: str | None = None
    dead_letters_of: str | None = None
    #: Where to; dead letters go back to the topic they came from unless told otherwise.
    to: str | None = None
    tags: str | None = None
    #: Messages per second; None means as fast as it goes.
    rate: int | None = None
    dry_run: bool = False


def run(spark: SparkSession, options: Options, tell: Callable[[str], None]) -> Report:
    """Replay, or say what would be."""
    frame = _frame(spark, options)
    counted = frame.groupBy("topic").count().orderBy("topic").collect()
    targets = [{"topic": row["topic"], "messages": row["count"]} for row in counted]
    total = sum(int(row["messages"]) for row in targets)
    lost = [row for row in targets if row["topic"] is None]
    if lost:
        raise ConfigurationError(
            f"{lost[0]['messages']} dead letters do not say which topic they came from: name one "
            "with option 'to'"
        )
    facts: dict[str, Any] = {"messages": total, "written": 0 if options.dry_run else total}
    tables = {"targets": targets}
    if options.dry_run or not total:
        return Report("replay", facts | {"dry_run": options.dry_run}, tables)
    tell(f"replaying {total:,} messages" + _duration(total, options.rate))
    started = time.monotonic()
    _write(frame, options)
    seconds = max(time.monotonic() - started, 0.001)
    tell(f"{total:,} messages in {seconds:.1f} s")
    return Report("replay", facts | {"dry_run": False, "rate": round(total / seconds, 1)}, tables)


def _duration(total: int, rate: int | None) -> str:
    return "" if rate is None else f", which takes {total / rate:,.0f} s at {rate:,} a second"


def _frame(spark: SparkSession, options: Options) -> DataFrame:
    """The messages, with the topic they go to."""
    from pyspark.sql import functions as f

    if (options.topic is None) == (options.dead_letters_of is None):
        raise ConfigurationError("give one of the options 'topic' and 'deadLettersOf'")
    if options.rate is not None and options.rate < 1:
        raise ConfigurationError(f"option 'rate' is {options.rate}: it starts at 1 a second")
    if options.topic is not None:
        _check_range(options)
        source, target = options.topic, f.lit(options.to)
    else:
        assert options.dead_letters_of is not None
        source = dlq_topic(check_group(options.dead_letters_of))
        origin = f.col("properties")["RETRY_TOPIC"]
        if options.namespace is not None:
            origin = f.regexp_replace(origin, f"^{re.escape(options.namespace)}%", "")
        target = origin if options.to is None else f.lit(options.to)
    given = source_options(
        options,
        topic=source,
        columns=_COLUMNS,
        startingTimestamp=options.starting_timestamp,
        endingTimestamp=options.ending_timestamp,
        tags=options.tags,
    )
    return spark.read.format("rocketmq").options(**given).load().withColumn("topic", target)


def _check_range(options: Options) -> None:
    if options.to is None:
        raise ConfigurationError("option 'to' is missing: name the topic to replay to")
    if options.starting_timestamp is None or options.ending_timestamp is None:
        raise ConfigurationError(
            "a replay of a topic needs its range of time: give options 'startingTimestamp' and "
            "'endingTimestamp'"
        )


def _write(frame: DataFrame, options: Options) -> None:
    if options.rate is not None:
        # The rate is one of a task.
        frame = frame.coalesce(1)
    writer = frame.write.format("rocketmq").mode("append")
    writer.options(**source_options(options, maxRowsPerSecond=options.rate)).save()

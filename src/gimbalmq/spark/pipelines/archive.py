"""`archive`: topics to Parquet files by the day on which messages were stored, exactly once.

Exactly once is Spark's doing: the checkpoint says which offsets a batch holds, and the log of its
file sink (`_spark_metadata`) says which files count. A batch that ran twice has one set of files
in that log. Readers must go by it, as Spark does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from gimbalmq.errors import ConfigurationError
from gimbalmq.spark.pipelines.following import follow
from gimbalmq.spark.pipelines.report import Report
from gimbalmq.spark.pipelines.settings import PipelineOptions, source_options

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["Options", "run", "store_date"]

_MICROS_PER_DAY: Final = 86_400_000_000


class Options(PipelineOptions, frozen=True, kw_only=True, rename="camel"):
    """Options of `archive`."""

    #: Topics, separated by commas; or a pattern.
    topic: str | None = None
    topic_pattern: str | None = None
    #: Where the files go; the checkpoint is beside them unless told otherwise.
    path: str
    checkpoint: str | None = None
    group: str | None = None
    starting_offsets: str = "earliest"
    #: A file holds up to so many messages, a batch so many files.
    file_records: int = 250_000
    files_per_batch: int = 4
    #: `once` takes what is there and ends; a time like `10 seconds` goes on until Ctrl-C.
    trigger: str = "once"


def store_date() -> Column:
    """The day in UTC on which a message was stored, whatever the time zone of the session."""
    from pyspark.sql import functions as f

    days = f"floor(unix_micros(store_timestamp) / {_MICROS_PER_DAY})"
    return f.expr(f"date_from_unix_date(cast({days} as int))")


def run(spark: SparkSession, options: Options, tell: Callable[[str], None]) -> Report:
    """Archive, and report what the archive holds then."""
    if options.file_records < 1 or options.files_per_batch < 1:
        raise ConfigurationError("options 'fileRecords' and 'filesPerBatch' start at 1")
    source = source_options(
        options,
        topic=options.topic,
        topicPattern=options.topic_pattern,
        group=options.group,
        startingOffsets=options.starting_offsets,
        maxOffsetsPerTrigger=options.file_records * options.files_per_batch,
    )
    messages = spark.readStream.format("rocketmq").options(**source).load()
    query = (
        messages.withColumn("store_date", store_date())
        # As many tasks as files: more would leave each with a small one.
        .coalesce(options.files_per_batch)
        .writeStream.format("parquet")
        .partitionBy("store_date")
        .option("path", options.path)
        .option("maxRecordsPerFile", options.file_records)
        .option("checkpointLocation", options.checkpoint or f"{options.path}/_checkpoint")
        .trigger(**trigger_of(options.trigger))
        .start()
    )
    batches = follow(query, tell)
    return _report(spark, options, sum(batches.values()))


def trigger_of(text: str) -> dict[str, Any]:
    """The arguments of Spark's `trigger` for an option's text."""
    return {"availableNow": True} if text == "once" else {"processingTime": text}


def _report(spark: SparkSession, options: Options, added: int) -> Report:
    days = []
    # Before the first batch there is no log, and without rows no schema.
    if added or _exists(spark, options.path):
        archived: DataFrame = spark.read.parquet(options.path)
        counted = archived.groupBy("store_date").count().orderBy("store_date").collect()
        days = [{"date": str(row["store_date"]), "messages": row["count"]} for row in counted]
    total = sum(int(day["messages"]) for day in days)
    return Report(
        "archive", {"path": options.path, "added": added, "messages": total}, {"days": days}
    )


def _exists(spark: SparkSession, path: str) -> bool:
    from pyspark.errors import AnalysisException

    try:
        return bool(spark.read.parquet(path).columns)
    except AnalysisException:
        return False

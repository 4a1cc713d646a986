"""`transform`: messages of topics through a SQL text to another topic.

The text reads the view `messages`: the columns of the source, and `text`, the body as text. Its
columns are those that the sink writes. Delivery is at least once, with equal ids for copies.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gimbalmq.errors import ConfigurationError
from gimbalmq.spark.pipelines.archive import trigger_of
from gimbalmq.spark.pipelines.following import follow
from gimbalmq.spark.pipelines.report import Report
from gimbalmq.spark.pipelines.settings import PipelineOptions, source_options
from gimbalmq.spark.write_columns import layout_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Options", "run"]

_VIEW: Final = "messages"


class Options(PipelineOptions, frozen=True, kw_only=True, rename="camel"):
    """Options of `transform`."""

    #: Topics to read, separated by commas.
    topic: str
    #: The topic to write to.
    to: str
    #: The SQL text, or a file that holds it.
    sql: str | None = None
    sql_file: str | None = None
    checkpoint: str
    group: str | None = None
    starting_offsets: str = "earliest"
    max_offsets_per_trigger: int | None = None
    selector: str | None = None
    id_column: str | None = None
    #: `once` takes what is there and ends; a time like `10 seconds` goes on until Ctrl-C.
    trigger: str = "once"


def run(spark: SparkSession, options: Options, tell: Callable[[str], None]) -> Report:
    """Transform, and report how many messages came in."""
    sql = _sql(options)
    if options.to in options.topic.split(","):
        raise ConfigurationError(
            f"option 'to' is '{options.to}', which is read as well: it would never end"
        )
    source = source_options(
        options,
        topic=options.topic,
        group=options.group,
        startingOffsets=options.starting_offsets,
        maxOffsetsPerTrigger=options.max_offsets_per_trigger,
    )
    messages = spark.readStream.format("rocketmq").options(**source).load()
    messages.selectExpr("*", "cast(body as string) as text").createOrReplaceTempView(_VIEW)
    result = spark.sql(sql)
    if not result.isStreaming:
        raise ConfigurationError(
            f"option 'sql' does not read the stream of messages: the view is called '{_VIEW}'"
        )
    layout_of(result.schema.fields, id_column=options.id_column, topic=options.to)
    sink = source_options(
        options, topic=options.to, selector=options.selector, idColumn=options.id_column
    )
    query = (
        result.writeStream.format("rocketmq")
        .options(**sink)
        .option("checkpointLocation", options.checkpoint)
        .trigger(**trigger_of(options.trigger))
        .start()
    )
    batches = follow(query, tell)
    facts = {
        "from": options.topic,
        "to": options.to,
        "read": sum(batches.values()),
        "batches": len(batches),
    }
    return Report("transform", facts)


def _sql(options: Options) -> str:
    if (options.sql is None) == (options.sql_file is None):
        raise ConfigurationError("give one of the options 'sql' and 'sqlFile'")
    if options.sql is not None:
        return options.sql
    assert options.sql_file is not None
    try:
        return Path(options.sql_file).read_text("utf-8")
    except OSError as error:
        raise ConfigurationError(
            f"option 'sqlFile': {options.sql_file} cannot be read: {error.strerror}"
        ) from error

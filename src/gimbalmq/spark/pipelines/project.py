"""`gimbalmq pipeline init`: a project for Spark Declarative Pipelines that runs as it is.

Writes files and nothing else; `spark-pipelines run` in the folder does the rest.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from gimbalmq.errors import ConfigurationError

__all__ = ["write_project"]

_SPEC: Final = """\
name: {name}
storage: {storage}
libraries:
  - glob:
      include: transformations/**
configuration:
  spark.gimbalmq.nameserver: "{nameserver}"
  spark.gimbalmq.topic: "{topic}"
"""

_MESSAGES: Final = '''\
"""The messages of a topic as a streaming table, and what they add up to."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession, functions as f

spark = SparkSession.active()


@dp.table(comment="Every message, as it was stored.")
def messages() -> DataFrame:
    return (
        spark.readStream.format("rocketmq")
        .option("nameserver", spark.conf.get("spark.gimbalmq.nameserver"))
        .option("topic", spark.conf.get("spark.gimbalmq.topic"))
        .option("startingOffsets", "earliest")
        .load()
    )


@dp.materialized_view(comment="Messages and bytes by queue and hour.")
def load_by_hour() -> DataFrame:
    return (
        spark.read.table("messages")
        .groupBy("topic", "broker", "queue_id", f.date_trunc("hour", "store_timestamp").alias("hour"))
        .agg(f.count("*").alias("messages"), f.sum(f.length("body")).alias("bytes"))
    )
'''

_TAGS: Final = """\
CREATE MATERIALIZED VIEW messages_by_tag AS
SELECT tags, count(*) AS messages FROM messages GROUP BY tags
"""

_README: Final = """\
# {name}

A Spark Declarative Pipelines project over topic `{topic}`.

    pip install "gimbalmq[spark]" "pyspark[pipelines]"
    spark-pipelines run

Tables: `messages` (streaming), `load_by_hour`, `messages_by_tag`. Address and topic are in
`spark-pipeline.yml`.
"""


def write_project(folder: Path, *, nameserver: str, topic: str) -> list[Path]:
    """Write a project into a new folder; returns its files.

    Raises:
        ConfigurationError: the folder exists already, or cannot be made.
    """
    if folder.exists():
        raise ConfigurationError(f"{folder} exists already: name a folder that does not")
    storage = (folder / "storage").resolve()
    values = {
        "name": folder.name,
        "topic": topic,
        "nameserver": nameserver,
        "storage": storage.as_uri(),
    }
    texts = {
        "spark-pipeline.yml": _SPEC.format(**values),
        "transformations/messages.py": _MESSAGES,
        "transformations/messages_by_tag.sql": _TAGS,
        "README.md": _README.format(**values),
    }
    try:
        storage.mkdir(parents=True)
        for name, text in texts.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text, "utf-8")
    except OSError as error:
        raise ConfigurationError(f"{folder} cannot be written: {error.strerror}") from error
    return [folder / name for name in texts]

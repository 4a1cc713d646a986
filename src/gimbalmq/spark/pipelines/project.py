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
{more}"""

_MESSAGES: Final = '''\
"""The messages of a topic as a streaming table, and what they add up to."""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession, functions as f

spark = SparkSession.active()

# Keys and TLS come from the environment, so that no secret stands in a file.
ACCESS = {
    option: os.environ[variable]
    for option, variable in {
        "accessKey": "ROCKETMQ_ACCESS_KEY",
        "secretKey": "ROCKETMQ_SECRET_KEY",
        "tls": "ROCKETMQ_TLS",
        "tlsCaFile": "ROCKETMQ_TLS_CA_FILE",
        "tlsCertFile": "ROCKETMQ_TLS_CERT_FILE",
        "tlsKeyFile": "ROCKETMQ_TLS_KEY_FILE",
    }.items()
    if os.environ.get(variable)
}
NAMESPACE = spark.conf.get("spark.gimbalmq.namespace", "")
if NAMESPACE:
    ACCESS["namespace"] = NAMESPACE


@dp.table(comment="Every message, as it was stored.")
def messages() -> DataFrame:
    return (
        spark.readStream.format("rocketmq")
        .option("nameserver", spark.conf.get("spark.gimbalmq.nameserver"))
        .option("topic", spark.conf.get("spark.gimbalmq.topic"))
        .option("startingOffsets", "earliest")
        .options(**ACCESS)
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
`spark-pipeline.yml`; keys and TLS come from the variables `ROCKETMQ_ACCESS_KEY`,
`ROCKETMQ_SECRET_KEY`, `ROCKETMQ_TLS` (`true`) and `ROCKETMQ_TLS_CA_FILE`.
"""


def write_project(
    folder: Path, *, nameserver: str, topic: str, namespace: str | None = None
) -> list[Path]:
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
        "more": "" if namespace is None else f'  spark.gimbalmq.namespace: "{namespace}"\n',
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

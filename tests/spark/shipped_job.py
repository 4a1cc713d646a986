"""Reads a topic on a cluster and prints where the tasks ran and what they read, as JSON.

spark-submit shipped_job.py NAMESERVER TOPIC
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession


def imported(_rows):
    """Where a worker of an executor has the package from."""
    import gimbalmq

    yield gimbalmq.__file__


def main(nameserver, topic):
    spark = SparkSession.builder.getOrCreate()
    reader = spark.read.format("rocketmq").option("nameserver", nameserver)
    frame = reader.options(topic=topic, columns="broker,queue_id,queue_offset", minPartitions="4")
    rows = frame.load().collect()
    files = spark.sparkContext.parallelize(range(2), 2).mapPartitions(imported).collect()
    print(json.dumps({"rows": sorted(rows), "files": sorted(set(files))}))  # noqa: T201 - the result
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

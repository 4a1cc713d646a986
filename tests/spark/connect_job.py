"""A Spark Connect client, in a process of its own: a process has sessions of one kind only.

    python connect_job.py SERVER NAMESERVER TOPIC COPY FOLDER

Reads a topic while the first attempt of every task fails, writes the bodies to another topic, and
streams that one into files. Prints what it has seen as one line of JSON.
"""

from __future__ import annotations

import json
import sys

from pyspark import TaskContext
from pyspark.sql import SparkSession


def fail_at_first(batches):
    """Everything, and then an error if this is a task's first attempt."""
    yield from batches
    if TaskContext.get().attemptNumber() == 0:
        raise RuntimeError("the first attempt fails when all is read")


def main(server, nameserver, topic, copy, folder):
    spark = SparkSession.builder.remote(server).getOrCreate()
    source = spark.read.format("rocketmq").option("nameserver", nameserver)
    frame = source.options(topic=topic, columns="queue_id,queue_offset,body").load()
    rows = frame.mapInArrow(fail_at_first, frame.schema).collect()
    frame.select("body").write.format("rocketmq").mode("append").options(
        nameserver=nameserver, topic=copy
    ).save()
    query = (
        spark.readStream.format("rocketmq")
        .options(nameserver=nameserver, topic=copy, group="connect", startingOffsets="earliest")
        .load()
        .writeStream.format("parquet")
        .options(path=f"{folder}/out", checkpointLocation=f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    streamed = spark.read.parquet(f"{folder}/out").select("body").collect()
    seen = {
        "client": type(spark).__module__,
        "read": sorted((row.queue_id, row.queue_offset) for row in rows),
        "streamed": sorted(bytes(row.body).decode() for row in streamed),
    }
    print(json.dumps(seen), flush=True)  # noqa: T201 - what the test reads
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""A streaming job in a process of its own, to be killed: a topic into Parquet files.

    python stream_job.py NAMESERVER TOPIC FOLDER CONFIG

CONFIG has Spark's settings as JSON. Goes on from its checkpoint in FOLDER and prints a line for each
batch. When the file FOLDER/finish is there, it reads what is left and ends.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from gimbalmq.spark import local_session, progress_line


def main(nameserver, topic, folder, config):
    spark = local_session(
        "stream-job",
        config=config,
        jvm_flags=("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),
    )
    query = (
        spark.readStream.format("rocketmq")
        .option("nameserver", nameserver)
        .option("topic", topic)
        .option("group", "stream-job")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "10000")
        .option("columns", "broker,queue_id,queue_offset,keys")
        .load()
        .writeStream.format("parquet")
        .option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )
    told = None
    while not (folder / "finish").exists():
        query.exception() and sys.exit(str(query.exception()))
        progress = query.lastProgress
        if progress is not None and progress.batchId != told:
            told = progress.batchId
            print(progress_line(progress), flush=True)  # noqa: T201 - what the test waits for
        time.sleep(0.05)
    query.processAllAvailable()
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), json.loads(sys.argv[4]))

"""A streaming job in a process of its own, to be killed: a topic into Parquet files.

    python stream_job.py NAMESERVER TOPIC FOLDER

Goes on from its checkpoint in FOLDER and prints a line for each batch. When the file FOLDER/finish
is there, it reads what is left and ends.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from gimbalmq.spark import local_session
from gimbalmq.spark.progress import progress_line


def main(nameserver, topic, folder):
    spark = local_session(
        "stream-job",
        # A task is tried again when its worker dies, as on a cluster.
        config={"spark.master": "local[2,4]"},
        jvm_flags=("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),
    )
    query = (
        spark.readStream.format("rocketmq")
        .option("nameserver", nameserver)
        .option("topic", topic)
        .option("group", "stream-job")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "2000")
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
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))

"""A batch write in a process of its own, to be killed: numbered rows into a topic.

    python sink_job.py NAMESERVER TOPIC ROWS TASKS RATE CONFIG

CONFIG has Spark's settings as JSON; RATE is that of one task, in rows a second.
"""

from __future__ import annotations

import json
import sys

from gimbalmq.spark import local_session


def main(nameserver, topic, rows, tasks, rate, config):
    spark = local_session(
        "sink-job", config=config, jvm_flags=("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
    )
    frame = spark.range(int(rows), numPartitions=int(tasks))
    (
        frame.selectExpr("rpad(cast(id as string), 100, 'x') as body")
        .write.format("rocketmq")
        .mode("append")
        .options(nameserver=nameserver, topic=topic, maxRowsPerSecond=rate)
        .save()
    )
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:6], json.loads(sys.argv[6]))

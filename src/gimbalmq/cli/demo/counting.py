"""Counts a topic with Spark, as a process of its own: Java's words stay off the demo's screen.

python -m gimbalmq.cli.demo.counting NAMESERVER TOPIC
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Sequence
from typing import Final

from gimbalmq.cli.demo.reports import Counted, Failed, SessionReady, encode
from gimbalmq.errors import GimbalError
from gimbalmq.model.queue import MessageQueue

__all__ = ["main"]

_CORES: Final = 2


def main(arguments: Sequence[str]) -> int:
    """Count, tell, end."""
    from pyspark.errors import PySparkException

    threading.Thread(target=_end_with_the_demo, name="stdin", daemon=True).start()
    nameserver, topic = arguments
    try:
        _count(nameserver, topic)
    except (GimbalError, PySparkException) as error:
        _tell(encode(Failed(str(error))))
        return 1
    return 0


def _count(nameserver: str, topic: str) -> None:
    from gimbalmq.spark.session import local_session

    spark = local_session("gimbalmq demo", cores=_CORES, driver_memory="1g")
    try:
        _tell(encode(SessionReady(time.monotonic(), str(spark.version))))
        orders = (
            spark.read.format("rocketmq")
            .option("nameserver", nameserver)
            .option("topic", topic)
            .option("columns", "topic,broker,queue_id")
            .load()
        )
        rows = orders.groupBy("topic", "broker", "queue_id").count().collect()
        counts = {
            MessageQueue(row["topic"], row["broker"], row["queue_id"]).path: int(row["count"])
            for row in rows
        }
        _tell(encode(Counted(time.monotonic(), counts)))
    finally:
        spark.stop()


def _end_with_the_demo() -> None:
    sys.stdin.buffer.read()
    # The Java process sees its own input close and ends, too.
    os._exit(1)


def _tell(line: bytes) -> None:
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Spark's part of the demo, as a process of its own: Java's words stay off the demo's screen.

    python -m gimbalmq.cli.demo.streaming NAMESERVER TOPIC FOLDER

Runs the ready-made pipeline `archive` as a stream into FOLDER, and tells how far it is, until the
line FINISH comes on standard input. Then it reads its files again, runs the pipeline
`load-profile`, and ends. Without its standard input it ends at once.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from gimbalmq.cli.demo.reports import (
    FINISH,
    Archived,
    Failed,
    Predicted,
    Profiled,
    Report,
    SessionReady,
    Streamed,
    encode,
)
from gimbalmq.errors import GimbalError
from gimbalmq.model.queue import MessageQueue

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["main"]

_CORES: Final = 2
#: A short life: what a compiler would gain is less than what it costs.
_JVM_FLAGS: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_TRIGGER: Final = "1 second"
_LOOK_INTERVAL_S: Final = 0.5
_GROUP_SIZES: Final = "1,2,3,4"


def main(arguments: Sequence[str]) -> int:
    """Stream, read again, profile, tell, end."""
    from pyspark.errors import PySparkException

    finish = threading.Event()
    threading.Thread(target=_listen, args=(finish,), name="stdin", daemon=True).start()
    nameserver, topic, folder = arguments
    try:
        _run(nameserver, topic, folder, finish)
    except (GimbalError, PySparkException) as error:
        _tell(Failed(str(error)))
        return 1
    return 0


def _run(nameserver: str, topic: str, folder: str, finish: threading.Event) -> None:
    from gimbalmq.spark.pipelines import archive, load_profile
    from gimbalmq.spark.session import local_session

    spark = local_session("gimbalmq demo", cores=_CORES, driver_memory="1g", jvm_flags=_JVM_FLAGS)
    try:
        _tell(SessionReady(time.monotonic(), str(spark.version)))
        watcher = threading.Thread(target=_watch, args=(spark, finish), name="watch", daemon=True)
        watcher.start()
        archive.run(
            spark,
            archive.Options(
                nameserver=nameserver,
                topic=topic,
                path=folder,
                trigger=_TRIGGER,
                files_per_batch=1,
            ),
            tell=_keep_quiet,
        )
        watcher.join()
        _tell(_read_again(spark, folder))
        profile = load_profile.run(
            spark,
            load_profile.Options(nameserver=nameserver, topic=topic, group_sizes=_GROUP_SIZES),
            tell=_keep_quiet,
        )
        loads = {
            MessageQueue(topic, row["broker"], row["queue_id"]).path: int(row["messages"])
            for row in profile.tables["queues"]
        }
        spread = msgspec.convert(profile.tables["spread"], tuple[Predicted, ...])
        _tell(Profiled(time.monotonic(), loads, profile.facts["skew"], spread))
    finally:
        spark.stop()


def _watch(spark: SparkSession, finish: threading.Event) -> None:
    """Tell how far the stream is; when that is wanted, let it come to the end, and stop it."""
    from pyspark.errors import PySparkException

    from gimbalmq.spark.progress import queue_progress

    told = None
    while True:
        wanted = finish.wait(_LOOK_INTERVAL_S)
        try:
            for query in spark.streams.active:
                if wanted:
                    query.processAllAvailable()
                read = {one.queue.path: one.offset for one in queue_progress(query.lastProgress)}
                if read and read != told:
                    _tell(Streamed(time.monotonic(), read))
                    told = read
                if wanted:
                    query.stop()
                    return
        except PySparkException:
            return  # the query failed, which is raised to the one who waits for its end


def _read_again(spark: SparkSession, folder: str) -> Archived:
    from pyspark.sql import functions as f

    found = (
        spark.read.parquet(folder)
        .groupBy("topic", "broker", "queue_id")
        .agg(f.count("*").alias("rows"), f.countDistinct("queue_offset").alias("different"))
        .collect()
    )
    queues = [MessageQueue(row["topic"], row["broker"], row["queue_id"]).path for row in found]
    return Archived(
        time.monotonic(),
        {path: int(row["rows"]) for path, row in zip(queues, found, strict=True)},
        {path: int(row["different"]) for path, row in zip(queues, found, strict=True)},
    )


def _listen(finish: threading.Event) -> None:
    for line in sys.stdin.buffer:
        if line == FINISH:
            finish.set()
    # The demo is gone; the Java process sees its own input close and ends, too.
    os._exit(1)


def _keep_quiet(_line: str) -> None:
    """What pipelines say line by line is told in numbers instead."""


_lock: Final = threading.Lock()


def _tell(report: Report) -> None:
    with _lock:
        sys.stdout.buffer.write(encode(report))
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

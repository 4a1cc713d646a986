"""Reading and writing topics with Spark, beside the Java client and beside what Spark can do at all.

Reads go against the Java push consumer (batches of 32) on the same queues, and against a source of
the same rows that costs nothing (`arrow-ceiling`): prebuilt Arrow batches, no broker. `decode` is
that source with the decoder in it: pull answers that are in memory already. Writes go against Java's
pipelined send, and against a sink that only counts.

All sides are warmed up, and all of them have their turn in every round. Ours is the whole action,
from `load` to the end of the job; Java's consumer is timed from its first listener call to its last,
so that joining the group does not count. What is read was written just before: a broker finds it in
memory, for either side.

The sources below are sent to Spark's workers by value, as everything in `__main__` is.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)

from client_consume import until
from client_stage import SIZES, Stage, add_options
from harness import Row, arguments, run

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

QUEUES: Final = 8
FEW: Final = "body,queue_id,queue_offset"
#: Java's consumer as it is in the client benchmark.
WORKERS: Final = 20
IN_FLIGHT: Final = 256
#: Messages of one pull answer, and answers of one Arrow batch.
ANSWER: Final = 32
ANSWERS: Final = 156

#: The rates of each side, one per round.
Rates = dict[str, list[float]]

_groups = itertools.count(1)


class Synthetic(DataSource):
    """Rows without a broker: the same batch again and again, decoded each time or once."""

    @classmethod
    def name(cls) -> str:
        return "synthetic"

    def schema(self) -> str:
        from gimbalmq.spark.schema import ddl, parse_columns

        return ddl(parse_columns(self.options.get("columns")))

    def reader(self, schema: Any) -> DataSourceReader:
        del schema
        return SyntheticReader(dict(self.options))


class SyntheticReader(DataSourceReader):
    """As many tasks as cores, each with its share of the rows."""

    def __init__(self, options: dict[str, str]) -> None:
        self.options = options

    def partitions(self) -> list[InputPartition]:
        tasks = os.cpu_count() or 1
        return [InputPartition(int(self.options["rows"]) // tasks) for _ in range(tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from gimbalmq.spark.schema import arrow_schema, parse_columns
        from gimbalmq.wire.columns import decode_columns
        from gimbalmq.wire.record import encode_record

        columns = parse_columns(self.options.get("columns"))
        schema, names = arrow_schema(columns), [column.source for column in columns]
        body = b"x" * int(self.options["size"])
        record = encode_record(
            topic="read",
            body=body,
            properties=b"UNIQ_KEY\x017F0000010001000000000000000000AB\x02WAIT\x01true\x02",
        )
        answers = [(record * ANSWER, "broker-a")] * ANSWERS

        def batch() -> pa.RecordBatch:
            return decode_columns(answers, names).cast(schema)

        decode, ready, left = self.options["decode"] == "true", batch(), partition.value
        while left > 0:
            given = batch() if decode else ready
            yield given.slice(0, left) if left < given.num_rows else given
            left -= given.num_rows


class Counting(DataSource):
    """A sink that counts rows."""

    @classmethod
    def name(cls) -> str:
        return "counting"

    def writer(self, schema: Any, overwrite: bool) -> DataSourceArrowWriter:  # noqa: FBT001 - PySpark's signature
        del schema, overwrite
        return CountingWriter()


class CountingWriter(DataSourceArrowWriter):
    """Looks at nothing but the number of rows."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:  # type: ignore[override]
        for batch in iterator:
            len(batch)
        return WriterCommitMessage()


class Bench:
    """A broker, a Java process and a Spark session, and what is done with them."""

    def __init__(self, stage: Stage, spark: SparkSession, *, reads: int, writes: int) -> None:
        self.stage = stage
        self.spark = spark
        #: Rows of a round.
        self.reads = reads
        self.writes = writes

    def timed(self, work: Callable[[], object]) -> float:
        started = time.perf_counter()
        work()
        return time.perf_counter() - started

    def read(self, topic: str, columns: str | None) -> float:
        """Read a topic whole and do nothing with the rows; the seconds."""
        reader = self.spark.read.format("rocketmq").option("nameserver", self.stage.nameserver)
        if columns is not None:
            reader = reader.option("columns", columns)
        return self._drain(lambda: reader.option("topic", topic).load())

    def synthetic(self, size: int, columns: str | None, *, decode: bool) -> float:
        """Read as many rows that no broker gave; the seconds."""
        reader = self.spark.read.format("synthetic").options(
            rows=str(self.reads), size=str(size), decode=str(decode).lower()
        )
        if columns is not None:
            reader = reader.option("columns", columns)
        return self._drain(reader.load)

    def _drain(self, load: Callable[[], Any]) -> float:
        return self.timed(lambda: load().write.format("noop").mode("overwrite").save())

    def java_read(self, topic: str) -> float:
        """Consume a topic whole with Java; the seconds from first to last listener call."""
        with self.stage.java.push_consumer(
            f"bench-spark-{next(_groups)}",
            topic,
            batch_size=32,
            report="count",
            workers=WORKERS,
            expect=self.reads,
        ) as consumer:
            return until(consumer.lapse)

    def write(self, size: int, target: str, **options: str) -> float:
        """Write rows of this size; the seconds."""
        rows = self.spark.range(self.writes, numPartitions=os.cpu_count() or 1)
        frame = rows.selectExpr(f"rpad(cast(id as string), {size}, 'x') as body")
        writer = frame.write.format(target).mode("append").options(**options)
        return self.timed(writer.save)

    def taken(self, case: str, count: int, sides: Mapping[str, Callable[[], float]]) -> Rates:
        """Rows per second of each side, one after the other in each round; the first is left out."""
        rates: Rates = {name: [] for name in sides}
        for number in range(self.stage.rounds + 1):
            for name, side in sides.items():
                rate = count / side()
                print(f"{case} round {number}: {name} {rate:,.0f}", file=sys.stderr, flush=True)
                if number:
                    rates[name].append(rate)
        return rates


def row(case: str, size: int, count: int, rates: Rates, ours: str, anchor: str) -> Row:
    """The middle of one side's rates against that of another."""
    mine, other = statistics.median(rates[ours]), statistics.median(rates[anchor])
    note = (
        f"median of {len(rates[ours])} with {count:,} rows, {min(rates[ours]):,.0f} to "
        f"{max(rates[ours]):,.0f}; bodies: {mine * size / 1e6:,.0f} and {other * size / 1e6:,.0f} MB/s"
    )
    return Row(case, mine, other, anchor, "rows/s", note)


def rows(stage: Stage, *, reads: int, writes: int) -> Iterator[Row]:
    from gimbalmq.spark import local_session

    with stage:
        spark = local_session("bench", driver_memory="4g")
        try:
            spark.dataSource.register(Synthetic)
            spark.dataSource.register(Counting)
            bench = Bench(stage, spark, reads=reads, writes=writes)
            for name, size in SIZES.items():
                yield from read_rows(bench, name, size)
                yield from write_rows(bench, name, size)
        finally:
            spark.stop()


def read_rows(bench: Bench, name: str, size: int) -> Iterator[Row]:
    stage, topic = bench.stage, f"read-{name}"
    parts = functools.partial
    filled = False
    for case, columns in {"few-columns": FEW, "all-columns": None}.items():
        read, decode = f"read/{case}/{name}", f"decode/{case}/{name}"
        sides: dict[str, Callable[[], float]] = {}
        if stage.wanted(read):
            if not filled:
                fill(bench, topic, size)
                filled = True
            sides["ours"] = parts(bench.read, topic, columns)
            sides["java"] = parts(bench.java_read, topic)
        if stage.wanted(decode):
            sides["decode"] = parts(bench.synthetic, size, columns, decode=True)
        if not sides:
            continue
        sides["arrow-ceiling"] = parts(bench.synthetic, size, columns, decode=False)
        rates = bench.taken(f"read/{case}/{name}", bench.reads, sides)
        if "ours" in sides:
            yield row(read, size, bench.reads, rates, "ours", "java")
            yield row(read, size, bench.reads, rates, "ours", "arrow-ceiling")
        if "decode" in sides:
            yield row(decode, size, bench.reads, rates, "decode", "arrow-ceiling")


def fill(bench: Bench, topic: str, size: int) -> None:
    """Put the messages of all rounds there, and let both sides read until compilers are done."""
    stage = bench.stage
    stage.cluster.create_topic(topic, queues=QUEUES)
    with stage.java.producer("bench-fill", timeout_ms=30_000) as producer:
        producer.pump(topic, "batch", count=bench.reads, size=size, width=100)
    # The round that is left out warms up, too.
    for _ in range(max(1, stage.warm // bench.reads)):
        bench.java_read(topic)
        bench.read(topic, FEW)


def write_rows(bench: Bench, name: str, size: int) -> Iterator[Row]:
    stage, case = bench.stage, f"write/{name}"
    if not stage.wanted(case):
        return
    topic = f"write-{name}"
    stage.cluster.create_topic(topic, queues=QUEUES)
    parts = functools.partial
    with stage.java.producer("bench-java", timeout_ms=10_000) as java:
        pump = parts(java.pump, topic, "pipelined", size=size, width=IN_FLIGHT)
        pump(count=max(stage.warm // 2, bench.writes // 5))
        sides = {
            "ours": parts(bench.write, size, "rocketmq", nameserver=stage.nameserver, topic=topic),
            "java": parts(pump, count=bench.writes),
            "counting-sink": parts(bench.write, size, "counting"),
        }
        rates = bench.taken(case, bench.writes, sides)
    yield row(case, size, bench.writes, rates, "ours", "java")
    yield row(case, size, bench.writes, rates, "ours", "counting-sink")


def options() -> argparse.Namespace:
    parser = arguments("Read and write topics with Spark on one RocketMQ 5.5.0 broker.")
    add_options(parser)
    parser.set_defaults(rounds=3)
    parser.add_argument(
        "--reads", type=int, default=1_000_000, help="rows read in a round (%(default)s)"
    )
    parser.add_argument(
        "--writes", type=int, default=300_000, help="rows written in a round (%(default)s)"
    )
    return parser.parse_args()


if __name__ == "__main__":
    given = options()
    stage = Stage(given.only, rounds=given.rounds, warm=given.warm)
    raise SystemExit(run(rows(stage, reads=given.reads, writes=given.writes), as_json=given.json))

"""The batch reader: plans on the driver, reads in tasks. Streams make and read tasks the same way.

Planned once per loaded DataFrame: start and end are fixed then, so every action on the frame sees
the same messages, and a task that is tried again reads the same offsets.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from gimbalmq.runtime.inline import ConnectionPool, run_inline
from gimbalmq.spark.failures import plain_errors
from gimbalmq.spark.lookup import find_coverage
from gimbalmq.spark.options import ReadOptions
from gimbalmq.spark.planning import ReadRange, count_tasks, plan_tasks
from gimbalmq.spark.reading import read_batches
from gimbalmq.spark.schema import Column

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["BatchReader", "RangesPartition", "plan_partitions", "read_partition"]

_log = logging.getLogger("gimbalmq.spark")


class RangesPartition(InputPartition):
    """The ranges that one task reads."""

    def __init__(self, ranges: Sequence[ReadRange]) -> None:
        super().__init__(None)
        self.ranges = tuple(ranges)

    def __repr__(self) -> str:
        parts = (f"{r.queue.path}[{r.offset_from}:{r.offset_until}]" for r in self.ranges)
        return f"RangesPartition({', '.join(parts)})"


class BatchReader(DataSourceReader):
    """Reads topics from start to end. Holds only values: Spark pickles it."""

    def __init__(self, options: ReadOptions, columns: Sequence[Column]) -> None:
        self._options = options
        self._columns = tuple(columns)

    def partitions(self) -> list[InputPartition]:
        """Resolve start and end now, and share the records out to tasks."""
        options = self._options
        with plain_errors():
            pool = ConnectionPool(reach=options.reach)
            try:
                coverage = run_inline(find_coverage(options), pool)
            finally:
                pool.close()
        for loss in coverage.losses:
            _log.warning("%s; reading what is there (failOnDataLoss=false)", loss.sentence)
        return plan_partitions(coverage.ranges, options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of one partition."""
        return read_partition(partition, self._options, self._columns)


def plan_partitions(ranges: Sequence[ReadRange], options: ReadOptions) -> list[InputPartition]:
    """Share ranges out to tasks: small queues together, hot ones over several."""
    tasks = count_tasks(
        sum(one.records for one in ranges),
        # Spark does not tell a source about its executors.
        cores=os.cpu_count() or 1,
        tasks_min=options.partitions_min,
        records_max=options.partition_records_max,
    )
    return [RangesPartition(part) for part in plan_tasks(ranges, tasks)]


def read_partition(
    partition: InputPartition, options: ReadOptions, columns: Sequence[Column]
) -> Iterator[pa.RecordBatch]:
    """The messages of one partition, in a task."""
    # Spark turns an empty list of partitions into one partition of its own class.
    if not isinstance(partition, RangesPartition):
        return
    with plain_errors():
        yield from read_batches(partition.ranges, options, columns)

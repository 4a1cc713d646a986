"""The writers of `format("rocketmq")`, for batches and for streams.

Both hold only values, because Spark pickles them. A task succeeds when brokers have acknowledged
every row of it; there is nothing left to do at commit. What a failed task has sent stays sent:
delivery is at least once, and `ids` tells copies apart.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from gimbalmq.errors import GimbalError, TopicNotFoundError, TransportError
from gimbalmq.spark.failures import plain_errors
from gimbalmq.spark.write_columns import RowLayout
from gimbalmq.spark.write_options import Selector, WriteOptions

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["BatchWriter", "StreamWriter", "WrittenRows"]

_log = logging.getLogger("gimbalmq.spark")


@dataclass
class WrittenRows(WriterCommitMessage):
    """What one task has written."""

    rows: int


class BatchWriter(DataSourceArrowWriter):
    """Writes a frame to topics."""

    def __init__(self, options: WriteOptions, layout: RowLayout) -> None:
        self._options = options
        self._layout = layout

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:  # type: ignore[override]
        """Write the rows of one task."""
        with plain_errors():
            return _write(iterator, self._options, self._layout)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Everything is stored already."""
        _log.info("%d rows written", _count(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Say that the rows of other tasks, and a part of the failed one's, are in the topic."""
        _log.warning(
            "the write failed; %d rows of tasks that ended well stay written", _count(messages)
        )


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of a stream to topics."""

    def __init__(self, options: WriteOptions, layout: RowLayout) -> None:
        self._options = options
        self._layout = layout

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:  # type: ignore[override]
        """Write the rows of one task."""
        with plain_errors():
            return _write(iterator, self._options, self._layout)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - PySpark's name
        """Everything is stored already."""
        _log.info("batch %d: %d rows written", batchId, _count(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - PySpark's name
        """Say that the batch will be written again."""
        _log.warning(
            "batch %d failed; %d rows of tasks that ended well stay written and will be there "
            "twice after the restart, with equal ids",
            batchId,
            _count(messages),
        )


def _count(messages: Sequence[WriterCommitMessage | None]) -> int:
    return sum(message.rows for message in messages if isinstance(message, WrittenRows))


def _write(
    batches: Iterator[pa.RecordBatch], options: WriteOptions, layout: RowLayout
) -> WrittenRows:
    # Here, not above: planning a read must not load numpy and the client.
    from gimbalmq.spark.rows import RowEncoder, slices
    from gimbalmq.spark.sink_parcels import ParcelCutter
    from gimbalmq.spark.sink_sending import Courier, discard_producer, producer_for

    context = TaskContext.get()
    where = "the task" if context is None else f"partition {context.partitionId()}"
    producer = producer_for(options)
    by_key = options.selector is Selector.KEY or (
        options.selector is None and "sharding_key" in layout.places
    )
    encoder = RowEncoder(
        layout,
        topic=options.topic,
        by_key=by_key,
        new_ids=producer.new_ids,
        where=where,
        namespace=options.namespace,
    )
    cutter = ParcelCutter(
        producer.queues, in_flight_max=options.in_flight_max, rows_per_s=options.rows_per_s
    )
    courier = Courier(producer, where, rows_per_s=options.rows_per_s)
    try:
        for batch in batches:
            for piece in slices(batch):
                before = encoder.rows_before
                for parcel in cutter.cut(encoder.encode(piece), before):
                    courier.send(parcel)
        courier.finish()
    except BaseException as error:
        discard_producer(options)
        if isinstance(error, (TransportError, TopicNotFoundError)):
            raise _in_words_of_options(error, options) from error
        raise
    return WrittenRows(courier.rows_acknowledged)


def _in_words_of_options(
    error: TransportError | TopicNotFoundError, options: WriteOptions
) -> GimbalError:
    """The error of asking where a topic is; a row that cannot be sent is another one."""
    if isinstance(error, TransportError):
        servers = ";".join(options.nameservers)
        return TransportError(f"option 'nameserver' is '{servers}': {error}", address=error.address)
    said_by = "column" if options.topic is None else "option"
    return TopicNotFoundError(
        f"{said_by} 'topic': {error}",
        code=error.code or 0,
        address=error.address,
        remark=error.remark,
    )

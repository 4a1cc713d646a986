"""Ranges of a scripted broker, read as a task reads them."""

from __future__ import annotations

from gimbalmq.spark.planning import ReadRange
from gimbalmq.spark.reading import read_batches
from gimbalmq.spark.schema import parse_columns


def ranged(broker, queue, offset_from=0, offset_until=None):
    until = len(broker.stored[queue]) if offset_until is None else offset_until
    return ReadRange(queue, broker.address, offset_from, until)


def rows(ranges, options, **more):
    batches = read_batches(ranges, options, parse_columns("queue_id,queue_offset,body"), **more)
    return [
        (row["queue_id"], row["queue_offset"]) for batch in batches for row in batch.to_pylist()
    ]


def expected(queue, offset_from, offset_until):
    return [(queue.queue_id, offset) for offset in range(offset_from, offset_until)]

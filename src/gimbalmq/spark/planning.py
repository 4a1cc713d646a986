"""Cuts the ranges to read into tasks: pure arithmetic, no broker and no Spark.

The rule: all ranges, one after the other, are one line of records, and the line is cut into
pieces of equal length. So small queues share a task, a hot one is spread over several, every
task has the same work to within one record, and the result covers the ranges exactly.

How many pieces: a task costs Spark 17 to 53 ms before it reads its first record, and as much
after its last, when the worker collects garbage. So there is one per core, and fewer when they
would be small; a second one per core, which evens out cores of different speed, when there is
enough to read. `minPartitions` and `maxRecordsPerPartition` raise the number. Work is counted in
records, whose sizes are not known before they are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from gimbalmq.model.queue import MessageQueue

__all__ = ["ReadRange", "count_tasks", "plan_tasks"]

#: Fewer records than this are read faster than another task starts.
_TASK_RECORDS_MIN: Final = 20_000
#: Cores are busy for seconds with this many, beside which a second task per core costs nothing.
_CORE_RECORDS_FOR_TWO: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class ReadRange:
    """A part of a queue to read: offsets from `offset_from` up to and without `offset_until`.

    `address` is where the broker was when the read was planned.
    """

    queue: MessageQueue
    address: str
    offset_from: int
    offset_until: int

    @property
    def records(self) -> int:
        """How many offsets it spans; filters and gaps leave fewer messages."""
        return self.offset_until - self.offset_from


def count_tasks(
    records: int, *, cores: int, tasks_min: int | None = None, records_max: int | None = None
) -> int:
    """How many tasks to make of so many records.

    >>> count_tasks(9_000_000, cores=4), count_tasks(500_000, cores=4), count_tasks(50, cores=4)
    (8, 4, 1)
    >>> count_tasks(1_000, cores=4, tasks_min=3), count_tasks(1_000, cores=4, records_max=100)
    (3, 10)
    """
    per_core = 2 if records >= cores * _CORE_RECORDS_FOR_TWO else 1
    wanted = min(cores * per_core, -(-records // _TASK_RECORDS_MIN))
    if tasks_min is not None:
        wanted = max(wanted, tasks_min)
    if records_max is not None:
        wanted = max(wanted, -(-records // records_max))
    return min(wanted, records)


def plan_tasks(ranges: Iterable[ReadRange], tasks: int) -> list[tuple[ReadRange, ...]]:
    """Cut ranges into `tasks` pieces whose records differ by at most one.

    Deterministic; queues keep their order of topic, queue id, broker, so that neighbouring tasks
    read from different brokers. `tasks` may not exceed the number of records.
    """
    line = sorted(
        (one for one in ranges if one.records > 0),
        key=lambda one: (one.queue.topic, one.queue.queue_id, one.queue.broker, one.offset_from),
    )
    records = sum(one.records for one in line)
    assert 0 <= tasks <= records, f"{tasks} tasks of {records} records"
    if not tasks:
        assert not records, "records without a task to read them"
        return []
    share, larger = divmod(records, tasks)
    lengths = [share + 1] * larger + [share] * (tasks - larger)
    return list(_cut(line, lengths))


def _cut(line: Sequence[ReadRange], lengths: Iterable[int]) -> Iterator[tuple[ReadRange, ...]]:
    position = 0
    offset = line[0].offset_from
    for length in lengths:
        piece: list[ReadRange] = []
        missing = length
        while missing:
            whole = line[position]
            until = min(whole.offset_until, offset + missing)
            piece.append(ReadRange(whole.queue, whole.address, offset, until))
            missing -= until - offset
            offset = until
            if until == whole.offset_until and position + 1 < len(line):
                position += 1
                offset = line[position].offset_from
        yield tuple(piece)

"""Lag and rate of every queue, read from the progress that Spark reports for a streaming query.

    for one in queue_progress(query.lastProgress):
        print(one.queue.path, one.lag, one.records_per_s)

Knows the progress only: it asks no broker, so it also works on progress events that were stored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from gimbalmq.model.queue import MessageQueue
from gimbalmq.spark.stream_offsets import Offsets, is_symbolic, read_offsets

__all__ = ["QueueProgress", "progress_line", "queue_progress"]


class QueueProgress(msgspec.Struct, frozen=True):
    """How one queue stands after a batch.

    `maximum` and `lag` are None while its broker is away, and in a batch that is repeated after a
    restart, before brokers are asked.
    """

    queue: MessageQueue
    #: The next offset to read.
    offset: int
    maximum: int | None
    #: How many offsets the batch covered; with a filter fewer messages.
    records: int
    records_per_s: float

    @property
    def lag(self) -> int | None:
        """How many offsets wait."""
        return None if self.maximum is None else max(0, self.maximum - self.offset)


def queue_progress(progress: Any) -> tuple[QueueProgress, ...]:
    """What a query's progress says about each queue of its `rocketmq` sources, sorted.

    Takes `query.lastProgress`, an event's progress, or the JSON of either as text or mapping; None,
    before the first batch, gives nothing.

    >>> progress = {
    ...     "durationMs": {"triggerExecution": 500},
    ...     "sources": [{
    ...         "startOffset": {"orders/broker-a/0": 10},
    ...         "endOffset": {"orders/broker-a/0": 30},
    ...         "latestOffset": {"orders/broker-a/0": 100},
    ...     }],
    ... }
    >>> [(one.queue.path, one.lag, one.records_per_s) for one in queue_progress(progress)]
    [('orders/broker-a/0', 70, 40.0)]
    """
    document = _document(progress)
    duration_s = document.get("durationMs", {}).get("triggerExecution", 0) / 1000
    found: list[QueueProgress] = []
    for source in document.get("sources", ()):
        end = _offsets(source.get("endOffset"))
        start = _offsets(source.get("startOffset"))
        latest = _offsets(source.get("latestOffset"))
        for queue, offset in end.items():
            records = max(0, offset - start.get(queue, offset))
            rate = records / duration_s if duration_s else 0.0
            found.append(QueueProgress(queue, offset, latest.get(queue), records, rate))
    return tuple(sorted(found, key=lambda one: one.queue.sort_key))


def progress_line(progress: Any) -> str:
    """One line for a terminal: records, rate, lag, and the same of the queue furthest behind.

    >>> progress_line({"batchId": 3, "durationMs": {"triggerExecution": 500}, "sources": [{
    ...     "startOffset": {"orders/broker-a/0": 10, "orders/broker-a/1": 0},
    ...     "endOffset": {"orders/broker-a/0": 30, "orders/broker-a/1": 5},
    ...     "latestOffset": {"orders/broker-a/0": 30, "orders/broker-a/1": 5000},
    ... }]})
    'batch 3: 25 records, 50/s, lag 4,995 in 2 queues, most in orders/broker-a/1 (4,995 at 10/s)'
    """
    document = _document(progress)
    queues = queue_progress(document)
    if not queues:
        return "no batch yet"
    records = sum(one.records for one in queues)
    rate = sum(one.records_per_s for one in queues)
    lags = {one.queue: one.lag for one in queues if one.lag is not None}
    rates = {one.queue: one.records_per_s for one in queues}
    line = f"batch {document.get('batchId', '?')}: {records:,} records, {rate:,.0f}/s"
    if not lags:
        return f"{line}, lag of {len(queues)} queues not known yet"
    line += f", lag {sum(lags.values()):,} in {len(queues)} queues"
    if any(lags.values()):
        most = max(lags, key=lambda queue: (lags[queue], queue.path))
        line += f", most in {most.path} ({lags[most]:,} at {rates[most]:,.0f}/s)"
    if away := len(queues) - len(lags):
        line += f", {away} away"
    return line


def _document(progress: Any) -> Mapping[str, Any]:
    if progress is None:
        return {}
    if isinstance(progress, Mapping):
        return progress
    text = progress if isinstance(progress, str) else progress.json
    read: Mapping[str, Any] = json.loads(text)
    return read


def _offsets(document: Any) -> Offsets:
    """The map of one place in the progress; none for a symbolic start and for other sources."""
    read = json.loads(document) if isinstance(document, str) else document
    # Queues have paths; what other sources report has not.
    if not isinstance(read, Mapping) or is_symbolic(read):
        return {}
    if not all(isinstance(value, int) and path.count("/") > 1 for path, value in read.items()):
        return {}
    return read_offsets(read)

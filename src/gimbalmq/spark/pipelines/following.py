"""Waiting for a streaming query while its progress is told, a line per batch."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from gimbalmq.spark.progress import progress_line

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["follow"]

_LOOK_EVERY_S: Final = 1


def follow(query: StreamingQuery, tell: Callable[[str], None]) -> dict[int, int]:
    """Wait for a query's end; returns the rows of each batch. Ctrl-C stops it in good order.

    Raises:
        StreamingQueryException: the query failed.
    """
    seen: dict[int, int] = {}

    def look() -> None:
        for one in query.recentProgress:
            document = json.loads(one.json)
            batch, rows = int(document["batchId"]), int(document["numInputRows"])
            # An idle trigger reports the last batch again, with nothing in it.
            if rows and batch not in seen:
                seen[batch] = rows
                tell(progress_line(document))

    try:
        while not query.awaitTermination(_LOOK_EVERY_S):
            look()
    except KeyboardInterrupt:
        query.stop()
    look()
    return seen

"""The stream reader: what Spark's micro-batch engine asks, answered by the planner.

Spark keeps one reader on the driver for the planning of a whole run, in a process of its own, and
others, without state, in the tasks. So nothing is opened before the first question, and all that
a task needs is in its partition. Offsets go to Spark as sorted maps (`stream_offsets`).
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from gimbalmq.errors import GimbalError
from gimbalmq.model.queue import MessageQueue
from gimbalmq.spark.batch import plan_partitions, read_partition
from gimbalmq.spark.failures import WORKER_MODULE, plain_errors
from gimbalmq.spark.schema import Column
from gimbalmq.spark.stream_offsets import (
    Offsets,
    is_symbolic,
    read_offsets,
    symbolic_start,
    write_offsets,
)
from gimbalmq.spark.stream_options import StreamOptions
from gimbalmq.spark.stream_planner import StreamPlanner

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["RefusingReader", "StreamReader"]

#: Without data Spark asks again at once, some ninety times a second: the answer takes its time.
_IDLE_WAITS_S: Final = (0.03, 0.07, 0.15, 0.25)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics as a stream. Holds only values until the first question: Spark pickles it."""

    def __init__(self, options: StreamOptions, columns: Sequence[Column]) -> None:
        self._options = options
        self._columns = tuple(columns)
        self._planner: StreamPlanner | None = None
        self._target: Offsets | None = None
        self._terminated = False

    def __getstate__(self) -> dict[str, Any]:
        assert self._planner is None, "a reader that plans stays in its process"
        return self.__dict__

    # ---- planning, on the driver -------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - PySpark's name
        """The start as it was asked for; the first batch puts the offsets down."""
        return symbolic_start(self._options.read.start)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - PySpark's name
        """One of the limits, for Spark to hand back; all of them are applied by the planner."""
        limits = self._options.limits
        if limits.records_max is not None:
            return ReadMaxRows(limits.records_max)
        if limits.bytes_max is not None:
            return ReadMaxBytes(limits.bytes_max)
        if limits.records_min is not None:
            return ReadMinRows(limits.records_min)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - PySpark's name
        """Remember the end of the query: what is stored now."""
        with plain_errors():
            self._target = self._planning().aim()

    def latestOffset(  # noqa: N802 - PySpark's name
        self, start: dict[str, Any], limit: ReadLimit
    ) -> dict[str, Any]:
        """The end of the next batch; `start` itself when there is nothing to read."""
        with plain_errors():
            planner = self._planning()
            if is_symbolic(start):
                return self._written(planner.pin())
            offsets = self._read(start)
            limited = not isinstance(limit, ReadAllAvailable)
            waits_s = () if self._target is not None else _IDLE_WAITS_S
            for wait_s in (*waits_s, None):
                end = planner.following(offsets, target=self._target, limited=limited)
                if end != offsets or wait_s is None:
                    break
                time.sleep(wait_s)
            return self._written(end)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - PySpark's name
        """The end of every queue, for the lag in the query's progress."""
        planner = self._planner
        return self._written(planner.latest) if planner is not None and planner.latest else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of the batch between two checkpointed maps."""
        if is_symbolic(start):
            return []
        with plain_errors():
            ranges = self._planning().ranges(self._read(start), self._read(end))
            return plan_partitions(ranges, self._options.read)

    def commit(self, end: dict[str, Any]) -> None:
        """Tell the group what is processed; the last batch is told of by `latestOffset`."""
        if not is_symbolic(end):
            with plain_errors():
                self._planning().tell_group(self._read(end))

    def _read(self, document: dict[str, Any]) -> Offsets:
        """A map of the checkpoint, which has the user's names of topics."""
        wire = self._options.read.namespace.wire_queue
        return {wire(queue): offset for queue, offset in read_offsets(document).items()}

    def _written(self, offsets: Mapping[MessageQueue, int]) -> dict[str, Any]:
        user = self._options.read.namespace.user_queue
        return write_offsets({user(queue): offset for queue, offset in offsets.items()})

    def stop(self) -> None:
        """Leave the group and close the connections."""
        if self._planner is not None:
            signal_free = threading.current_thread() is not threading.main_thread()
            if self._in_worker and not signal_free:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)  # Spark sends it more than once
            self._planner.close()
            self._planner = None
        if self._terminated:
            # Now as Spark wanted it. It has closed the connection: to report to it would only
            # print a traceback.
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.raise_signal(signal.SIGTERM)

    @property
    def _in_worker(self) -> bool:
        return WORKER_MODULE in sys.modules

    def _planning(self) -> StreamPlanner:
        if self._planner is None:
            self._planner = StreamPlanner(self._options)
            # Spark ends a query with SIGTERM alone, which would keep a member in its group.
            if self._in_worker and threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, self._on_sigterm)
        return self._planner

    def _on_sigterm(self, _number: int, _frame: FrameType | None) -> NoReturn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self._terminated = True
        raise SystemExit(0)

    # ---- reading, in tasks -------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of one partition."""
        return read_partition(partition, self._options.read, self._columns)


class RefusingReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Stands for a stream that cannot be, and says why at the first question.

    Spark's runner loses an error that is raised while a stream reader is made: it goes on to stop
    the reader that it does not have, and reports that instead.
    """

    def __init__(self, error: GimbalError) -> None:
        self._error = error

    def _refuse(self) -> NoReturn:
        with plain_errors():
            raise self._error

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - PySpark's name
        """Raise the error."""
        self._refuse()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - PySpark's name
        """Raise the error."""
        self._refuse()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - PySpark's name
        """Raise the error."""
        self._refuse()

    def latestOffset(  # noqa: N802 - PySpark's name
        self,
        start: dict[str, Any],  # noqa: ARG002 - PySpark's signature
        limit: ReadLimit,  # noqa: ARG002 - as above
    ) -> dict[str, Any]:
        """Raise the error."""
        self._refuse()

    def partitions(
        self,
        start: dict[str, Any],  # noqa: ARG002 - PySpark's signature
        end: dict[str, Any],  # noqa: ARG002 - as above
    ) -> Sequence[InputPartition]:
        """Raise the error."""
        self._refuse()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002 - as above
        """Raise the error."""
        self._refuse()

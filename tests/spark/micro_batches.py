"""Spark's micro-batch engine as a stream reader sees it, without Spark: log, batch, commit, replay.

Asks in the order in which Spark asks, and passes everything through JSON, as the checkpoint does.
"""

from __future__ import annotations

import json
import pickle

from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from gimbalmq.spark import RocketMQDataSource

SCHEMA = StructType(
    [
        StructField("topic", StringType()),
        StructField("broker", StringType()),
        StructField("queue_id", IntegerType()),
        StructField("queue_offset", LongType()),
        StructField("body", BinaryType()),
    ]
)


def stream_reader(**options):
    source = RocketMQDataSource(CaseInsensitiveDict({k: str(v) for k, v in options.items()}))
    return source.streamReader(SCHEMA)


class Query:
    """A query with its checkpoint; `rows` holds what each committed batch read."""

    def __init__(self, **options):
        self.options = options
        self.log = []
        self.rows = []
        self.reader = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def start(self, **changed):
        self.stop()
        self.options |= changed
        self.reader = stream_reader(**self.options)
        self.for_tasks = pickle.loads(pickle.dumps(self.reader))
        return self

    def stop(self):
        if self.reader is not None:
            self.reader.stop()
            self.reader = None

    def crash(self):
        """End without a good-bye to the checkpoint; sockets are closed, as they would be."""
        self.stop()

    @property
    def all_rows(self):
        return [row for rows in self.rows for row in rows]

    @property
    def places(self):
        return [(row["topic"], row["broker"], row["queue_id"], row["queue_offset"]) for row in self.all_rows]  # fmt: skip

    def offsets(self, number=-1):
        return json.loads(self.log[number])

    def read(self, number):
        """The rows of a logged batch."""
        start = self.offsets(number - 1) if number else self.reader.initialOffset()
        parts = self.reader.partitions(_through_json(start), self.offsets(number))
        tasks = [pickle.loads(pickle.dumps(part)) for part in parts]
        return [row for task in tasks for batch in self.for_tasks.read(task) for row in batch.to_pylist()]  # fmt: skip

    def plan(self):
        """Log the next batch; False when there is nothing to do."""
        start = self.offsets() if self.log else self.reader.initialOffset()
        limit = self.reader.getDefaultReadLimit()
        end = json.dumps(self.reader.latestOffset(_through_json(start), limit))
        if end == json.dumps(start):
            return False
        self.log.append(end)
        if len(self.log) > 1:
            self.reader.commit(self.offsets(-2))
        return True

    def step(self):
        """One trigger: replay what was logged and not finished, else plan and run a batch."""
        if len(self.rows) == len(self.log) and not self.plan():
            return False
        self.rows.append(self.read(len(self.rows)))
        return True

    def available_now(self, **changed):
        """One run to the end of what is stored."""
        self.start(**changed)
        self.reader.prepareForTriggerAvailableNow()
        batches = 0
        while self.step():
            batches += 1
            assert batches < 500, "a query that is to end goes on and on"
        self.stop()
        return batches


def _through_json(document):
    return json.loads(json.dumps(document))


def exactly(query, sent):
    """The query has read these places, each once."""
    assert len(query.places) == len(set(query.places))
    assert set(query.places) == sent

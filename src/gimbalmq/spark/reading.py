"""Reads ranges of queues and gives them to Spark as Arrow record batches. Runs in tasks.

`range_puller` gets the answers of brokers; here they are collected to batches of a good size and
decoded, only the columns that are asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from gimbalmq.errors import ConfigurationError, ProtocolError
from gimbalmq.spark.options import ReadOptions
from gimbalmq.spark.planning import ReadRange
from gimbalmq.spark.pull_links import Segment
from gimbalmq.spark.range_puller import PATIENCE_S, RangePuller
from gimbalmq.spark.schema import Column, arrow_schema
from gimbalmq.wire.columns import decode_columns
from gimbalmq.wire.names import Namespace

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["read_batches"]

#: Decoding pays off from about a thousand messages on; Spark is best served with batches of 2,000
#: to 10,000 rows and at most 8 to 16 MB.
_BATCH_MESSAGES: Final = 5_000
_BATCH_BYTES: Final = 8 << 20


def read_batches(
    ranges: Sequence[ReadRange],
    options: ReadOptions,
    columns: Sequence[Column],
    *,
    patience_s: float = PATIENCE_S,
) -> Iterator[pa.RecordBatch]:
    """The messages of the ranges, as record batches with exactly these columns."""
    schema = arrow_schema(columns)
    collected: list[Segment] = []
    messages = size = 0
    for segment in RangePuller(ranges, options, patience_s=patience_s):
        collected.append(segment)
        messages += segment.messages
        size += segment.bytes
        if messages >= _BATCH_MESSAGES or size >= _BATCH_BYTES:
            yield from _decoded(collected, options, columns, schema)
            collected, messages, size = [], 0, 0
    if collected:
        yield from _decoded(collected, options, columns, schema)


def _decoded(
    segments: Sequence[Segment],
    options: ReadOptions,
    columns: Sequence[Column],
    schema: pa.Schema,
) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa
    import pyarrow.compute as pc

    names = [column.source for column in columns]
    tags = options.subscription("").tags
    looked_at = [*names, "tags"] if tags and "tags" not in names else names
    for decoded in _decoded_in_parts(segments, looked_at):
        batch = decoded
        if tags:
            # The broker compares hashes of tags; two tags may have the same.
            wanted = pc.is_in(batch.column("tags"), value_set=pa.array(sorted(tags), pa.string()))
            batch = batch.filter(wanted)
        if batch.num_rows:
            found = (_as_known(batch.column(name), name, options.namespace) for name in names)
            arrays = [
                # Only a map whose values the user declared NOT NULL differs.
                array if array.type == field.type else array.cast(field.type)
                for array, field in zip(found, schema, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _as_known(array: Any, name: str, space: Namespace) -> Any:
    """A column with topics as the user knows them; all others as they are."""
    if space.name is None or name != "topic":
        return array
    import pyarrow as pa

    encoded = array.dictionary_encode()
    names = pa.array(map(space.user, encoded.dictionary.to_pylist()), array.type)
    return names.take(encoded.indices)


def _decoded_in_parts(
    segments: Sequence[Segment], names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """One batch as a rule; more when bodies expand beyond what an Arrow column can hold."""
    answers = [(body, one.queue.broker) for one in segments for body, _ in one.answers]
    # An answer may hold more than was asked for: behind, with a filter; before, in a batch record.
    bounds = [asked for one in segments for _, asked in one.answers]
    try:
        yield decode_columns(answers, names, ranges=bounds)
    except (ConfigurationError, ProtocolError) as error:
        if len(segments) == 1:
            one = segments[0]
            raise type(error)(
                f"cannot decode the messages of {one.queue.path} before offset {one.until}: {error}. "
                "Options 'startingOffsets' and 'endingOffsets' of a batch read can leave them out"
            ) from error
        middle = len(segments) // 2
        yield from _decoded_in_parts(segments[:middle], names)
        yield from _decoded_in_parts(segments[middle:], names)

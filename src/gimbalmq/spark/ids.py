"""The id of a written row, and reading without the copies that at-least-once writing may leave.

Spark runs a task again when its executor dies, and a micro-batch again after a crash: rows may
then be in a topic twice. Both copies carry the same id in a property, because the id comes from
a column or from the row's content, never from the row's place. Whoever reads can tell.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from gimbalmq.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["DIGEST_CHARS", "ROW_ID_PROPERTY", "deduplicated", "row_digests"]

#: The property of every written message that holds the id of its row.
ROW_ID_PROPERTY: Final = "GIMBALMQ_ROW_ID"

_DIGEST_BYTES: Final = 16
#: The length of an id that is a hash.
DIGEST_CHARS: Final = 2 * _DIGEST_BYTES
_ID_COLUMN: Final = "__gimbalmq_row_id"


def row_digests(data: memoryview, offsets: Sequence[int], frame: bytes) -> bytes:
    """The id of each row, whose content is data[offsets[i]:offsets[i + 1]], one after another.

    `frame` tells apart rows of frames with other columns that look alike.

    >>> row_digests(memoryview(b"aabb"), [0, 2, 4], b"body")[:DIGEST_CHARS]
    b'1bad748b97e79ba4239260deffa158d1'
    """
    key = hashlib.blake2b(frame, digest_size=_DIGEST_BYTES).digest()
    # A copy of what is set up already takes half the time of a new one.
    begun = hashlib.blake2b(digest_size=_DIGEST_BYTES, key=key).copy
    digests = []
    for start, end in pairwise(offsets):
        digest = begun()
        digest.update(data[start:end])
        digests.append(digest.digest())
    return b"".join(digests).hex().encode()


def deduplicated(frame: DataFrame, *, within: str | None = None) -> DataFrame:
    """A frame that was read, with one message per row that was written.

    Messages of other producers are told apart by their message id. The frame needs the columns
    `topic`, `message_id` and `properties`. A stream also needs `store_timestamp` and `within`,
    how far apart copies may be stored (for example "1 hour"): Spark remembers ids for that long.

        orders = spark.read.format("rocketmq").option("topic", "orders").load()
        deduplicated(orders).count()

    Raises:
        ConfigurationError: a column is missing, or a stream is read without `within`.
    """
    from pyspark.sql import functions as f

    needed = ["topic", "message_id", "properties"]
    if frame.isStreaming:
        if within is None:
            raise ConfigurationError(
                "a stream never ends, so its ids cannot be kept for ever: say how far apart two "
                'copies of a row may be, for example deduplicated(frame, within="1 hour")'
            )
        needed.append("store_timestamp")
    missing = [name for name in needed if name not in frame.columns]
    if missing:
        raise ConfigurationError(
            f"the frame lacks {', '.join(missing)}, by which copies are found: read them, too"
        )
    named: Any = f.coalesce(f.col("properties")[ROW_ID_PROPERTY], f.col("message_id"))
    with_id = frame.withColumn(_ID_COLUMN, named)
    if within is not None and frame.isStreaming:
        with_id = with_id.withWatermark("store_timestamp", within)
        once = with_id.dropDuplicatesWithinWatermark(["topic", _ID_COLUMN])
    else:
        once = with_id.dropDuplicates(["topic", _ID_COLUMN])
    return once.drop(_ID_COLUMN)

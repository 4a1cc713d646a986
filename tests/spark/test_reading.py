from __future__ import annotations

import pyarrow as pa
import pytest

from gimbalmq.errors import ProtocolError
from gimbalmq.spark import reading
from gimbalmq.spark.reading import read_batches
from gimbalmq.spark.schema import arrow_schema, parse_columns
from gimbalmq.wire.codes import CompressionType, SysFlag
from gimbalmq.wire.record import encode_record
from spark.scripted_reads import ranged, rows


def test_rows_come_in_batches_of_some_thousands(scripted, read_options):
    queue = scripted.queue(0)
    scripted.store(queue, 12_000)
    columns = parse_columns("queue_offset")
    sizes = [b.num_rows for b in read_batches([ranged(scripted, queue)], read_options(), columns)]
    assert sum(sizes) == 12_000
    assert all(2_000 <= size <= 10_000 for size in sizes[:-1])


def test_large_messages_make_smaller_batches(scripted, read_options, monkeypatch):
    monkeypatch.setattr(reading, "_BATCH_BYTES", 100_000)
    queue = scripted.queue(0)
    scripted.store(queue, 1_000, body=b"x" * 1_000)
    batches = list(read_batches([ranged(scripted, queue)], read_options(), parse_columns("body")))
    assert max(batch.nbytes for batch in batches) < 200_000


def test_batches_have_exactly_the_schema_that_was_asked_for(scripted, read_options):
    queue = scripted.queue(0)
    scripted.store(queue, 10)
    for text in ("properties,body", None, "queue_offset"):
        columns = parse_columns(text)
        (batch,) = read_batches([ranged(scripted, queue)], read_options(), columns)
        assert batch.schema.equals(arrow_schema(columns))


def test_nothing_to_read_gives_no_batch(scripted, read_options):
    assert rows([], read_options()) == []


@pytest.mark.rule("W3.3")
def test_tags_with_the_same_hash_are_told_apart(scripted, read_options):
    queue = scripted.queue(0)
    # "Aa" and "BB" have one hash in Java.
    scripted.store(queue, 100, tags=lambda n: "Aa" if n % 2 else "BB")
    assert rows([ranged(scripted, queue)], read_options(tags="Aa")) == [
        (0, n) for n in range(1, 100, 2)
    ]


def test_a_corrupt_message_is_named_by_its_queue(scripted, read_options):
    queue = scripted.queue(2)
    scripted.store(queue, 3_000)
    record, tag, at_ms = scripted.stored[queue][1_500]
    scripted.stored[queue][1_500] = (record[:4] + b"\0\0\0\0" + record[8:], tag, at_ms)
    with pytest.raises(ProtocolError, match="messages of orders/broker-a/2 before offset 1504"):
        rows([ranged(scripted, queue)], read_options())


def test_a_corrupt_body_is_named_by_its_offset_and_does_not_hinder_other_columns(
    scripted, read_options
):
    queue = scripted.queue(1)
    scripted.store(queue, 100)
    zlib = SysFlag.COMPRESSED | CompressionType.ZLIB
    broken = encode_record(
        topic="orders", body=b"no zlib", queue_id=1, queue_offset=70, sys_flag=zlib
    )
    scripted.stored[queue][70] = (broken, None, 1_000)
    words = (
        r"messages of orders/broker-a/1 before offset \d+: the message at queue offset 70: "
        r"ZLIB body is corrupt.*Options 'startingOffsets' and 'endingOffsets'"
    )
    with pytest.raises(ProtocolError, match=words):
        rows([ranged(scripted, queue)], read_options())
    offsets = parse_columns("queue_offset")
    (batch,) = read_batches([ranged(scripted, queue)], read_options(), offsets)
    assert batch.column(0).to_pylist() == list(range(100))


def test_a_map_without_null_values_is_given_as_one(scripted, read_options):
    queue = scripted.queue(0)
    scripted.store(queue, 5)
    columns = [parse_columns("properties")[0]]
    strict = [type(columns[0])("properties", "properties", nullable=False, null_values=False)]
    (batch,) = read_batches([ranged(scripted, queue)], read_options(), strict)
    assert batch.schema.equals(arrow_schema(strict))
    assert batch.column(0).type != arrow_schema(columns).field(0).type
    assert isinstance(batch, pa.RecordBatch)

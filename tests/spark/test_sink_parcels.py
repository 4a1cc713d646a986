from __future__ import annotations

import pytest

from gimbalmq.core.selection import queue_by_key
from gimbalmq.model.queue import MessageQueue
from gimbalmq.spark.sink_parcels import ParcelCutter
from gimbalmq.wire.batch import decode_batch
from gimbalmq.wire.compression import compression_of, decompress
from spark.test_rows import encode

QUEUES = [MessageQueue("t", broker, number) for broker in "ab" for number in range(4)]


def cut(rows, *, in_flight_max=4096, queues=QUEUES):
    cutter = ParcelCutter(lambda _topic: queues, in_flight_max=in_flight_max)
    return list(cutter.cut(rows, rows_before=100))


def bodies(parcel):
    return [entry.body.decode() for entry in decode_batch(parcel.body)]


def numbered(count):
    return [str(number) for number in range(count)]


def test_few_rows_are_spread_over_the_queues():
    parcels = cut(encode({"body": numbered(20)}))
    assert [len(parcel.rows) for parcel in parcels] == [3, 3, 3, 3, 3, 3, 2]
    assert [body for parcel in parcels for body in bodies(parcel)] == numbered(20)
    assert {parcel.queue for parcel in parcels} == {None}


@pytest.mark.parametrize(("in_flight_max", "rows"), [(4096, 512), (100, 50), (1, 1)])
def test_a_parcel_is_at_most_half_of_what_may_be_in_flight(in_flight_max, rows):
    parcels = cut(encode({"body": numbered(2000)}), in_flight_max=in_flight_max, queues=QUEUES[:1])
    assert max(len(parcel.rows) for parcel in parcels) == rows
    assert sum(len(parcel.rows) for parcel in parcels) == 2000


def test_a_parcel_has_a_limit_in_bytes():
    parcels = cut(encode({"body": ["x" * 4000] * 200}), queues=QUEUES[:1])
    assert max(len(parcel.body) for parcel in parcels) <= 256 << 10
    assert len(parcels) < 6


def test_rows_with_equal_keys_go_to_javas_queue_in_order():
    keys = [f"order-{number % 7}" for number in range(100)]
    parcels = cut(encode({"body": numbered(100), "sharding_key": keys}, by_key=True))
    seen = {}
    for parcel in parcels:
        assert parcel.queue is not None
        for body in bodies(parcel):
            assert parcel.queue == queue_by_key(QUEUES, keys[int(body)])
            seen.setdefault(parcel.queue, []).append(int(body))
    assert all(listed == sorted(listed) for listed in seen.values())
    assert sorted(number for listed in seen.values() for number in listed) == list(range(100))


def test_rows_without_a_key_go_in_turn():
    rows = encode({"body": numbered(3), "sharding_key": ["k", None, ""]}, by_key=True)
    by_queue = {parcel.queue: bodies(parcel) for parcel in cut(rows) if len(parcel.rows)}
    assert by_queue[queue_by_key(QUEUES, "k")] == ["0"]
    assert sorted(body for p in cut(rows) if p.queue is None for body in bodies(p)) == ["1", "2"]


def test_parcels_of_different_queues_take_turns():
    rows = encode({"body": numbered(40), "sharding_key": ["a", "b"] * 20}, by_key=True)
    parcels = cut(rows, in_flight_max=10)
    assert [parcel.queue for parcel in parcels[:4:2]] == [parcels[0].queue] * 2
    assert parcels[0].queue != parcels[1].queue


def test_a_row_that_cannot_be_in_a_batch_keeps_its_place():
    rows = encode({"body": numbered(5), "delay_level": [None, None, 2, None, None]})
    parcels = cut(rows, queues=QUEUES[:1])
    assert [(parcel.batch, parcel.rows.tolist()) for parcel in parcels] == [
        (True, [0, 1]),
        (False, [2]),
        (True, [3, 4]),
    ]
    assert "DELAY\x012\x02" in parcels[1].properties


def test_a_large_body_is_compressed():
    [parcel] = cut(encode({"body": ["x" * 5000]}))
    compression = compression_of(parcel.sys_flag)
    assert compression is not None
    assert decompress(parcel.body, compression) == b"x" * 5000


def test_topics_are_kept_apart():
    rows = encode({"body": numbered(4), "topic": ["x", "y", "x", "y"]}, topic=None)
    found = {}
    for parcel in cut(rows, queues=QUEUES[:1]):
        found.setdefault(parcel.topic, []).extend(bodies(parcel))
    assert found == {"x": ["0", "2"], "y": ["1", "3"]}


def test_a_parcel_tells_its_rows_and_can_be_taken_apart():
    [parcel] = cut(encode({"body": ["a", "b"], "id": [8, 9]}, id_column="id"), queues=QUEUES[:1])
    assert parcel.describe() == "2 rows from 100 to 101 (ids 8 to 9)"
    one, other = parcel.split()
    assert (one.body, one.describe(), one.batch) == (b"a", "row 100 (id 8)", False)
    assert other.body == b"b"

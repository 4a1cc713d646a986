from __future__ import annotations

import pytest

from gimbalmq.model.queue import MessageQueue
from gimbalmq.spark.options import parse_read_options
from gimbalmq.spark.positions import COMMITTED, EARLIEST, LATEST, AtOffsets, AtTime


def parse(**options):
    return parse_read_options({"nameserver": "127.0.0.1:9876", "topic": "orders"} | options, {})


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("earliest", EARLIEST),
        ("latest", LATEST),
        ("committed", COMMITTED),
        (
            '{"orders/broker-a/0": 17, "orders/broker-a/1": -2}',
            AtOffsets(
                {
                    MessageQueue("orders", "broker-a", 0): 17,
                    MessageQueue("orders", "broker-a", 1): -2,
                }
            ),
        ),
    ],
)
def test_offsets_are_a_word_or_json(text, position):
    assert parse(startingOffsets=text, group="billing").start == position
    assert parse(endingOffsets=text, group="billing").end == position


@pytest.mark.parametrize(
    ("text", "timestamp_ms"),
    [
        ("1763193600000", 1763193600000),
        ("2025-11-15T08:00:00Z", 1763193600000),
        ("2025-11-15T09:00:00.250+01:00", 1763193600250),
    ],
)
def test_times_are_milliseconds_or_iso_8601(text, timestamp_ms):
    assert parse(startingTimestamp=text).start == AtTime(timestamp_ms)
    assert parse(endingTimestamp=text).end == AtTime(timestamp_ms)

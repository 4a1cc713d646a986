"""Decoding pull answers, against `struct` alone hopping from record to record.

The anchor finds where each record ends and reads nothing else: no decoder in Python can be faster
than that. `view` is what a consumer does with each message (make the view, read body and queue
offset), `message` reads every public attribute, `arrow` decodes body, queue id and queue offset to
columns, and `arrow-all` every column. The answers hold 32 messages each, as brokers send them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from gimbalmq.wire.columns import COLUMNS, decode_columns
from gimbalmq.wire.properties import encode_properties
from gimbalmq.wire.record import decode_records, encode_record
from harness import Row, arguments, best_s, run

Answers = Sequence[tuple[bytes, str]]

MESSAGES: Final = 8_192
MESSAGES_PER_ANSWER: Final = 32
SIZES: Final = {"100B": 100, "1KiB": 1024}
FEW_COLUMNS: Final = ("body", "queue_id", "queue_offset")

_size_at: Final = struct.Struct(">i").unpack_from


def record(number: int, body_bytes: int) -> bytes:
    properties = {
        "UNIQ_KEY": f"7F00000100003D4E1A2B{number:012X}",
        "KEYS": f"order-{number}",
        "TAGS": "paid",
        "WAIT": "true",
        "CLUSTER": "DefaultCluster",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }
    return encode_record(
        topic="orders",
        # Sizes differ a little, so that nothing can be gained by assuming that they do not.
        body=f"{number:08}".encode() + b"x" * (body_bytes - 8 - number % 16),
        properties=encode_properties(properties),
        queue_id=3,
        queue_offset=number,
        physical_offset=number * 2048,
        born_timestamp_ms=1_700_000_000_000 + number,
        born_host=("10.0.0.1", 40_000 + number % 4),
        store_timestamp_ms=1_700_000_000_001 + number,
        store_host=("10.0.0.2", 10_911),
    )


def pull_answers(body_bytes: int) -> Answers:
    numbers = range(0, MESSAGES, MESSAGES_PER_ANSWER)
    return [
        (
            b"".join(record(first + at, body_bytes) for at in range(MESSAGES_PER_ANSWER)),
            "broker-a",
        )
        for first in numbers
    ]


def hop(answers: Answers) -> int:
    count = 0
    for data, _ in answers:
        position, end = 0, len(data)
        while position < end:
            position += _size_at(data, position)[0]
            count += 1
    return count


def view(answers: Answers) -> int:
    read = 0
    for data, broker in answers:
        for message in decode_records(data, broker):
            read += len(message.body) + (message.queue_offset >= 0)
    return read


def whole_message(answers: Answers) -> int:
    count = 0
    for data, broker in answers:
        for message in decode_records(data, broker):
            _ = (
                message.topic,
                message.body,
                message.tags,
                message.keys,
                message.properties,
                message.queue,
                message.queue_offset,
                message.message_id,
                message.offset_message_id,
                message.born_at,
                message.stored_at,
                message.born_host,
                message.reconsume_times,
            )
            count += 1
    return count


def arrow(answers: Answers) -> int:
    return decode_columns(answers, FEW_COLUMNS).num_rows


def arrow_all(answers: Answers) -> int:
    return decode_columns(answers, COLUMNS).num_rows


CASES: Final[dict[str, Callable[[Answers], int]]] = {
    "view": view,
    "message": whole_message,
    "arrow": arrow,
    "arrow-all": arrow_all,
}


def rate(work: Callable[[Answers], int], answers: Answers) -> float:
    """Messages a second, the best of several runs."""
    return MESSAGES / best_s(lambda: work(answers))


def rows(only: str) -> Iterator[Row]:
    for size, body_bytes in SIZES.items():
        names = [name for name in CASES if only in f"{name}/{size}"]
        if not names:
            continue
        answers = pull_answers(body_bytes)
        for name in names:
            # The anchor is taken next to each case: a busy machine then disturbs both.
            anchor = rate(hop, answers)
            yield Row(
                f"{name}/{size}", rate(CASES[name], answers), anchor, "struct-hop", "records/s"
            )


def main() -> int:
    options = arguments(__doc__).parse_args()
    return run(rows(options.only), as_json=options.json)


if __name__ == "__main__":
    raise SystemExit(main())

"""The options that say where a read starts and ends: words, JSON offsets, times.

What a position means in a queue is decided in `positions`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from gimbalmq.errors import ConfigurationError
from gimbalmq.model.queue import MessageQueue, parse_queue
from gimbalmq.spark.positions import COMMITTED, EARLIEST, LATEST, AtOffsets, AtTime, Position
from gimbalmq.wire.names import Namespace

__all__ = ["check_order", "position_option"]

#: Seconds of the years 2001 to 2100; as milliseconds they are all in the first weeks of 1970.
_SECONDS: Final = range(1_000_000_000, 4_102_444_800)
_POSITIONS: Final[dict[str, Position]] = {
    "earliest": EARLIEST,
    "latest": LATEST,
    "committed": COMMITTED,
}


def position_option(
    given: Mapping[str, str], by_offset: str, by_time: str, default: Position, space: Namespace
) -> Position:
    """Read the pair of options for a start or an end, out of `lowered` ones."""
    offsets, time = given.get(by_offset.lower()), given.get(by_time.lower())
    if offsets is not None and time is not None:
        raise ConfigurationError(f"options '{by_offset}' and '{by_time}' exclude each other")
    if time is not None:
        return AtTime(_milliseconds(time, by_time))
    if offsets is None:
        return default
    known = _POSITIONS.get(offsets.lower())
    if known is not None:
        return known
    listed = _json_offsets(offsets, by_offset)
    return AtOffsets({space.wire_queue(queue): offset for queue, offset in listed.items()})


def _json_offsets(text: str, option: str) -> dict[MessageQueue, int]:
    what = (
        f"option '{option}' is '{_shortened(text)}': write earliest, latest, committed or JSON like "
        '{"topic/broker/queueId": offset}, where -2 is the earliest and -1 the latest offset'
    )

    def once(pairs: list[tuple[str, object]]) -> dict[str, object]:
        # JSON itself lets the last of them win.
        for path, _ in pairs:
            if sum(path == other for other, _ in pairs) > 1:
                raise ConfigurationError(f"option '{option}' names {path} more than once")
        return dict(pairs)

    try:
        read = json.loads(text, object_pairs_hook=once)
    except json.JSONDecodeError as error:
        raise ConfigurationError(what) from error
    if not isinstance(read, dict) or not read:
        raise ConfigurationError(what)
    offsets = {}
    for path, offset in read.items():
        try:
            queue = parse_queue(path)
        except ConfigurationError as error:
            raise ConfigurationError(f"option '{option}': {error}") from error
        if not isinstance(offset, int) or isinstance(offset, bool) or offset < -2:
            raise ConfigurationError(
                f"option '{option}' gives {path} the offset {json.dumps(offset)}: "
                "write a number from 0 on, -2 for the earliest or -1 for the latest"
            )
        offsets[queue] = offset
    return offsets


def _shortened(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


def _milliseconds(text: str, option: str) -> int:
    if text.isascii() and text.isdigit():
        if int(text) in _SECONDS:
            raise ConfigurationError(
                f"option '{option}' is '{text}', which looks like seconds: write milliseconds "
                f"since 1970, for example {text}000"
            )
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigurationError(
            f"option '{option}' is '{text}', which is no time: write milliseconds since 1970 or "
            "ISO-8601 with a time zone, for example 2026-11-15T08:00:00Z"
        ) from error
    if moment.tzinfo is None:
        raise ConfigurationError(
            f"option '{option}' is '{text}' and says no time zone: "
            "add Z for UTC or an offset like +01:00"
        )
    return round(moment.timestamp() * 1000)


def check_order(start: Position, end: Position) -> None:
    """Refuse an end before the start, where that can be told without asking."""
    match start, end:
        case AtTime(first), AtTime(last) if first > last:
            raise ConfigurationError(
                f"option 'endingTimestamp' ({last} ms) is before 'startingTimestamp' ({first} ms)"
            )
        case AtOffsets(firsts), AtOffsets(lasts):
            for queue, first in firsts.items():
                last = lasts.get(queue, first)
                if first >= 0 and 0 <= last < first:
                    raise ConfigurationError(
                        f"option 'endingOffsets' ends {queue.path} at {last}, "
                        f"before 'startingOffsets' starts it at {first}"
                    )
        case _:
            return

"""Delays that brokers offer: numbered levels, the level of a retry, and where a message waits.

The levels are a broker's setting; clients pick one by its number. A message with a level is
stored in the schedule topic until its time has come, with its real place among its properties.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from gimbalmq.errors import ConfigurationError

__all__ = [
    "DEFAULT_DELAY_LEVELS_MS",
    "SCHEDULE_TOPIC",
    "due_ms",
    "exponential_delay_ms",
    "parse_delay_levels",
    "retry_delay_ms",
    "retry_level",
    "scheduled",
]

SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
_UNITS_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_level: Final = re.compile(r"([0-9]+)([smhd])").fullmatch
#: What Java waits for a level that does not exist.
_UNKNOWN_LEVEL_MS: Final = 1_000
#: A first failure waits for level 3; each further one for the next.
_FIRST_RETRY_LEVEL: Final = 3


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """Read a broker's `messageDelayLevel`: the delay of level 1, 2, ... in milliseconds.

    >>> parse_delay_levels("1s 5s 2m")
    (1000, 5000, 120000)
    """
    levels: list[int] = []
    for part in text.split(" "):
        found = _level(part)
        if found is None:
            raise ConfigurationError(
                f"delay levels '{text}': '{part}' is not a number and one of s, m, h, d; write "
                "them separated by single blanks, for example 1s 5s 10s"
            )
        levels.append(int(found[1]) * _UNITS_MS[found[2]])
    return tuple(levels)


#: Level 1 first, as brokers have them unless configured otherwise.
DEFAULT_DELAY_LEVELS_MS: Final = parse_delay_levels(
    "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
)


def due_ms(level: int, stored_ms: int, levels_ms: Sequence[int]) -> int:
    """When a message of that level, stored at a time, is delivered."""
    known = 1 <= level <= len(levels_ms)
    return stored_ms + (levels_ms[level - 1] if known else _UNKNOWN_LEVEL_MS)


def retry_level(reconsume_times: int, delay_level: int) -> int:
    """The level of a send-back: the consumer's, or, when that is 0, one by the history.

    >>> retry_level(0, 0), retry_level(5, 0), retry_level(5, 2)
    (3, 8, 2)
    """
    return delay_level or _FIRST_RETRY_LEVEL + reconsume_times


def retry_delay_ms(reconsume_times: int, levels_ms: Sequence[int]) -> int:
    """How long a message waits that has failed that often before."""
    level = retry_level(max(reconsume_times, 0), 0)
    return levels_ms[min(level, len(levels_ms)) - 1]


def exponential_delay_ms(
    reconsume_times: int, *, initial_ms: int = 5_000, max_ms: int = 7_200_000, factor: int = 2
) -> int:
    """The same under a group's exponential retry policy (5.x); above 32 failures as with 32."""
    growth: int = factor ** min(max(reconsume_times, 0), 32)
    return min(max_ms, initial_ms * growth)


def scheduled(
    topic: str, queue_id: int, properties: Mapping[str, str], levels: int
) -> tuple[str, int, dict[str, str]]:
    """Where a message with a delay level waits, and with which properties.

    A level above the highest counts as the highest.
    """
    level = min(int(properties["DELAY"]), levels)
    waiting = {**properties, "DELAY": str(level)}
    waiting["REAL_TOPIC"], waiting["REAL_QID"] = topic, str(queue_id)
    return SCHEDULE_TOPIC, level - 1, waiting

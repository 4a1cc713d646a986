"""Which segments of the log have had their time.

Messages go by whole segments, oldest first, and never the one being written. By time, a segment
stays while its youngest message must; by size, the oldest go until the limit holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from gimbalmq.broker.store.segments import Segment
from gimbalmq.errors import ConfigurationError

__all__ = ["RetentionPolicy", "expired"]

#: RocketMQ's `fileReservedTime`: 72 hours.
_KEEP_MS: Final = 72 * 3600 * 1000


class RetentionPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How much to keep: for how long, and how many bytes of log; None means without limit."""

    keep_ms: int | None = _KEEP_MS
    keep_bytes: int | None = None

    def __post_init__(self) -> None:
        for name, value in (("keep_ms", self.keep_ms), ("keep_bytes", self.keep_bytes)):
            if value is not None and value <= 0:
                raise ConfigurationError(f"{name} is {value}: give a positive number, or None")


def expired(segments: Sequence[Segment], policy: RetentionPolicy, now_ms: int) -> int:
    """How many segments, from the oldest on, the policy no longer keeps."""
    count = 0
    if policy.keep_ms is not None:
        while count < len(segments) - 1 and segments[count].last_ms < now_ms - policy.keep_ms:
            count += 1
    if policy.keep_bytes is not None:
        total = sum(segment.until - segment.start for segment in segments[count:])
        while count < len(segments) - 1 and total > policy.keep_bytes:
            total -= segments[count].until - segments[count].start
            count += 1
    return count

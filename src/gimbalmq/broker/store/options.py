"""How a store behaves: flush policy, sizes, retention, and what to do after an accident."""

from __future__ import annotations

from typing import Final

import msgspec

from gimbalmq.broker.store.api import FlushPolicy
from gimbalmq.broker.store.retention import RetentionPolicy
from gimbalmq.errors import ConfigurationError

__all__ = ["StoreOptions"]

#: A smaller segment could not hold one ordinary message; a larger one takes too long to scan.
_SEGMENT_BYTES_MIN: Final = 4096
_SEGMENT_BYTES_MAX: Final = 1 << 30


class StoreOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a store behaves; the defaults are RocketMQ's, but for the size of a segment.

    >>> StoreOptions(flush_interval_ms=0)
    Traceback (most recent call last):
    gimbalmq.errors.ConfigurationError: flush_interval_ms is 0: give a positive number
    """

    flush: FlushPolicy = FlushPolicy.INTERVAL
    #: Under `INTERVAL`: the most that a power cut may take.
    flush_interval_ms: int = 500
    #: Under `EACH`: `append` does not wait for the disk; the caller calls `flush` before it
    #: acknowledges, so that everything of one round shares one wait.
    group_commit: bool = False
    segment_bytes: int = 64 * 1024 * 1024
    retention: RetentionPolicy = RetentionPolicy()
    retention_interval_ms: int = 10_000
    #: For one start after damage: keep what can be read and give up the rest.
    salvage: bool = False
    #: For one start: check the whole log, not only what the last run may have left unfinished.
    check_all: bool = False

    def __post_init__(self) -> None:
        for name in ("flush_interval_ms", "retention_interval_ms"):
            if getattr(self, name) <= 0:
                raise ConfigurationError(f"{name} is {getattr(self, name)}: give a positive number")
        if not _SEGMENT_BYTES_MIN <= self.segment_bytes <= _SEGMENT_BYTES_MAX:
            raise ConfigurationError(
                f"segment_bytes is {self.segment_bytes}: give {_SEGMENT_BYTES_MIN} to "
                f"{_SEGMENT_BYTES_MAX}"
            )

"""The names of the options of `format("rocketmq")`: which there are, and what each is for.

Keys are compared whatever their case, as Spark does.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Final

from gimbalmq.errors import ConfigurationError

__all__ = ["READ_NAMES", "check_names", "has_stream_options", "lowered", "refuse_others"]

_READ: Final = (
    "nameserver",
    "topic",
    "topicPattern",
    "group",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "tags",
    "sql",
    "columns",
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
)
#: Known, and of use to streams only.
_STREAM_ONLY: Final = (
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxBytesPerTrigger",
    "commitOffsets",
    "groupMode",
    "allocation",
)
#: What reads of either kind know, besides the way to the cluster.
READ_NAMES: Final = _READ + _STREAM_ONLY
#: Known, and of use to batch reads only.
_BATCH_ONLY: Final = ("endingOffsets", "endingTimestamp")
#: Known, and of use to writes only.
_WRITE_ONLY: Final = ("selector", "maxInFlight", "maxRowsPerSecond", "idColumn")
#: Of use to reads and writes.
_ACCESS: Final = (
    "accessKey",
    "secretKey",
    "tls",
    "tlsCaFile",
    "tlsCertFile",
    "tlsKeyFile",
    "namespace",
)

_KNOWN: Final = {name.lower(): name for name in READ_NAMES + _WRITE_ONLY + _ACCESS}
#: What Spark itself puts beside a source's options.
_SPARKS_OWN: Final = frozenset({"checkpointlocation", "queryname", "serialization.format"})


def check_names(options: Mapping[str, str]) -> None:
    """Refuse names that no read and no write of this source knows."""
    for name in options:
        small = name.lower()
        if small in _KNOWN or small in _SPARKS_OWN:
            continue
        if small in {"path", "paths"}:
            raise ConfigurationError(
                f"option '{name}' means nothing to this source: "
                "call load() without a path and name the topic with option 'topic'"
            )
        close = difflib.get_close_matches(small, _KNOWN, n=1)
        hint = f"did you mean '{_KNOWN[close[0]]}'? " if close else ""
        raise ConfigurationError(f"unknown option '{name}': {hint}A read knows {', '.join(_READ)}")


def has_stream_options(options: Mapping[str, str]) -> bool:
    """Whether options are given that only a stream has."""
    names = {name.lower() for name in options}
    return any(name.lower() in names for name in _STREAM_ONLY)


def lowered(options: Mapping[str, str]) -> dict[str, str]:
    """The options with their names in lower case, as they are looked up, and trimmed texts."""
    return {name.lower(): value.strip() for name, value in options.items()}


def refuse_others(given: Mapping[str, str], *, stream: bool) -> None:
    """Refuse, among `lowered` options, what this kind of read has no use for."""
    for name in _BATCH_ONLY if stream else _STREAM_ONLY:
        if name.lower() in given:
            raise ConfigurationError(
                f"option '{name}' is for batch reads (spark.read): a stream has no end"
                if stream
                else f"option '{name}' is for streams (spark.readStream): "
                "leave it out of a batch read"
            )
    for name in _WRITE_ONLY:
        if name.lower() in given:
            raise ConfigurationError(f"option '{name}' is for writes: leave it out of a read")

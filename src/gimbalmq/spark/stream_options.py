"""The options that only a stream has, and what their texts mean.

The rest of its options is read as a batch reads them (`options`). Asks nobody.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from gimbalmq.core.allocation import strategy_named
from gimbalmq.errors import AllocationError, ConfigurationError
from gimbalmq.spark.limits import DELAY_MAX_S, Limits
from gimbalmq.spark.option_names import lowered
from gimbalmq.spark.option_values import count_option, flag_option
from gimbalmq.spark.options import ReadOptions, parse_read_options
from gimbalmq.spark.positions import AtOffsets
from gimbalmq.wire.names import retry_topic

__all__ = ["StreamOptions", "parse_stream_options"]

_SECONDS: Final = {
    "ms": 0.001,
    "s": 1.0,
    "sec": 1.0,
    "second": 1.0,
    "seconds": 1.0,
    "m": 60.0,
    "min": 60.0,
    "minute": 60.0,
    "minutes": 60.0,
    "h": 3600.0,
    "hour": 3600.0,
    "hours": 3600.0,
    "d": 86400.0,
}
_BYTES: Final = {
    "": 1,
    "b": 1,
    "k": 1 << 10,
    "kb": 1 << 10,
    "m": 1 << 20,
    "mb": 1 << 20,
    "g": 1 << 30,
    "gb": 1 << 30,
}


class StreamOptions(msgspec.Struct, frozen=True):
    """The options of a streaming read, understood and checked. Picklable."""

    read: ReadOptions
    limits: Limits
    #: Whether the group is told how far the query is.
    commit_offsets: bool
    mode: Literal["exclusive", "member"]
    #: How a member shares the queues with the others.
    allocation: str

    @property
    def is_member(self) -> bool:
        """Whether the query shares the topics with other members of its group."""
        return self.mode == "member"


def parse_stream_options(
    options: Mapping[str, str], environment: Mapping[str, str] | None = None
) -> StreamOptions:
    """Read the options of a stream; `environment` replaces that of the process.

    >>> options = {"nameserver": "127.0.0.1:9876", "topic": "orders", "maxOffsetsPerTrigger": "9"}
    >>> parsed = parse_stream_options(options)
    >>> parsed.read.start, parsed.limits.records_max, parsed.mode
    (Latest(), 9, 'exclusive')

    Raises:
        ConfigurationError: naming the option that cannot be used.
    """
    read = parse_read_options(options, environment, stream=True)
    given = lowered(options)
    mode = _mode(given, read)
    if mode == "member":
        assert read.group is not None, "checked with the mode"
        read = msgspec.structs.replace(read, retry_topic=retry_topic(read.group))
    return StreamOptions(
        read=read,
        limits=_limits(given),
        commit_offsets=_commit_offsets(given, read.group, mode),
        mode=mode,
        allocation=_allocation(given, mode),
    )


def _mode(given: Mapping[str, str], read: ReadOptions) -> Literal["exclusive", "member"]:
    text = given.get("groupmode", "exclusive").lower()
    if text not in {"exclusive", "member"}:
        raise ConfigurationError(
            f"option 'groupMode' is '{given['groupmode']}': write exclusive or member"
        )
    if text == "exclusive":
        return "exclusive"
    if read.group is None:
        raise ConfigurationError(
            "option 'groupMode' is 'member', but no group is named: add option 'group'"
        )
    if isinstance(read.start, AtOffsets):
        raise ConfigurationError(
            "option 'startingOffsets' lists offsets by queue, but a member (option 'groupMode') "
            "starts where its group is: write earliest or latest for queues that it never read"
        )
    return "member"


def _commit_offsets(given: Mapping[str, str], group: str | None, mode: str) -> bool:
    wanted = flag_option(given, "commitOffsets", default=group is not None)
    if wanted and group is None:
        raise ConfigurationError(
            "option 'commitOffsets' is true, but no group is named: add option 'group'"
        )
    if mode == "member" and not wanted:
        raise ConfigurationError(
            "option 'commitOffsets' is false, but members hand queues over by committed offsets: "
            "leave it out with option 'groupMode' member"
        )
    return wanted


def _allocation(given: Mapping[str, str], mode: str) -> str:
    name = given.get("allocation")
    if name is None:
        return "AVG"
    if mode != "member":
        raise ConfigurationError(
            "option 'allocation' is for members of a group: add option 'groupMode' member"
        )
    try:
        strategy_named(name)
    except AllocationError as error:
        raise ConfigurationError(f"option 'allocation': {error}") from error
    return name


def _limits(given: Mapping[str, str]) -> Limits:
    records_max = count_option(given, "maxOffsetsPerTrigger")
    records_min = count_option(given, "minOffsetsPerTrigger")
    delay = given.get("maxtriggerdelay")
    if delay is not None and records_min is None:
        raise ConfigurationError(
            "option 'maxTriggerDelay' says how long to wait for a minimum, and none is given: "
            "add option 'minOffsetsPerTrigger'"
        )
    if records_max is not None and records_min is not None and records_min > records_max:
        raise ConfigurationError(
            f"option 'minOffsetsPerTrigger' ({records_min}) is above "
            f"'maxOffsetsPerTrigger' ({records_max})"
        )
    return Limits(
        records_max=records_max,
        bytes_max=_bytes(given),
        records_min=records_min,
        delay_max_s=DELAY_MAX_S if delay is None else _seconds(delay),
    )


def _seconds(text: str) -> float:
    match = re.fullmatch(r"([0-9]+)\s*([a-z]+)", text.lower())
    unit = None if match is None else _SECONDS.get(match[2])
    if match is None or unit is None:
        raise ConfigurationError(
            f"option 'maxTriggerDelay' is '{text}', which is no duration: "
            "write a number and a unit, for example 500ms, 30s, 15m or 1h"
        )
    return int(match[1]) * unit


def _bytes(given: Mapping[str, str]) -> int | None:
    text = given.get("maxbytespertrigger")
    if text is None:
        return None
    match = re.fullmatch(r"([0-9]+)\s*([a-z]*)", text.lower())
    unit = None if match is None else _BYTES.get(match[2])
    if match is None or unit is None or not int(match[1]):
        raise ConfigurationError(
            f"option 'maxBytesPerTrigger' is '{text}', which is no size: "
            "write a number of bytes, or one with k, m or g, for example 64m"
        )
    return int(match[1]) * unit

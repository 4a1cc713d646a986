"""Checks of options that several classes take; a wrong one is named, with what to give instead."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Literal

from gimbalmq.errors import ConfigurationError
from gimbalmq.flows.offset import StartFrom, StartPolicy
from gimbalmq.transport.address import local_ip
from gimbalmq.wire.subscription import SubscriptionData, parse_tags, sql_subscription

__all__ = [
    "Start",
    "between",
    "offset_folder",
    "positive",
    "start_from",
    "subscription",
]

#: Where a group starts in a queue that it has not read yet.
Start = Literal["last", "first"] | datetime


def between(name: str, value: int, lowest: int, highest: int) -> int:
    """The value, if it is within Java's bounds for the option."""
    if not lowest <= value <= highest:
        raise ConfigurationError(f"{name} is {value}: give {lowest} to {highest}")
    return value


def positive(name: str, value: float) -> float:
    """The value, if it is a time."""
    if value <= 0:
        raise ConfigurationError(f"{name} is {value}: give seconds above 0")
    return value


def start_from(value: object) -> StartFrom:
    """Read the option `start_from`."""
    if value == "last":
        return StartFrom(StartPolicy.LAST)
    if value == "first":
        return StartFrom(StartPolicy.FIRST)
    if isinstance(value, datetime) and value.tzinfo is not None:
        return StartFrom(StartPolicy.TIMESTAMP, int(value.timestamp() * 1000))
    raise ConfigurationError(
        f"start_from is {value!r}: give 'last', 'first', or a datetime with a time zone"
    )


def subscription(topic: str, tags: str, sql: str | None, version_ms: int) -> SubscriptionData:
    """Read what `subscribe` was given."""
    if sql is None:
        return parse_tags(topic, tags, version_ms)
    if tags != "*":
        raise ConfigurationError(f"topic '{topic}': filter by tags or by sql, not by both")
    return sql_subscription(topic, sql, version_ms)


def offset_folder(base: str | Path | None, client_id: str | None, group: str) -> Path:
    """Java's place for the offsets of a broadcasting member."""
    root = Path.home() / ".rocketmq_offsets" if base is None else Path(base)
    return root / (client_id or f"{local_ip()}@DEFAULT") / group

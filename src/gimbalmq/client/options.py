"""Checks of options that several classes take; a wrong one is named, with what to give instead."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from gimbalmq.client.access import Access, AccessOptions, client_access
from gimbalmq.client.naming import process_folder, process_stem
from gimbalmq.core.allocation import Strategy
from gimbalmq.errors import ConfigurationError
from gimbalmq.flows.offset import StartFrom, StartPolicy
from gimbalmq.runtime.instance import InstanceSettings
from gimbalmq.transport.address import local_ip
from gimbalmq.wire.subscription import SubscriptionData, parse_tags, sql_subscription

__all__ = [
    "PushTuning",
    "Start",
    "between",
    "check_options",
    "check_strategy",
    "checked_access",
    "instance_settings",
    "not_negative",
    "offset_folder",
    "positive",
    "start_from",
    "subscription",
]

#: Where a group starts in a queue that it has not read yet.
Start = Literal["last", "first"] | datetime


class PushTuning(AccessOptions, total=False):
    """Options of `AccessOptions`, and timers and thresholds of a push consumer, by Java's names; see `ConsumerSettings`."""

    persist_consumer_offset_interval_s: float
    poll_name_server_interval_s: float
    heartbeat_broker_interval_s: float
    pull_batch_size: int
    pulls_ahead: int
    pull_threshold_for_queue: int
    pull_threshold_size_for_queue: int
    consume_concurrently_max_span: int
    max_reconsume_times: int
    suspend_current_queue_time_s: float
    lock_renew_s: float
    lock_trust_s: float
    take_over_grace_s: float
    take_over_foreign_grace_s: float | None
    rejoin_grace_s: float | None
    weights_interval_s: float
    local_offset_store_dir: str | Path | None
    release_drain_s: float
    pull_threshold_for_topic: int
    pull_threshold_size_for_topic: int
    consume_timeout_s: float | None
    hung_listener_s: float | None
    parallel_by: Literal["key"] | None
    enable_trace: bool
    trace_topic: str
    use_heartbeat_v2: bool
    events: str | Path | None


def check_options(given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse options that do not exist, and say which one may have been meant."""
    names = sorted(known)
    for name in given:
        if name not in names:
            _check_pop(name)
            near = difflib.get_close_matches(name, names, 1)
            hint = f"did you mean {near[0]}?" if near else "known are " + ", ".join(names)
            raise ConfigurationError(f"there is no option '{name}': {hint}")


def _check_pop(name: str) -> None:
    """Refuse the options of a mode that is left out, whichever way they are spelt."""
    spelt = name.replace("_", "").lower()
    if spelt == "clientrebalance" or spelt.startswith("pop"):
        raise ConfigurationError(
            f"option '{name}' is for the POP mode, in which brokers hand out single messages: it "
            "is not supported, members share out the queues. Leave it out; where there are more "
            "members than queues, give the topic more queues or the members more workers"
        )


def checked_access(nameserver: str | None, options: Mapping[str, Any]) -> Access:
    """Read the options of a client that takes those of `AccessOptions` and no others."""
    check_options(options, AccessOptions.__annotations__)
    return client_access(nameserver, options)


def check_strategy(strategy: Strategy, *, locking: bool) -> None:
    """Refuse a strategy whose members may disagree, unnoticed or where nothing keeps them apart."""
    if why := getattr(strategy, "incomparable", ""):
        raise ConfigurationError(f"allocation {strategy.name} has {why}")
    topic = getattr(strategy, "weights_topic", None)
    if topic is not None and not locking:
        raise ConfigurationError(
            f"allocation {strategy.name} reads its weights from topic '{topic}', which members do "
            "not do at the same moment: without locks a queue would have two owners. Use a push "
            "consumer with lease=True or ordered=True, or give the weights themselves"
        )


def between(name: str, value: int, lowest: int, highest: int) -> int:
    """The value, if it is within Java's bounds for the option."""
    if not lowest <= value <= highest:
        raise ConfigurationError(f"{name} is {value}: give {lowest} to {highest}")
    return value


def positive(name: str, value: float) -> float:
    """The value, if it is a time."""
    if not value > 0:  # not `<=`, which is false for what is no number
        raise ConfigurationError(f"{name} is {value}: give seconds above 0")
    return value


def not_negative(name: str, value: float) -> float:
    """The value, if it is a time or none at all."""
    if not value >= 0:
        raise ConfigurationError(f"{name} is {value}: give seconds, 0 or more")
    return value


def instance_settings(options: Mapping[str, Any]) -> InstanceSettings:
    """The timers of the shared instance, from the options of one of its users."""
    times: dict[str, Any] = {
        name: positive(name, options[name])
        for name in ("poll_name_server_interval_s", "heartbeat_broker_interval_s")
        if name in options
    }
    return InstanceSettings(use_heartbeat_v2=options.get("use_heartbeat_v2", False), **times)


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
    own = process_stem(client_id) or process_folder(f"{local_ip()}@DEFAULT")
    return root / own / group

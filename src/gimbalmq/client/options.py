"""Options that several classes take: which there are, what they set, and which values are let in.

One table says for every timer and threshold whose setting it is; defaults are those of the
settings. A wrong option is named, with what to give instead.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeAlias, TypeVar

import msgspec

from gimbalmq.client.access import Access, AccessOptions, client_access
from gimbalmq.client.naming import process_folder, process_stem
from gimbalmq.core.allocation import Strategy
from gimbalmq.core.consumer.settings import ConsumerSettings
from gimbalmq.core.flow_control import FlowLimits
from gimbalmq.errors import ConfigurationError
from gimbalmq.flows.offset import StartFrom, StartPolicy
from gimbalmq.runtime.consumer_host import PullSettings
from gimbalmq.runtime.instance import InstanceSettings
from gimbalmq.transport.address import local_ip
from gimbalmq.wire.subscription import SubscriptionData, parse_tags, sql_subscription

__all__ = [
    "SETTINGS",
    "ClientTuning",
    "ConsumerTuning",
    "LitePullTuning",
    "PushTuning",
    "Setting",
    "Start",
    "between",
    "check_options",
    "check_strategy",
    "checked_access",
    "instance_settings",
    "offset_folder",
    "positive",
    "pull_settings",
    "settings_of",
    "start_from",
    "subscription",
]

_Number = TypeVar("_Number", int, float)
#: Gets the name of an option and a value; returns what to set, or says what to give instead.
_Check: TypeAlias = Callable[[str, Any], Any]
#: Where a group starts in a queue that it has not read yet.
Start = Literal["last", "first"] | datetime


class ClientTuning(AccessOptions, total=False):
    """Options of `AccessOptions`, and timers of producers and consumers, by Java's names."""

    mq_client_api_timeout_s: float
    use_heartbeat_v2: bool


class ConsumerTuning(ClientTuning, total=False):
    """The same for consumers of every kind."""

    offset_timeout_s: float
    rebalance_min_interval_s: float
    rebalance_retry_s: float


class LitePullTuning(ConsumerTuning, total=False):
    """The same for a polling consumer: how it pulls ahead of its user."""

    pull_time_delay_when_exception_s: float
    pull_time_delay_when_flow_control_s: float
    consumer_timeout_when_suspend_s: float


class PushTuning(LitePullTuning, total=False):
    """The same for a push consumer, and its thresholds; see `ConsumerSettings`."""

    persist_consumer_offset_interval_s: float
    poll_name_server_interval_s: float
    heartbeat_broker_interval_s: float
    pull_interval_s: float
    pull_batch_size: int
    pulls_ahead: int
    broker_suspend_max_time_s: float
    pull_threshold_for_queue: int
    pull_threshold_size_for_queue: int
    consume_concurrently_max_span: int
    max_reconsume_times: int
    redeliver_s: float
    suspend_current_queue_time_s: float
    lock_renew_s: float
    lock_trust_s: float
    lock_retry_s: float
    lock_timeout_s: float
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


def checked_access(
    nameserver: str | None, options: Mapping[str, Any], known: type[Any] = AccessOptions
) -> Access:
    """Read how a client reaches its cluster; `known` says which options it takes besides."""
    check_options(options, known.__annotations__)
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


# ---- values --------------------------------------------------------------------------------------


def between(name: str, value: _Number, lowest: float, highest: float) -> _Number:
    """The value, if it is within Java's bounds for the option."""
    if not lowest <= value <= highest:
        raise ConfigurationError(f"{name} is {value}: give {lowest} to {highest}")
    return value


def positive(name: str, value: float) -> float:
    """The value, if it is a time."""
    if not value > 0:  # not `<=`, which is false for what is no number
        raise ConfigurationError(f"{name} is {value}: give seconds above 0")
    return value


def _not_negative(name: str, value: float) -> float:
    if not value >= 0:
        raise ConfigurationError(f"{name} is {value}: give seconds, 0 or more")
    return value


def _time_or_never(name: str, value: float | None) -> float | None:
    return None if value is None else positive(name, value)


def _within(lowest: float, highest: float, *, off: int | None = None) -> _Check:
    return lambda name, value: value if value == off else between(name, value, lowest, highest)


def _as_it_is(_name: str, value: Any) -> Any:
    return value


# ---- settings ------------------------------------------------------------------------------------


class Setting(NamedTuple):
    """What an option sets: a field of one of the settings, to values that pass the check."""

    home: type[msgspec.Struct]
    field: str
    check: _Check


def _settings(home: type[msgspec.Struct], **checks: _Check) -> dict[str, Setting]:
    """Options that have the name of the field that they set."""
    return {name: Setting(home, name, check) for name, check in checks.items()}


#: By option: what it sets. Its default is that of the field, unless a kind of client has its own.
SETTINGS: Final[dict[str, Setting]] = {
    **_settings(
        InstanceSettings,
        poll_name_server_interval_s=positive,
        heartbeat_broker_interval_s=positive,
        mq_client_api_timeout_s=positive,
        use_heartbeat_v2=_as_it_is,
    ),
    **_settings(
        ConsumerSettings,
        rebalance_interval_s=positive,
        rebalance_retry_s=positive,
        offset_timeout_s=positive,
        persist_consumer_offset_interval_s=positive,
        pull_interval_s=_within(0, 65.535),
        redeliver_s=positive,
        lock_renew_s=positive,
        lock_trust_s=positive,
        lock_retry_s=positive,
        lock_timeout_s=positive,
        take_over_grace_s=positive,
        take_over_foreign_grace_s=_time_or_never,
        weights_interval_s=positive,
        release_drain_s=_not_negative,
        consume_timeout_s=_time_or_never,
    ),
    "rebalance_min_interval_s": Setting(ConsumerSettings, "rebalance_gap_s", _not_negative),
    "auto_commit_interval_s": Setting(
        ConsumerSettings, "persist_consumer_offset_interval_s", positive
    ),
    "pull_time_delay_when_exception_s": Setting(ConsumerSettings, "pull_retry_s", positive),
    "pull_time_delay_when_flow_control_s": Setting(ConsumerSettings, "pull_retry_busy_s", positive),
    "suspend_current_queue_time_s": Setting(ConsumerSettings, "suspend_current_queue_s", positive),
    **_settings(
        PullSettings,
        pull_batch_size=_within(1, 1024),
        pulls_ahead=_within(0, 1024),
        broker_suspend_max_time_s=positive,
        consumer_timeout_when_suspend_s=positive,
    ),
    **_settings(
        FlowLimits,
        pull_threshold_for_queue=_within(1, 65535),
        pull_threshold_size_for_queue=_within(1, 1024),
        pull_threshold_for_topic=_within(1, 6_553_500, off=-1),
        pull_threshold_size_for_topic=_within(1, 102_400, off=-1),
        pull_threshold_for_all=_within(1, 2**31 - 1),
        consume_concurrently_max_span=_within(1, 65535),
    ),
    "consume_max_span": Setting(FlowLimits, "consume_concurrently_max_span", _within(1, 65535)),
}


def settings_of(home: type[msgspec.Struct], options: Mapping[str, Any]) -> dict[str, Any]:
    """What the options say about one of the settings, checked, by the names of its fields.

    >>> settings_of(PullSettings, {"pull_batch_size": 10, "lock_renew_s": 2.0})
    {'pull_batch_size': 10}
    """
    return {
        setting.field: setting.check(name, options[name])
        for name, setting in SETTINGS.items()
        if setting.home is home and name in options
    }


def instance_settings(options: Mapping[str, Any]) -> InstanceSettings:
    """The timers of the shared instance, from the options of one of its users."""
    return InstanceSettings(**settings_of(InstanceSettings, options))


def pull_settings(options: Mapping[str, Any], **others: Any) -> PullSettings:
    """How messages are pulled, from the options of a consumer."""
    pulls = PullSettings(**settings_of(PullSettings, options), **others)
    if pulls.consumer_timeout_when_suspend_s < pulls.broker_suspend_max_time_s:
        raise ConfigurationError(
            f"consumer_timeout_when_suspend_s ({pulls.consumer_timeout_when_suspend_s:g}) is "
            f"shorter than broker_suspend_max_time_s ({pulls.broker_suspend_max_time_s:g}), so "
            "that pulls would end before brokers answer them: give one that is longer"
        )
    return pulls


# ---- what several kinds take ---------------------------------------------------------------------


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
    if callable(tags):
        raise ConfigurationError(
            f"topic '{topic}': {tags!r} is given in the place of tags; where a listener is wanted, "
            "give it as listener=..., or put @consumer.subscribe(...) above it"
        )
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

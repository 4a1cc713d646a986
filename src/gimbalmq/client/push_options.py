"""The options of a push consumer, checked and by the names of those that take them."""

from __future__ import annotations

from typing import Any

from gimbalmq.client.options import PushTuning, between, positive
from gimbalmq.core.consumer.keyed import KeyOf
from gimbalmq.core.consumer.settings import ConsumerSettings
from gimbalmq.core.flow_control import FlowLimits
from gimbalmq.errors import ConfigurationError

__all__ = ["check_modes", "key_function", "machine_options"]


def machine_options(tuning: PushTuning) -> dict[str, Any]:
    """Those of the options that the machine takes, by its names for them."""
    times: dict[str, Any] = {
        name: positive(name, tuning[name])
        for name in ("persist_consumer_offset_interval_s", "lock_renew_s", "lock_trust_s",
                     "take_over_grace_s")
        if name in tuning
    }  # fmt: skip
    for name in ("take_over_foreign_grace_s", "release_drain_s"):
        if name in tuning:
            times[name] = tuning[name]
    if "suspend_current_queue_time_s" in tuning:
        pause_s = tuning["suspend_current_queue_time_s"]
        times["suspend_current_queue_s"] = positive("suspend_current_queue_time_s", pause_s)
    if "consume_timeout_s" in tuning:
        limit_s = tuning["consume_timeout_s"]
        times["consume_timeout_s"] = (
            None if limit_s is None else positive("consume_timeout_s", limit_s)
        )
    bounds = {
        "pull_threshold_for_queue": 65535,
        "pull_threshold_size_for_queue": 1024,
        "consume_concurrently_max_span": 65535,
    }
    given: dict[str, Any] = dict(tuning)
    limits = {
        name: between(name, given[name], 1, highest)
        for name, highest in bounds.items()
        if name in given
    }
    for name, highest in (
        ("pull_threshold_for_topic", 6_553_500),
        ("pull_threshold_size_for_topic", 102_400),
    ):
        if given.get(name, -1) != -1:
            limits[name] = between(name, given[name], 1, highest)
    return {**times, "limits": FlowLimits(**limits)}


def key_function(parallel_by: str | None, *, batch_size: int, auto_commit: bool) -> KeyOf | None:
    """Read the option `parallel_by`; None when queues are consumed as ever."""
    if parallel_by is None:
        return None
    if parallel_by != "key":
        raise ConfigurationError(f"parallel_by is {parallel_by!r}: give 'key', or leave it out")
    if batch_size > 1:
        raise ConfigurationError(
            "parallel_by='key' gives listeners one message at a time: leave batch_size at 1"
        )
    if not auto_commit:
        raise ConfigurationError(
            "parallel_by='key' needs auto_commit=True: what Commit and Rollback are about would "
            "be several messages of different keys at once"
        )
    return _message_key


def _message_key(message: Any) -> str | None:
    """What messages are consumed in order by: the key that chose their queue, else their first."""
    key: str | None = message.property_value("__SHARDINGKEY")
    if key is not None:
        return key
    keys = message.keys
    return keys[0] if keys else None


def check_modes(settings: ConsumerSettings, *, auto_commit: bool) -> None:
    """Refuse combinations of options that contradict each other."""
    if settings.lease and settings.broadcasting:
        raise ConfigurationError("lease=True has no meaning when broadcasting: queues never move")
    if not auto_commit and not settings.ordered:
        raise ConfigurationError("auto_commit=False is for ordered=True: give both, or neither")
    if settings.lock_trust_s <= settings.lock_renew_s:
        raise ConfigurationError(
            f"lock_trust_s ({settings.lock_trust_s:g}) must be longer than lock_renew_s "
            f"({settings.lock_renew_s:g}), or queues stop between renewals"
        )
    if settings.take_over_grace_s <= settings.lock_trust_s:
        raise ConfigurationError(
            f"take_over_grace_s ({settings.take_over_grace_s:g}) must be longer than lock_trust_s "
            f"({settings.lock_trust_s:g}), or a queue may be consumed by two members"
        )

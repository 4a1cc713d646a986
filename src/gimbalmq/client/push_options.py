"""The options of a push consumer, checked and by the names of those that take them."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from gimbalmq.client.options import PushTuning, positive, pull_settings, settings_of
from gimbalmq.core.consumer.keyed import KeyOf
from gimbalmq.core.consumer.settings import ConsumerSettings
from gimbalmq.core.delays import DEFAULT_DELAY_LEVELS_MS, retry_delay_ms
from gimbalmq.core.flow_control import FlowLimits
from gimbalmq.errors import ConfigurationError
from gimbalmq.runtime.consumer_host import PullSettings
from gimbalmq.wire.trace import TRACE_TOPIC

__all__ = [
    "check_modes",
    "hung_listener",
    "key_function",
    "machine_options",
    "patience_s",
    "pull_options",
    "rejoin_grace",
    "trace_place",
]

#: For how long a broker keeps a lock that is not renewed.
_BROKER_LOCK_S: Final = 60.0
#: For how long a Java member that has lost its broker goes on with a lock.
_JAVA_TRUST_S: Final = 30.0
#: The longest pause of an ordered queue that counts, as in Java.
_SUSPEND_MAX_S: Final = 30.0
#: Longer than any restart; and a number of seconds that fits into a client id.
_REJOIN_GRACE_MAX_S: Final = 3600.0


def machine_options(tuning: PushTuning) -> dict[str, Any]:
    """Those of the options that the machine takes, by its names for them."""
    attempts = tuning.get("max_reconsume_times", -1)
    return {
        **settings_of(ConsumerSettings, tuning),
        "rejoin_grace_s": rejoin_grace(tuning),
        "ordered_reconsume_max": None if attempts < 0 else attempts,
        "limits": FlowLimits(**settings_of(FlowLimits, tuning)),
    }


def pull_options(tuning: PushTuning, namespace: str | None) -> PullSettings:
    """How messages are pulled, and how often they are tried."""
    attempts = tuning.get("max_reconsume_times", -1)
    pulls = pull_settings(
        tuning, max_reconsume_times=16 if attempts < 0 else attempts, namespace=namespace
    )
    if tuning.get("pull_interval_s"):
        # Whoever wants pauses between pulls does not want more of them at once.
        return msgspec.structs.replace(pulls, pulls_ahead=0)
    return pulls


def patience_s(settings: ConsumerSettings, attempts: int) -> float:
    """How long a message that a listener does not take is tried before it is given up."""
    if settings.broadcasting or (settings.ordered and settings.ordered_reconsume_max is None):
        return float("inf")  # never given up, or not tried again in the first place
    if settings.ordered:
        return attempts * min(settings.suspend_current_queue_s, _SUSPEND_MAX_S)
    return sum(retry_delay_ms(k, DEFAULT_DELAY_LEVELS_MS) for k in range(attempts)) / 1000


def hung_listener(tuning: PushTuning) -> float | None:
    """Read the option `hung_listener_s`; None when nobody is to look."""
    limit_s = tuning.get("hung_listener_s", 60.0)
    return None if limit_s is None else positive("hung_listener_s", limit_s)


def trace_place(tuning: PushTuning) -> str | None:
    """The topic for traces; None when there are none."""
    return tuning.get("trace_topic", TRACE_TOPIC) if tuning.get("enable_trace") else None


def rejoin_grace(tuning: PushTuning) -> float | None:
    """Read the option `rejoin_grace_s`; to the millisecond, as client ids carry it."""
    grace_s = tuning.get("rejoin_grace_s")
    if grace_s is None:
        return None
    if not 0.001 <= grace_s <= _REJOIN_GRACE_MAX_S:
        raise ConfigurationError(
            f"rejoin_grace_s is {grace_s}: give seconds from 0.001 to {_REJOIN_GRACE_MAX_S:g}, "
            "or None"
        )
    return round(float(grace_s), 3)


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
    if settings.rejoin_grace_s is not None and not settings.locking:
        raise ConfigurationError(
            "rejoin_grace_s needs lease=True or ordered=True: without locks, members that notice "
            "at different times who is gone would consume a queue twice"
        )
    if not auto_commit and not settings.ordered:
        raise ConfigurationError("auto_commit=False is for ordered=True: give both, or neither")
    _check_lock_times(settings)


def _check_lock_times(settings: ConsumerSettings) -> None:
    """Refuse times with which two members may consume a queue, or nobody does."""
    trust_s, grace_s = settings.lock_trust_s, settings.take_over_grace_s
    if trust_s <= settings.lock_renew_s:
        raise ConfigurationError(
            f"lock_trust_s ({trust_s:g}) must be longer than lock_renew_s "
            f"({settings.lock_renew_s:g}), or queues stop between renewals"
        )
    if trust_s >= _BROKER_LOCK_S:
        raise ConfigurationError(
            f"lock_trust_s ({trust_s:g}) must be shorter than {_BROKER_LOCK_S:g} s, after which a "
            "broker gives the lock to others, or a queue may be consumed by two members"
        )
    if grace_s <= trust_s:
        raise ConfigurationError(
            f"take_over_grace_s ({grace_s:g}) must be longer than lock_trust_s ({trust_s:g}), of "
            "this and of every other member, or a queue may be consumed by two members"
        )
    foreign_s, least_s = settings.take_over_foreign_grace_s, max(_JAVA_TRUST_S, trust_s)
    if foreign_s is not None and foreign_s <= least_s:
        raise ConfigurationError(
            f"take_over_foreign_grace_s ({foreign_s:g}) must be longer than {least_s:g} s, for "
            "which members of the group go on with their locks without contact to a broker (Java "
            f"{_JAVA_TRUST_S:g} s), or a queue may be consumed by two; or None, to take nothing "
            "over beside foreign members"
        )

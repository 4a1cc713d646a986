"""Every number and switch of a broker, with the defaults of Apache RocketMQ 5.5."""

from __future__ import annotations

from typing import Final

import msgspec

from gimbalmq.core.delays import DEFAULT_DELAY_LEVELS_MS

__all__ = ["BrokerSettings"]

_SECOND: Final = 1_000
_MINUTE: Final = 60 * _SECOND
_HOUR: Final = 60 * _MINUTE


class BrokerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Identity, limits and times of one broker; times in milliseconds.

    `faithful` switches off what this broker does better than Java's:

    - queue locks end with the connection that took them, unless its client id has another one;
    - an unlock in the name of another client id counts only if that id is not connected;
    - the members of a group are told when the scan removes a silent one;
    - a heartbeat that leaves out subscriptions which the broker has lost has them sent again;
    - a pull whose own SQL expression cannot be read is refused, not given everything;
    - a half message is decided once: a second commit does not deliver it again.
    """

    cluster: str = "DefaultCluster"
    name: str = "broker-a"
    broker_id: int = 0
    #: What goes into records, message ids and routes: a numeric address that clients can reach.
    host: str = "127.0.0.1"
    port: int = 10911
    faithful: bool = False

    auto_create_topic: bool = True
    #: Queues of the template topic, the most that a topic gets when it is created by a send.
    default_queues: int = 8
    auto_create_group: bool = True
    #: SQL92 subscriptions.
    property_filter: bool = True
    region: str = "DefaultRegion"
    trace_on: bool = True
    #: Whether scheduled messages may be taken back (RECALL_MESSAGE).
    recall: bool = False

    body_bytes_max: int = 4 * 1024 * 1024
    properties_bytes_max: int = 32_767
    #: One pull answer; the first message is always given, whatever its size.
    pull_messages_max: int = 32
    pull_bytes_max: int = 256 * 1024
    #: Index entries that one pull looks at when a filter drops most of them.
    pull_scan_max: int = 800
    pop_messages_max: int = 32

    topics_max: int = 50_000
    queues_max: int = 65_536
    groups_max: int = 50_000
    #: Pulls that wait for messages, and as many pops.
    parked_max: int = 100_000

    #: Held pulls are looked at this often, without their filter.
    long_poll_sweep_ms: int = 5 * _SECOND
    channel_life_ms: int = 120 * _SECOND
    channel_scan_ms: int = 10 * _SECOND
    lock_life_ms: int = 60 * _SECOND
    offsets_save_ms: int = 5 * _SECOND
    #: How long a client may take to answer what the broker relays.
    relay_timeout_ms: int = 5 * _SECOND

    delay_levels_ms: tuple[int, ...] = DEFAULT_DELAY_LEVELS_MS
    timer_max_ms: int = 72 * _HOUR
    #: Timers are rounded down to this.
    timer_precision_ms: int = _SECOND

    transaction_timeout_ms: int = 6 * _SECOND
    transaction_check_ms: int = 30 * _SECOND
    transaction_checks_max: int = 15

    #: A client's clock may differ this much before its pop is refused as too late.
    pop_clock_tolerance_ms: int = 500

    @property
    def address(self) -> str:
        """`host:port` of this broker."""
        return f"{self.host}:{self.port}"

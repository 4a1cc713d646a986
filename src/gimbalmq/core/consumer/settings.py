"""Timers and thresholds of a push consumer, with Java's names and defaults where Java has them."""

from __future__ import annotations

import msgspec

from gimbalmq.core.flow_control import FlowLimits

__all__ = ["ConsumerSettings"]


class ConsumerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How one member of one group behaves; everything in seconds."""

    group: str
    client_id: str
    rebalance_interval_s: float = 20.0
    #: Least time between two passes. Java waits 1 s (since 5.2.0); notices that come in a burst
    #: need only be gathered, and a short gap lets queues settle that much sooner.
    rebalance_gap_s: float = 0.05
    #: First pause after an incomplete pass; it doubles up to the rebalance interval.
    rebalance_retry_s: float = 0.2
    pull_idle_limit_s: float = 120.0
    persist_consumer_offset_interval_s: float = 5.0
    #: Pause after a pull that failed (`pullTimeDelayMillsWhenException`).
    pull_retry_s: float = 1.0
    #: Pause after a broker said that it is over its own limits (code 215).
    pull_retry_busy_s: float = 0.02
    #: Pause before a message whose send-back failed is delivered again locally.
    redeliver_s: float = 5.0
    #: How long running listeners may go on when a queue is given up, before it is handed over.
    release_drain_s: float = 10.0
    limits: FlowLimits = FlowLimits()

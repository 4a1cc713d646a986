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
    #: A queue whose pull has not come back for this long is dropped and taken again; None for
    #: consumers whose user decides when to read.
    pull_idle_limit_s: float | None = 120.0
    #: The user assigns queues: no part in rebalancing.
    manual: bool = False
    persist_consumer_offset_interval_s: float = 5.0
    #: Pause after a pull that failed (`pullTimeDelayMillsWhenException`).
    pull_retry_s: float = 1.0
    #: Pause after a broker said that it is over its own limits (code 215).
    pull_retry_busy_s: float = 0.02
    #: Pause between two pulls of a queue that has messages (`pullInterval`).
    pull_interval_s: float = 0.0
    #: How long a broker may take to say or to store an offset.
    offset_timeout_s: float = 5.0
    #: Pause before a message whose send-back failed is delivered again locally.
    redeliver_s: float = 5.0
    #: How long running listeners may go on when a queue is given up, before it is handed over.
    release_drain_s: float = 10.0
    limits: FlowLimits = FlowLimits()
    #: A message that a listener has had for this long is sent back (`consumeTimeout`); None: never.
    consume_timeout_s: float | None = 900.0
    #: One message after the other in each queue.
    ordered: bool = False
    #: Every member gets every queue; failures are not delivered again.
    broadcasting: bool = False
    #: Own a queue only with its lock: always for ordered groups, on request for others.
    lease: bool = False
    #: Java asks again after 0.5 s; a short pause lets a queue change hands that much sooner.
    lock_retry_s: float = 0.1
    #: How long a broker may take to answer about locks.
    lock_timeout_s: float = 1.0
    #: Java renews every 20 s and trusts a lock for 30 s. Renewing every second costs one small
    #: request per broker and lets others take over from a dead member within seconds.
    lock_renew_s: float = 1.0
    lock_trust_s: float = 3.0
    #: How long a member must be gone from every broker's list before its locks are taken over;
    #: longer than `lock_trust_s` of every member, so that it has stopped starting messages.
    take_over_grace_s: float = 4.0
    #: The same in groups with foreign members, whose locks are trusted for 30 s; None: never.
    take_over_foreign_grace_s: float | None = None
    #: How long the queues of a member that is gone wait for it to come back; None: not at all.
    rejoin_grace_s: float | None = None
    #: How often published weights are looked for, where the strategy uses them.
    weights_interval_s: float = 10.0
    #: Pause before an ordered message that failed is tried again (`suspendCurrentQueueTimeMillis`).
    suspend_current_queue_s: float = 1.0
    #: How often an ordered message is tried again before it is given up; None: for ever.
    ordered_reconsume_max: int | None = None

    @property
    def expiring(self) -> bool:
        """Whether messages whose listeners take too long are sent back, as concurrent ones are."""
        return self.consume_timeout_s is not None and not (self.ordered or self.broadcasting)

    @property
    def locking(self) -> bool:
        """Whether a queue is owned only with its lock."""
        return (self.ordered or self.lease) and not self.broadcasting

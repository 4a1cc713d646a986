"""What a running consumer tells about itself: numbers, and whether it lives and is ready."""

from __future__ import annotations

import msgspec

from gimbalmq.core.consumer.events import Trigger
from gimbalmq.core.consumer.held import HeldQueue, HeldState
from gimbalmq.core.consumer.machine import ConsumerMachine
from gimbalmq.core.consumer.passive import PassiveMachine
from gimbalmq.core.consumer.tally import Tally
from gimbalmq.model.queue import MessageQueue
from gimbalmq.runtime.alarms import HungListenerAlarm, OutlivedLockAlarm
from gimbalmq.runtime.consumer_host import ConsumerHost
from gimbalmq.wire.names import Namespace

__all__ = [
    "ConsumerStats",
    "Crew",
    "Probe",
    "QueueStats",
    "consumer_stats",
    "probe_of",
    "resting_probe",
]


class QueueStats(msgspec.Struct, frozen=True, kw_only=True):
    """One queue in hand; counts are since it was acquired."""

    queue: MessageQueue
    #: Where it stands, in words.
    state: str
    cached: int
    cached_bytes: int
    consumed: int
    failed: int
    #: Taken back by the broker, to be delivered again later or buried.
    retried: int
    #: Sent back because the listener took longer than `consume_timeout_s`.
    expired: int
    #: Mean seconds that a listener takes for a message; None before the first, and for pollers.
    latency_s: float | None
    #: The next offset that a new owner would read, and the next to pull; None until known.
    offset: int | None
    next_offset: int | None
    #: Messages behind the end of the queue, as of the last pull; None when not known yet.
    lag: int | None
    #: Whether the queue's lock is held; None in groups that do not lock.
    locked: bool | None
    #: How long nobody here consumed it when it came; None while it is still coming.
    pause_s: float | None


class ConsumerStats(msgspec.Struct, frozen=True, kw_only=True):
    """A consumer at one moment; counts are since its start."""

    group: str
    client_id: str
    consumed: int
    failed: int
    retried: int
    expired: int
    latency_s: float | None
    #: Passes that moved queues, and the same by what they were for, in small letters.
    rebalances: int
    rebalances_by_trigger: dict[str, int]
    #: Queues that came, and queues that went.
    acquired: int
    revoked: int
    #: Alarms for hung listeners, and how many hang at present.
    hung: int
    hung_now: int
    #: Listeners that still ran when another member could have their queue: its lock was lost.
    outlived: int
    #: Threads that run listeners, and how many of them do at present.
    workers: int
    busy: int
    queues: tuple[QueueStats, ...]

    @property
    def cached(self) -> int:
        """Messages that were pulled and are not done."""
        return sum(one.cached for one in self.queues)

    @property
    def lag(self) -> int:
        """Messages behind the ends of the queues, as far as known."""
        return sum(one.lag or 0 for one in self.queues)


class Probe(msgspec.Struct, frozen=True):
    """Whether a consumer works at all, whether it takes part, and what speaks against it."""

    #: False: it will not recover by itself; restart it.
    live: bool
    #: False: it does not consume yet, or no longer.
    ready: bool
    reasons: tuple[str, ...] = ()
    #: False: the client's own thread did not say a word, and will not answer other questions.
    answered: bool = True


class Crew(msgspec.Struct, frozen=True):
    """Those who run listeners, and whoever looks after them; nobody where the user polls."""

    workers: int = 0
    busy: int = 0
    alarm: HungListenerAlarm | None = None
    lock_alarm: OutlivedLockAlarm | None = None

    @property
    def hung_now(self) -> int:
        """How many hang at present."""
        return 0 if self.alarm is None else self.alarm.hung_now


def consumer_stats(
    host: ConsumerHost, machine: ConsumerMachine, names: Namespace, *, crew: Crew, now: float
) -> ConsumerStats:
    """Take the numbers; on the driver's side."""
    total = machine.tally()
    return ConsumerStats(
        group=names.user(host.group),
        client_id=machine.settings.client_id,
        consumed=total.consumed,
        failed=total.failed,
        retried=total.retried,
        expired=total.expired,
        latency_s=_latency_s(total),
        rebalances=host.rebalances.total(),
        rebalances_by_trigger={one.name.lower(): host.rebalances[one] for one in Trigger},
        acquired=host.acquired,
        revoked=host.revoked,
        hung=0 if crew.alarm is None else crew.alarm.count,
        hung_now=crew.hung_now,
        outlived=0 if crew.lock_alarm is None else crew.lock_alarm.count,
        workers=crew.workers,
        busy=crew.busy,
        queues=tuple(
            _queue_stats(held, names, host.pauses.get(held.queue), now)
            for held in sorted(machine.held.values(), key=lambda one: one.queue)
        ),
    )


def _queue_stats(
    held: HeldQueue, names: Namespace, pause_s: float | None, now: float
) -> QueueStats:
    process, tally = held.process, held.tally
    lag = None
    if process is not None and held.maximum is not None:
        lag = max(0, held.maximum - process.commit_offset)
    return QueueStats(
        queue=names.user_queue(held.queue),
        state=held.state.value,
        cached=0 if process is None else process.cached_count,
        cached_bytes=0 if process is None else process.cached_bytes,
        consumed=tally.consumed,
        failed=tally.failed,
        retried=tally.retried,
        expired=tally.expired,
        latency_s=_latency_s(tally),
        offset=None if process is None else process.commit_offset,
        next_offset=None if process is None else process.next_offset,
        lag=lag,
        locked=None
        if held.permit is None
        else held.state is not HeldState.LOCKING and held.sure(now),
        pause_s=pause_s,
    )


def _latency_s(tally: Tally) -> float | None:
    count = tally.consumed + tally.failed
    # How long a user takes who polls is not measured.
    return tally.listener_s / count if count and tally.listener_s else None


def resting_probe(state: str) -> Probe:
    """Judge a consumer that does not run: one on its way in or out needs no restart.

    >>> resting_probe("stopping")
    Probe(live=True, ready=False, reasons=('the consumer is stopping',), answered=True)
    """
    return Probe(state in {"starting", "stopping"}, False, (f"the consumer is {state}",))


def probe_of(machine: ConsumerMachine | PassiveMachine, crew: Crew, *, registered: bool) -> Probe:
    """Judge a running consumer; on the driver's side."""
    reasons: list[str] = []
    live = ready = True
    if crew.hung_now and crew.hung_now >= crew.workers:
        live = ready = False
        reasons.append(f"all {crew.workers} workers hang in listeners")
    elif crew.hung_now:
        reasons.append(f"{crew.hung_now} of {crew.workers} workers hang in listeners")
    if not registered:
        ready = False
        reasons.append("no broker has confirmed this member")
    if not (machine.passes.decided or machine.settings.manual):
        ready = False
        reasons.append("the queues are not shared out yet")
    if machine.settings.client_id in machine.passes.repeated:
        ready = False
        reasons.append(
            f"another process uses the client id '{machine.settings.client_id}', or brokers still "
            "list an earlier connection of this one"
        )
    coming = [held for held in machine.held.values() if held.process is None]
    if coming:
        reasons.append(
            f"{len(coming)} queues are not consumed yet: "
            + ", ".join(sorted({held.state.value for held in coming}))
        )
        ready = ready and bool(machine.assignment())
    return Probe(live, ready, tuple(reasons))

"""What happens to a consumer: the inputs of `ConsumerMachine.handle`.

Events are facts in the past. Each that answers an effect for one queue carries the `epoch` of
the acquisition that asked, so that an answer that comes after the queue was given up and taken
again is recognised and ignored.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

import msgspec

from gimbalmq.core.process_queue import Batch
from gimbalmq.model.message import PullStatus
from gimbalmq.model.queue import MessageQueue

__all__ = [
    "AbsentTold",
    "Assigned",
    "Cancelled",
    "Consumed",
    "Event",
    "Expired",
    "HandedOver",
    "Left",
    "ListedEverywhere",
    "LockAnswered",
    "MembersListed",
    "OffsetFound",
    "OffsetsReset",
    "Paused",
    "Polled",
    "PullAnswered",
    "PullFailed",
    "Resumed",
    "RouteLearned",
    "SeekRequested",
    "SentBack",
    "Started",
    "StopRequested",
    "Subscribed",
    "TakenOver",
    "TimerFired",
    "TimerName",
    "Trigger",
    "Unlocked",
    "Unsubscribed",
    "WeightsRead",
    "Woken",
]


class Trigger(enum.Enum):
    """Why a rebalance pass runs, or why queues are given up without one."""

    START = "start"
    TIMER = "timer"
    NOTICE = "notice from a broker"
    ROUTE = "route changed"
    RECONNECT = "connection to a broker made"
    RETRY = "earlier pass incomplete"
    SUBSCRIPTION = "subscription changed"
    RELEASE = "queue released"
    RESUME = "consumer resumed"
    ABSENCE = "member did not come back in time"
    WEIGHTS = "weights published"
    LOCK = "lock lost"
    OFFSET = "offset moved"
    STOP = "stop"


class Started(msgspec.Struct, frozen=True):
    """The first heartbeat reached the brokers; routes of the topics were asked for."""


class StopRequested(msgspec.Struct, frozen=True):
    """The user wants to leave; running listeners may take `drain_s` more seconds."""

    drain_s: float


class TimerName(enum.Enum):
    """The timers of a consumer; those of one queue carry its epoch."""

    REBALANCE = "rebalance"
    NEXT_PASS = "next pass"  # noqa: S105 - a rebalance pass, not a password
    COMMIT = "commit"
    PULL = "pull"
    REDELIVER = "redeliver"
    DRAIN = "drain"
    LOCK = "lock"
    RENEW_LOCKS = "renew locks"
    TAKE_OVER = "take over"
    CONTINUE = "continue"
    EXPIRE = "expire"


class TimerFired(msgspec.Struct, frozen=True):
    """A timer set by `SetTimer` ran out."""

    name: TimerName
    queue: MessageQueue | None = None
    epoch: int = 0


class Woken(msgspec.Struct, frozen=True):
    """Something outside says that ownership may have to change."""

    trigger: Trigger


class RouteLearned(msgspec.Struct, frozen=True):
    """The queues of a subscribed topic became known or changed."""

    topic: str
    queues: frozenset[MessageQueue]


class MembersListed(msgspec.Struct, frozen=True):
    """Answer to `ListMembers`; `members` is None when no broker could be asked, see `reason`."""

    members: tuple[str, ...] | None
    reason: str = ""


class AbsentTold(msgspec.Struct, frozen=True):
    """Answer to `AskAbsent`: who is gone, and for how many seconds; None when nobody knew."""

    absent: dict[str, float] | None


class WeightsRead(msgspec.Struct, frozen=True):
    """The published weights became known or changed: by queue path, and the version by topic."""

    weights: dict[str, float]
    versions: dict[str, int]


class OffsetFound(msgspec.Struct, frozen=True):
    """Answer to `FindOffset`; `offset` is None when it could not be found out, see `reason`."""

    queue: MessageQueue
    epoch: int
    offset: int | None
    reason: str = ""


class PullAnswered(msgspec.Struct, frozen=True):
    """Answer to `Pull`: messages that passed the filter, and where to go on."""

    queue: MessageQueue
    epoch: int
    status: PullStatus
    next_offset: int
    messages: Sequence[Any] = ()
    offsets: Sequence[int] = ()
    body_bytes: int = 0
    #: One past the last message of the queue, as the broker has it.
    maximum: int | None = None


class PullFailed(msgspec.Struct, frozen=True):
    """A pull got no usable answer; `code` is the broker's, or None for a broken connection."""

    queue: MessageQueue
    epoch: int
    code: int | None
    reason: str


class Consumed(msgspec.Struct, frozen=True):
    """A worker gives back positions [first, until) of a batch; listeners ran up to `reached`.

    `reached` is None when that is all of them; what was not reached was not started, because the
    permit ended, or, in an ordered queue, because the message at `reached` stopped the run:
    `suspend_s` is the pause that it asks for, `buried` gives it up. What stopped it may be a batch:
    `failed_until` is where that ends.

    `failures` holds (position, delay level) of messages to deliver again later; a negative level
    means dead letter, 0 lets the broker choose. `uncommitted_from` is where, in an ordered queue
    without automatic commit, the messages begin that were processed but not committed;
    `rolled_back` asks for all of those again. `took_s` is the time spent in listeners.
    """

    queue: MessageQueue
    epoch: int
    batch: Batch
    first: int
    until: int
    failures: tuple[tuple[int, int], ...] = ()
    reached: int | None = None
    suspend_s: float | None = None
    buried: bool = False
    failed_until: int | None = None
    uncommitted_from: int | None = None
    rolled_back: bool = False
    took_s: float = 0.0

    def stopped_by(self) -> range:
        """The positions of what stopped an ordered run; none when nothing did."""
        if self.reached is None or not (self.buried or self.suspend_s is not None):
            return range(0)
        until = self.reached + 1 if self.failed_until is None else self.failed_until
        return range(0) if self.rolled_back else range(self.reached, until)


class Expired(msgspec.Struct, frozen=True):
    """Answer to `FindExpired`, one per message: its listener has had it for too long."""

    queue: MessageQueue
    epoch: int
    batch: Batch
    position: int


class SentBack(msgspec.Struct, frozen=True):
    """Answer to `SendBack`; when not ok, the message is delivered again locally."""

    queue: MessageQueue
    epoch: int
    batch: Batch
    position: int
    ok: bool
    reason: str = ""


class LockAnswered(msgspec.Struct, frozen=True):
    """Answer to `Lock` by one broker; `granted` is None when it gave no answer, see `reason`.

    `sent_at` is when the request left: a lock counts from then, not from when the answer came.
    """

    asked: tuple[tuple[MessageQueue, int], ...]
    granted: frozenset[MessageQueue] | None
    sent_at: float
    reason: str = ""


class Unlocked(msgspec.Struct, frozen=True):
    """Answer to `Unlock`, also when the broker could not be reached."""

    queue: MessageQueue
    epoch: int


class TakenOver(msgspec.Struct, frozen=True):
    """Answer to `TakeOver`: the locks of the dead are off these queues, as far as possible."""

    queues: tuple[MessageQueue, ...]


class ListedEverywhere(msgspec.Struct, frozen=True):
    """Answer to `ListEverywhere`: who each broker lists; None when one could not be asked."""

    lists: dict[str, frozenset[str]] | None


class Cancelled(msgspec.Struct, frozen=True):
    """Answer to `Cancel`: waiting messages were discarded, `running` are or will be in listeners.

    Those that will be are before others that have begun.
    """

    queue: MessageQueue
    epoch: int
    running: int


class Polled(msgspec.Struct, frozen=True):
    """A user has the messages of a batch before a position, and commits them some time later."""

    queue: MessageQueue
    epoch: int
    batch: Batch
    until: int


class HandedOver(msgspec.Struct, frozen=True):
    """Answer to `HandOver`: the last offset is stored, or could not be (`reason`)."""

    queue: MessageQueue
    epoch: int
    reason: str = ""


class Paused(msgspec.Struct, frozen=True):
    """The user paused queues (None: all); held queues stay held and are not pulled.

    With `balancing` the whole member pauses: it also keeps the queues that it has.
    """

    queues: frozenset[MessageQueue] | None
    balancing: bool = False


class Resumed(msgspec.Struct, frozen=True):
    """The user resumed queues (None: all)."""

    queues: frozenset[MessageQueue] | None


class Subscribed(msgspec.Struct, frozen=True):
    """The user subscribed to one more topic while running."""

    topic: str


class Unsubscribed(msgspec.Struct, frozen=True):
    """The user no longer wants a topic: its queues are released."""

    topic: str


class Assigned(msgspec.Struct, frozen=True):
    """The user chose the queues of a consumer that does not take part in rebalancing."""

    queues: frozenset[MessageQueue]


class SeekRequested(msgspec.Struct, frozen=True):
    """The user wants to go on reading a held queue at another offset."""

    queue: MessageQueue
    offset: int


class OffsetsReset(msgspec.Struct, frozen=True):
    """An operator moved the group's offsets; held queues start over there."""

    offsets: dict[MessageQueue, int]


class Left(msgspec.Struct, frozen=True):
    """The brokers were told that this member is gone (or could not be reached)."""


Event = (
    Started
    | StopRequested
    | TimerFired
    | Woken
    | RouteLearned
    | MembersListed
    | AbsentTold
    | WeightsRead
    | OffsetFound
    | PullAnswered
    | PullFailed
    | Consumed
    | Polled
    | Expired
    | SentBack
    | Cancelled
    | HandedOver
    | LockAnswered
    | Unlocked
    | ListedEverywhere
    | TakenOver
    | Paused
    | Resumed
    | Subscribed
    | Unsubscribed
    | Assigned
    | SeekRequested
    | OffsetsReset
    | Left
)

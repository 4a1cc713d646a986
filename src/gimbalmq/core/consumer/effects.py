"""What a consumer wants done: the outputs of `ConsumerMachine.handle`.

Effects are imperatives. The owner of the machine performs each and, where one is named, hands
the answering event back; it decides nothing.
"""

from __future__ import annotations

import msgspec

from gimbalmq.core.consumer.events import TimerName, Trigger
from gimbalmq.core.process_queue import Batch
from gimbalmq.model.queue import MessageQueue

__all__ = [
    "Announce",
    "Cancel",
    "Commit",
    "Consume",
    "Effect",
    "FindOffset",
    "HandOver",
    "Leave",
    "ListMembers",
    "Pull",
    "RebalanceReport",
    "RefreshRoute",
    "RenewHeartbeat",
    "SendBack",
    "SetTimer",
    "Stopped",
    "Warn",
]


class SetTimer(msgspec.Struct, frozen=True):
    """Hand `TimerFired` back after `delay_s`; replaces a running timer of the same key."""

    name: TimerName
    delay_s: float
    queue: MessageQueue | None = None
    epoch: int = 0


class RefreshRoute(msgspec.Struct, frozen=True):
    """Ask the name servers for a topic whose route is missing; `RouteLearned` may follow."""

    topic: str


class ListMembers(msgspec.Struct, frozen=True):
    """Ask a broker who is in the group; answered by `MembersListed`."""


class RenewHeartbeat(msgspec.Struct, frozen=True):
    """Tell every broker at once what this member subscribes to.

    `changed` names topics whose assignment changed: their subscription version is raised first,
    because a broker refuses pulls that are newer than the heartbeat it knows.
    """

    changed: tuple[str, ...] = ()


class FindOffset(msgspec.Struct, frozen=True):
    """Find out where to start reading a queue; answered by `OffsetFound`."""

    queue: MessageQueue
    epoch: int


class Pull(msgspec.Struct, frozen=True):
    """Ask for messages from `offset` on; answered by `PullAnswered` or `PullFailed`.

    `commit_offset` rides along, when positive.
    """

    queue: MessageQueue
    epoch: int
    offset: int
    commit_offset: int


class Consume(msgspec.Struct, frozen=True):
    """Give positions [first, until) of a batch to listeners; answered by `Consumed` events."""

    queue: MessageQueue
    epoch: int
    batch: Batch
    first: int
    until: int


class SendBack(msgspec.Struct, frozen=True):
    """Ask the broker to deliver a failed message again later; answered by `SentBack`."""

    queue: MessageQueue
    epoch: int
    batch: Batch
    position: int
    delay_level: int


class Commit(msgspec.Struct, frozen=True):
    """Store the offset of a queue, one-way; sent again with the next interval in any case."""

    queue: MessageQueue
    offset: int


class Cancel(msgspec.Struct, frozen=True):
    """Discard what waits for a listener; answered by `Cancelled`."""

    queue: MessageQueue
    epoch: int


class HandOver(msgspec.Struct, frozen=True):
    """Store the last offset of a queue that is given up, and wait until it is stored.

    Never moves the stored offset back, because the next owner may already have moved it on;
    except with `force`, after a reset that meant to move it. Answered by `HandedOver`.
    """

    queue: MessageQueue
    epoch: int
    offset: int
    force: bool = False


class RebalanceReport(msgspec.Struct, frozen=True):
    """What one pass changed, and why."""

    group: str
    trigger: Trigger
    members: tuple[str, ...]
    strategy: str
    acquired: tuple[MessageQueue, ...]
    revoked: tuple[MessageQueue, ...]
    kept: int
    reasons: tuple[str, ...] = ()


class Announce(msgspec.Struct, frozen=True):
    """Tell the user's rebalance listeners and the log."""

    report: RebalanceReport


class Warn(msgspec.Struct, frozen=True):
    """Tell the log about something that the user should know; `key` limits repetition."""

    key: str
    text: str


class Leave(msgspec.Struct, frozen=True):
    """Unregister from every broker; answered by `Left`."""


class Stopped(msgspec.Struct, frozen=True):
    """Nothing is left to do; the machine ends here."""


Effect = (
    SetTimer
    | RefreshRoute
    | ListMembers
    | RenewHeartbeat
    | FindOffset
    | Pull
    | Consume
    | SendBack
    | Commit
    | Cancel
    | HandOver
    | Announce
    | Warn
    | Leave
    | Stopped
)

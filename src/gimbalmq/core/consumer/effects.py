"""What a consumer wants done: the outputs of `ConsumerMachine.handle`.

Effects are imperatives. The owner of the machine performs each and, where one is named, hands
the answering event back; it decides nothing.
"""

from __future__ import annotations

from typing import Any

import msgspec

from gimbalmq.core.consumer.events import TimerName, Trigger
from gimbalmq.core.flow_control import NO_ROOM, Room
from gimbalmq.core.process_queue import Batch
from gimbalmq.model.queue import MessageQueue

__all__ = [
    "Announce",
    "AskAbsent",
    "Bury",
    "Cancel",
    "Commit",
    "Consume",
    "Effect",
    "FindExpired",
    "FindOffset",
    "HandOver",
    "Leave",
    "ListEverywhere",
    "ListMembers",
    "Lock",
    "Moved",
    "Permit",
    "Pull",
    "QueueMove",
    "RebalanceReport",
    "RefreshRoute",
    "RenewHeartbeat",
    "SendBack",
    "SetTimer",
    "Settled",
    "Stopped",
    "TakeOver",
    "Unlock",
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


class AskAbsent(msgspec.Struct, frozen=True):
    """Ask these members, one after the other, who is gone; answered by `AbsentTold`."""

    members: tuple[str, ...]


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

    `commit_offset` rides along, when positive. One answer may bring what several pulls found, as
    long as flow control would have let each of them go: see `Room`.
    """

    queue: MessageQueue
    epoch: int
    offset: int
    commit_offset: int
    room: Room = NO_ROOM


class Permit:
    """Until when listeners may start messages of a queue; shared with the threads that run them.

    A queue that is locked is consumed only while the lock is sure to hold. The machine moves the
    end; whoever is about to start a message looks at it. A queue that is given up starts no more
    messages, while its lock is kept for those that run: that has an end of its own.
    """

    __slots__ = ("locked_until", "valid_until")

    def __init__(self, valid_until: float) -> None:
        self.valid_until = valid_until
        #: Until when nobody else can have the lock.
        self.locked_until = 0.0


class Consume(msgspec.Struct, frozen=True):
    """Give positions [first, until) of a batch to listeners; answered by `Consumed` events.

    With `ordered`, one worker takes them one after the other and stops at the first that fails;
    then there is one answer, and no other run of the queue before it. With a `permit`, no message
    is started after its end.
    """

    queue: MessageQueue
    epoch: int
    batch: Batch
    first: int
    until: int
    ordered: bool = False
    permit: Permit | None = None


class Bury(msgspec.Struct, frozen=True):
    """Move a message of an ordered queue to the dead letters; answered by `SentBack`."""

    queue: MessageQueue
    epoch: int
    batch: Batch
    position: int


class Lock(msgspec.Struct, frozen=True):
    """Ask each queue's broker for its lock, or renew it; answered by a `LockAnswered` per broker."""

    asked: tuple[tuple[MessageQueue, int], ...]


class Unlock(msgspec.Struct, frozen=True):
    """Give a queue's lock back; answered by `Unlocked`."""

    queue: MessageQueue
    epoch: int


class ListEverywhere(msgspec.Struct, frozen=True):
    """Ask every broker who is in the group; answered by `ListedEverywhere`."""


class TakeOver(msgspec.Struct, frozen=True):
    """Unlock queues in the name of members that are gone; answered by `TakenOver`."""

    queues: tuple[MessageQueue, ...]
    members: frozenset[str]


class SendBack(msgspec.Struct, frozen=True):
    """Ask the broker to deliver a failed message again later; answered by `SentBack`."""

    queue: MessageQueue
    epoch: int
    batch: Batch
    position: int
    delay_level: int


class FindExpired(msgspec.Struct, frozen=True):
    """Look which messages listeners have had for longer; answered by an `Expired` for each.

    At most `most` of a queue, the lowest offsets first: the rest waits for the next look.
    """

    older_than_s: float
    most: int


class Commit(msgspec.Struct, frozen=True):
    """Store the offset of a queue, one-way; sent again with the next interval in any case."""

    queue: MessageQueue
    offset: int


class Cancel(msgspec.Struct, frozen=True):
    """Discard what waits for a listener, behind what listeners have; answered by `Cancelled`."""

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


class QueueMove(msgspec.Struct, frozen=True):
    """One queue has come or gone, and how long nobody here consumed it meanwhile.

    For a queue that came, `pause_s` runs from the decision to the first pull; for one that went,
    from the decision until it was let go, its running listeners included.
    """

    group: str
    queue: MessageQueue
    acquired: bool
    pause_s: float
    reason: str = ""


class RebalanceReport(msgspec.Struct, frozen=True):
    """What changed of the queues that a member has of one topic, and why.

    `all_queues` are the topic's, `mine` those of them that are this member's from now on;
    `moves` gives the reason for each queue that comes or goes. `done` is empty while they are on
    their way, and then says how long each paused; queues that did not come after all are left out.
    """

    group: str
    trigger: Trigger
    members: tuple[str, ...]
    strategy: str
    acquired: tuple[MessageQueue, ...]
    revoked: tuple[MessageQueue, ...]
    kept: int
    reasons: tuple[str, ...] = ()
    topic: str = ""
    all_queues: tuple[MessageQueue, ...] = ()
    mine: tuple[MessageQueue, ...] = ()
    moves: tuple[tuple[MessageQueue, str], ...] = ()
    done: tuple[QueueMove, ...] = ()


class Announce(msgspec.Struct, frozen=True):
    """Tell the user's rebalance listeners and the log of a change that is decided."""

    report: RebalanceReport


class Settled(msgspec.Struct, frozen=True):
    """Tell them that all queues of a change have come and gone, with how long that took."""

    report: RebalanceReport


class Moved(msgspec.Struct, frozen=True):
    """Tell the log, and whoever counts."""

    move: QueueMove


class Warn(msgspec.Struct, frozen=True):
    """Tell the log about something that the user should know; `key` limits repetition.

    `facts` is the same for programs that read logs; its `event` names it.
    """

    key: str
    text: str
    facts: dict[str, Any] = {}


class Leave(msgspec.Struct, frozen=True):
    """Unregister from every broker; answered by `Left`."""


class Stopped(msgspec.Struct, frozen=True):
    """Nothing is left to do; the machine ends here."""


Effect = (
    SetTimer
    | RefreshRoute
    | ListMembers
    | AskAbsent
    | RenewHeartbeat
    | FindOffset
    | Pull
    | Consume
    | SendBack
    | Bury
    | Lock
    | Unlock
    | ListEverywhere
    | TakeOver
    | Commit
    | Cancel
    | HandOver
    | FindExpired
    | Announce
    | Settled
    | Moved
    | Warn
    | Leave
    | Stopped
)

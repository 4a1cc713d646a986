"""One queue in the hands of this member: its life from acquisition to release.

    acquire ─> [LOCKING ─>] LOCATING ─offset─> PULLING ⇄ HELD_BACK | WAITING | PAUSED
                  │             │                        │
                  └── revoke ───┴────────────────────────┴─> DRAINING ─> HANDING_OVER
                                                                  [─> UNLOCKING] ─> gone

A queue that drains is no longer part of the assignment: nothing new starts, but what runs may
finish, and its offset is stored before the queue is let go.
"""

from __future__ import annotations

import enum
from collections import deque

from gimbalmq.core.consumer.effects import Permit
from gimbalmq.core.consumer.lanes import Lanes
from gimbalmq.core.consumer.tally import Tally
from gimbalmq.core.process_queue import Batch, ProcessQueue
from gimbalmq.model.queue import MessageQueue

__all__ = ["HeldQueue", "HeldState"]


class HeldState(enum.Enum):
    """Where a held queue stands."""

    LOCKING = "waiting for its lock"
    LOCATING = "finding the offset to start at"
    PULLING = "pull in flight"
    HELD_BACK = "flow control"
    WAITING = "waits before its next pull"
    PAUSED = "paused by the user"
    DRAINING = "given up, listeners finish"
    HANDING_OVER = "given up, offset is being stored"
    UNLOCKING = "given up, lock is being given back"


class HeldQueue:
    """The state of one acquisition; `epoch` tells it from earlier ones of the same queue."""

    __slots__ = (
        "attempts",
        "busy",
        "committed",
        "epoch",
        "expired",
        "failed_pulls",
        "followed",
        "held_since",
        "lanes",
        "last_pull_at",
        "lock_refused",
        "maximum",
        "overdue",
        "pause_s",
        "permit",
        "process",
        "queue",
        "reason",
        "redeliver",
        "released",
        "released_at",
        "reset_offset",
        "returning",
        "running",
        "state",
        "stopped_until",
        "suspended",
        "tally",
        "uncommitted",
        "waiting",
        "wanted_again",
    )

    def __init__(self, queue: MessageQueue, epoch: int, now: float) -> None:
        self.queue = queue
        self.epoch = epoch
        self.state = HeldState.LOCATING
        #: Whether the queue is on its way out; asked with every message, so not worked out.
        self.released = False
        #: None until the start offset is known.
        self.process: ProcessQueue | None = None
        self.last_pull_at = now
        self.failed_pulls = 0
        #: Messages in listeners; known only while draining, once what waited is discarded.
        self.running: int | None = None
        #: Messages on their way back to a broker, or to the dead letters.
        self.returning = 0
        #: While on its way out: another member may have begun with the queue already.
        self.followed = False
        #: Where an operator wants the queue to be read next, until that is stored or begun.
        self.reset_offset: int | None = None
        #: Messages to deliver again locally, because sending them back failed.
        self.redeliver: list[tuple[Batch, int]] = []
        #: Set while the queue's lock is needed: until when listeners may start messages.
        self.permit: Permit | None = None
        #: Another member holds the lock.
        self.lock_refused = False
        #: Listeners outlived the drain time: the lock must not be given back.
        self.overdue = False
        #: Runs that are not with a worker: all but the first of an ordered queue, and what a
        #: permit that ended kept from starting.
        self.waiting: deque[tuple[Batch, int, int]] = deque()
        #: An ordered run is with a worker.
        self.busy = False
        #: An ordered message asked for a pause.
        self.suspended = False
        #: Where the batch ends that stopped an ordered queue, and the pause that it asked for;
        #: for the time until its hopeless messages are buried.
        self.stopped_until = 0
        self.pause_s: float | None = None
        #: Processed, but neither committed nor rolled back by the listener yet.
        self.uncommitted: list[tuple[Batch, int, int]] = []
        #: How often the message at an offset of an ordered queue has failed.
        self.attempts: dict[int, int] = {}
        #: Messages by key, where keys are consumed in parallel.
        self.lanes = Lanes()
        #: Offsets whose listener took too long and that are being sent back; True when the
        #: listener has failed meanwhile.
        self.expired: dict[int, bool] = {}
        self.tally = Tally()
        #: The offset that was stored last.
        self.committed = -1
        #: One past the last message of the queue, as of the last pull; None before.
        self.maximum: int | None = None
        self.held_since = now
        self.released_at = now
        #: Why the queue is given up.
        self.reason = ""
        #: A pass gave the queue back to this member while it was on its way out.
        self.wanted_again = False

    def sure(self, now: float) -> bool:
        """Whether nobody else can own the queue: no lock is needed, or it is sure to hold."""
        return self.permit is None or now < self.permit.valid_until

    def lock_sure(self, now: float) -> bool:
        """Whether nobody else can have the queue, also while it is given up."""
        return self.permit is None or now < self.permit.locked_until

    def give_up(self, state: HeldState) -> None:
        """Go to one of the states on the way out."""
        self.state = state
        self.released = True

    @property
    def gives_back(self) -> bool:
        """Whether a message that fails goes back to its broker, or is left to the next owner.

        While listeners finish it goes back, or everything that was done above it would come again;
        unless the next owner has it already, or a reset says what is read again.
        """
        if not self.released:
            return True
        draining = self.state is HeldState.DRAINING
        return draining and not self.followed and self.reset_offset is None

    @property
    def owned(self) -> bool:
        """Whether the queue counts as assigned: located, and not on its way out."""
        return self.process is not None and not self.released

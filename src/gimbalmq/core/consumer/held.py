"""One queue in the hands of this member: its life from acquisition to release.

    (acquire) ──> LOCATING ──offset──> READY ⇄ PULLING
                     │                   │ ⇅
                     │                   │ HELD_BACK | WAITING | PAUSED
                     └──── revoke ───────┴──> DRAINING ──drained or deadline──> HANDING_OVER ──> gone

A queue that drains is no longer part of the assignment: nothing new starts, but what runs may
finish, and its offset is stored before the queue is let go.
"""

from __future__ import annotations

import enum

from gimbalmq.core.process_queue import Batch, ProcessQueue
from gimbalmq.model.queue import MessageQueue

__all__ = ["HeldQueue", "HeldState"]


class HeldState(enum.Enum):
    """Where a held queue stands."""

    LOCATING = "finding the offset to start at"
    PULLING = "pull in flight"
    HELD_BACK = "flow control"
    WAITING = "waits after a failed pull"
    PAUSED = "paused by the user"
    DRAINING = "given up, listeners finish"
    HANDING_OVER = "given up, offset is being stored"


class HeldQueue:
    """The state of one acquisition; `epoch` tells it from earlier ones of the same queue."""

    __slots__ = (
        "epoch",
        "failed_pulls",
        "last_pull_at",
        "process",
        "queue",
        "redeliver",
        "reset_offset",
        "running",
        "state",
    )

    def __init__(self, queue: MessageQueue, epoch: int, now: float) -> None:
        self.queue = queue
        self.epoch = epoch
        self.state = HeldState.LOCATING
        #: None until the start offset is known.
        self.process: ProcessQueue | None = None
        self.last_pull_at = now
        #: Messages in listeners; known only while draining.
        self.running = 0
        #: Offset to store instead of the progress, after the broker moved it (code 21).
        self.reset_offset: int | None = None
        #: Messages to deliver again locally, because sending them back failed.
        self.redeliver: list[tuple[Batch, int]] = []
        self.failed_pulls = 0

    @property
    def released(self) -> bool:
        """Whether the queue is on its way out."""
        return self.state in {HeldState.DRAINING, HeldState.HANDING_OVER}

    @property
    def owned(self) -> bool:
        """Whether the queue counts as assigned: located, and not on its way out."""
        return self.process is not None and not self.released

"""What a consumer's host works with: who decides, and who takes the messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from gimbalmq.core.consumer import effects as fx
from gimbalmq.core.consumer import events as ev
from gimbalmq.core.consumer.ground import Ground
from gimbalmq.core.consumer.held import HeldQueue
from gimbalmq.core.consumer.settings import ConsumerSettings
from gimbalmq.model.queue import MessageQueue
from gimbalmq.runtime.running import RunningWork

__all__ = ["Executor", "Machine"]


class Machine(Protocol):
    """The decisions of one group's member."""

    settings: ConsumerSettings
    #: Its user pulls, so what is in hand is not known here.
    passive: bool

    @property
    def held(self) -> Mapping[MessageQueue, HeldQueue]:
        """Queues in hand."""

    def handle(self, event: ev.Event, now: float) -> list[fx.Effect]:
        """Take one event in; returns what has to be done."""

    def assignment(self) -> frozenset[MessageQueue]:
        """The queues that this member owns now."""

    def absent(self, now: float) -> Mapping[str, float] | None:
        """For how many seconds other members are gone, as far as this one knows."""

    def ground(self, now: float) -> Ground:
        """What this member shares out queues by."""


class Executor(Protocol):
    """Whoever takes the messages: worker threads, or a user who polls."""

    def submit(self, consume: fx.Consume) -> None:
        """Take a run of messages."""

    def cancel(self, queue: MessageQueue, epoch: int) -> int:
        """Give a queue up; returns how many messages of it run or still have to."""

    def accounted(self, done: ev.Consumed) -> None:
        """A result was taken in."""

    def running(self) -> Sequence[RunningWork]:
        """What listeners are doing now."""

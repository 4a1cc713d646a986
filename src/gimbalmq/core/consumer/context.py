"""What the parts of a consumer's machine share: its settings, held queues and pending effects."""

from __future__ import annotations

from gimbalmq.core.consumer.effects import Effect, SetTimer, Warn
from gimbalmq.core.consumer.events import TimerName
from gimbalmq.core.consumer.held import HeldQueue
from gimbalmq.core.consumer.settings import ConsumerSettings
from gimbalmq.core.consumer.tally import Tally
from gimbalmq.model.queue import MessageQueue

__all__ = ["Context"]


class Context:
    """The state of one machine; only the machine and its parts touch it."""

    def __init__(self, settings: ConsumerSettings) -> None:
        self.settings = settings
        self.held: dict[MessageQueue, HeldQueue] = {}
        self.out: list[Effect] = []
        self.stopping = False
        #: What a queue may cache, at present.
        self.limits = settings.limits
        #: What came of messages of queues that are no longer held.
        self.past = Tally()
        #: How long listeners of a queue that is given up may go on.
        self.drain_s = settings.release_drain_s
        self._epoch = 0

    def hold(self, queue: MessageQueue, now: float) -> HeldQueue:
        """Begin an acquisition, under a number that no earlier one had."""
        self._epoch += 1
        held = HeldQueue(queue, self._epoch, now)
        self.held[queue] = held
        return held

    def current(self, queue: MessageQueue | None, epoch: int) -> HeldQueue | None:
        """The acquisition of that number, if it has not ended."""
        held = None if queue is None else self.held.get(queue)
        return held if held is not None and held.epoch == epoch else None

    def share_limits(self) -> None:
        """Divide the limits for a topic again, after the number of held queues changed."""
        count = sum(not held.released for held in self.held.values())
        self.limits = self.settings.limits.shared_by(count)

    def tally(self) -> Tally:
        """What came of all messages since the start."""
        total = Tally()
        total.add(self.past)
        for held in self.held.values():
            total.add(held.tally)
        return total

    def set_timer(self, name: TimerName, delay_s: float, held: HeldQueue | None = None) -> None:
        """Start a timer, of one queue or of the whole consumer."""
        if held is None:
            self.out.append(SetTimer(name, delay_s))
        else:
            self.out.append(SetTimer(name, delay_s, held.queue, held.epoch))

    def warn(self, key: str, text: str) -> None:
        """Tell the log."""
        self.out.append(Warn(key, text))

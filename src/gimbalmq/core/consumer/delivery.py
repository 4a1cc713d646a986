"""From the cache to listeners and back: what is started when, and what a result means.

Concurrent queues give every pulled reply to the workers at once. An ordered queue has one run
with a worker at a time; a message that fails stops the run, and the queue waits for it. In a
group that locks its queues nothing is started after the queue's permit has ended; what that
keeps back starts when the lock is renewed. A message that a listener has had for too long is sent
back, so that it no longer holds up the offset; whatever the listener says later is ignored. What
fails while its queue is given up goes back, too, as long as nobody else has it (`gives_back`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gimbalmq.core.consumer.context import Context
from gimbalmq.core.consumer.effects import Bury, Consume, SendBack
from gimbalmq.core.consumer.events import Consumed, Expired, SentBack, TimerName
from gimbalmq.core.consumer.held import HeldQueue
from gimbalmq.core.process_queue import Batch

__all__ = ["Delivery"]

#: Bounds that Java puts on the pause of an ordered queue.
_SUSPEND_S_MIN, _SUSPEND_S_MAX = 0.01, 30.0
#: Java sends a message that took too long back with this level, 10 s.
_EXPIRED_DELAY_LEVEL = 3


class Delivery:
    """Hands runs of messages to workers and takes their results in."""

    def __init__(self, context: Context, *, progressed: Callable[[HeldQueue, float], None]) -> None:
        self._context = context
        self._ordered = context.settings.ordered
        self._progressed = progressed

    def arrived(self, held: HeldQueue, batch: Batch, now: float) -> None:
        """Messages were pulled."""
        if held.permit is None and not (held.waiting or self._ordered):
            # As it nearly always is.
            self._context.out.append(Consume(held.queue, held.epoch, batch, 0, len(batch.messages)))
            return
        held.waiting.append((batch, 0, len(batch.messages)))
        self.start_waiting(held, now)

    def start_waiting(self, held: HeldQueue, now: float) -> None:
        """Start what may start now."""
        if held.released or not held.sure(now):
            return
        if not self._context.settings.ordered:
            while held.waiting:
                self._consume(held, *held.waiting.popleft())
        elif held.waiting and not held.busy and not held.suspended:
            held.busy = True
            self._consume(held, *held.waiting[0])

    def _consume(self, held: HeldQueue, batch: Batch, first: int, until: int) -> None:
        self._context.out.append(
            Consume(held.queue, held.epoch, batch, first, until, self._ordered, held.permit)
        )

    # ---- results -----------------------------------------------------------------------------

    def consumed(self, held: HeldQueue, event: Consumed, now: float) -> None:
        """Take a worker's result in; `held` may already be on its way out."""
        reached = event.until if event.reached is None else event.reached
        self._count(held, event, reached)
        self._take_in(held, event, reached, now)
        if not held.released:
            self._progressed(held, now)

    @staticmethod
    def _count(held: HeldQueue, event: Consumed, reached: int) -> None:
        tally, failed = held.tally, len(event.failures)
        tally.consumed += reached - event.first - failed
        tally.listener_s += event.took_s
        if event.reached is not None:
            failed += len(event.stopped_by())
        if failed:
            tally.failed += failed

    def _take_in(self, held: HeldQueue, event: Consumed, reached: int, now: float) -> None:
        assert held.process is not None
        if self._ordered:
            self._consumed_in_order(held, event, reached, now)
            return
        if reached == event.until and not event.failures:  # as it nearly always is
            held.process.finish(event.batch, event.first, reached)
            return
        self._finish(held, event, reached)
        if reached < event.until and not held.released:
            held.waiting.append((event.batch, reached, event.until))
        if event.failures and held.gives_back:
            self._deliver_again(held, event)

    @staticmethod
    def _finish(held: HeldQueue, event: Consumed, reached: int) -> None:
        assert held.process is not None
        start = event.first
        for position, _level in event.failures:
            if start < position:
                held.process.finish(event.batch, start, position)
            start = position + 1
        if start < reached:
            held.process.finish(event.batch, start, reached)

    def _deliver_again(self, held: HeldQueue, event: Consumed) -> None:
        if self._context.settings.broadcasting:
            # As in Java: there is no retry topic of a member, so a failure is only logged.
            assert held.process is not None
            for position, _level in event.failures:
                held.process.finish(event.batch, position, position + 1)
            return
        for position, level in event.failures:
            offset = event.batch.offsets[position]
            if offset in held.expired:
                held.expired[offset] = True  # it took too long and is on its way back already
            elif not event.batch.is_done(position):
                self._return(held, SendBack(held.queue, held.epoch, event.batch, position, level))

    def _return(self, held: HeldQueue, effect: SendBack | Bury) -> None:
        held.returning += 1
        self._context.out.append(effect)

    def _consumed_in_order(
        self, held: HeldQueue, event: Consumed, reached: int, now: float
    ) -> None:
        held.busy = False
        self._commit_in_order(held, event, reached)
        if held.released:
            if held.gives_back:
                self._bury(held, event.batch, self._hopeless(held, event))
            return
        assert held.waiting[0][0] is event.batch
        held.waiting.popleft()
        if reached < event.until:
            held.waiting.appendleft((event.batch, reached, event.until))
        if event.rolled_back:
            held.waiting.extendleft(reversed(held.uncommitted))
            held.uncommitted.clear()
            self._suspend(held, event.suspend_s)
        elif stopped := event.stopped_by():
            held.stopped_until, held.pause_s = stopped.stop, event.suspend_s
            if hopeless := self._hopeless(held, event):
                held.suspended = True
                self._bury(held, event.batch, hopeless)
            else:
                self._suspend(held, held.pause_s)
        else:
            self.start_waiting(held, now)

    @staticmethod
    def _commit_in_order(held: HeldQueue, event: Consumed, reached: int) -> None:
        assert held.process is not None
        committed = reached if event.uncommitted_from is None else event.uncommitted_from
        if committed > event.first or event.uncommitted_from is None:
            for batch, first, until in held.uncommitted:
                held.process.finish(batch, first, until)
            held.uncommitted.clear()
            held.process.finish(event.batch, event.first, committed)
            for offset in event.batch.offsets[event.first : committed]:
                held.attempts.pop(offset, None)
        if committed < reached:
            held.uncommitted.append((event.batch, committed, reached))

    def _hopeless(self, held: HeldQueue, event: Consumed) -> list[int]:
        """Which of the messages that stopped a run go to the dead letters."""
        stopped = event.stopped_by()
        if event.buried:
            return list(stopped)
        return [at for at in stopped if self._too_often(held, event.batch.offsets[at])]

    def _too_often(self, held: HeldQueue, offset: int) -> bool:
        attempts = held.attempts[offset] = held.attempts.get(offset, 0) + 1
        attempts_max = self._context.settings.ordered_reconsume_max
        return attempts_max is not None and attempts > attempts_max

    def _bury(self, held: HeldQueue, batch: Batch, positions: Iterable[int]) -> None:
        for position in positions:
            self._return(held, Bury(held.queue, held.epoch, batch, position))

    def _suspend(self, held: HeldQueue, suspend_s: float | None) -> None:
        held.suspended = True
        self._context.set_timer(TimerName.CONTINUE, self._pause_s(suspend_s), held)

    def _pause_s(self, asked_s: float | None) -> float:
        if asked_s is None:
            asked_s = self._context.settings.suspend_current_queue_s
        return min(max(asked_s, _SUSPEND_S_MIN), _SUSPEND_S_MAX)

    def go_on(self, held: HeldQueue, now: float) -> None:
        """The pause of an ordered queue is over."""
        held.suspended = False
        self.start_waiting(held, now)

    # ---- failed messages ---------------------------------------------------------------------

    def expired(self, held: HeldQueue, event: Expired) -> None:
        """A listener has had a message for too long: let the broker deliver it again."""
        offset = event.batch.offsets[event.position]
        if held.released or offset in held.expired or event.batch.is_done(event.position):
            return
        held.expired[offset] = False
        held.tally.expired += 1
        self._context.warn(
            f"expired {held.queue.path}",
            f"{held.queue.path} offset {offset}: its listener has not ended after "
            f"{self._context.settings.consume_timeout_s:g} s (consume_timeout_s); the message is "
            "sent back and will be delivered again, perhaps beside the listener that has it now",
        )
        self._return(
            held,
            SendBack(held.queue, held.epoch, event.batch, event.position, _EXPIRED_DELAY_LEVEL),
        )

    def sent_back(self, held: HeldQueue, event: SentBack, now: float) -> None:
        """The broker has a failed message, or could not take it."""
        assert held.process is not None
        held.returning -= 1
        held.tally.retried += event.ok
        if self._ordered:
            self._buried(held, event, now)
            return
        running = held.expired.pop(event.batch.offsets[event.position], None) is False
        if event.ok:
            held.process.finish(event.batch, event.position, event.position + 1)
            if not held.released:
                self._progressed(held, now)
            return
        if running:
            return  # the next look finds it again, unless its listener ends before
        redeliver_s = self._context.settings.redeliver_s
        again = "its next owner gets it" if held.released else f"delivered in {redeliver_s:g} s"
        self._context.warn(
            f"send back {event.queue.path}",
            f"{event.queue.path} offset {event.batch.offsets[event.position]}: sending back "
            f"failed ({event.reason}); {again} again",
        )
        if held.released:
            return
        if not held.redeliver:
            self._context.set_timer(TimerName.REDELIVER, redeliver_s, held)
        held.redeliver.append((event.batch, event.position))

    def _buried(self, held: HeldQueue, event: SentBack, now: float) -> None:
        self._take_off(held, event)
        if held.released or held.returning:
            return
        batch, first, until = held.waiting.popleft()
        left = batch.unfinished(first, until)
        held.waiting.extendleft((batch, *run) for run in reversed(left))
        if left and left[0][0] < held.stopped_until:
            self._suspend(held, held.pause_s)
        else:
            self.go_on(held, now)
        self._progressed(held, now)

    def _take_off(self, held: HeldQueue, event: SentBack) -> None:
        """A message is among the dead letters, or still in the way of those that follow."""
        assert held.process is not None
        if event.ok:
            held.process.finish(event.batch, event.position, event.position + 1)
            held.attempts.pop(event.batch.offsets[event.position], None)
        else:
            self._warn_not_buried(event)

    def _warn_not_buried(self, event: SentBack) -> None:
        self._context.warn(
            f"dead letter {event.queue.path}",
            f"{event.queue.path} offset {event.batch.offsets[event.position]} could not be "
            f"moved to the dead letters ({event.reason}); what follows waits for it",
        )

    def redeliver(self, held: HeldQueue, now: float) -> None:
        """The pause after a failed send-back is over: deliver again locally."""
        again, held.redeliver = held.redeliver, []
        if not held.released:
            held.waiting.extend((batch, position, position + 1) for batch, position in again)
            self.start_waiting(held, now)

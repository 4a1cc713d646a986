"""Delivery by key: the messages of one key in order and never side by side, keys in parallel.

In a concurrent group a message that fails goes back to the broker and its key goes on, as ever
there; messages without a key run side by side. In an ordered group a failure pauses its key only,
and messages without a key are one lane of their own. The committed offset is the lowest
unfinished one in both, so a key that pauses holds it back, and after a change of owner what other
keys have done beyond it is delivered again, in order.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from gimbalmq.core.consumer.context import Context
from gimbalmq.core.consumer.delivery import Delivery
from gimbalmq.core.consumer.events import Consumed, SentBack, TimerName
from gimbalmq.core.consumer.held import HeldQueue
from gimbalmq.core.consumer.lanes import Lane
from gimbalmq.core.process_queue import Batch

__all__ = ["KeyOf", "KeyedDelivery"]

#: The key of a message, None when it has none; must not raise.
KeyOf = Callable[[Any], Hashable | None]


class KeyedDelivery(Delivery):
    """Hands single messages to workers, at most one of each key at a time."""

    def __init__(
        self, context: Context, *, progressed: Callable[[HeldQueue, float], None], key_of: KeyOf
    ) -> None:
        super().__init__(context, progressed=progressed)
        self._key_of = key_of

    def arrived(self, held: HeldQueue, batch: Batch, now: float) -> None:
        """Messages were pulled."""
        self._line_up(held, [(batch, position) for position in range(len(batch.messages))], now)

    def redeliver(self, held: HeldQueue, now: float) -> None:
        """The pause after a failed send-back is over: deliver again locally."""
        again, held.redeliver = held.redeliver, []
        if not held.released:
            self._line_up(held, again, now)

    def _line_up(self, held: HeldQueue, messages: list[tuple[Batch, int]], now: float) -> None:
        keys = dict.fromkeys(self._key(batch, position) for batch, position in messages)
        for batch, position in messages:
            held.lanes.add(self._key(batch, position), batch, position)
        for key in keys:
            self._start(held, held.lanes.of(key), now)

    def _key(self, batch: Batch, position: int) -> Hashable:
        key = self._key_of(batch.messages[position])
        if key is None and not self._context.settings.ordered:
            return "", batch.offsets[position]  # on its own
        return (key,)

    def start_waiting(self, held: HeldQueue, now: float) -> None:
        """Start what may start now."""
        for lane in held.lanes:
            self._start(held, lane, now)

    def _start(self, held: HeldQueue, lane: Lane, now: float) -> None:
        if lane.busy or lane.resumes_at is not None or held.released or not held.sure(now):
            return
        lane.busy = True
        batch, position = lane.waiting[0]
        self._consume(held, batch, position, position + 1)

    # ---- results -----------------------------------------------------------------------------

    def _take_in(self, held: HeldQueue, event: Consumed, reached: int, now: float) -> None:
        assert held.process is not None
        position = event.first
        if reached > position and not event.failures:
            held.process.finish(event.batch, position, reached)
            held.attempts.pop(event.batch.offsets[position], None)
        if held.gives_back and (hopeless := self._hopeless(held, event)):
            self._bury(held, event.batch, hopeless)
            return  # the lane stays busy until that is answered
        if held.released:
            if held.gives_back:
                self._deliver_again(held, event)
            return
        lane = held.lanes.of(self._key(event.batch, position))
        lane.busy = False
        if event.suspend_s is not None:
            self._pause(held, lane, event.suspend_s, now)
        elif reached > position:
            self._deliver_again(held, event)
            self._next(held, lane, now)
        else:
            self._start(held, lane, now)  # its permit had ended, and may be good again

    def _next(self, held: HeldQueue, lane: Lane, now: float) -> None:
        held.lanes.first_is_done(lane)
        if lane.waiting:
            self._start(held, lane, now)

    def _buried(self, held: HeldQueue, event: SentBack, now: float) -> None:
        self._take_off(held, event)
        if held.released:
            return
        lane = held.lanes.of(self._key(event.batch, event.position))
        lane.busy = False
        if not event.ok:
            self._pause(held, lane, None, now)
            return
        self._next(held, lane, now)
        self._progressed(held, now)

    # ---- pauses ------------------------------------------------------------------------------

    def _pause(self, held: HeldQueue, lane: Lane, asked_s: float | None, now: float) -> None:
        lane.resumes_at = now + self._pause_s(asked_s)
        self._set_timer(held, now)

    def _set_timer(self, held: HeldQueue, now: float) -> None:
        """One timer of the queue serves all its keys: it runs until the first of them is due."""
        ends = [lane.resumes_at for lane in held.lanes if lane.resumes_at is not None]
        if ends:
            self._context.set_timer(TimerName.CONTINUE, max(0.0, min(ends) - now), held)

    def go_on(self, held: HeldQueue, now: float) -> None:
        """The pause of some keys is over."""
        for lane in held.lanes:
            if lane.resumes_at is not None and lane.resumes_at <= now:
                lane.resumes_at = None
                self._start(held, lane, now)
        self._set_timer(held, now)

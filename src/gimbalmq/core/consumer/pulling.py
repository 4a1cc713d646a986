"""The pull loop of each held queue: exactly one pull in flight, held back while too much waits.

What was asked for early may come along with its answer, as far as there is room for it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import Final

from gimbalmq.core.consumer.context import Context
from gimbalmq.core.consumer.effects import Pull, RenewHeartbeat
from gimbalmq.core.consumer.events import PullAnswered, PullFailed, TimerName
from gimbalmq.core.consumer.held import HeldQueue, HeldState
from gimbalmq.core.flow_control import NO_ROOM, HeldBack, Room, held_back, room_for
from gimbalmq.core.process_queue import Batch, ProcessQueue
from gimbalmq.model.message import PullStatus
from gimbalmq.model.queue import MessageQueue, sorted_queues

__all__ = ["PullLoop"]

_FLOW_CONTROL: Final = 215
#: The broker does not know our subscription (24), or an older one (25): heartbeat, then retry.
_SUBSCRIPTION_UNKNOWN: Final = frozenset({24, 25})
_SUBSCRIPTION_RETRY_S: Final = 0.1
# By their own names: looking a member of an enumeration up takes as long as a call.
_PULLING: Final = HeldState.PULLING
_HELD_BACK: Final = HeldState.HELD_BACK
_MOVED: Final = PullStatus.OFFSET_ILLEGAL


class PullLoop:
    """Pulls, and puts what came into the queue's cache."""

    def __init__(
        self,
        context: Context,
        *,
        arrived: Callable[[HeldQueue, Batch, float], None],
        moved: Callable[[HeldQueue, int, float], None],
        in_order: bool,
    ) -> None:
        self._context = context
        self._in_order = in_order
        self._arrived = arrived
        self._moved = moved
        #: Where offsets are; those of a broadcasting member are its own.
        self._at_broker = not context.settings.broadcasting
        self._paused: set[MessageQueue] = set()
        self._all_paused = False

    @property
    def all_paused(self) -> bool:
        """Whether the user has paused the whole consumer."""
        return self._all_paused

    def pull(self, held: HeldQueue, now: float) -> None:
        """Send the next pull, or note why not; whoever removes the reason calls again."""
        process = held.process
        assert process is not None
        assert not held.released
        if self._all_paused or (self._paused and held.queue in self._paused):
            held.state = HeldState.PAUSED
        elif self._held_back(process) is not None:
            held.state = _HELD_BACK
        else:
            held.state = _PULLING
            held.last_pull_at = now
            # An offset rides along only while nobody else can own the queue.
            commit = process.commit_offset if self._at_broker and held.sure(now) else 0
            self._context.out.append(
                Pull(held.queue, held.epoch, process.next_offset, commit, self._room(process))
            )

    def _held_back(self, process: ProcessQueue) -> HeldBack | None:
        limits = self._context.limits
        if limits.pull_threshold_for_all != -1 and self._cached() > limits.pull_threshold_for_all:
            return HeldBack.ALL
        return held_back(process, limits, in_order=self._in_order)

    def _room(self, process: ProcessQueue) -> Room:
        if self._in_order:
            return NO_ROOM  # what comes together is run in one go, and its offset stored after that
        limits = self._context.limits
        room = room_for(process, limits)
        if limits.pull_threshold_for_all != -1:
            left = limits.pull_threshold_for_all - self._cached()
            room = room._replace(offsets=min(room.offsets, left))
        return room

    def _cached(self) -> int:
        return sum(
            held.process.cached_count
            for held in self._context.held.values()
            if held.process is not None
        )

    def limits_changed(self, now: float) -> None:
        """Queues that were held back may be below their limits now."""
        self.room_for_all(now)

    def progressed(self, held: HeldQueue, now: float) -> None:
        """Messages finished: a queue that was held back may go on."""
        if held.state is _HELD_BACK:
            self.pull(held, now)
        if self._context.limits.pull_threshold_for_all != -1:
            self.room_for_all(now)

    def room_for_all(self, now: float) -> None:
        """Less is cached than before: whatever queue was held back may go on."""
        for queue in sorted_queues(self._context.held):
            held = self._context.held[queue]
            if held.state is _HELD_BACK:
                self.pull(held, now)

    def answered(self, event: PullAnswered, now: float) -> None:
        """A pull came back."""
        held = self._context.current(event.queue, event.epoch)
        if held is None or held.state is not _PULLING:
            return
        process = held.process
        assert process is not None
        held.failed_pulls = 0
        if event.maximum is not None:
            held.maximum = event.maximum
        if event.status is _MOVED:
            # The offset is outside what the broker stores, or an operator reset it.
            self._moved(held, event.next_offset, now)
            return
        messages, offsets = event.messages, event.offsets
        if offsets and offsets[0] < process.next_offset:
            # A record that holds several messages may begin before the offset that was asked for.
            skip = bisect_left(offsets, process.next_offset)
            messages, offsets = messages[skip:], offsets[skip:]
        if offsets:
            batch = process.put(
                messages, offsets, body_bytes=event.body_bytes, next_offset=event.next_offset
            )
            self._arrived(held, batch, now)
            if self._context.settings.pull_interval_s:
                held.state = HeldState.WAITING
                self._context.set_timer(
                    TimerName.PULL, self._context.settings.pull_interval_s, held
                )
                return
        else:
            process.advance(event.next_offset)
        self.pull(held, now)

    def failed(self, event: PullFailed) -> None:
        """A pull got no usable answer: try again after a pause."""
        held = self._context.current(event.queue, event.epoch)
        if held is None or held.state is not _PULLING:
            return
        settings = self._context.settings
        held.state = HeldState.WAITING
        held.failed_pulls += 1
        delay_s = settings.pull_retry_s
        if event.code == _FLOW_CONTROL:
            delay_s = settings.pull_retry_busy_s
        elif event.code in _SUBSCRIPTION_UNKNOWN:
            self._context.out.append(RenewHeartbeat())
            delay_s = min(delay_s, _SUBSCRIPTION_RETRY_S * 2.0 ** min(held.failed_pulls, 16))
        else:
            self._context.warn(f"pull {event.queue.path}", f"{event.queue.path}: {event.reason}")
        self._context.set_timer(TimerName.PULL, delay_s, held)

    def retry(self, held: HeldQueue, now: float) -> None:
        """The pause between two pulls is over."""
        if held.state is HeldState.WAITING:
            self.pull(held, now)

    def pause(self, queues: Iterable[MessageQueue] | None) -> None:
        """Do not pull these queues, or any (None), from now on."""
        if queues is None:
            self._all_paused = True
        else:
            self._paused.update(queues)

    def resume(self, queues: Iterable[MessageQueue] | None, now: float) -> None:
        """Pull these queues, or all (None), again."""
        if queues is None:
            self._all_paused = False
            self._paused.clear()
        else:
            self._paused.difference_update(queues)
        for queue in sorted_queues(self._context.held):
            held = self._context.held[queue]
            if held.state is HeldState.PAUSED:
                self.pull(held, now)

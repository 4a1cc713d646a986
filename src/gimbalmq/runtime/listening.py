"""Runs listeners over a run of messages and says what came of it.

Three ways: one message at a time, in batches, and in order. In each, no message is started
after the end of the queue's permit, and whatever a listener raises is its verdict on its
messages, never a fault of the thread that runs it. The run says at which message it is, so that
those who watch can tell which one hangs.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from gimbalmq.core.consumer.effects import Consume
from gimbalmq.core.consumer.events import Consumed
from gimbalmq.model.verdict import Commit, DeadLetter, Rollback, Suspend
from gimbalmq.runtime.running import RunningWork
from gimbalmq.runtime.verdicts import consumed, delay_level, is_named, may_start, report

__all__ = ["Listener", "ListenerSettings", "Listening"]

#: Gets one message, or a list of them when the batch size is above 1.
Listener = Callable[[Any], object]

#: After this long a run of an ordered queue lets those of others have its thread
#: (`rocketmq.client.maxTimeConsumeContinuously`).
_TURN_S: Final = 60.0


class ListenerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How listeners are called."""

    batch_size: int = 1
    auto_commit: bool = True
    suspend_current_queue_s: float = 1.0


class Listening:
    """The listeners of one consumer, by topic."""

    def __init__(
        self, listener_for: Callable[[str], Listener | None], settings: ListenerSettings
    ) -> None:
        self._listener_for = listener_for
        self._settings = settings

    @property
    def batch_size(self) -> int:
        """Up to how many messages a listener gets at once."""
        return self._settings.batch_size

    def run(self, work: RunningWork, share_after_s: float) -> Consumed:
        """Run over the work; a run of single messages may end early, to be shared."""
        if work.consume.ordered:
            return self._in_order(work)
        if self._settings.batch_size > 1:
            return self._batch(work)
        return self._one_by_one(work, share_after_s)

    # ---- concurrent --------------------------------------------------------------------------

    def _one_by_one(self, work: RunningWork, share_after_s: float) -> Consumed:
        consume, first, until = work.consume, work.first, work.until
        call = self._listener_for(consume.queue.topic) or self._call_for_its_topic
        failures: list[tuple[int, int]] = []
        monotonic = time.monotonic
        started = now = monotonic()
        # A permit that is renewed meanwhile counts for the next run.
        end_at = started + share_after_s
        if consume.permit is not None:
            end_at = min(end_at, consume.permit.valid_until)
        position = first
        for message in consume.batch.messages[first:until]:
            if now >= end_at:
                break
            work.position = position
            try:
                call(message)
            except Exception as error:  # noqa: BLE001 - whatever a listener raises means retry
                failures.append((position, delay_level(error)))
                report(error, message)
            position += 1
            now = monotonic()
        return consumed(work, position, failures, now - started)

    def _call_for_its_topic(self, message: Any) -> object:
        return self._listener(message.topic)(message)

    def _batch(self, work: RunningWork) -> Consumed:
        consume, first, until = work.consume, work.first, work.until
        started = time.monotonic()
        if not may_start(consume.permit, started):
            return consumed(work, first, [], 0.0)
        failures: list[tuple[int, int]] = []
        for listener, positions in self._by_listener(consume, range(first, until)):
            messages = [consume.batch.messages[position] for position in positions]
            try:
                listener(messages)
            except Exception as error:  # noqa: BLE001 - whatever a listener raises means retry
                report(error, messages[0])
                level = delay_level(error)
                failures += (
                    (position, level)
                    for position, message in zip(positions, messages, strict=True)
                    if is_named(error, message)
                )
        return consumed(work, until, sorted(failures), time.monotonic() - started)

    def _by_listener(
        self, consume: Consume, positions: range
    ) -> list[tuple[Listener, Sequence[int]]]:
        """Who gets which messages: a retry topic holds those of every topic of the group."""
        own = self._listener_for(consume.queue.topic)
        if own is not None:
            return [(own, positions)]
        by_topic: dict[str, list[int]] = {}
        for position in positions:
            by_topic.setdefault(consume.batch.messages[position].topic, []).append(position)
        return [
            (functools.partial(self._call, topic), numbers) for topic, numbers in by_topic.items()
        ]

    def _call(self, topic: str, messages: Any) -> object:
        return self._listener(topic)(messages)

    # ---- ordered -----------------------------------------------------------------------------

    def _in_order(self, work: RunningWork) -> Consumed:
        consume, first, until = work.consume, work.first, work.until
        auto_commit = self._settings.auto_commit
        position = committed = first
        ending: dict[str, Any] = {}
        started = now = time.monotonic()
        while position < until and may_start(consume.permit, now) and now < started + _TURN_S:
            work.position, work.since = position, now
            upto = min(position + self._settings.batch_size, until)
            messages = consume.batch.messages[position:upto]
            try:
                verdict = self._listener_of(consume, messages[0])(
                    messages[0] if self._settings.batch_size == 1 else list(messages)
                )
            except Exception as error:  # noqa: BLE001 - whatever a listener raises stops the queue
                report(error, messages[0])
                ending = self._stopped_by(error, messages)
                break
            position = upto
            now = time.monotonic()
            if auto_commit or verdict is Commit:
                committed = position
            elif verdict is Rollback:
                ending = {
                    "rolled_back": True,
                    "suspend_s": self._settings.suspend_current_queue_s,
                }
                break
        return Consumed(
            consume.queue,
            consume.epoch,
            consume.batch,
            first,
            until,
            reached=None if position == until else position,
            uncommitted_from=None if auto_commit else committed,
            took_s=time.monotonic() - started,
            **ending,
        )

    def _stopped_by(self, error: Exception, messages: Sequence[Any]) -> dict[str, Any]:
        if isinstance(error, DeadLetter):
            return {"buried": True}
        for message in messages:
            message.attempts += 1
        if isinstance(error, Suspend):
            return {"suspend_s": error.seconds}
        return {"suspend_s": self._settings.suspend_current_queue_s}

    # ---- which listener ----------------------------------------------------------------------

    def _listener_of(self, consume: Consume, message: Any) -> Listener:
        return self._listener_for(consume.queue.topic) or self._listener(message.topic)

    def _listener(self, topic: str) -> Listener:
        # The retry topic has no listener of its own: its messages know where they came from.
        listener = self._listener_for(topic)
        if listener is None:
            raise LookupError(f"no listener for topic {topic}: it is no longer subscribed")
        return listener

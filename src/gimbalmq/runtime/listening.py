"""Runs listeners over a run of messages and says what came of it.

Three ways: one message at a time, in batches, and in order. In each, no message is started
after the end of the queue's permit, and whatever a listener raises is its verdict on its
messages, never a fault of the thread that runs it.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from gimbalmq.core.consumer.effects import Consume, Permit
from gimbalmq.core.consumer.events import Consumed
from gimbalmq.model.verdict import Commit, DeadLetter, RetryLater, Rollback, Suspend

__all__ = ["Listener", "ListenerSettings", "Listening"]

_log = logging.getLogger("gimbalmq.consumer")

#: Gets one message, or a list of them when the batch size is above 1.
Listener = Callable[[Any], object]

#: Delay level 0: the broker chooses, longer with each attempt. Below 0: dead letter.
_BROKER_CHOOSES: Final = 0
_DEAD_LETTER: Final = -1


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

    def run(self, consume: Consume, first: int, until: int, share_after_s: float) -> Consumed:
        """Run over [first, until); a run of single messages may end early, to be shared."""
        if consume.ordered:
            return self._in_order(consume, first, until)
        if self._settings.batch_size > 1:
            return self._batch(consume, first, until)
        return self._one_by_one(consume, first, until, share_after_s)

    # ---- concurrent --------------------------------------------------------------------------

    def _one_by_one(
        self, consume: Consume, first: int, until: int, share_after_s: float
    ) -> Consumed:
        messages, permit = consume.batch.messages, consume.permit
        listener = self._listener_for(consume.queue.topic)
        failures: list[tuple[int, int]] = []
        monotonic = time.monotonic
        now = monotonic()
        share_at = now + share_after_s
        position = first
        while position < until and now < share_at and _may_start(permit, now):
            message = messages[position]
            try:
                (listener or self._listener(message.topic))(message)
            except Exception as error:  # noqa: BLE001 - whatever a listener raises means retry
                failures.append((position, _delay_level(error)))
                _report(error, message)
            position += 1
            now = monotonic()
        return _consumed(consume, first, until, position, failures)

    def _batch(self, consume: Consume, first: int, until: int) -> Consumed:
        if not _may_start(consume.permit, time.monotonic()):
            return _consumed(consume, first, until, first, [])
        failures: list[tuple[int, int]] = []
        for listener, positions in self._by_listener(consume, range(first, until)):
            messages = [consume.batch.messages[position] for position in positions]
            try:
                listener(messages)
            except Exception as error:  # noqa: BLE001 - whatever a listener raises means retry
                _report(error, messages[0])
                level = _delay_level(error)
                failures += (
                    (position, level)
                    for position, message in zip(positions, messages, strict=True)
                    if _is_named(error, message)
                )
        return _consumed(consume, first, until, until, sorted(failures))

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

    def _in_order(self, consume: Consume, first: int, until: int) -> Consumed:
        auto_commit = self._settings.auto_commit
        position = committed = first
        ending: dict[str, Any] = {}
        while position < until and _may_start(consume.permit, time.monotonic()):
            upto = min(position + self._settings.batch_size, until)
            messages = consume.batch.messages[position:upto]
            try:
                verdict = self._listener_of(consume, messages[0])(
                    messages[0] if self._settings.batch_size == 1 else list(messages)
                )
            except Exception as error:  # noqa: BLE001 - whatever a listener raises stops the queue
                _report(error, messages[0])
                ending = self._stopped_by(error, messages)
                break
            position = upto
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


def _may_start(permit: Permit | None, now: float) -> bool:
    return permit is None or now < permit.valid_until


def _consumed(
    consume: Consume, first: int, until: int, reached: int, failures: list[tuple[int, int]]
) -> Consumed:
    return Consumed(
        consume.queue,
        consume.epoch,
        consume.batch,
        first,
        until,
        tuple(failures),
        None if reached == until else reached,
    )


def _is_named(error: Exception, message: Any) -> bool:
    if not isinstance(error, RetryLater) or error.messages is None:
        return True
    return any(message is one for one in error.messages)


def _delay_level(error: Exception) -> int:
    if isinstance(error, DeadLetter):
        return _DEAD_LETTER
    if isinstance(error, RetryLater) and error.delay_level is not None:
        return error.delay_level
    return _BROKER_CHOOSES


def _report(error: Exception, message: Any) -> None:
    where = f"{message.queue.path} offset {message.queue_offset}"
    if isinstance(error, RetryLater | Suspend):
        _log.debug("listener asks to deliver %s again: %s", where, error)
    elif isinstance(error, DeadLetter):
        _log.warning("listener gives %s up: %s", where, error)
    else:
        _log.warning("listener failed on %s; it is delivered again later", where, exc_info=error)

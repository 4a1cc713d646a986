"""Runs listeners over a run of messages and says what came of it.

Three ways: one message at a time, in batches, and in order. In each, no message is started
after the end of the queue's permit, and whatever a listener raises is its verdict on its
messages, never a fault of the thread that runs it; also what is no `Exception`, such as what
`sys.exit` raises, because the thread is not the listener's to end. The run says at which message
it is, so that those who watch can tell which one hangs.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from gimbalmq.core.consumer.effects import Consume, Permit
from gimbalmq.core.consumer.events import Consumed
from gimbalmq.runtime.ordered_run import OrderedRun
from gimbalmq.runtime.running import RunningWork
from gimbalmq.runtime.verdicts import (
    ListenerSettings,
    consumed,
    delay_level,
    is_named,
    may_start,
    report,
)

__all__ = ["Listener", "ListenerSettings", "Listening"]

#: Gets one message, or a list of them when the batch size is above 1.
Listener = Callable[[Any], object]

_NEVER: Final = float("inf")


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

    @property
    def auto_commit(self) -> bool:
        """Whether what an ordered listener has had is done without its word."""
        return self._settings.auto_commit

    def directly(self, message: Any) -> object:
        """Have the listener of a message's topic consume it now; raises what that raises."""
        return self._listener(message.topic)(self._alone(message))

    def _alone(self, message: Any) -> Any:
        return message if self._settings.batch_size == 1 else [message]

    def run(self, work: RunningWork, share_after_s: float) -> Consumed:
        """Run over the work; a run of single messages may end early, to be shared."""
        if work.consume.ordered:
            return self._in_order(work)
        if self._settings.batch_size > 1:
            return self._batch(work)
        return self._one_by_one(work, share_after_s)

    # ---- concurrent --------------------------------------------------------------------------

    def _one_by_one(self, work: RunningWork, share_after_s: float) -> Consumed:
        consume = work.consume
        call = self._listener_for(consume.queue.topic) or self._call_for_its_topic
        end_at = work.since + share_after_s
        failures: list[tuple[int, int]] = []
        left = work.one_by_one()
        if consume.permit is not None:
            left = _permitted(consume.permit, end_at, left)
        elif end_at != _NEVER:
            left = _until(end_at, left)
        message = None
        while True:
            try:
                for message in left:
                    call(message)
                break
            except BaseException as error:  # noqa: BLE001 - whatever it raises means retry
                failures.append((_position(work, message), delay_level(error)))
                report(error, message)
        reached = work.first if message is None else _position(work, message) + 1
        return consumed(work, reached, failures, time.monotonic() - work.since)

    def _call_for_its_topic(self, message: Any) -> object:
        return self._listener(message.topic)(message)

    def _batch(self, work: RunningWork) -> Consumed:
        consume, first, until = work.consume, work.first, work.until
        if consume.permit is not None and not may_start(consume.permit, time.monotonic()):
            return consumed(work, first, [], 0.0)
        failures: list[tuple[int, int]] = []
        for listener, positions, messages in self._by_listener(consume, range(first, until)):
            try:
                listener(messages)
            except BaseException as error:  # noqa: BLE001 - whatever it raises means retry
                report(error, messages[0])
                level = delay_level(error)
                failures += (
                    (position, level)
                    for position, message in zip(positions, messages, strict=True)
                    if is_named(error, message)
                )
        if failures:
            failures.sort()
        return consumed(work, until, failures, time.monotonic() - work.since)

    def _by_listener(
        self, consume: Consume, positions: range
    ) -> list[tuple[Listener, Sequence[int], list[Any]]]:
        """Who gets which messages: a retry topic holds those of every topic of the group."""
        messages = consume.batch.messages
        own = self._listener_for(consume.queue.topic)
        if own is not None:
            part = messages[positions.start : positions.stop]
            return [(own, positions, part if isinstance(part, list) else list(part))]
        by_topic: dict[str, list[int]] = {}
        for position in positions:
            by_topic.setdefault(messages[position].topic, []).append(position)
        return [
            (functools.partial(self._call, topic), numbers, [messages[at] for at in numbers])
            for topic, numbers in by_topic.items()
        ]

    def _call(self, topic: str, messages: Any) -> object:
        return self._listener(topic)(messages)

    # ---- ordered -----------------------------------------------------------------------------

    def _in_order(self, work: RunningWork) -> Consumed:
        run = OrderedRun(work, self._settings, time.monotonic())
        while messages := run.next(time.monotonic()):
            try:
                verdict = self._listener_of(work.consume, messages[0])(run.argument())
            except BaseException as error:  # noqa: BLE001 - whatever it raises stops the queue
                run.raised(error)
            else:
                run.returned(verdict)
        return run.result(time.monotonic())

    # ---- which listener ----------------------------------------------------------------------

    def _listener_of(self, consume: Consume, message: Any) -> Listener:
        return self._listener_for(consume.queue.topic) or self._listener(message.topic)

    def _listener(self, topic: str) -> Listener:
        # The retry topic has no listener of its own: its messages know where they came from.
        listener = self._listener_for(topic)
        if listener is None:
            raise LookupError(f"no listener for topic {topic}: it is no longer subscribed")
        return listener


def _until(end_at: float, messages: Iterator[Any]) -> Iterator[Any]:
    """Look at the clock before each message is begun."""
    monotonic = time.monotonic
    while monotonic() < end_at:
        try:
            yield next(messages)
        except StopIteration:
            return


def _permitted(permit: Permit, end_at: float, messages: Iterator[Any]) -> Iterator[Any]:
    """The same for a queue with a permit, which may be renewed or withdrawn meanwhile."""
    monotonic = time.monotonic
    while (now := monotonic()) < end_at and now < permit.valid_until:
        try:
            yield next(messages)
        except StopIteration:
            return


def _position(work: RunningWork, message: Any) -> int:
    """Where in its batch a message of the run is."""
    messages, last = work.consume.batch.messages, work.claimed_until - 1
    if messages[last] is message:  # as it is after nearly every run
        return last
    return next(at for at in range(work.first, last) if messages[at] is message)

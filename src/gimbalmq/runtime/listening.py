"""Runs listeners over a run of messages and says what came of it.

Three ways: one message at a time, in batches, and in order. In each, no message is started
after the end of the queue's permit, and whatever a listener raises is its verdict on its
messages, never a fault of the thread that runs it; also what is no `Exception`, such as what
`sys.exit` raises, because the thread is not the listener's to end. The run says at which message
it is, so that those who watch can tell which one hangs.
"""

from __future__ import annotations

import functools
import inspect
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from gimbalmq.core.consumer.effects import Consume, Permit
from gimbalmq.core.consumer.events import Consumed
from gimbalmq.errors import ConfigurationError
from gimbalmq.model.verdict import OrderedVerdict
from gimbalmq.runtime.ordered_run import OrderedRun
from gimbalmq.runtime.running import RunningWork
from gimbalmq.runtime.verdicts import (
    ListenerSettings,
    consumed,
    delay_level,
    failed,
    report,
)

__all__ = ["Listener", "ListenerSettings", "Listening"]

#: Gets one message, or a list of them when the batch size is above 1.
Listener = Callable[[Any], object]

_NEVER: Final = float("inf")

_log = logging.getLogger("gimbalmq.consumer")


class Listening:
    """The listeners of one consumer, by topic."""

    def __init__(
        self, listener_for: Callable[[str], Listener | None], settings: ListenerSettings
    ) -> None:
        self._listener_for = listener_for
        self._settings = settings
        self._wondered = False

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
        """Run over the work; unless it is ordered, it may end early, to be shared."""
        if work.consume.ordered:
            return self._in_order(work)
        if self._settings.batch_size > 1:
            return self._in_batches(work, share_after_s)
        return self._one_by_one(work, share_after_s)

    # ---- concurrent --------------------------------------------------------------------------

    def _one_by_one(self, work: RunningWork, share_after_s: float) -> Consumed:
        consume = work.consume
        call = self._listener_for(consume.queue.topic) or self._call_for_its_topic
        failures: list[tuple[int, int]] = []
        left = _startable(work, share_after_s)
        message = None
        while True:
            try:
                for message in left:
                    if (said := call(message)) is not None:
                        self._wonder_at(said)
                break
            except BaseException as error:  # noqa: BLE001 - whatever it raises means retry
                failures.append((_position(work, message), delay_level(error)))
                report(error, message)
        reached = work.first if message is None else _position(work, message) + 1
        return consumed(work, reached, failures, time.monotonic() - work.since)

    def _call_for_its_topic(self, message: Any) -> object:
        return self._listener(message.topic)(message)

    def _in_batches(self, work: RunningWork, share_after_s: float) -> Consumed:
        consume, reached = work.consume, work.first
        failures: list[tuple[int, int]] = []
        for messages in _startable(work, share_after_s):
            until = reached + len(messages)  # now: the list is the listener's to change
            for listener, positions, part in self._by_listener(consume, reached, messages):
                try:
                    self._wonder_at(listener(part))
                except BaseException as error:  # noqa: BLE001 - whatever it raises means retry
                    failures += failed(error, positions, consume.batch)
            reached = until
        return consumed(work, reached, sorted(failures), time.monotonic() - work.since)

    def _by_listener(
        self, consume: Consume, first: int, messages: list[Any]
    ) -> list[tuple[Listener, Sequence[int], list[Any]]]:
        """Who gets which messages: a retry topic holds those of every topic of the group."""
        own = self._listener_for(consume.queue.topic)
        if own is not None:
            return [(own, range(first, first + len(messages)), messages)]
        by_topic: dict[str, list[int]] = {}
        for at, message in enumerate(messages):
            by_topic.setdefault(message.topic, []).append(at)
        return [
            (
                functools.partial(self._call, topic),
                [first + at for at in places],
                [messages[at] for at in places],
            )
            for topic, places in by_topic.items()
        ]

    def _call(self, topic: str, messages: Any) -> object:
        return self._listener(topic)(messages)

    # ---- ordered -----------------------------------------------------------------------------

    def _in_order(self, work: RunningWork) -> Consumed:
        run = OrderedRun(work, self._settings, time.monotonic())
        while messages := run.next(time.monotonic()):
            try:
                verdict = self._listener_of(work.consume, messages[0])(run.argument())
                self._wonder_at(verdict)
            except BaseException as error:  # noqa: BLE001 - whatever it raises stops the queue
                run.raised(error)
            else:
                run.returned(verdict)
        return run.result(time.monotonic())

    # ---- what listeners say ------------------------------------------------------------------

    def _wonder_at(self, said: object) -> None:
        """A listener that returns something may mean what is not so: that the message comes again.

        Raises:
            ConfigurationError: nothing was done yet, because nobody awaits what it returned.
        """
        if said is None or (isinstance(said, OrderedVerdict) and not self._settings.auto_commit):
            return
        if inspect.isawaitable(said):
            if inspect.iscoroutine(said):
                said.close()
            raise ConfigurationError(
                f"the listener returned {said!r}, which nobody awaits: subscribe the coroutine "
                "function itself, not a function that calls it"
            )
        if not self._wondered:
            self._wondered = True
            _log.warning(
                "a listener returned %r, which means nothing: a message is done when its listener "
                "returns, whatever it returns, and comes again when it raises",
                said,
            )

    # ---- which listener ----------------------------------------------------------------------

    def _listener_of(self, consume: Consume, message: Any) -> Listener:
        return self._listener_for(consume.queue.topic) or self._listener(message.topic)

    def _listener(self, topic: str) -> Listener:
        # The retry topic has no listener of its own: its messages know where they came from.
        listener = self._listener_for(topic)
        if listener is None:
            raise LookupError(f"no listener for topic {topic}: it is no longer subscribed")
        return listener


def _startable(work: RunningWork, share_after_s: float) -> Iterator[Any]:
    """What the listener gets, as long as it may start and the run need not be shared."""
    end_at, permit = work.since + share_after_s, work.consume.permit
    if permit is not None:
        return _permitted(permit, end_at, work.parts())
    return work.parts() if end_at == _NEVER else _until(end_at, work.parts())


def _until(end_at: float, parts: Iterator[Any]) -> Iterator[Any]:
    """Look at the clock before each message is begun."""
    monotonic = time.monotonic
    while monotonic() < end_at:
        try:
            yield next(parts)
        except StopIteration:
            return


def _permitted(permit: Permit, end_at: float, parts: Iterator[Any]) -> Iterator[Any]:
    """The same for a queue with a permit, which may be renewed or withdrawn meanwhile."""
    monotonic = time.monotonic
    while (now := monotonic()) < end_at and now < permit.valid_until:
        try:
            yield next(parts)
        except StopIteration:
            return


def _position(work: RunningWork, message: Any) -> int:
    """Where in its batch a message of the run is."""
    messages, last = work.consume.batch.messages, work.claimed_until - 1
    if messages[last] is message:  # as it is after nearly every run
        return last
    return next(at for at in range(work.first, last) if messages[at] is message)

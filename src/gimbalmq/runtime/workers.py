"""The threads that run listeners.

A pulled reply waits here as one piece of work; a free worker claims a run of it. How long a run
is depends on how quick listeners are: with quick ones a whole reply, because threads that pass
single messages around fight for the interpreter lock and lose more than they gain; with slow
ones a single message, so that all workers share even one queue. A worker whose listener turns
out slow in the middle of a run gives the rest back.

Knows listeners and threads, not brokers: results go to `finished`, on the worker's thread.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from gimbalmq.core.consumer.effects import Consume
from gimbalmq.core.consumer.events import Consumed
from gimbalmq.model.queue import MessageQueue
from gimbalmq.model.verdict import DeadLetter, RetryLater

__all__ = ["Listener", "WorkerPool"]

_log = logging.getLogger("gimbalmq.consumer")

#: Gets one message, or a list of them when the batch size is above 1.
Listener = Callable[[Any], object]

#: A run is cut so that it takes about this long; also the time after which a run in progress is
#: shared with other workers.
_RUN_S: Final = 0.002
#: Weight of the newest measurement in the running mean of seconds per message.
_NEWEST: Final = 0.3
#: Delay level 0: the broker chooses, longer with each attempt. Below 0: dead letter.
_BROKER_CHOOSES: Final = 0
_DEAD_LETTER: Final = -1


class _Work:
    """What is left of one `Consume`."""

    __slots__ = ("consume", "next")

    def __init__(self, consume: Consume) -> None:
        self.consume = consume
        self.next = consume.first


class WorkerPool:
    """Runs the listeners of one consumer on `workers` threads."""

    def __init__(
        self,
        name: str,
        listener_for: Callable[[str], Listener | None],
        finished: Callable[[Consumed], None],
        *,
        workers: int,
        batch_size: int,
    ) -> None:
        self._listener_for = listener_for
        self._finished = finished
        self._batch_size = batch_size
        self._changed = threading.Condition()
        self._waiting: deque[_Work] = deque()
        #: Claimed and not yet accounted for, by queue and epoch.
        self._running: Counter[tuple[MessageQueue, int]] = Counter()
        #: Those of them whose queue was given up: nothing new of them starts.
        self._cancelled: set[tuple[MessageQueue, int]] = set()
        self._idle = 0
        self._stopped = False
        #: None until the first run was measured: then runs are single messages.
        self._seconds_each: float | None = None
        self._threads = [
            threading.Thread(target=self._work, name=f"gimbalmq-{name}-{number}", daemon=True)
            for number in range(workers)
        ]

    # ---- owner -------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def submit(self, consume: Consume) -> None:
        """Let a run of messages wait for a worker."""
        with self._changed:
            self._waiting.append(_Work(consume))
            self._changed.notify()

    def cancel(self, queue: MessageQueue, epoch: int) -> int:
        """Discard what waits of a queue; returns how many messages listeners still hold."""
        with self._changed:
            self._waiting = deque(
                work
                for work in self._waiting
                if work.consume.queue != queue or work.consume.epoch != epoch
            )
            running = self._running[queue, epoch]
            if running:
                self._cancelled.add((queue, epoch))
            return running

    def accounted(self, done: Consumed) -> None:
        """The owner has taken a result in: its messages are no longer running."""
        key = done.queue, done.epoch
        with self._changed:
            self._running[key] -= done.until - done.first
            if not self._running[key]:
                del self._running[key]
                self._cancelled.discard(key)

    def stop(self) -> None:
        """Let the threads end after what they run now; does not wait for them."""
        with self._changed:
            self._stopped = True
            self._waiting.clear()
            self._changed.notify_all()

    def join(self, timeout_s: float) -> bool:
        """Wait for the threads; False when a listener is still running after that time."""
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    # ---- workers -----------------------------------------------------------------------------

    def _work(self) -> None:
        while (claim := self._claim()) is not None:
            work, first, until = claim
            started = time.perf_counter()
            consume = work.consume
            reached, failures = self._run(consume, first, until)
            self._measured((time.perf_counter() - started) / max(reached - first, 1))
            if reached < until and not self._give_back(consume, reached, until):
                # Cancelled meanwhile: what was not started counts as not done.
                failures += ((position, _BROKER_CHOOSES) for position in range(reached, until))
                reached = until
            self._finished(
                Consumed(
                    consume.queue, consume.epoch, consume.batch, first, reached, tuple(failures)
                )
            )

    def _claim(self) -> tuple[_Work, int, int] | None:
        with self._changed:
            while not self._waiting:
                if self._stopped:
                    return None
                self._idle += 1
                self._changed.wait()
                self._idle -= 1
            work = self._waiting[0]
            first = work.next
            until = min(first + self._run_length(), work.consume.until)
            work.next = until
            if until == work.consume.until:
                self._waiting.popleft()
            self._running[work.consume.queue, work.consume.epoch] += until - first
            if self._waiting and self._idle:
                self._changed.notify()
            return work, first, until

    def _run_length(self) -> int:
        if self._batch_size > 1:
            return self._batch_size
        if self._seconds_each is None:
            return 1
        return max(1, int(_RUN_S / max(self._seconds_each, 1e-7)))

    def _measured(self, seconds_each: float) -> None:
        known = self._seconds_each
        self._seconds_each = (
            seconds_each if known is None else known + _NEWEST * (seconds_each - known)
        )

    def _give_back(self, consume: Consume, first: int, until: int) -> bool:
        rest = Consume(consume.queue, consume.epoch, consume.batch, first, until)
        key = consume.queue, consume.epoch
        with self._changed:
            if self._stopped or key in self._cancelled:
                return False
            self._running[key] -= until - first
            self._waiting.appendleft(_Work(rest))
            self._changed.notify()
            return True

    def _run(self, consume: Consume, first: int, until: int) -> tuple[int, list[tuple[int, int]]]:
        """Run listeners from `first` on; returns where it stopped, and what failed."""
        messages = consume.batch.messages
        topic = consume.queue.topic
        if self._batch_size > 1:
            return until, self._run_batch(topic, messages[first:until], first)
        failures: list[tuple[int, int]] = []
        share_at = time.perf_counter() + _RUN_S
        listener = self._listener_for(topic)
        for position in range(first, until):
            message = messages[position]
            try:
                (listener or self._listener(message.topic))(message)
            except Exception as error:  # noqa: BLE001 - whatever a listener raises means retry
                failures.append((position, _delay_level(error)))
                _report(error, message)
            if time.perf_counter() > share_at:
                return position + 1, failures
        return until, failures

    def _run_batch(self, topic: str, messages: Sequence[Any], first: int) -> list[tuple[int, int]]:
        listener = self._listener_for(topic) or self._listener(messages[0].topic)
        try:
            listener(list(messages))
        except Exception as error:  # noqa: BLE001 - whatever a listener raises means retry
            _report(error, messages[0])
            failed = messages
            if isinstance(error, RetryLater) and error.messages is not None:
                failed = error.messages
            names = {id(message) for message in failed}
            level = _delay_level(error)
            return [
                (first + index, level)
                for index, message in enumerate(messages)
                if id(message) in names
            ]
        return []

    def _listener(self, topic: str) -> Listener:
        listener = self._listener_for(topic)
        if listener is None:
            raise LookupError(f"no listener for topic {topic}: it is no longer subscribed")
        return listener


def _delay_level(error: Exception) -> int:
    if isinstance(error, DeadLetter):
        return _DEAD_LETTER
    if isinstance(error, RetryLater) and error.delay_level is not None:
        return error.delay_level
    return _BROKER_CHOOSES


def _report(error: Exception, message: Any) -> None:
    where = f"{message.queue.path} offset {message.queue_offset}"
    if isinstance(error, RetryLater):
        _log.debug("listener asks to deliver %s again: %s", where, error)
    elif isinstance(error, DeadLetter):
        _log.warning("listener gives %s up: %s", where, error)
    else:
        _log.warning("listener failed on %s; it is delivered again later", where, exc_info=error)

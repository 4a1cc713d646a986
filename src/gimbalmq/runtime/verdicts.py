"""What the outcome of a listener means: for its messages, for its queue, for the log.

Pure but for the log; the same for listeners on threads and on event loops.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from gimbalmq.core.consumer.effects import Permit
from gimbalmq.core.consumer.events import Consumed
from gimbalmq.core.process_queue import Batch
from gimbalmq.model.verdict import DeadLetter, RetryLater, Suspend
from gimbalmq.runtime.running import RunningWork

__all__ = [
    "ListenerSettings",
    "consumed",
    "delay_level",
    "failed",
    "first_named",
    "is_named",
    "may_start",
    "report",
]

_log = logging.getLogger("gimbalmq.consumer")

#: Delay level 0: the broker chooses, longer with each attempt. Below 0: dead letter.
_BROKER_CHOOSES: Final = 0
_DEAD_LETTER: Final = -1


class ListenerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How listeners are called."""

    batch_size: int = 1
    auto_commit: bool = True
    suspend_current_queue_s: float = 1.0


def may_start(permit: Permit | None, now: float) -> bool:
    """Whether a message may be started: not after the end of the queue's permit."""
    return permit is None or now < permit.valid_until


def consumed(
    work: RunningWork, reached: int, failures: list[tuple[int, int]], took_s: float
) -> Consumed:
    """What came of a run without an order: how far it got, and what failed with which delay."""
    # Not `work.until`: others may be taking the end of the run away in this moment.
    consume, until = work.consume, work.claimed_until
    return Consumed(
        consume.queue,
        consume.epoch,
        consume.batch,
        work.first,
        until,
        tuple(failures),
        None if reached == until else reached,
        took_s=took_s,
    )


def is_named(error: BaseException, message: Any) -> bool:
    """Whether what a batch's listener raised is about a message of the batch."""
    if not isinstance(error, RetryLater) or error.messages is None:
        return True
    return any(message is one for one in error.messages)


def failed(error: BaseException, positions: Sequence[int], batch: Batch) -> list[tuple[int, int]]:
    """Which of the messages that a listener got come again after what it raised, and how soon."""
    messages, level = batch.messages, delay_level(error)
    report(error, messages[positions[0]])
    return [(position, level) for position in positions if is_named(error, messages[position])]


def first_named(error: BaseException, messages: Sequence[Any]) -> int:
    """Where in a batch the first message is that what was raised is about; its end if none is."""
    named = (at for at, message in enumerate(messages) if is_named(error, message))
    return next(named, len(messages))


def delay_level(error: BaseException) -> int:
    """How soon a message comes again after what its listener raised."""
    if isinstance(error, DeadLetter):
        return _DEAD_LETTER
    if isinstance(error, RetryLater) and error.delay_level is not None:
        return error.delay_level
    return _BROKER_CHOOSES


def report(error: BaseException, message: Any) -> None:
    """Log what a listener raised: on purpose, or not."""
    where = f"{message.queue.path} offset {message.queue_offset}"
    if isinstance(error, RetryLater | Suspend):
        _log.debug("listener asks to deliver %s again: %s", where, error)
    elif isinstance(error, DeadLetter):
        _log.warning("listener gives %s up: %s", where, error)
    elif isinstance(error, SystemExit):
        _log.error(
            "listener exited on %s; it is delivered again later. sys.exit() in a listener does not "
            "end the process: stop the consumer, from outside of its listeners",
            where,
            exc_info=error,
        )
    else:
        _log.warning("listener failed on %s; it is delivered again later", where, exc_info=error)

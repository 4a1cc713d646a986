"""How far a run of an ordered queue has come: what is next, and what each verdict makes of it.

The same for listeners on threads and on event loops; neither calls them nor reads a clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from gimbalmq.core.consumer.events import Consumed
from gimbalmq.model.verdict import Commit, DeadLetter, Rollback, Suspend
from gimbalmq.runtime.running import RunningWork
from gimbalmq.runtime.verdicts import ListenerSettings, first_named, may_start, report

__all__ = ["OrderedRun"]

#: After this long a run of an ordered queue tells how far it is, so that its offset can be stored,
#: and lets those of others run. Java does so after 60 s (`maxTimeConsumeContinuously`), but moves
#: its offset on with each message.
_TURN_S: Final = 1.0


class OrderedRun:
    """One worker's way through an ordered queue, batch by batch, until something stops it."""

    __slots__ = (
        "_committed",
        "_ending",
        "_messages",
        "_position",
        "_settings",
        "_started",
        "_work",
    )

    def __init__(self, work: RunningWork, settings: ListenerSettings, now: float) -> None:
        self._work = work
        self._settings = settings
        self._started = now
        #: What the listener has, from this position on.
        self._messages: Sequence[Any] = ()
        self._position = work.first
        #: Where the messages begin that the listener has not committed.
        self._committed = work.first
        #: What the result says of the message that stopped the run; empty while none has.
        self._ending: dict[str, Any] = {}

    def next(self, now: float) -> Sequence[Any]:
        """The messages of the next call; none when the run is over."""
        work, position = self._work, self._position
        over = self._ending or position >= work.until or now >= self._started + _TURN_S
        if over or not may_start(work.consume.permit, now):
            return ()
        work.position, work.since = position, now
        until = min(position + self._settings.batch_size, work.until)
        self._messages = work.consume.batch.messages[position:until]
        return self._messages

    def argument(self) -> Any:
        """What the listener gets."""
        return self._messages[0] if self._settings.batch_size == 1 else list(self._messages)

    def returned(self, verdict: object) -> None:
        """The listener is done with what it got."""
        self._position += len(self._messages)
        if verdict is Commit and not self._settings.auto_commit:
            self._committed = self._position
        elif verdict is Rollback and not self._settings.auto_commit:
            self._ending = {
                "rolled_back": True,
                "suspend_s": self._settings.suspend_current_queue_s,
            }

    def raised(self, error: BaseException) -> None:
        """The listener has failed on what it got, or on some of it.

        What comes before the first message that it names is done; all that follow come again, too,
        because nothing may overtake.
        """
        report(error, self._messages[0])
        done = first_named(error, self._messages)
        failed = self._messages[done:]
        self._position += done
        if failed:
            self._ending = self._stopped_by(error, failed)
            self._ending["failed_until"] = self._position + len(failed)

    def _stopped_by(self, error: BaseException, messages: Sequence[Any]) -> dict[str, Any]:
        if isinstance(error, DeadLetter):
            return {"buried": True}
        for message in messages:
            message.attempts += 1
        if isinstance(error, Suspend):
            return {"suspend_s": error.seconds}
        return {"suspend_s": self._settings.suspend_current_queue_s}

    def result(self, now: float) -> Consumed:
        """What came of the run."""
        work, consume = self._work, self._work.consume
        return Consumed(
            consume.queue,
            consume.epoch,
            consume.batch,
            work.first,
            work.until,
            reached=None if self._position == work.until else self._position,
            uncommitted_from=None if self._settings.auto_commit else self._committed,
            took_s=now - self._started,
            **self._ending,
        )

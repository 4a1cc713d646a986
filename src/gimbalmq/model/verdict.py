"""What a listener may say about messages, beyond returning (done) and raising (retry later).

The exceptions are signals, not errors: a listener raises them on purpose.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any, Final

__all__ = ["Commit", "DeadLetter", "OrderedVerdict", "RetryLater", "Rollback", "Suspend"]


class RetryLater(Exception):  # noqa: N818 - a signal, named for what it asks for
    """Deliver again after a while.

    `delay_level` picks one of the broker's delays (1 is 1 s, 2 is 5 s, 3 is 10 s, ... 18 is 2 h);
    None lets the broker choose, longer with each attempt. In a batch, `messages` names those to
    deliver again; the rest counts as done. In an ordered group, where nothing overtakes, what
    counts as done is what comes before the first of them.

    >>> raise RetryLater(delay_level=2)
    Traceback (most recent call last):
    gimbalmq.model.verdict.RetryLater: deliver again with delay level 2
    """

    def __init__(
        self, delay_level: int | None = None, messages: Sequence[Any] | None = None
    ) -> None:
        level = "of the broker's choice" if delay_level is None else delay_level
        super().__init__(f"deliver again with delay level {level}")
        self.delay_level = delay_level
        self.messages = messages


class DeadLetter(Exception):  # noqa: N818 - a signal, named for what it asks for
    """Give up: move the message to the group's dead letters, `%DLQ%<group>`.

    >>> DeadLetter("no such customer").reason
    'no such customer'
    """

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason or "moved to the dead letters by the listener")
        self.reason = reason


class Suspend(Exception):  # noqa: N818 - a signal, named for what it asks for
    """Ordered groups: let the queue wait, then deliver the same message again.

    >>> Suspend(0.5).seconds
    0.5
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(f"queue suspended for {seconds:g} s by the listener")
        self.seconds = seconds


class OrderedVerdict(enum.Enum):
    """What a listener of an ordered group without automatic commit returns to settle messages.

        consumer = PushConsumer("billing", ordered=True, auto_commit=False)

        @consumer.subscribe("orders")
        def book(message):
            ledger.add(message.body)
            if ledger.broken:
                return Rollback
            return Commit if ledger.full else None

    None settles nothing yet.
    """

    COMMIT = "everything delivered so far is done"
    ROLLBACK = "deliver again what was not committed"


#: Everything delivered so far is done; for ordered groups with `auto_commit=False`.
Commit: Final = OrderedVerdict.COMMIT
#: Deliver again what was not committed; for ordered groups with `auto_commit=False`.
Rollback: Final = OrderedVerdict.ROLLBACK

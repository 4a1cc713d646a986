"""What came of messages, counted by run and not by message."""

from __future__ import annotations

__all__ = ["Tally"]


class Tally:
    """Counts of one queue while it is held, or of a member since its start.

    >>> one, other = Tally(), Tally()
    >>> one.consumed, other.consumed = 2, 3
    >>> one.add(other)
    >>> one.consumed
    5
    """

    __slots__ = ("consumed", "expired", "failed", "listener_s", "retried")

    def __init__(self) -> None:
        #: Listeners returned.
        self.consumed = 0
        #: Listeners raised, for whatever reason.
        self.failed = 0
        #: Brokers took the message, to deliver it again later or to bury it.
        self.retried = 0
        #: Listeners took longer than the consume timeout.
        self.expired = 0
        #: Time spent in listeners.
        self.listener_s = 0.0

    def add(self, other: Tally) -> None:
        """Count what the other has counted."""
        self.consumed += other.consumed
        self.failed += other.failed
        self.retried += other.retried
        self.expired += other.expired
        self.listener_s += other.listener_s

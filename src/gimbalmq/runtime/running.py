"""What a listener is doing now, for those who watch: sweeps, alarms, statistics."""

from __future__ import annotations

from gimbalmq.core.consumer.effects import Consume

__all__ = ["RunningWork"]


class RunningWork:
    """One worker's run over positions [first, until) of a batch.

    The worker moves `position` on, and in an ordered run `since`, which may be looked at from any
    thread at any time. A run of single messages is given back before it gets long, so there the
    start of the run is near enough to that of its message.
    """

    __slots__ = ("consume", "first", "position", "since", "thread_id", "until", "width")

    def __init__(
        self,
        consume: Consume,
        first: int,
        until: int,
        since: float,
        thread_id: int = 0,
        width: int = 1,
    ) -> None:
        self.consume = consume
        self.first = first
        self.until = until
        #: When the listener got what it has now.
        self.since = since
        self.thread_id = thread_id
        #: The first message that the listener has, and up to how many it gets at once.
        self.position = first
        self.width = width

    def current(self) -> range:
        """The positions that the listener has now; none when it is just done."""
        position = self.position
        return range(position, min(position + self.width, self.until))

"""What a listener is doing now: for those who watch it, and for those who take work off it."""

from __future__ import annotations

from collections.abc import Iterator
from operator import length_hint
from typing import Any

from gimbalmq.core.consumer.effects import Consume

__all__ = ["RunningWork"]


class RunningWork:
    """One worker's run over positions [first, until) of a batch.

    May be looked at from any thread at any time. The worker either moves `position` on, and in an
    ordered run `since`; or it goes through the `parts`, where the iterator itself knows how far it
    is and what is left can be taken away meanwhile: then nothing is to be done for each of them.
    """

    __slots__ = (
        "_count",
        "_left",
        "_seen",
        "claimed_until",
        "consume",
        "first",
        "position",
        "shared",
        "since",
        "thread_id",
        "until",
        "width",
    )

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
        self.until = self.claimed_until = until
        #: When the run began; one in order, what the listener has now.
        self.since = since
        self.thread_id = thread_id
        #: The first message that the listener has, and up to how many it gets at once.
        self.position = first
        self.width = width
        #: Whether its end was given to others; then `until` says where it ends now.
        self.shared = False
        self._left: Iterator[Any] | None = None
        #: How many parts there are, without those that were taken away.
        self._count = 0
        #: What the listener had at the last look, and since when.
        self._seen = first, since

    def parts(self) -> Iterator[Any]:
        """What the listener gets, in order, for as long as nobody takes the rest away.

        Messages, or lists of up to `width` of them if that is above 1.
        """
        if self._left is None:
            first, until, width = self.first, self.until, self.width
            parts = self.consume.batch.messages[first:until]
            if width > 1:
                some = list(parts)
                parts = [some[at : at + width] for at in range(0, until - first, width)]
            self._count = len(parts)
            self._left = iter(parts)
        return self._left

    def left(self) -> int:
        """How many parts are not begun and can be taken away."""
        return 0 if self._left is None else length_hint(self._left)

    def take_rest(self) -> int:
        """Take away what was not begun; returns how many messages that is."""
        # Each part goes to one side or the other: an iterator hands nothing out twice.
        taken = [] if self._left is None else list(self._left)
        self._count -= len(taken)
        return len(taken) if self.width == 1 else sum(map(len, taken))

    def current(self) -> range:
        """The positions that the listener has now; none when it is just done."""
        position = self.position
        if self._left is not None:
            begun = self._count - length_hint(self._left)
            position = self.first + max(begun - 1, 0) * self.width
        return range(position, min(position + self.width, self.until))

    def had_since(self, now: float) -> float:
        """Since when the listener has what it has, as far as those know who look now and then.

        Who goes through the parts does not read the clock for each: what is not the first of them
        counts from the first look that finds it, which may be late, but never too early.
        """
        at = self.current().start
        if self._left is None or at == self.first:
            return self.since
        if at != self._seen[0]:
            self._seen = at, now
        return self._seen[1]

"""The way of results from workers to their owner: many of them with one call.

Workers and owner are different threads, which take turns; what is done in one turn of the workers
is taken in at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from gimbalmq.core.consumer.events import Consumed
from gimbalmq.errors import StateError

__all__ = ["Results"]


class Results:
    """Takes results on any thread; `take` gets each of them, in order, where `post` runs things."""

    def __init__(
        self, post: Callable[[Callable[[], None]], None], take: Callable[[Consumed], None]
    ) -> None:
        self._post = post
        self._take = take
        self._waiting: deque[Consumed] = deque()
        self._posted = False

    def __call__(self, done: Consumed) -> None:
        """Hand a result over, soon."""
        self._waiting.append(done)
        if self._posted:
            return
        self._posted = True
        try:
            self._post(self._hand_over)
        except StateError:
            # A listener may outlive the consumer; then nobody is left to take its result.
            self._waiting.clear()

    def _hand_over(self) -> None:
        # First, so that a result that comes from now on asks for another turn.
        self._posted = False
        waiting, take = self._waiting, self._take
        while waiting:
            take(waiting.popleft())

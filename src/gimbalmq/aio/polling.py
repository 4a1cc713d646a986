"""Messages that wait for a coroutine that polls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from gimbalmq.core.consumer.effects import Consume
from gimbalmq.core.consumer.events import Consumed, Polled
from gimbalmq.runtime.polling import PollQueue

__all__ = ["LoopPollQueue"]


class LoopPollQueue(PollQueue):
    """As `PollQueue`, for callers on the loop: a poll that is cancelled has taken nothing."""

    def __init__(
        self,
        finished: Callable[[Consumed], None],
        most: int,
        polled: Callable[[Polled], None] | None = None,
    ) -> None:
        super().__init__(finished, most, polled)
        self._arrived = asyncio.Event()

    def submit(self, consume: Consume) -> None:
        """Let a pulled reply wait for the next poll."""
        super().submit(consume)
        self._arrived.set()

    def close(self) -> None:
        """Let a waiting poll return."""
        super().close()
        self._arrived.set()

    async def poll_async(self, timeout_s: float) -> list[Any]:
        """The next messages of one queue, or an empty list when none came in time."""
        try:
            async with asyncio.timeout(timeout_s):
                while not (messages := self.poll(0.0)) and not self._closed:
                    self._arrived.clear()
                    await self._arrived.wait()
        except TimeoutError:
            return self.poll(0.0)
        return messages

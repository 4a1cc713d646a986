"""The async with statement around a client: it starts when entered and stops when left."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

__all__ = ["Lifetime"]


class Lifetime(ABC):
    """A client that runs from `start` to `stop`, on the loop it was started on."""

    @abstractmethod
    async def start(self) -> Self:
        """Begin to run; returns the client."""

    @abstractmethod
    async def stop(self) -> None:
        """Run no longer; safe to call again."""

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

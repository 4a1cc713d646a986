"""The with statement around a client: it starts when entered and stops when left."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

__all__ = ["Lifetime"]


class Lifetime(ABC):
    """A client that runs from `start` to `stop`."""

    @abstractmethod
    def start(self) -> Self:
        """Begin to run; returns the client."""

    @abstractmethod
    def stop(self) -> None:
        """Run no longer; safe to call again."""

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

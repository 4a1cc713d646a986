"""Since when processes have not answered. Pure: the time is an argument.

A process that misses one question may only be busy; one that has missed every question for a while
is stuck. Nobody asks all the time, so the silence begins with the first question that was missed.
"""

from __future__ import annotations

from collections.abc import Collection

__all__ = ["Silence"]


class Silence:
    """How long each process has been silent, by process id.

    >>> silence = Silence()
    >>> silence.note([7, 8], answered=[7], now=100.0)
    >>> silence.note([7, 8], answered=[], now=104.0)
    >>> silence.of(7, now=106.0), silence.of(8, now=106.0)
    (2.0, 6.0)
    """

    def __init__(self) -> None:
        self._since: dict[int, float] = {}

    def note(self, asked: Collection[int], answered: Collection[int], now: float) -> None:
        """Processes were asked at a time; others are forgotten."""
        self._since = {pid: self._since.get(pid, now) for pid in asked if pid not in answered}

    def of(self, pid: int, now: float) -> float:
        """Seconds since the first question that it missed; 0 when it answered the last one."""
        return now - self._since.get(pid, now)

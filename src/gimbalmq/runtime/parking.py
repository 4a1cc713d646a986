"""Threads that wait to be needed, woken one at a time, the last that came first.

The last that came is the one whose memory is still in the processor's caches; a condition
variable would wake the one that has slept longest.
"""

from __future__ import annotations

import threading

__all__ = ["Parking"]


class Parking:
    """Where threads sleep; every call is made with the owner's lock held."""

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock
        self._sleeping: list[threading.Lock] = []

    def sleep(self) -> None:
        """Sleep until woken; the lock is free meanwhile."""
        bell = threading.Lock()
        bell.acquire()
        self._sleeping.append(bell)
        self._lock.release()
        try:
            bell.acquire()
        finally:
            self._lock.acquire()

    def wake(self) -> bool:
        """Wake the thread that came last; False when none sleeps."""
        if not self._sleeping:
            return False
        self._sleeping.pop().release()
        return True

    def wake_all(self) -> None:
        """Wake every thread."""
        while self.wake():
            pass

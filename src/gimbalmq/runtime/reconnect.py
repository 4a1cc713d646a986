"""When a failed address may be tried again: after a pause that doubles with each failure in a row.

A broker that accepts and closes at once is not stormed. Knows addresses and times, no sockets.
"""

from __future__ import annotations

from typing import Final

from gimbalmq.errors import TransportError

__all__ = ["ReconnectPauses"]

_PAUSE_S: Final = 0.1
_PAUSE_MAX_S: Final = 5.0
#: A connection that lived this long was good: the next failure starts with a short pause again.
_GOOD_CONNECTION_S: Final = 5.0


class ReconnectPauses:
    """The failures in a row of each address, and the earliest next attempt."""

    def __init__(self) -> None:
        self._troubles: dict[str, tuple[int, float]] = {}

    def check(self, address: str, now: float) -> None:
        """Refuse to connect too soon.

        Raises:
            TransportError: the last failure was a moment ago.
        """
        failures, retry_at = self._troubles.get(address, (0, 0.0))
        if now < retry_at:
            raise TransportError(
                f"{address} could not be used {failures} times in a row; trying again in "
                f"{retry_at - now:.1f} s",
                address=address,
            )

    def failed(self, address: str, now: float) -> None:
        """An attempt to connect failed."""
        failures = self._troubles.get(address, (0, 0.0))[0]
        pause_s = min(_PAUSE_MAX_S, _PAUSE_S * 2.0 ** min(failures, 16))
        self._troubles[address] = failures + 1, now + pause_s

    def lost(self, address: str, now: float, *, connected: bool, opened_at: float) -> None:
        """A connection ended; one that lived for a while was good."""
        if connected and now - opened_at > _GOOD_CONNECTION_S:
            self._troubles.pop(address, None)
        else:
            self.failed(address, now)

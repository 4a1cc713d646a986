"""How long to wait before what failed is tried again: longer each time, for each cause by itself."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

__all__ = ["BackOff"]

#: More doublings than any longest pause needs.
_DOUBLINGS_MAX = 16


class BackOff:
    """Pauses that double while a cause goes on failing, and are short again once it does not.

    >>> back_off = BackOff(0.2, 20.0)
    >>> [back_off.failed("members"), back_off.failed("members"), back_off.failed("a topic")]
    [0.2, 0.4, 0.2]
    >>> back_off.settled("members")
    >>> back_off.failed("members")
    0.2
    """

    __slots__ = ("_failures", "_first_s", "_longest_s")

    def __init__(self, first_s: float, longest_s: float) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        #: How often each cause has failed in a row.
        self._failures: dict[Hashable, int] = {}

    def failed(self, cause: Hashable) -> float:
        """Something failed once more; returns the seconds until it may be tried again."""
        before = self._failures.get(cause, 0)
        self._failures[cause] = before + 1
        return min(self._first_s * 2.0 ** min(before, _DOUBLINGS_MAX), self._longest_s)

    def settled(self, cause: Hashable) -> None:
        """Something did not fail, or is not wanted any more."""
        self._failures.pop(cause, None)

    def failing(self) -> Iterable[Hashable]:
        """What has failed and not settled since."""
        return tuple(self._failures)

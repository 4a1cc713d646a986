"""How commands end that run until Ctrl-C: it is their regular end, not a failure."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

__all__ = ["raised_once", "stopped_by_signals"]


class _StopRequestedError(BaseException):
    """SIGINT or SIGTERM came; not an Exception, so that nothing on the way swallows it."""


@contextlib.contextmanager
def raised_once(error: type[BaseException], *numbers: signal.Signals) -> Iterator[None]:
    """Raise an error in the block when one of these signals comes.

    Nothing disturbs what is done after the first of them: a second Ctrl-C must not leave half of
    the processes running.
    """

    def stop(_number: int, _frame: FrameType | None) -> None:
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)
        raise error

    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def stopped_by_signals() -> Iterator[None]:
    """Leave the block without an error when SIGINT or SIGTERM comes."""
    with (
        contextlib.suppress(_StopRequestedError),
        raised_once(_StopRequestedError, signal.SIGINT, signal.SIGTERM),
    ):
        yield

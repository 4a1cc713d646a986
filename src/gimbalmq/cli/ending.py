"""How commands end that run until Ctrl-C: it is their regular end, not a failure."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

__all__ = ["stopped_by_signals"]


class _StopRequestedError(BaseException):
    """SIGINT or SIGTERM came; not an Exception, so that nothing on the way swallows it."""


@contextlib.contextmanager
def stopped_by_signals() -> Iterator[None]:
    """Leave the block without an error when SIGINT or SIGTERM comes."""
    numbers = (signal.SIGINT, signal.SIGTERM)

    def stop(_number: int, _frame: FrameType | None) -> None:
        # One is enough: a second Ctrl-C must not leave half of the processes running.
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)
        raise _StopRequestedError

    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    except _StopRequestedError:
        return
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

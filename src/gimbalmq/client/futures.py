"""The future of a send: a `concurrent.futures.Future` that is cheap until somebody waits.

The standard one makes a condition with a dozen objects for every message, used or not; of a
pipelined send that is a large part of the cost, most of it in the garbage collector. This one
makes its condition when somebody waits or adds a callback. One lock for all decides the race
between that and the result: a result that finds no condition has no one to wake, because whoever
makes the condition later sees the result.

Knows the base class's private parts, which `wait`, `as_completed` and `wrap_future` use as well.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final, Protocol

from gimbalmq.model.message import SendResult

__all__ = ["SendFuture", "Underway"]

_PENDING: Final = "PENDING"
_FINISHED: Final = "FINISHED"

#: Held for a few instructions only, so one is enough for all futures.
_making_or_ending: Final = threading.Lock()


class Underway(Protocol):
    """A send under way, of this kind or of asyncio's: who sent it is told when it has ended."""

    def add_done_callback(self, fn: Callable[[Any], object], /) -> None:
        """Call back with the finished future."""


class SendFuture(Future[SendResult]):
    """The result of a send that is under way; what has left cannot be cancelled."""

    __slots__ = ("_result",)
    _exception: BaseException | None = None
    _made: threading.Condition | None = None
    _lock: threading.RLock
    _waiters: list[Any]
    _done_callbacks: list[Callable[[Future[SendResult]], object]]

    if TYPE_CHECKING:

        def __init__(self) -> None: ...

    else:
        __init__ = object.__init__  # the base class would make the condition

    @property
    def _state(self) -> str:  # type: ignore[override]
        return _FINISHED if self.done() else _PENDING

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]
        made = self._made
        if made is None:
            with _making_or_ending:
                made = self._made
                if made is None:
                    # Used with the condition held, so not before it is there.
                    self._waiters, self._done_callbacks = [], []
                    self._lock = threading.RLock()
                    made = self._made = threading.Condition(self._lock)
        return made

    def cancel(self) -> bool:
        """Never: the message may be on its way."""
        return False

    def cancelled(self) -> bool:
        """Never."""
        return False

    def running(self) -> bool:
        """Whether there is no result yet."""
        return not self.done()

    def done(self) -> bool:
        """Whether there is a result or an error."""
        return self._exception is not None or hasattr(self, "_result")

    def result(self, timeout: float | None = None) -> SendResult:
        """Where the message went; waits for it, and raises the error if there is one."""
        if not hasattr(self, "_result"):
            self._wait(timeout)
            if self._exception is not None:
                raise self._exception
        return self._result  # type: ignore[return-value]

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """The error, or None; waits for the end."""
        self._wait(timeout)
        return self._exception

    def _wait(self, timeout: float | None) -> None:
        if self.done():
            return
        made = self._condition
        # The lock itself, and not the condition, whose entering is Python: after an interrupt in it
        # the lock would stay taken, and the engine's thread would wait for it for ever.
        with self._lock:
            if not self.done():
                made.wait(timeout)
        if not self.done():
            raise TimeoutError("the message has no result yet")

    def set_result(self, result: SendResult) -> None:
        """The message is stored; called once."""
        with _making_or_ending:
            self._result = result
            made = self._made
        if made is not None:
            self._tell()

    def set_exception(self, exception: BaseException | None) -> None:
        """The message was not stored; called once."""
        with _making_or_ending:
            self._exception = exception
            made = self._made
        if made is not None:
            self._tell()

    @staticmethod
    def set_results(futures: Iterable[SendFuture], results: Iterable[SendResult]) -> None:
        """As `set_result` of each, in fewer steps."""
        watched = []
        with _making_or_ending:
            for future, result in zip(futures, results, strict=True):
                future._result = result  # noqa: SLF001 - of this class, as the next line
                if future._made is not None:  # noqa: SLF001
                    watched.append(future)
        for future in watched:
            future._tell()  # noqa: SLF001

    def _tell(self) -> None:
        """Wake those who wait for the end, and call back."""
        made, error = self._condition, self._exception
        with made:
            for waiter in self._waiters:
                if error is None:
                    waiter.add_result(self)
                else:
                    waiter.add_exception(self)
            made.notify_all()
        self._invoke_callbacks()  # type: ignore[attr-defined]

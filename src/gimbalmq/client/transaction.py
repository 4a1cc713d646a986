"""A transaction from the user's side, and the thread that answers brokers' questions.

The with statement is the local work: the half message is stored before it, committed after it,
rolled back when it raises. A producer that dies in between is asked later, any producer of its
group, through `check`; `check` runs on a thread of its own, never on the engine thread.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Final, Protocol, Self, TypeAlias

from gimbalmq.errors import GimbalError, SendError, StateError
from gimbalmq.flows.transaction import HalfMessage, Outcome, TransactionCheck
from gimbalmq.model.message import SendResult
from gimbalmq.wire.record import ReceivedMessage

__all__ = ["CheckAnswer", "CheckWorker", "EndTransaction", "Transaction", "not_ended"]

_log = logging.getLogger("gimbalmq.producer")

#: Answers a broker's question: True = commit, False = roll back, None = not known yet, ask again.
CheckAnswer: TypeAlias = Callable[[ReceivedMessage], bool | None]

#: Java keeps this many questions waiting; the broker asks again for those beyond.
_CHECKS_MAX: Final = 2000


class EndTransaction(Protocol):
    """Tells the broker the outcome of a half message."""

    def __call__(self, half: HalfMessage, outcome: Outcome, remark: str | None) -> None:
        """Called once per transaction."""


class Transaction:
    """One transactional message; made by `Producer.transaction`.

        with producer.transaction(Message("orders", b"...")) as transaction:
            database.save(order, transaction.message_id)

    Leaving the block commits; an exception rolls back and goes on its way. `rollback` and `leave`
    inside the block choose another end.
    """

    def __init__(
        self, store_half: Callable[[], tuple[SendResult, HalfMessage]], end: EndTransaction
    ) -> None:
        self._store_half = store_half
        self._end = end
        self._stored: tuple[SendResult, HalfMessage] | None = None
        self._outcome: Outcome | None = None
        self._ended = False

    @property
    def result(self) -> SendResult:
        """Where the half message is; its offset is that of the broker's own topic."""
        return self._open()[0]

    @property
    def message_id(self) -> str:
        """The id under which the message is known before and after the commit."""
        return self._open()[0].message_id

    def rollback(self) -> None:
        """Roll back at the end of the block instead of committing."""
        self._open()
        self._outcome = Outcome.ROLLBACK

    def leave(self) -> None:
        """Decide nothing at the end of the block: `check` will, when the broker asks."""
        self._open()
        self._outcome = Outcome.UNKNOWN

    def __enter__(self) -> Self:
        if self._stored is not None:
            raise StateError("a transaction is used once: make a new one for each message")
        self._stored = self._store_half()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _, half = self._open()
        self._ended = True
        if error is None:
            self._end(half, self._outcome or Outcome.COMMIT, None)
            return
        try:
            self._end(half, Outcome.ROLLBACK, f"{type(error).__name__}: {error}")
        except GimbalError as failure:
            # The user's own error matters more; the broker asks, and drops it in the end.
            _log.warning("%s", failure)

    def _open(self) -> tuple[SendResult, HalfMessage]:
        if self._stored is None or self._ended:
            raise StateError("this transaction is not open: use it inside its with statement")
        return self._stored


class CheckWorker:
    """Answers questions one after the other on a thread of its own."""

    def __init__(
        self,
        name: str,
        check: CheckAnswer,
        end: Callable[[str, HalfMessage, Outcome, str | None], None],
    ) -> None:
        self._check = check
        self._end = end
        self._questions: queue.Queue[tuple[str, TransactionCheck] | None] = queue.Queue(_CHECKS_MAX)
        self._thread = threading.Thread(
            target=self._work, name=f"gimbalmq-check-{name}", daemon=True
        )

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def ask(self, address: str, check: TransactionCheck) -> None:
        """Let a question wait for its turn; called on the engine thread, never waits."""
        try:
            self._questions.put_nowait((address, check))
        except queue.Full:
            _log.warning(
                "%d transaction checks wait for their answer; the one about %s is left to be asked "
                "again",
                _CHECKS_MAX,
                check.half.message_id,
            )

    def stop(self, timeout_s: float) -> None:
        """Answer nothing more, and wait for the answer that is being found."""
        while True:
            try:
                self._questions.get_nowait()
            except queue.Empty:
                break
        self._questions.put(None)
        self._thread.join(timeout_s)

    def _work(self) -> None:
        while (question := self._questions.get()) is not None:
            address, check = question
            outcome, remark = self._answer(check)
            try:
                self._end(address, check.half, outcome, remark)
            except GimbalError as error:
                _log.warning("%s", error)

    def _answer(self, check: TransactionCheck) -> tuple[Outcome, str | None]:
        try:
            known = self._check(check.message)
        except Exception as error:  # noqa: BLE001 - whatever it raises means: not known
            _log.warning(
                "check of transaction %s failed; the broker asks again",
                check.half.message_id,
                exc_info=error,
            )
            return Outcome.UNKNOWN, f"{type(error).__name__}: {error}"
        if known is None:
            return Outcome.UNKNOWN, None
        return (Outcome.COMMIT if known else Outcome.ROLLBACK), None


def not_ended(half: HalfMessage, outcome: Outcome, error: GimbalError) -> SendError:
    """The error for an outcome that the broker did not confirm."""
    return SendError(
        f"the {outcome.name.lower()} of transaction {half.message_id} for topic '{half.topic}' was "
        f"not confirmed by broker '{half.broker}': {error}. It may or may not have arrived; the "
        "broker asks the producers of the group, if they have a check function, and drops the "
        "message after 15 questions",
        attempts=(f"{half.broker}: {error}",),
        code=error.code,
    )

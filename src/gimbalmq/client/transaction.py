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

import msgspec

from gimbalmq.errors import GimbalError, SendError, StateError, TransportError
from gimbalmq.flows.effects import Flow
from gimbalmq.flows.transaction import (
    HalfMessage,
    Outcome,
    TransactionCheck,
    end_transaction,
    half_stored,
)
from gimbalmq.model.message import SendResult
from gimbalmq.wire.received import ReceivedMessage

__all__ = [
    "CHECKS_MAX",
    "CheckAnswer",
    "CheckWorker",
    "EndTransaction",
    "OpenTransaction",
    "Transaction",
    "check_failed",
    "check_overflow",
    "ending",
    "outcome_of",
    "rollback_remark",
    "stored_half",
    "unsafe_half",
]

_log = logging.getLogger("gimbalmq.producer")

#: Answers a broker's question: True = commit, False = roll back, None = not known yet, ask again.
CheckAnswer: TypeAlias = Callable[[ReceivedMessage], bool | None]

#: Java keeps this many questions waiting; the broker asks again for those beyond.
CHECKS_MAX: Final = 2000
#: Brokers write remarks into their log, and nowhere else.
_REMARK_CHARS_MAX: Final = 1000


class EndTransaction(Protocol):
    """Tells the broker the outcome of a half message."""

    def __call__(self, half: HalfMessage, outcome: Outcome, remark: str | None) -> None:
        """Called once per transaction."""


class OpenTransaction:
    """What a transaction is while its block runs, whoever waits for the broker."""

    def __init__(self) -> None:
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

    def _begin(self) -> None:
        if self._stored is not None:
            raise StateError("a transaction is used once: make a new one for each message")

    def _close(self, error: BaseException | None) -> tuple[HalfMessage, Outcome, str | None]:
        """What to tell the broker at the end of the block."""
        _, half = self._open()
        self._ended = True
        if error is None:
            return half, self._outcome or Outcome.COMMIT, None
        return half, Outcome.ROLLBACK, rollback_remark(error)

    def _open(self) -> tuple[SendResult, HalfMessage]:
        if self._stored is None or self._ended:
            raise StateError("this transaction is not open: use it inside its with statement")
        return self._stored


class Transaction(OpenTransaction):
    """One transactional message; made by `Producer.transaction`.

        with producer.transaction(Message("orders", b"...")) as transaction:
            database.save(order, transaction.message_id)

    Leaving the block commits; an exception rolls back and goes on its way. `rollback` and `leave`
    inside the block choose another end.
    """

    def __init__(
        self, store_half: Callable[[], tuple[SendResult, HalfMessage]], end: EndTransaction
    ) -> None:
        super().__init__()
        self._store_half = store_half
        self._end = end

    def __enter__(self) -> Self:
        self._begin()
        self._stored = self._store_half()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        half, outcome, remark = self._close(error)
        try:
            self._end(half, outcome, remark)
        except GimbalError as failure:
            if error is None:
                raise
            # The user's own error matters more; the broker asks, and drops it in the end.
            _log.warning("%s", failure)


class CheckWorker:
    """Answers questions one after the other on a thread of its own."""

    def __init__(
        self,
        name: str,
        check: CheckAnswer,
        end: Callable[[str, TransactionCheck, Outcome, str | None], None],
    ) -> None:
        self._check = check
        self._end = end
        self._questions: queue.Queue[tuple[str, TransactionCheck] | None] = queue.Queue(CHECKS_MAX)
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
            check_overflow(check)

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
                self._end(address, check, outcome, remark)
            except GimbalError as error:
                _log.warning("%s", error)

    def _answer(self, check: TransactionCheck) -> tuple[Outcome, str | None]:
        try:
            known = self._check(check.message)
        except BaseException as error:  # noqa: BLE001 - not known; its thread goes on with others
            return check_failed(check, error)
        return outcome_of(known), None


def outcome_of(known: bool | None) -> Outcome:  # noqa: FBT001 - what users return
    """What the answer of a user's check means."""
    if known is None:
        return Outcome.UNKNOWN
    return Outcome.COMMIT if known else Outcome.ROLLBACK


def check_failed(check: TransactionCheck, error: BaseException) -> tuple[Outcome, str]:
    """What a user's check that raises means: not known yet."""
    _log.warning(
        "check of transaction %s failed; the broker asks again",
        check.half.message_id,
        exc_info=error,
    )
    return Outcome.UNKNOWN, rollback_remark(error)


def check_overflow(check: TransactionCheck) -> None:
    """Too many questions wait: say that this one is dropped."""
    _log.warning(
        "%d transaction checks wait for their answer; the one about %s is left to be asked again",
        CHECKS_MAX,
        check.half.message_id,
    )


def rollback_remark(error: BaseException) -> str:
    """What the broker is told of an exception: text that can be sent, whatever it says."""
    words = f"{type(error).__name__}: {error}"[:_REMARK_CHARS_MAX]
    return words.encode(errors="backslashreplace").decode()


def stored_half(result: SendResult, wire_topic: str) -> HalfMessage:
    """The half message that a send has stored, with its topic as brokers name it."""
    return msgspec.structs.replace(half_stored(result), topic=wire_topic)


def unsafe_half(result: SendResult, topic: str) -> SendError:
    """The error for a half message that is stored, but not safely: it was rolled back."""
    return SendError(
        f"transaction {result.message_id} for topic '{topic}' was rolled back: broker "
        f"'{result.queue.broker}' stored it with {result.status.name} only"
    )


def ending(
    address: str,
    group: str,
    half: HalfMessage,
    outcome: Outcome,
    remark: str | None,
    timeout_s: float,
) -> Flow[None]:
    """Tell a broker the outcome of a half message; an empty address is that of no broker.

    Raises:
        SendError: the broker did not confirm it.
    """
    try:
        if not address:
            raise TransportError(f"broker '{half.broker}' has no master now")
        yield from end_transaction(
            address, group, half, outcome, remark=remark, timeout_s=timeout_s
        )
    except GimbalError as error:
        raise _not_ended(half, outcome, error) from error


def _not_ended(half: HalfMessage, outcome: Outcome, error: GimbalError) -> SendError:
    """The error for an outcome that the broker did not confirm."""
    return SendError(
        f"the {outcome.name.lower()} of transaction {half.message_id} for topic '{half.topic}' was "
        f"not confirmed by broker '{half.broker}': {error}. It may or may not have arrived; the "
        "broker asks the producers of the group, if they have a check function, and drops the "
        "message after 15 questions",
        attempts=(f"{half.broker}: {error}",),
        code=error.code,
    )

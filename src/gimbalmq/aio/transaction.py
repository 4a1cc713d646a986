"""Transactions on an event loop: the block, and the answers to brokers' questions."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self, TypeAlias

from gimbalmq.client.transaction import (
    CHECKS_MAX,
    OpenTransaction,
    check_failed,
    check_overflow,
    outcome_of,
)
from gimbalmq.errors import GimbalError
from gimbalmq.flows.transaction import HalfMessage, Outcome, TransactionCheck
from gimbalmq.model.message import SendResult
from gimbalmq.runtime.coroutines import is_coroutine_listener
from gimbalmq.wire.received import ReceivedMessage

__all__ = ["CheckAnswer", "Checks", "Transaction"]

_log = logging.getLogger("gimbalmq.producer")

#: Answers a broker's question; a coroutine function, or a plain one, which runs on a thread.
CheckAnswer: TypeAlias = Callable[[ReceivedMessage], bool | Awaitable[bool | None] | None]


class Transaction(OpenTransaction):
    """One transactional message; made by `Producer.transaction`.

        async with producer.transaction(Message("orders", b"...")) as transaction:
            await database.save(order, transaction.message_id)

    Leaving the block commits; an exception, also a cancellation, rolls back and goes on its way.
    """

    def __init__(
        self,
        store_half: Callable[[], Awaitable[tuple[SendResult, HalfMessage]]],
        end: Callable[[HalfMessage, Outcome, str | None], Awaitable[None]],
    ) -> None:
        super().__init__()
        self._store_half = store_half
        self._end = end

    async def __aenter__(self) -> Self:
        self._begin()
        self._stored = await self._store_half()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        half, outcome, remark = self._close(error)
        try:
            await self._end(half, outcome, remark)
        except GimbalError as failure:
            if error is None:
                raise
            # The user's own error matters more; the broker asks, and drops it in the end.
            _log.warning("%s", failure)


class Checks:
    """Answers questions one after the other, in a task that lives while there are any."""

    def __init__(
        self,
        check: CheckAnswer,
        end: Callable[[str, TransactionCheck, Outcome, str | None], Awaitable[None]],
    ) -> None:
        self._check = check
        self._end = end
        self._questions: deque[tuple[str, TransactionCheck]] = deque()
        self._task: asyncio.Task[None] | None = None

    def ask(self, address: str, check: TransactionCheck) -> None:
        """Let a question wait for its turn."""
        if len(self._questions) >= CHECKS_MAX:
            check_overflow(check)
            return
        self._questions.append((address, check))
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._work())

    async def stop(self, timeout_s: float) -> None:
        """Answer nothing more, and wait for the answer that is being found."""
        self._questions.clear()
        if self._task is not None and not self._task.done():
            await asyncio.wait([self._task], timeout=timeout_s)
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _work(self) -> None:
        while self._questions:
            address, check = self._questions.popleft()
            outcome, remark = await self._answer(check)
            try:
                await self._end(address, check, outcome, remark)
            except GimbalError as error:
                _log.warning("%s", error)

    async def _answer(self, check: TransactionCheck) -> tuple[Outcome, str | None]:
        try:
            if is_coroutine_listener(self._check):
                known = self._check(check.message)
            else:
                known = await asyncio.to_thread(self._check, check.message)
            if isinstance(known, Awaitable):
                known = await known
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it is: not known
            return check_failed(check, error)
        return outcome_of(known), None

"""The producer of the demo, and the look at how far the group has come. Each is a thread."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from gimbalmq.cli.demo.board import Board, Offsets
from gimbalmq.client.producer import Producer
from gimbalmq.errors import GimbalError, SendError
from gimbalmq.flows.group import list_members
from gimbalmq.flows.offset import max_offset, stored_offset
from gimbalmq.model.message import Message
from gimbalmq.model.queue import MessageQueue
from gimbalmq.runtime.inline import ConnectionPool, run_inline
from gimbalmq.testing.engines import Broker

__all__ = ["OrderStream", "Progress"]

_PROGRESS_INTERVAL_S: Final = 0.4
_LIST_LIMIT_S: Final = 5.0
#: Sends that fail one after the other before the producer gives up.
_FAILURES_MAX: Final = 5


#: The second customer orders half as often as the first, the third a third, and so on.
_CUSTOMERS: Final = tuple(f"customer-{number}" for number in range(1, 25))
_SHARES: Final = tuple(1 / place for place in range(1, len(_CUSTOMERS) + 1))
_SEED: Final = 7


class OrderStream:
    """Sends orders at a steady rate, each with a key of its own, until stopped or `count_max`.

    All orders of a customer go to one queue, and a few customers make most of them.
    """

    def __init__(
        self,
        board: Board,
        *,
        nameserver: str,
        topic: str,
        rate_per_s: float,
        count_max: int | None,
    ) -> None:
        self._board = board
        self._nameserver = nameserver
        self._topic = topic
        self.rate_per_s = rate_per_s
        self._count_max = count_max
        self._numbers = 0
        # The same orders in every demo.
        self._chance = random.Random(_SEED)  # noqa: S311 - no secret
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._failure: GimbalError | None = None

    def start(self) -> None:
        """Start to send."""
        self._ended.clear()
        self._thread = threading.Thread(target=self._run, name="producer", daemon=True)
        self._thread.start()

    def restart(self, rate_per_s: float) -> None:
        """Go on after a stop, at another rate and without an end."""
        self.rate_per_s, self._count_max = rate_per_s, None
        self.start()

    def stop(self) -> None:
        """Stop; returns when no send is under way. Harmless when it does not run."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def check(self) -> None:
        """The error that stopped it, if any."""
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            # No second try: a message that is stored twice would spoil the count.
            with Producer("shop", nameserver=self._nameserver, retries=0) as producer:
                self._send_all(producer)
        except GimbalError as error:
            self._failure = error

    def _send_all(self, producer: Producer) -> None:
        failures, due = 0, time.monotonic()
        while not self._ended.wait(max(0.0, due - time.monotonic())):
            if self._count_max is not None and self._numbers >= self._count_max:
                return
            # From now when behind: a pause of the machine is not made up for by a flood.
            due = max(due + 1 / self.rate_per_s, time.monotonic())
            self._numbers += 1
            try:
                self._send(producer, self._numbers)
            except SendError:
                self._board.unanswered()
                failures += 1
                if failures >= _FAILURES_MAX:
                    raise
            else:
                failures = 0

    def _send(self, producer: Producer, number: int) -> None:
        key = f"order-{number:06}"
        (customer,) = self._chance.choices(_CUSTOMERS, _SHARES)
        order = {"order": number, "customer": customer, "cents": 100 + number * 37 % 9900}
        message = Message(
            self._topic,
            msgspec.json.encode(order),
            keys=[key],
            tags="refunded" if number % 10 == 0 else "paid",
            sharding_key=customer,
        )
        result = producer.send(message)
        self._board.sent(key, result.queue)


class Progress:
    """Asks the brokers how far the group has come, and shows it on the board."""

    def __init__(
        self, board: Board, *, brokers: Sequence[Broker], queues: Iterable[MessageQueue], group: str
    ) -> None:
        self._board = board
        self._addresses = {broker.name: broker.address for broker in brokers}
        self._queues = tuple(queues)
        self._group = group
        self._pool = ConnectionPool()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)
        self._failure: GimbalError | None = None

    def start(self) -> None:
        """Look at it again and again."""
        self._thread.start()

    def stop(self) -> None:
        """Stop looking."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._pool.close()

    def check(self) -> None:
        """The error that stopped it, if any."""
        if self._failure is not None:
            raise self._failure

    def look(self) -> bool:
        """Bring the board up to date; False when a broker is too busy to answer."""
        try:
            self._board.reached(self._offsets())
        except GimbalError as error:
            if not error.retryable:
                raise
            return False
        return True

    def _offsets(self) -> dict[MessageQueue, Offsets]:
        found = {}
        for queue in self._queues:
            address = self._addresses[queue.broker]
            committed = run_inline(stored_offset(address, self._group, queue), self._pool)
            maximum = run_inline(max_offset(address, queue), self._pool)
            found[queue] = Offsets(committed or 0, maximum)
        return found

    def members(self) -> dict[str, tuple[str, ...]]:
        """The client ids that each broker lists for the group."""
        return {
            name: run_inline(
                list_members([(name, address)], self._group, _LIST_LIMIT_S), self._pool
            )
            for name, address in self._addresses.items()
        }

    def _run(self) -> None:
        while not self._ended.wait(_PROGRESS_INTERVAL_S):
            try:
                self.look()
            except GimbalError as error:
                self._failure = error
                return

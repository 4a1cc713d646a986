"""What is under way to one broker: a connection, and the segments of ranges that were asked for.

Also the words for a broker that cannot be read. When to ask, and what for, `range_puller` decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from gimbalmq.errors import BrokerError, GimbalError, TransportError
from gimbalmq.model.queue import MessageQueue
from gimbalmq.spark import connections
from gimbalmq.transport.blocking import BlockingConnection
from gimbalmq.transport.reach import Reach
from gimbalmq.wire.codes import ResponseCode
from gimbalmq.wire.command import Command

__all__ = ["Link", "Segment"]

_WORDS_FOR_CODES: Final = {
    int(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST): (
        "option 'group': brokers here do not create groups by themselves; name one that exists"
    ),
    int(ResponseCode.TOPIC_NOT_EXIST): "option 'topic': the topic was deleted meanwhile",
    int(ResponseCode.NO_PERMISSION): "reading is not permitted: check the topic's permission",
    int(ResponseCode.SUBSCRIPTION_PARSE_FAILED): "option 'tags' or 'sql' is not understood",
}


class Segment:
    """A small part of a range: asked for as a whole, answered in one piece or several.

    `offset` is the next to ask for; each answer has its body and the offsets it was asked for.
    """

    __slots__ = ("answers", "bytes", "messages", "offset", "parked", "queue", "until")

    def __init__(self, queue: MessageQueue, offset: int, until: int) -> None:
        self.queue = queue
        self.offset = offset
        self.until = until
        self.answers: list[tuple[bytes | memoryview, tuple[int, int]]] = []
        self.bytes = 0
        #: An upper bound: a filter leaves fewer.
        self.messages = 0
        #: Whether the rest is asked for only when everything before it is there.
        self.parked = False

    @property
    def complete(self) -> bool:
        """Whether nothing of it is missing."""
        return self.offset >= self.until


class Link:
    """The connection to one broker, and what is under way on it."""

    __slots__ = ("_reach", "address", "broker", "connection", "waiting")

    def __init__(self, broker: str, address: str, reach: Reach) -> None:
        self._reach = reach
        self.broker = broker
        self.address = address
        self.connection: BlockingConnection | None = None
        self.waiting: dict[int, Segment] = {}

    def ask(self, requests: Iterable[Command], segments: Sequence[Segment]) -> None:
        """Send a request for each of these segments, in one piece."""
        if self.connection is None:
            self.connection = connections.take(self.address, self._reach)
        self.waiting.update(zip(self.connection.send_all(requests), segments, strict=True))

    def drop(self) -> list[Segment]:
        """Close the connection; returns what was under way on it, in the order of asking."""
        if self.connection is not None:
            self.connection.close()
            self.connection = None
        lost, self.waiting = list(self.waiting.values()), {}
        return lost

    def release(self) -> None:
        """Leave the connection to the next task, or close it when answers are under way."""
        if self.connection is not None and not self.waiting:
            connections.give_back(self.connection)
            self.connection = None
        self.drop()

    def failed(
        self, queue: MessageQueue, error: GimbalError, words: str | None = None
    ) -> GimbalError:
        """The error of a broker that cannot be read, with its name and that of the queue."""
        text = f"cannot read {queue.path} from {self.broker} ({self.address}): "
        text += f"{words} ({error})" if words else str(error)
        if isinstance(error, BrokerError):
            return BrokerError(
                text, code=error.code or 0, address=self.address, remark=error.remark
            )
        return TransportError(text, address=self.address)

    def refused(self, queue: MessageQueue, error: BrokerError) -> GimbalError:
        """The error for a refusal that will not pass, in the words of the options."""
        return self.failed(queue, error, _WORDS_FOR_CODES.get(error.code or 0))

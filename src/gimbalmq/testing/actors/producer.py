"""A Java producer: every way of sending, and the broker's questions about transactions.

Decides how a message of ours is put to it. Must not know who consumes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from gimbalmq.model.message import Message
from gimbalmq.model.queue import MessageQueue
from gimbalmq.testing.actors.actor import CALL_LIMIT_S, Actor, Host
from gimbalmq.testing.link import Event

__all__ = ["JavaProducer", "JavaSent"]


class JavaSent(msgspec.Struct, frozen=True):
    """A send result; `status` is Java's name (`SEND_OK`, ...), or `FAILED` with `error` set."""

    status: str
    message_id: str | None = None
    offset_message_id: str | None = None
    queue: MessageQueue | None = None
    queue_offset: int = -1
    transaction_id: str | None = None
    outcome: str | None = None
    error: str | None = None


class JavaProducer(Actor):
    """A Java producer."""

    def __init__(self, peer: Host, name: str) -> None:
        super().__init__(peer, name)
        self._checked: list[tuple[str | None, str]] = []

    def on_event(self, event: Event) -> None:
        """Keep the broker's questions about transactions."""
        self._checked.append((event.keys, event.answer))

    def checked(self) -> list[tuple[str | None, str]]:
        """The broker's questions so far: keys of the half message, Java's name of our answer."""
        return list(self._checked)

    def send(
        self, *messages: Message, queue: MessageQueue | None = None, timeout_s: float = 60.0
    ) -> list[JavaSent]:
        """Send one after the other, each waiting for its answer; to `queue` when given."""
        return self._send("sync", messages, queue, timeout_s)

    def send_async(
        self, *messages: Message, queue: MessageQueue | None = None, timeout_s: float = 60.0
    ) -> list[JavaSent]:
        """Send many at once and wait for all answers; a failed one has status `FAILED`."""
        return self._send("async", messages, queue, timeout_s)

    def send_oneway(self, *messages: Message, queue: MessageQueue | None = None) -> None:
        """Send without an answer."""
        self._send("oneway", messages, queue, CALL_LIMIT_S)

    def send_batch(self, *messages: Message, queue: MessageQueue | None = None) -> JavaSent:
        """Send as one wire batch; Java's id of it is the ids of the messages, joined by commas."""
        (sent,) = self._send("batch", messages, queue, CALL_LIMIT_S)
        return sent

    def send_in_transaction(
        self,
        *messages: Message,
        outcome: Literal["COMMIT", "ROLLBACK", "UNKNOWN"] = "COMMIT",
        check_answer: Literal["COMMIT", "ROLLBACK", "UNKNOWN"] = "COMMIT",
    ) -> list[JavaSent]:
        """Send half messages and end each with `outcome`; a later check gets `check_answer`.

        Needs a producer opened with `transactional=True`.
        """
        extra = {"outcome": outcome, "check_answer": check_answer}
        listed = [_message_fields(message, None) | extra for message in messages]
        return self._ask("send", list[JavaSent], mode="transaction", messages=listed)

    def queues(self, topic: str) -> list[MessageQueue]:
        """The queues that it may send to."""
        return self._ask("queues", list[MessageQueue], topic=topic)

    def pump(
        self,
        topic: str,
        mode: Literal["sync", "pipelined", "batch"],
        *,
        count: int,
        size: int = 1024,
        width: int = 1,
        timeout_s: float = 600.0,
    ) -> float:
        """Send `count` messages of `size` bytes as fast as one thread can; returns the seconds.

        `width` is how many are in flight (`pipelined`) or in one wire batch (`batch`).
        """
        fields: dict[str, Any] = {"count": count, "size": size, "width": width}
        return self._ask("pump", float, timeout_s=timeout_s, topic=topic, mode=mode, **fields)

    def _send(
        self,
        mode: str,
        messages: Iterable[Message],
        queue: MessageQueue | None,
        timeout_s: float,
    ) -> list[JavaSent]:
        listed = [_message_fields(message, queue) for message in messages]
        fields: dict[str, Any] = {"mode": mode, "messages": listed, "queue": queue}
        return self._ask(
            "send",
            list[JavaSent],
            timeout_s=timeout_s,
            timeout_ms=int(timeout_s * 1000),
            **fields,
        )


def _message_fields(message: Message, queue: MessageQueue | None) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "topic": message.topic,
        "body": message.body,
        "tags": message.tags,
        "keys": list(message.keys) or None,
        "properties": message.properties,
        "delay_level": message.delay_level,
        "sharding_key": message.sharding_key,
        "queue": queue,
    }
    if message.deliver_at is not None:
        fields["deliver_at_ms"] = int(message.deliver_at.timestamp() * 1000)
    return fields

"""RocketMQ's own administration client: what an independent tool sees of a cluster and its groups.

Decides how its answers look from Python. Must not know `mqadmin`, which is a process for each call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from gimbalmq.model.queue import MessageQueue
from gimbalmq.testing.actors.actor import CALL_LIMIT_S, Actor

__all__ = ["JavaAdmin", "JavaAnswer", "JavaMember", "JavaRoute"]


class JavaRoute(msgspec.Struct, frozen=True):
    """How many queues of a topic a broker has."""

    broker: str
    address: str
    read_queues: int
    write_queues: int
    permission: int


class JavaMember(msgspec.Struct, frozen=True):
    """A connection of a consumer group."""

    client_id: str
    address: str
    language: str
    version: int


class JavaAnswer(msgspec.Struct, frozen=True):
    """The answer to a raw call."""

    code: int
    remark: str | None
    fields: dict[str, str]
    body: bytes | None


class _Offsets(msgspec.Struct, frozen=True):
    queue: MessageQueue
    minimum: int = 0
    maximum: int = 0
    committed: int = -1


class JavaAdmin(Actor):
    """RocketMQ's administration client; a call takes milliseconds once it is open."""

    def create_topic(
        self, topic: str, *, queues: int = 8, brokers: Iterable[str] | None = None, **options: Any
    ) -> None:
        """Make or change a topic; options: `read_queues`, `write_queues`, `permission`, `order`."""
        chosen = None if brokers is None else list(brokers)
        self._tell("create_topic", topic=topic, queues=queues, brokers=chosen, **options)

    def delete_topic(self, topic: str) -> None:
        """Remove a topic from every broker and from the name server."""
        self._tell("delete_topic", topic=topic)

    def topics(self) -> list[str]:
        """Every topic, also RocketMQ's own."""
        return self._ask("topics", list[str])

    def brokers(self) -> dict[str, str]:
        """Address of each broker by name."""
        return self._ask("brokers", dict[str, str])

    def route(self, topic: str) -> list[JavaRoute]:
        """Where a topic lives."""
        return self._ask("route", list[JavaRoute], topic=topic)

    def topic_offsets(self, topic: str) -> dict[MessageQueue, tuple[int, int]]:
        """Minimum and maximum offset of each queue."""
        listed = self._ask("topic_offsets", list[_Offsets], topic=topic)
        return {one.queue: (one.minimum, one.maximum) for one in listed}

    def committed(self, group: str, topic: str) -> dict[MessageQueue, int]:
        """Committed offset of each queue; BrokerError while the group is unknown."""
        listed = self._ask("group_offsets", list[_Offsets], group=group, topic=topic)
        return {one.queue: one.committed for one in listed}

    def members(self, group: str) -> list[JavaMember]:
        """The connections of a group; BrokerError when nobody is there."""
        return self._ask("members", list[JavaMember], group=group)

    def owned(self, group: str, client_id: str) -> frozenset[MessageQueue]:
        """What a member, Java or not, says it holds when the broker asks it."""
        return self._ask("owned", frozenset[MessageQueue], group=group, client_id=client_id)

    def reset(self, group: str, topic: str, *, timestamp_ms: int) -> dict[MessageQueue, int]:
        """Move a group to the messages stored from a time on; -1 means the end."""
        fields: Mapping[str, Any] = {"timestamp_ms": timestamp_ms, "force": True}
        listed = self._ask("reset", list[_Offsets], group=group, topic=topic, **fields)
        return {one.queue: one.committed for one in listed}

    def commit(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Write an offset for a group."""
        self._tell("commit", group=group, queue=queue, offset=offset)

    def call(
        self,
        address: str,
        code: int,
        fields: Mapping[str, str] | None = None,
        *,
        body: bytes | None = None,
        timeout_s: float = 5.0,
    ) -> JavaAnswer:
        """Send any request as Java's remoting layer would, and return the answer."""
        return self._ask(
            "call",
            JavaAnswer,
            timeout_s=timeout_s + CALL_LIMIT_S,
            timeout_ms=int(timeout_s * 1000),
            address=address,
            code=code,
            fields=dict(fields or {}),
            body=body,
        )

"""What a Java peer hosts, as Python objects: producer, consumers, administrator.

Made by the methods of `JavaPeer`; each call here is one request to the process.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Literal, Protocol, Self, TypeVar

import msgspec

from gimbalmq.errors import EngineError
from gimbalmq.model.message import Message
from gimbalmq.model.queue import MessageQueue
from gimbalmq.testing.link import Event

__all__ = [
    "Actor",
    "Allocation",
    "JavaAdmin",
    "JavaAnswer",
    "JavaLitePull",
    "JavaMember",
    "JavaProducer",
    "JavaPushConsumer",
    "JavaReceived",
    "JavaRoute",
    "JavaSent",
]

#: Wire names of the strategies that Java ships; `MACHINE_ROOM_NEARBY-` wraps one of the others.
Allocation = str

T = TypeVar("T")

_CALL_LIMIT_S = 60.0


class JavaReceived(msgspec.Struct, frozen=True):
    """A message as a Java consumer got it.

    `queue` is a retry queue when it was redelivered, `topic` always the topic it was sent to.
    With `report="brief"` the fields after `reconsume_times` are empty.
    """

    queue: MessageQueue
    topic: str
    queue_offset: int
    message_id: str
    keys: str | None
    reconsume_times: int
    body: bytes = b""
    tags: str | None = None
    properties: dict[str, str] = msgspec.field(default_factory=dict)
    born_at_ms: int = 0
    stored_at_ms: int = 0


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


class _First(msgspec.Struct, frozen=True):
    queue: MessageQueue
    at_ms: int


class _Lapse(msgspec.Struct, frozen=True):
    seconds: float | None


class Host(Protocol):
    """The process that an actor lives in."""

    def request(self, op: str, actor: str, *, timeout_s: float, **fields: Any) -> msgspec.Raw: ...

    def kill(self) -> None: ...


class Actor:
    """Base of what a peer hosts; a context manager that closes it."""

    def __init__(self, peer: Host, name: str) -> None:
        #: The process; kill or pause it to see what the others do.
        self.peer = peer
        #: The client id on the wire.
        self.client_id = ""
        self._name = name

    def stop(self, *, timeout_s: float = _CALL_LIMIT_S) -> None:
        """Shut this client down cleanly; the process goes on."""
        self.peer.request("close", self._name, timeout_s=timeout_s)

    def kill(self) -> None:
        """Kill the process that it lives in (SIGKILL), with all else that lives there."""
        self.peer.kill()

    def on_event(self, event: Event) -> None:
        """Called with each report of its Java side."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _ask(
        self, op: str, answer: type[T], *, timeout_s: float = _CALL_LIMIT_S, **fields: Any
    ) -> T:
        raw = self.peer.request(op, self._name, timeout_s=timeout_s, **fields)
        return msgspec.json.decode(raw, type=answer)

    def _tell(self, op: str, **fields: Any) -> None:
        self.peer.request(op, self._name, timeout_s=_CALL_LIMIT_S, **fields)


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
        self._send("oneway", messages, queue, _CALL_LIMIT_S)

    def send_batch(self, *messages: Message, queue: MessageQueue | None = None) -> JavaSent:
        """Send as one wire batch; Java's id of it is the ids of the messages, joined by commas."""
        (sent,) = self._send("batch", messages, queue, _CALL_LIMIT_S)
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


class JavaPushConsumer(Actor):
    """A Java push consumer; keeps what it was given."""

    def __init__(self, peer: Host, name: str) -> None:
        super().__init__(peer, name)
        self._changed = threading.Condition()
        self._received: list[JavaReceived] = []
        self._refused: list[JavaReceived] = []
        self._decode = msgspec.json.Decoder(list[JavaReceived]).decode

    def on_event(self, event: Event) -> None:
        """Keep the reported messages."""
        messages = self._decode(event.messages)
        with self._changed:
            (self._received if event.accepted else self._refused).extend(messages)
            self._changed.notify_all()

    def received(self) -> list[JavaReceived]:
        """The messages that its listener accepted so far, in the order of the calls."""
        with self._changed:
            return list(self._received)

    def refused(self) -> list[JavaReceived]:
        """The messages that its listener refused so far (`fail_times`)."""
        with self._changed:
            return list(self._refused)

    def wait_received(self, count: int, *, timeout_s: float = 90.0) -> list[JavaReceived]:
        """Wait until at least `count` messages were accepted, and return all.

        The default is patient: once in a while a Java consumer needs half a minute for its first.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._received) >= count, timeout_s):
                raise EngineError(
                    f"Java consumer {self.client_id} got {len(self._received)} of {count} messages "
                    f"within {timeout_s:g} s"
                )
            return list(self._received)

    def owned(self) -> frozenset[MessageQueue]:
        """The queues that it holds now, its retry queue included."""
        return self._ask("owned", frozenset[MessageQueue])

    def wait_owned(
        self,
        wanted: Callable[[frozenset[MessageQueue]], bool],
        *,
        timeout_s: float = 60.0,
    ) -> frozenset[MessageQueue]:
        """Wait until what it holds satisfies `wanted`, and return it."""
        deadline = time.monotonic() + timeout_s
        while True:
            owned = self.owned()
            if wanted(owned):
                return owned
            if time.monotonic() > deadline:
                paths = sorted(queue.path for queue in owned)
                raise EngineError(
                    f"Java consumer {self.client_id} does not hold the wanted queues after "
                    f"{timeout_s:g} s, but {paths}"
                )
            time.sleep(0.05)

    def count(self) -> int:
        """How many messages its listener was given, refused ones included."""
        return self._ask("count", int)

    def expect(self, messages: int) -> None:
        """Take the time of the next `messages`, for `lapse`."""
        self._tell("expect", messages=messages)

    def lapse(self) -> float | None:
        """Seconds from the first listener call to the end of the last expected one, once over."""
        return self._ask("lapse", _Lapse).seconds

    def mark(self) -> None:
        """Forget the times of `first_deliveries`."""
        self._tell("mark")

    def first_deliveries(self) -> dict[MessageQueue, int]:
        """When each queue delivered its first message here since the mark (wall time in ms)."""
        return {one.queue: one.at_ms for one in self._ask("firsts", list[_First])}

    def behave(self, *, fail_times: int | None = None, sleep_ms: int | None = None) -> None:
        """Change how its listener behaves from now on."""
        self._tell("behave", fail_times=fail_times, sleep_ms=sleep_ms)

    def subscribe(self, topic: str, *, tags: str = "*", sql: str | None = None) -> None:
        """Add a topic, or change its filter."""
        self._tell("subscribe", topic=topic, tags=tags, sql=sql)

    def unsubscribe(self, topic: str) -> None:
        """Drop a topic."""
        self._tell("unsubscribe", topic=topic)

    def suspend(self) -> None:
        """Stop pulling."""
        self._tell("suspend")

    def resume(self) -> None:
        """Pull again."""
        self._tell("resume")

    def persist(self) -> None:
        """Commit its offsets now instead of at the next interval."""
        self._tell("persist")


class JavaLitePull(Actor):
    """A Java lite pull consumer."""

    def poll(self, timeout_s: float = 1.0) -> list[JavaReceived]:
        """The next messages, an empty list when none came in time."""
        return self._ask(
            "poll",
            list[JavaReceived],
            timeout_s=timeout_s + _CALL_LIMIT_S,
            timeout_ms=int(timeout_s * 1000),
        )

    def owned(self) -> frozenset[MessageQueue]:
        """The queues that it reads now."""
        return self._ask("owned", frozenset[MessageQueue])

    def queues(self, topic: str) -> frozenset[MessageQueue]:
        """All queues of the topic."""
        return self._ask("queues", frozenset[MessageQueue], topic=topic)

    def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Read exactly these queues."""
        self._tell("assign", queues=list(queues))

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on reading `queue` at `offset`."""
        self._tell("seek", queue=queue, offset=offset)

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Stop reading these queues for now."""
        self._tell("pause", queues=list(queues))

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Read them again."""
        self._tell("resume", queues=list(queues))

    def commit(self) -> None:
        """Commit what was polled."""
        self._tell("commit")

    def committed(self, queue: MessageQueue) -> int:
        """The committed offset of `queue`, -1 when there is none."""
        return self._ask("committed", int, queue=queue)


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
            timeout_s=timeout_s + _CALL_LIMIT_S,
            timeout_ms=int(timeout_s * 1000),
            address=address,
            code=code,
            fields=dict(fields or {}),
            body=body,
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

"""Java consumers, push and lite pull: what they hold, and what they were given.

Decides how a delivered message looks from Python and how to wait for it. Must not know who sent it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

import msgspec

from gimbalmq.errors import EngineError
from gimbalmq.model.queue import MessageQueue
from gimbalmq.testing.actors.actor import CALL_LIMIT_S, Actor, Host
from gimbalmq.testing.link import Event

__all__ = ["JavaLitePull", "JavaPushConsumer", "JavaReceived"]


class JavaReceived(msgspec.Struct, frozen=True):
    """A message as a Java consumer got it.

    `queue` is a retry queue when it was redelivered, `topic` always the topic it was sent to.
    With `report="brief"` or `"timed"` the fields after `reconsume_times` are empty.
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


class _First(msgspec.Struct, frozen=True):
    queue: MessageQueue
    at_ms: int


class _Lapse(msgspec.Struct, frozen=True):
    seconds: float | None


class JavaPushConsumer(Actor):
    """A Java push consumer; keeps what it was given."""

    def __init__(self, peer: Host, name: str) -> None:
        super().__init__(peer, name)
        self._changed = threading.Condition()
        self._received: list[JavaReceived] = []
        self._refused: list[JavaReceived] = []
        self._times: list[tuple[int, bool, JavaReceived]] = []
        self._decode = msgspec.json.Decoder(list[JavaReceived]).decode

    def on_event(self, event: Event) -> None:
        """Keep the reported messages."""
        messages = self._decode(event.messages)
        ended = event.event == "ended"
        with self._changed:
            self._times += [(event.at_ms, ended, message) for message in messages]
            if not ended:
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

    def times(self) -> list[tuple[int, bool, JavaReceived]]:
        """When (wall time in ms) its listener got each message and, if True, was done with it.

        The ends are reported with `report="timed"`.
        """
        with self._changed:
            return list(self._times)

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
            timeout_s=timeout_s + CALL_LIMIT_S,
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

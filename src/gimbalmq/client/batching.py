"""Automatic batching: single sends that gather for a moment and leave as one wire batch.

Off unless asked for, as in Java. What goes together has one topic, one wanted queue, one tag and
one time limit. A batch leaves when it is large enough, when its first message has waited long
enough, or on `flush`. What a batch cannot carry, and what no longer fits the total, is sent by
itself.
"""

from __future__ import annotations

import functools
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import msgspec

from gimbalmq.client.futures import Underway
from gimbalmq.client.shared import InstanceHolder
from gimbalmq.errors import ConfigurationError, GimbalError, StateError
from gimbalmq.flows.batch import entry_bytes
from gimbalmq.model.message import Message, SendResult
from gimbalmq.model.queue import MessageQueue
from gimbalmq.wire.batch import BatchEntry
from gimbalmq.wire.names import RETRY_PREFIX

__all__ = ["Accumulator", "BatchKey", "Batching", "Gathered", "SendGathered", "Waiting"]


class Batching(msgspec.Struct, frozen=True, kw_only=True):
    """How single sends gather into batches, with the defaults of Java's accumulator.

    Args:
        hold_s: How long the first message of a batch waits for others.
        hold_bytes: A batch of this size leaves at once.
        total_bytes: What may gather in all; messages beyond it are sent by themselves.
    """

    hold_s: float = 0.010
    hold_bytes: int = 32 << 10
    total_bytes: int = 32 << 20

    def __post_init__(self) -> None:
        if not (0 < self.hold_s <= 30 and 0 < self.hold_bytes <= self.total_bytes):
            raise ConfigurationError(
                f"{self}: hold_s must be above 0 and at most 30, hold_bytes above 0 and at most "
                "total_bytes"
            )


#: Topic, wanted queue, tag, time limit in seconds.
BatchKey: TypeAlias = tuple[str, MessageQueue | None, str | None, float]


class Waiting(Protocol):
    """The future of one message, of whichever kind."""

    def done(self) -> bool:
        """Whether it has ended: nobody waits for a cancelled one."""

    def set_result(self, result: Any, /) -> None:
        """The message is stored."""

    def set_exception(self, exception: Any, /) -> None:
        """The message was not stored."""


_FutureT = TypeVar("_FutureT", bound=Waiting)


class Gathered(msgspec.Struct):
    """Messages that will leave together."""

    key: BatchKey
    #: Of each message its id, what is sent of it, and its future.
    parts: list[tuple[str, BatchEntry, Any]] = []
    size: int = 0
    #: Whether it will leave by itself when its time has come.
    timed: bool = False

    @property
    def message_ids(self) -> list[str]:
        """The ids of the messages."""
        return [message_id for message_id, _, _ in self.parts]

    @property
    def entries(self) -> list[BatchEntry]:
        """What is sent of the messages."""
        return [entry for _, entry, _ in self.parts]

    @property
    def futures(self) -> list[Any]:
        """The futures of the messages."""
        return [future for _, _, future in self.parts]


#: Sends what has gathered, without waiting.
SendGathered: TypeAlias = Callable[[Gathered], Underway]


class Accumulator(Generic[_FutureT]):
    """What is gathering in one running producer; `future` makes the future of one message."""

    def __init__(
        self,
        shared: InstanceHolder,
        batching: Batching,
        send: SendGathered,
        *,
        future: Callable[[], _FutureT],
        body_bytes_until: int,
    ) -> None:
        self._shared = shared
        self._batching = batching
        self._body_bytes_until = min(body_bytes_until, batching.hold_bytes)
        self._send = send
        self._future = future
        self._lock = threading.Lock()
        self._gathering: dict[BatchKey, Gathered] = {}
        self._full: deque[Gathered] = deque()
        self._held_bytes = 0
        self._closed = False

    def takes(self, message: Message) -> bool:
        """Whether a message may gather with others, and there is room for it."""
        return (
            0 < len(message.body) < self._body_bytes_until
            and message.delay_level is None
            and message.deliver_at is None
            and not message.topic.startswith(RETRY_PREFIX)
            and self._held_bytes + len(message.body) <= self._batching.total_bytes
        )

    def add(self, key: BatchKey, message_id: str, entry: BatchEntry) -> _FutureT:
        """Let a message gather; the future has its own result.

        Raises:
            StateError: nothing gathers any more.
        """
        future = self._future()
        size, part = entry_bytes(entry), (message_id, entry, future)
        with self._lock:
            if self._closed:
                raise StateError("this producer is stopped: make a new one")
            gathered = self._gathering.get(key)
            if gathered is None:
                gathered = self._gathering[key] = Gathered(key)
            # One step: a caller that is interrupted has added all of it, or nothing.
            gathered.size += size
            self._held_bytes += size
            gathered.parts.append(part)
            if gathered.size >= self._batching.hold_bytes:
                # One step, too.
                del self._gathering[key]
                self._full.append(gathered)
        if self._full:
            self._shared.post(self._let_full_leave)
        elif not gathered.timed:
            self._shared.post(lambda: self._time(gathered))
        return future

    # ---- the driver's side, which nobody interrupts ------------------------------------------

    def flush(self) -> None:
        """Send everything that has gathered."""
        self._let_full_leave()
        for gathered in list(self._gathering.values()):
            self._let_leave(gathered)

    def close(self) -> None:
        """Let nothing gather any more, and say so to whoever came too late to leave."""
        with self._lock:
            self._closed = True
            left = [*self._full, *self._gathering.values()]
            self._full.clear()
            self._gathering.clear()
        for gathered in left:
            _fail(gathered, StateError("the producer was stopped before the message was sent"))

    def _let_full_leave(self) -> None:
        while self._full:
            self._leave(self._full.popleft())

    def _time(self, gathered: Gathered) -> None:
        if not gathered.timed:
            gathered.timed = True
            delay_s = self._batching.hold_s
            self._shared.instance.driver.call_later(delay_s, lambda: self._let_leave(gathered))

    def _let_leave(self, gathered: Gathered) -> None:
        with self._lock:
            # By identity: what has left by another way is not touched.
            if self._gathering.get(gathered.key) is not gathered:
                return
            del self._gathering[gathered.key]
        self._leave(gathered)

    def _leave(self, gathered: Gathered) -> None:
        with self._lock:
            self._held_bytes -= gathered.size
        try:
            whole = self._send(gathered)
        except GimbalError as error:
            _fail(gathered, error)
        else:
            whole.add_done_callback(functools.partial(_hand_out, gathered))


def _hand_out(gathered: Gathered, whole: Any) -> None:
    if whole.cancelled():
        _fail(gathered, StateError("the producer was stopped before the batch was stored"))
        return
    error = whole.exception()
    if error is not None:
        _fail(gathered, error)
        return
    shares = _shares(whole.result(), gathered.message_ids)
    for future, result in zip(gathered.futures, shares, strict=True):
        if not future.done():
            future.set_result(result)


def _fail(gathered: Gathered, error: BaseException) -> None:
    for future in gathered.futures:
        if not future.done():
            future.set_exception(error)


def _shares(whole: SendResult, message_ids: Sequence[str]) -> list[SendResult]:
    """The result of each message of a batch: they are stored one after the other."""
    offset_ids = whole.offset_message_id.split(",")
    if len(offset_ids) != len(message_ids):
        # A topic of type batch stores one record for all.
        offset_ids = [offset_ids[0]] * len(message_ids)
    return [
        SendResult(whole.status, message_id, offset_id, whole.queue, whole.queue_offset + index)
        for index, (message_id, offset_id) in enumerate(zip(message_ids, offset_ids, strict=True))
    ]

"""The face of the storage: what a broker may ask of it, and what it gets back.

Decides the vocabulary (a message to store, where it went, what a read found) and the promises of
every method. Must not know how anything is kept: `file_store` does, and a simulator may bring
another one.

One owner calls a store, from one thread; only `Flush.wait` may run elsewhere. Times come in as
arguments, so that the same code runs under a virtual clock.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from gimbalmq.errors import EngineError

__all__ = [
    "Appended",
    "Boundary",
    "Flush",
    "FlushPolicy",
    "ReadResult",
    "ReadStatus",
    "Store",
    "StoreError",
    "StoredMessage",
    "Wanted",
]

#: Whether a message is wanted: by the hash of its tag, and by its record, which is read only when
#: the second argument is called.
Wanted = Callable[[int, Callable[[], bytes]], bool]


class StoreError(EngineError):
    """The disk refused, or what lies on it cannot be used; `path` names the file or directory.

    A full disk or a missing permission is retryable: reads go on, and the next append succeeds
    when the cause is gone.
    """

    def __init__(self, message: str, *, path: str = "", retryable: bool = False) -> None:
        super().__init__(message, retryable=retryable)
        self.path = path


class FlushPolicy(enum.Enum):
    """When appended messages reach the disk for good.

    A killed process loses nothing under any of them: what `append` returned is with the operating
    system. They differ in what a power cut may take.
    """

    #: Before the sender hears of it.
    EACH = "each"
    #: After at most `flush_interval_ms`.
    INTERVAL = "interval"
    #: When the operating system pleases.
    NONE = "none"


class StoredMessage(msgspec.Struct, frozen=True, gc=False):
    """A message as a sender gave it; `body` and `properties` are stored byte for byte."""

    topic: str
    queue_id: int
    body: bytes
    flag: int = 0
    sys_flag: int = 0
    born_timestamp_ms: int = 0
    born_host: tuple[str, int] = ("127.0.0.1", 0)
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    #: The properties string in UTF-8.
    properties: bytes = b""


class Appended(msgspec.Struct, frozen=True, gc=False):
    """Where a message went; `size` is that of its record."""

    queue_offset: int
    physical_offset: int
    store_timestamp_ms: int
    size: int


class ReadStatus(enum.Enum):
    """What a read found; the names are those that RocketMQ puts into a pull answer's remark."""

    FOUND = enum.auto()
    #: Messages were looked at, and the filter wanted none.
    NO_MATCHED_MESSAGE = enum.auto()
    #: The queue never held a message.
    NO_MESSAGE_IN_QUEUE = enum.auto()
    #: The offset is the next one to be written.
    OFFSET_OVERFLOW_ONE = enum.auto()
    OFFSET_OVERFLOW_BADLY = enum.auto()
    #: The offset has fallen to retention.
    OFFSET_TOO_SMALL = enum.auto()


class Boundary(enum.Enum):
    """Which of the messages around a moment is meant."""

    #: The first stored at or after it.
    LOWER = "LOWER"
    #: The last stored at or before it.
    UPPER = "UPPER"


class ReadResult(msgspec.Struct, frozen=True, gc=False):
    """Records as they lie in the log, `size` bytes in all, and where to read on.

    The views stay valid for as long as they are held, also when retention removes their file.
    """

    records: list[memoryview]
    next_offset: int
    minimum: int
    maximum: int
    status: ReadStatus
    size: int = 0


class Flush(Protocol):
    """A flush under way: `begin_flush`, then `wait` in any thread, then `end_flush`."""

    def wait(self) -> None:
        """Wait for the disk; never raises, `end_flush` does."""


class Store(Protocol):
    """Messages in queues, in the order in which they came."""

    @property
    def flush_wanted(self) -> bool:
        """Whether `flush` must be called before the last appends are acknowledged.

        True only under `FlushPolicy.EACH` with `group_commit`, where several appends share one
        wait for the disk.
        """

    def append(self, messages: Sequence[StoredMessage], now_ms: int) -> list[Appended]:
        """Store messages as one batch: all of them, in this order, or none, also after a crash.

        Raises:
            StoreError: the disk refused; nothing was stored. Under `EACH` without `group_commit`
                also when only the wait for the disk failed: then they are stored, unsafely.
            ConfigurationError: a message can never be stored (topic, size, properties).
        """

    def read(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        max_messages: int,
        max_bytes: int,
        wanted: Wanted | None = None,
        scan_max: int = 16_384,
    ) -> ReadResult:
        """Up to `max_messages` records from `offset` on that are wanted, of `max_bytes` at most.

        The first record comes whatever its size. At most `scan_max` messages are looked at;
        `next_offset` says where to go on. Out of range it is the nearest offset that exists.
        """

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """First offset held and next offset to be written; (0, 0) for an unknown queue."""

    def offset_at(
        self, topic: str, queue_id: int, timestamp_ms: int, boundary: Boundary = Boundary.LOWER
    ) -> int:
        """The offset at a moment of storing.

        LOWER: the first message at or after it, the next offset if all are older. UPPER: the last
        message at or before it, 0 if all are newer. 0 for an empty or unknown queue.
        """

    def earliest_time(self, topic: str, queue_id: int) -> int:
        """When the first message held was stored; -1 if there is none."""

    def record_at(self, physical_offset: int) -> memoryview | None:
        """The record that starts at this place of the log; None if none does."""

    def find(
        self, topic: str, key: str, begin_ms: int, end_ms: int, limit: int
    ) -> list[memoryview]:
        """Records with this unique id or with this word among their keys, newest first.

        Both ends of the time range count.
        """

    def delete_topic(self, topic: str) -> None:
        """Forget a topic's queues, for good; a topic of the same name starts again at 0."""

    def queues(self, topic: str) -> list[int]:
        """Numbers of the topic's queues that ever held a message, in order."""

    def topics(self) -> list[str]:
        """Names of the topics that ever held a message, in order."""

    def log_bounds(self) -> tuple[int, int]:
        """First place of the log that is held, and its end."""

    def flush(self) -> None:
        """Wait until everything appended is on disk.

        Raises:
            StoreError: it is not; the messages are readable, and the next flush tries again.
        """

    def begin_flush(self) -> Flush:
        """The first third of `flush`, for owners that must not wait; one at a time."""

    def end_flush(self, flush: Flush) -> None:
        """The last third: notes what has become safe, or raises as `flush` does."""

    def tick(self, now_ms: int) -> None:
        """Do what is due: interval flush, retention, checkpoints. Call about every 100 ms.

        Never raises for the disk: what failed is tried again, and logged.
        """

    def close(self) -> None:
        """Flush, leave everything so that the next start has nothing to recover, let go."""

"""Texts of the pop family (5.x): receipt handles, offset lists, recall handles.

A popped message is acknowledged by a handle that the client puts together from the answer's
header and the record. Topics are told apart by a digit: 0 the topic itself, 1 and 2 the two forms
of its retry topic.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Sequence

import msgspec

from gimbalmq.errors import ConfigurationError, ProtocolError
from gimbalmq.wire.names import RETRY_PREFIX

__all__ = [
    "PopHandle",
    "RecallHandle",
    "format_counts",
    "format_offsets",
    "format_starts",
    "parse_counts",
    "parse_offsets",
    "parse_starts",
    "retry_digit",
]


def retry_digit(topic: str) -> str:
    """The digit by which offset lists name a kind of topic.

    >>> retry_digit("orders"), retry_digit("%RETRY%g_orders"), retry_digit("%RETRY%g+orders")
    ('0', '1', '2')
    """
    if not topic.startswith(RETRY_PREFIX):
        return "0"
    return "2" if "+" in topic else "1"


class PopHandle(msgspec.Struct, frozen=True):
    """What acknowledges one popped message (property POP_CK)."""

    start_offset: int
    pop_time: int
    invisible_time: int
    revive_queue_id: int
    #: See `retry_digit`.
    retry: str
    broker: str
    queue_id: int
    queue_offset: int

    def __str__(self) -> str:
        return (
            f"{self.start_offset} {self.pop_time} {self.invisible_time} {self.revive_queue_id} "
            f"{self.retry} {self.broker} {self.queue_id} {self.queue_offset}"
        )

    @classmethod
    def parse(cls, text: str) -> PopHandle:
        """Read a handle.

        >>> PopHandle.parse("5 1700000000000 60000 3 0 broker-a 1 7").queue_offset
        7
        """
        parts = text.split(" ")
        try:
            start, popped, invisible, revive, retry, broker, queue_id, offset = parts
            return cls(
                int(start),
                int(popped),
                int(invisible),
                int(revive),
                retry,
                broker,
                int(queue_id),
                int(offset),
            )
        except ValueError as error:
            raise ProtocolError(f"'{text}' is no pop handle: it has eight parts") from error


def format_starts(entries: Iterable[tuple[str, int, int]]) -> str:
    """`startOffsetInfo`: digit, queue id and first offset of each queue.

    >>> format_starts([("0", 1, 13), ("1", 0, 5)])
    '0 1 13;1 0 5'
    """
    return ";".join(f"{retry} {queue_id} {offset}" for retry, queue_id, offset in entries)


def parse_starts(text: str) -> dict[tuple[str, int], int]:
    """Read `startOffsetInfo`: (digit, queue id) to first offset."""
    return {
        (retry, _integer(queue_id, text)): _integer(offset, text)
        for retry, queue_id, offset in _entries(text)
    }


def format_offsets(entries: Iterable[tuple[str, int, Sequence[int]]]) -> str:
    """`msgOffsetInfo`: the offsets of each queue in the order of the records."""
    return ";".join(
        f"{retry} {queue_id} {','.join(map(str, offsets))}" for retry, queue_id, offsets in entries
    )


def parse_offsets(text: str) -> dict[tuple[str, int], list[int]]:
    """Read `msgOffsetInfo`: (digit, queue id) to offsets.

    >>> parse_offsets("0 1 13,15")
    {('0', 1): [13, 15]}
    """
    return {
        (retry, _integer(queue_id, text)): [_integer(one, text) for one in offsets.split(",")]
        for retry, queue_id, offsets in _entries(text)
    }


def format_counts(entries: Iterable[tuple[str, int, int | None, int]]) -> str:
    """`orderCountInfo`: digit, queue id, queue offset (None = the whole queue) and count."""
    return ";".join(
        f"{retry} {queue_id if offset is None else f'qo{queue_id}%{offset}'} {count}"
        for retry, queue_id, offset, count in entries
    )


def parse_counts(text: str) -> dict[tuple[str, int, int | None], int]:
    """Read `orderCountInfo`: how often a queue, or a message in it, was delivered before.

    >>> parse_counts("0 1 3;0 qo1%13 2")
    {('0', 1, None): 3, ('0', 1, 13): 2}
    """
    counts: dict[tuple[str, int, int | None], int] = {}
    for retry, place, count in _entries(text):
        queue_id, separator, offset = place.removeprefix("qo").partition("%")
        counts[retry, _integer(queue_id, text), _integer(offset, text) if separator else None] = (
            _integer(count, text)
        )
    return counts


def _entries(text: str) -> list[list[str]]:
    entries = [entry.split(" ") for entry in text.split(";") if entry]
    if any(len(entry) != 3 for entry in entries):
        raise ProtocolError(f"'{text}' is no offset list of a pop: each entry has three parts")
    return entries


def _integer(number: str, text: str) -> int:
    try:
        return int(number)
    except ValueError:
        raise ProtocolError(f"'{text}' is no offset list of a pop: '{number}'") from None


class RecallHandle(msgspec.Struct, frozen=True):
    """What takes back a message that is not delivered yet (5.3.2+)."""

    topic: str
    broker: str
    timestamp: str
    message_id: str

    def __str__(self) -> str:
        text = f"v1 {self.topic} {self.broker} {self.timestamp} {self.message_id}"
        return base64.urlsafe_b64encode(text.encode()).decode()

    @classmethod
    def parse(cls, text: str) -> RecallHandle:
        """Read a handle."""
        try:
            version, *parts = base64.urlsafe_b64decode(text).decode().split(" ")
        except (binascii.Error, ValueError) as error:
            raise ConfigurationError(f"'{text}' is no recall handle: no base64") from error
        if version != "v1" or len(parts) != 4:
            raise ConfigurationError(f"'{text}' is no recall handle of version 1")
        return cls(*parts)

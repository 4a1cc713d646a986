"""Where to start, where a queue begins and ends, and how far a group has come.

Offsets are the next offset to read. A failure is never taken for an offset: it is raised.
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from gimbalmq.flows.effects import Flow, broker_error, call, checked_call
from gimbalmq.model.queue import MessageQueue
from gimbalmq.wire.codes import ResponseCode
from gimbalmq.wire.command import Command
from gimbalmq.wire.headers import (
    max_offset_request,
    min_offset_request,
    parse_offset,
    query_offset_request,
    search_offset_request,
    update_offset_request,
)
from gimbalmq.wire.names import RETRY_PREFIX

__all__ = [
    "OFFSET_TIMEOUT_S",
    "StartFrom",
    "StartPolicy",
    "hand_over",
    "max_offset",
    "min_offset",
    "offset_at",
    "start_offset",
    "starting_offset",
    "store_offset",
    "stored_offset",
]

#: Java's time-out for offset requests.
OFFSET_TIMEOUT_S = 5.0

#: How often a first offset is stored, if it is not there afterwards.
_FIRST_STORES_MAX: Final = 4


class StartPolicy(enum.Enum):
    """Where a group starts in a queue for which no offset is stored; values are Java's names."""

    LAST = "CONSUME_FROM_LAST_OFFSET"
    FIRST = "CONSUME_FROM_FIRST_OFFSET"
    TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class StartFrom(msgspec.Struct, frozen=True):
    """A start policy, with its time for `TIMESTAMP`."""

    policy: StartPolicy = StartPolicy.LAST
    timestamp_ms: int = 0


def stored_offset(
    address: str, group: str, queue: MessageQueue, timeout_s: float = OFFSET_TIMEOUT_S
) -> Flow[int | None]:
    """The group's offset as the broker has it; None when there is none.

    A 5.x or 4.9 broker answers 0 for a young queue that the group never read.
    """
    request = query_offset_request(group, queue)
    answer = yield from call(address, request, timeout_s)
    if answer.code == ResponseCode.QUERY_NOT_FOUND:
        return None
    if answer.code != ResponseCode.SUCCESS:
        raise broker_error(address, request, answer)
    offset = parse_offset(answer)
    # Brokers store whatever they are told; a negative one means none.
    return None if offset < 0 else offset


def store_offset(
    address: str,
    group: str,
    queue: MessageQueue,
    offset: int,
    timeout_s: float = OFFSET_TIMEOUT_S,
) -> Flow[None]:
    """Store the group's offset and wait until the broker has it."""
    yield from checked_call(address, update_offset_request(group, queue, offset), timeout_s)


def hand_over(
    address: str,
    group: str,
    queue: MessageQueue,
    offset: int,
    *,
    force: bool = False,
    timeout_s: float = OFFSET_TIMEOUT_S,
) -> Flow[None]:
    """Store the last offset of a queue that is given up, without moving it back.

    Brokers overwrite blindly, and the next owner may already be further on, so the stored offset
    is looked at first; `force` is for a reset that means to move it.

    A broker makes a group's table of a topic with the first offset that it is told. Of two that
    come at the same time both make one, and the offset in the table that is replaced is lost,
    although it was acknowledged. So a first offset is looked at again, and stored again.
    """
    if force:
        yield from store_offset(address, group, queue, offset, timeout_s)
        return
    for _ in range(_FIRST_STORES_MAX):
        stored = yield from stored_offset(address, group, queue, timeout_s)
        if stored is not None and stored >= offset:
            return
        yield from store_offset(address, group, queue, offset, timeout_s)
        if stored:  # 0 is also what brokers say without a table
            return


def max_offset(address: str, queue: MessageQueue, timeout_s: float = OFFSET_TIMEOUT_S) -> Flow[int]:
    """One past the last message of the queue."""
    return (yield from _offset(address, max_offset_request(queue), timeout_s))


def min_offset(address: str, queue: MessageQueue, timeout_s: float = OFFSET_TIMEOUT_S) -> Flow[int]:
    """The first message that is still stored."""
    return (yield from _offset(address, min_offset_request(queue), timeout_s))


def offset_at(
    address: str, queue: MessageQueue, timestamp_ms: int, timeout_s: float = OFFSET_TIMEOUT_S
) -> Flow[int]:
    """The first message stored at or after a time (4.x: the one closest to it)."""
    return (yield from _offset(address, search_offset_request(queue, timestamp_ms), timeout_s))


def _offset(address: str, request: Command, timeout_s: float) -> Flow[int]:
    return parse_offset((yield from checked_call(address, request, timeout_s)))


def start_offset(
    address: str,
    group: str,
    queue: MessageQueue,
    start: StartFrom,
    *,
    new: bool = False,
    timeout_s: float = OFFSET_TIMEOUT_S,
) -> Flow[int]:
    """Where a push consumer starts to read, by Java's table.

    The stored offset wins. Without one: the end (LAST), 0 (FIRST, corrected by the broker when
    older messages are gone) or the offset at a time. A retry topic is read from 0, except with
    TIMESTAMP, where Java starts at its end. With LAST, a `new` queue, which was added while the
    group was consuming its topic, is read from its beginning: what was sent to it before anybody
    noticed is not skipped, as Java may.
    """
    stored = yield from stored_offset(address, group, queue, timeout_s)
    if stored is not None:
        return stored
    return (yield from starting_offset(address, queue, start, new=new, timeout_s=timeout_s))


def starting_offset(
    address: str,
    queue: MessageQueue,
    start: StartFrom,
    *,
    new: bool = False,
    timeout_s: float = OFFSET_TIMEOUT_S,
) -> Flow[int]:
    """Where to start in a queue that was never read, by the start policy."""
    retry = queue.topic.startswith(RETRY_PREFIX)
    match start.policy:
        case StartPolicy.LAST:
            if retry:
                return 0
            return (yield from (min_offset if new else max_offset)(address, queue, timeout_s))
        case StartPolicy.FIRST:
            return 0
        case StartPolicy.TIMESTAMP:
            if retry:
                return (yield from max_offset(address, queue, timeout_s))
            return (yield from offset_at(address, queue, start.timestamp_ms, timeout_s))

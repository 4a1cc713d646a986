"""The text of message traces, as Java's clients write it and `mqadmin` reads it.

A trace message has one or more records; fields end with U+0001, records with U+0002. Its keys are
the ids and keys of the messages that it is about, so that they can be found.
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec

__all__ = [
    "TRACE_GROUP_PREFIX",
    "TRACE_TOPIC",
    "ConsumeOutcome",
    "TraceMessageType",
    "TracedMessage",
    "consumed_record",
    "consuming_record",
    "end_transaction_record",
    "publish_record",
]

TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
#: Group under which Java sends traces; the traced group follows.
TRACE_GROUP_PREFIX: Final = "_INNER_TRACE_PRODUCER"


class TraceMessageType(enum.IntEnum):
    """Kinds of messages, numbered as in Java."""

    NORMAL = 0
    TRANSACTION_HALF = 1
    TRANSACTION_COMMIT = 2
    DELAY = 3


class ConsumeOutcome(enum.IntEnum):
    """How a listener ended, numbered as in Java."""

    SUCCESS = 0
    TIME_OUT = 1
    EXCEPTION = 2
    RETURN_NULL = 3
    FAILED = 4


class TracedMessage(msgspec.Struct, frozen=True):
    """What a trace says of a message, whatever happened to it."""

    topic: str
    message_id: str
    tags: str
    keys: str
    kind: TraceMessageType


def _record(*fields: object) -> str:
    return "\x01".join([str(field) for field in fields]) + "\x02"


def publish_record(
    message: TracedMessage,
    *,
    sent_ms: int,
    region: str,
    group: str,
    store_host: str,
    body_bytes: int,
    cost_ms: int,
    offset_message_id: str,
    success: bool,
) -> str:
    """A message was sent to the broker at `store_host`."""
    return _record(
        "Pub",
        sent_ms,
        region,
        group,
        message.topic,
        message.message_id,
        message.tags,
        message.keys,
        store_host,
        body_bytes,
        cost_ms,
        int(message.kind),
        offset_message_id,
        "true" if success else "false",
    )


def end_transaction_record(
    message: TracedMessage,
    *,
    ended_ms: int,
    region: str,
    group: str,
    store_host: str,
    transaction_id: str,
    state: str,
    from_check: bool,
) -> str:
    """A transaction was ended; `state` is Java's name of the outcome."""
    return _record(
        "EndTransaction",
        ended_ms,
        region,
        group,
        message.topic,
        message.message_id,
        message.tags,
        message.keys,
        store_host,
        int(message.kind),
        transaction_id,
        state,
        "true" if from_check else "false",
    )


def consuming_record(
    message_id: str,
    keys: str,
    *,
    started_ms: int,
    region: str,
    group: str,
    request_id: str,
    reconsume_times: int,
) -> str:
    """A message was given to a listener; `request_id` joins it with what came of it."""
    return _record(
        "SubBefore", started_ms, region, group, request_id, message_id, reconsume_times, keys
    )


def consumed_record(
    message_id: str,
    keys: str,
    *,
    ended_ms: int,
    group: str,
    request_id: str,
    cost_ms: int,
    outcome: ConsumeOutcome,
) -> str:
    """A listener is done with a message."""
    return _record(
        "SubAfter",
        request_id,
        message_id,
        cost_ms,
        "true" if outcome is ConsumeOutcome.SUCCESS else "false",
        keys,
        int(outcome),
        ended_ms,
        group,
    )

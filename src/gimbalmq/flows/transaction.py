"""Transactional messages: the half message, its end, and the broker's question about it.

A broker keeps a half message to itself until it is told the outcome. A transaction is ended once:
a broker that is told twice delivers twice, even after a rollback. When nobody tells it, it asks;
every question stores the half message anew, so an answer carries the offsets of the question.
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from gimbalmq.errors import ConfigurationError, ProtocolError
from gimbalmq.flows.effects import Flow, checked_call, notify
from gimbalmq.model.message import Message, SendResult
from gimbalmq.wire.codes import SysFlag
from gimbalmq.wire.command import Command
from gimbalmq.wire.headers import end_transaction_request
from gimbalmq.wire.ids import parse_offset_id
from gimbalmq.wire.record import ReceivedMessage, decode_records

__all__ = [
    "HALF_FLAG",
    "HalfMessage",
    "Outcome",
    "TransactionCheck",
    "check_transactional",
    "end_transaction",
    "half_properties",
    "half_stored",
    "parse_check",
]

#: The bit of sysFlag that makes a message a half message.
HALF_FLAG: Final = int(SysFlag.TRANSACTION_PREPARED)


class Outcome(enum.Enum):
    """How a transaction ends; the values are those of the wire."""

    UNKNOWN = 0
    COMMIT = 8
    ROLLBACK = 12


class HalfMessage(msgspec.Struct, frozen=True):
    """A half message as its end refers to it."""

    topic: str
    broker: str
    message_id: str
    transaction_id: str
    queue_offset: int
    physical_offset: int
    from_check: bool = False


class TransactionCheck(msgspec.Struct, frozen=True):
    """A broker's question: what became of this message of that producer group?"""

    group: str
    half: HalfMessage
    message: ReceivedMessage


def check_transactional(message: Message) -> None:
    """Refuse what a transaction cannot carry."""
    if message.delay_level is not None or message.deliver_at is not None:
        raise ConfigurationError(
            f"a message for topic '{message.topic}' has a delay, which brokers ignore inside a "
            "transaction: send it delayed, or in a transaction"
        )


def half_properties(group: str) -> dict[str, str]:
    """The properties that make a message a half message of a producer group."""
    return {"TRAN_MSG": "true", "PGROUP": group}


def half_stored(result: SendResult) -> HalfMessage:
    """The half message that a broker has stored."""
    return HalfMessage(
        result.queue.topic,
        result.queue.broker,
        result.message_id,
        result.message_id,
        result.queue_offset,
        parse_offset_id(result.offset_message_id).offset,
    )


def end_transaction(
    address: str,
    group: str,
    half: HalfMessage,
    outcome: Outcome,
    *,
    remark: str | None = None,
    timeout_s: float = 3.0,
) -> Flow[None]:
    """Tell the broker the outcome, once; waits for its word, except for `UNKNOWN`.

    A failure leaves it open whether the broker has heard it. Do not repeat it then: the broker
    will ask.
    """
    request = end_transaction_request(
        group=group,
        broker=half.broker,
        topic=half.topic,
        state=outcome.value,
        queue_offset=half.queue_offset,
        physical_offset=half.physical_offset,
        message_id=half.message_id,
        transaction_id=half.transaction_id,
        from_check=half.from_check,
        remark=remark,
        oneway=outcome is Outcome.UNKNOWN,
    )
    if outcome is Outcome.UNKNOWN:
        yield from notify(address, request)  # brokers do not answer it
    else:
        yield from checked_call(address, request, timeout_s)


def parse_check(request: Command, broker: str) -> TransactionCheck:
    """Read a broker's question.

    Raises:
        ProtocolError: it is not one that can be answered.
    """
    fields = request.fields
    (message,) = decode_records(request.body, broker) or (None,)
    group = None if message is None else message.property_value("PGROUP")
    if message is None or not group:
        raise ProtocolError("a transaction check names no producer group: it cannot be answered")
    message_id = fields.get("msgId") or message.message_id
    try:
        queue_offset = int(fields["tranStateTableOffset"])
        physical_offset = int(fields["commitLogOffset"])
    except (KeyError, ValueError) as error:
        raise ProtocolError(f"a transaction check has no offsets: {fields}") from error
    half = HalfMessage(
        message.topic,
        broker,
        message_id,
        fields.get("transactionId") or message_id,
        queue_offset,
        physical_offset,
        from_check=True,
    )
    return TransactionCheck(group, half, message)

"""Messages that a client sends to the retry topic of its group by itself.

An ordered group cannot use send-back, which delivers again later and so out of order. Like Java,
it gives a message up by sending it anew to the group's retry topic with more attempts than allowed,
which makes the broker move it to the dead letters. A concurrent group sends a message anew when its
broker does not take it back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gimbalmq.errors import BrokerError, TransportError
from gimbalmq.flows.effects import Flow, broker_error, call
from gimbalmq.model.queue import MessageQueue
from gimbalmq.wire.codes import ResponseCode
from gimbalmq.wire.command import Command
from gimbalmq.wire.headers import send_request
from gimbalmq.wire.names import retry_topic, with_namespace
from gimbalmq.wire.properties import format_properties
from gimbalmq.wire.received import ReceivedMessage

__all__ = ["dead_letter_request", "give_back", "retry_request", "revive_request"]

#: Stored, if not everywhere where it should be.
_TAKEN: Final = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
    }
)
#: The first retry waits for this delay level, 10 s; each further one for the next.
_FIRST_DELAY_LEVEL: Final = 3

#: The producer group under which every client is registered.
_INNER_PRODUCER = "CLIENT_INNER_PRODUCER"
#: Properties that would delay the message or that describe its old place.
_DROPPED = frozenset({"DELAY", "REAL_TOPIC", "REAL_QID", "MIN_OFFSET", "MAX_OFFSET"})


def dead_letter_request(group: str, broker: str, message: ReceivedMessage) -> Command:
    """The request that makes a broker move a message to `%DLQ%<group>`."""
    attempts = message.reconsume_times + 1
    properties = {name: value for name, value in message.properties.items() if name not in _DROPPED}
    properties["RETRY_TOPIC"] = with_namespace(message.namespace, message.topic)
    properties.setdefault("ORIGIN_MESSAGE_ID", message.offset_message_id)
    properties["RECONSUME_TIME"] = str(attempts)
    # The broker buries what has been tried more often than allowed (4.x: as often).
    properties["MAX_RECONSUME_TIMES"] = str(attempts - 1)
    return send_request(
        group=_INNER_PRODUCER,
        queue=MessageQueue(retry_topic(group), broker, 0),
        body=message.stored_body,
        properties=format_properties(properties),
        born_timestamp_ms=message.born_timestamp_ms,
        sys_flag=message.sys_flag & ~0x30,  # the address families are the new record's own
        flag=message.flag,
        reconsume_times=attempts,
        max_reconsume_times=attempts - 1,
    )


def retry_request(
    queue: MessageQueue, message: ReceivedMessage, *, delay_level: int, max_attempts: int
) -> Command:
    """The request that sends a failed message anew, to a queue of its group's retry topic.

    Delay level 0 waits longer with each attempt, as brokers do.
    """
    attempts = message.reconsume_times + 1
    properties = {name: value for name, value in message.properties.items() if name not in _DROPPED}
    properties["RETRY_TOPIC"] = with_namespace(message.namespace, message.topic)
    properties.setdefault("ORIGIN_MESSAGE_ID", message.offset_message_id)
    properties["RECONSUME_TIME"] = str(attempts)
    properties["MAX_RECONSUME_TIMES"] = str(max_attempts)
    properties["DELAY"] = str(delay_level or _FIRST_DELAY_LEVEL + message.reconsume_times)
    return send_request(
        group=_INNER_PRODUCER,
        queue=queue,
        body=message.stored_body,
        properties=format_properties(properties),
        born_timestamp_ms=message.born_timestamp_ms,
        sys_flag=message.sys_flag & ~0x30,  # as above
        flag=message.flag,
        reconsume_times=attempts,
        max_reconsume_times=max_attempts,
    )


def give_back(
    queue: MessageQueue, ways: Sequence[tuple[str, Command]], timeout_s: float
) -> Flow[None]:
    """Return a failed message of a queue by the first of the ways (address, request) that works.

    Raises:
        TransportError: none did; the text says why for each.
    """
    failures: list[str] = []
    for address, request in ways:
        try:
            answer = yield from call(address, request, timeout_s)
            if answer.code in _TAKEN:
                return
            raise broker_error(address, request, answer)
        except (TransportError, BrokerError) as error:
            failures.append(str(error))
    raise TransportError("; then ".join(failures) or f"broker '{queue.broker}' has no master")


def revive_request(group: str, broker: str, message: ReceivedMessage) -> Command:
    """The request that gives a dead letter to its group again, its attempts counted anew."""
    dropped = _DROPPED | {"RECONSUME_TIME", "MAX_RECONSUME_TIMES", "DLQ_ORIGIN_TOPIC"}
    properties = {name: value for name, value in message.properties.items() if name not in dropped}
    return send_request(
        group=_INNER_PRODUCER,
        queue=MessageQueue(retry_topic(group), broker, 0),
        body=message.stored_body,
        properties=format_properties(properties),
        born_timestamp_ms=message.born_timestamp_ms,
        sys_flag=message.sys_flag & ~0x30,  # as above
        flag=message.flag,
    )

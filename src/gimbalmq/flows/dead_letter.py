"""Giving up on a message of an ordered queue.

An ordered group cannot use send-back, which delivers again later and so out of order. Like Java,
it sends the message anew to the group's retry topic with more attempts than allowed, which makes
the broker move it to the dead letters.
"""

from __future__ import annotations

from gimbalmq.model.queue import MessageQueue
from gimbalmq.wire.command import Command
from gimbalmq.wire.headers import send_request
from gimbalmq.wire.names import retry_topic, with_namespace
from gimbalmq.wire.properties import format_properties
from gimbalmq.wire.record import ReceivedMessage

__all__ = ["dead_letter_request", "revive_request"]

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

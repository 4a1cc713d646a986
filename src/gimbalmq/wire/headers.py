"""The requests that a client sends, and what it reads from their answers.

One function per request, returning the command; the caller sets `opaque`. Every request to a
broker names the broker (`bname`, in sends `n`): the 5.x proxy refuses it otherwise, older brokers
ignore it. Whether an answer's code means success is for the caller to judge.
"""

from __future__ import annotations

from typing import Final

import msgspec

from gimbalmq.errors import ProtocolError
from gimbalmq.model.queue import MessageQueue
from gimbalmq.wire.codes import RequestCode
from gimbalmq.wire.command import FLAG_ONEWAY, Command
from gimbalmq.wire.names import TEMPLATE_TOPIC

__all__ = [
    "PullResponse",
    "SendResponse",
    "consumer_list_request",
    "earliest_time_request",
    "end_transaction_request",
    "heartbeat_request",
    "lock_request",
    "max_offset_request",
    "min_offset_request",
    "parse_offset",
    "parse_pull_response",
    "parse_send_response",
    "parse_timestamp",
    "pull_request",
    "query_message_request",
    "query_offset_request",
    "route_request",
    "search_offset_request",
    "send_back_request",
    "send_batch_request",
    "send_request",
    "set_pull_place",
    "unlock_request",
    "unregister_request",
    "update_offset_request",
    "view_message_request",
]

# Plain integers, because every request of the hot paths carries one.
_SEND: Final = int(RequestCode.SEND_MESSAGE_V2)
_SEND_BATCH: Final = int(RequestCode.SEND_BATCH_MESSAGE)
_SEND_REPLY: Final = int(RequestCode.SEND_REPLY_MESSAGE_V2)
_PULL: Final = int(RequestCode.PULL_MESSAGE)
_LITE_PULL: Final = int(RequestCode.LITE_PULL_MESSAGE)

#: What Java sends when nothing is configured.
_MAX_RECONSUME_TIMES: Final = 16
_PULL_BATCH: Final = 32


def _text(flag: bool) -> str:  # noqa: FBT001 - the one thing it converts
    return "true" if flag else "false"


def route_request(topic: str) -> Command:
    """Ask a name server where a topic lives; the answer is read by `bodies.decode_route`."""
    return Command(
        RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic, "acceptStandardJsonOnly": "true"}
    )


def send_request(
    *,
    group: str,
    queue: MessageQueue,
    body: bytes,
    properties: str,
    born_timestamp_ms: int,
    sys_flag: int = 0,
    flag: int = 0,
    default_topic: str = TEMPLATE_TOPIC,
    default_topic_queues: int = 4,
    reconsume_times: int = 0,
    max_reconsume_times: int | None = None,
    reply: bool = False,
) -> Command:
    """Send one message (SEND_MESSAGE_V2, or its reply form).

    `properties` is the properties string; `body` is already compressed when `sys_flag` says so.
    `max_reconsume_times` is for sends to a retry topic.
    """
    fields = {
        "a": group,
        "b": queue.topic,
        "c": default_topic,
        "d": str(default_topic_queues),
        "e": str(queue.queue_id),
        "f": str(sys_flag),
        "g": str(born_timestamp_ms),
        "h": str(flag),
        "i": properties,
        "j": str(reconsume_times),
        "k": "false",
        "m": "false",
        "n": queue.broker,
    }
    if max_reconsume_times is not None:
        fields["l"] = str(max_reconsume_times)
    return Command(_SEND_REPLY if reply else _SEND, fields, body)


def send_batch_request(
    *,
    group: str,
    queue: MessageQueue,
    body: bytes,
    born_timestamp_ms: int,
    properties: str = "",
    flag: int = 0,
    default_topic: str = TEMPLATE_TOPIC,
    default_topic_queues: int = 4,
) -> Command:
    """Send several messages of one topic at once; `body` comes from `batch.encode_batch`.

    `properties` belong to the batch, not to its messages. Leave UNIQ_KEY out of them: 4.9
    brokers would give it to every message.
    """
    command = send_request(
        group=group,
        queue=queue,
        body=body,
        properties=properties,
        born_timestamp_ms=born_timestamp_ms,
        flag=flag,
        default_topic=default_topic,
        default_topic_queues=default_topic_queues,
    )
    command.code = _SEND_BATCH
    command.fields["m"] = "true"
    return command


def pull_request(
    *,
    group: str,
    queue: MessageQueue,
    offset: int,
    sys_flag: int,
    max_messages: int = _PULL_BATCH,
    commit_offset: int = 0,
    suspend_timeout_ms: int = 0,
    expression: str | None = None,
    expression_type: str | None = None,
    subscription_version_ms: int = 0,
    lite: bool = False,
) -> Command:
    """Ask for messages from `offset` on; `sys_flag` is made of `PullFlag` bits."""
    fields = {
        "consumerGroup": group,
        "topic": queue.topic,
        "queueId": str(queue.queue_id),
        "queueOffset": str(offset),
        "maxMsgNums": str(max_messages),
        "sysFlag": str(int(sys_flag)),
        "commitOffset": str(commit_offset),
        "suspendTimeoutMillis": str(suspend_timeout_ms),
        "subVersion": str(subscription_version_ms),
        "bname": queue.broker,
    }
    if expression is not None:
        fields["subscription"] = expression
    if expression_type is not None:
        fields["expressionType"] = expression_type
    return Command(_LITE_PULL if lite else _PULL, fields)


def set_pull_place(request: Command, offset: int, max_messages: int) -> None:
    """Make a pull request ask for another place of its queue, instead of making a new one."""
    request.fields["queueOffset"] = str(offset)
    request.fields["maxMsgNums"] = str(max_messages)


def _queue_fields(queue: MessageQueue) -> dict[str, str]:
    return {"topic": queue.topic, "queueId": str(queue.queue_id), "bname": queue.broker}


def query_offset_request(
    group: str, queue: MessageQueue, *, zero_if_absent: bool | None = None
) -> Command:
    """Ask for a group's offset; `zero_if_absent=False` makes 5.x say that there is none."""
    fields = {"consumerGroup": group, **_queue_fields(queue)}
    if zero_if_absent is not None:
        fields["setZeroIfNotFound"] = _text(zero_if_absent)
    return Command(RequestCode.QUERY_CONSUMER_OFFSET, fields)


def update_offset_request(
    group: str, queue: MessageQueue, offset: int, *, oneway: bool = False
) -> Command:
    """Store a group's offset, the next one to consume; brokers take any value."""
    fields = {"consumerGroup": group, "commitOffset": str(offset), **_queue_fields(queue)}
    flag = FLAG_ONEWAY if oneway else 0
    return Command(RequestCode.UPDATE_CONSUMER_OFFSET, fields, flag=flag)


def max_offset_request(queue: MessageQueue) -> Command:
    """Ask for one past the last offset of a queue."""
    return Command(RequestCode.GET_MAX_OFFSET, _queue_fields(queue))


def min_offset_request(queue: MessageQueue) -> Command:
    """Ask for the first offset that a queue still has."""
    return Command(RequestCode.GET_MIN_OFFSET, _queue_fields(queue))


def earliest_time_request(queue: MessageQueue) -> Command:
    """Ask when the first message that a queue still has was stored."""
    return Command(RequestCode.GET_EARLIEST_MSG_STORETIME, _queue_fields(queue))


def search_offset_request(
    queue: MessageQueue, timestamp_ms: int, *, boundary: str | None = None
) -> Command:
    """Ask for the offset at a store time; `boundary` is LOWER or UPPER (5.x)."""
    fields = {"timestamp": str(timestamp_ms), **_queue_fields(queue)}
    if boundary is not None:
        fields["boundaryType"] = boundary
    return Command(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, fields)


def heartbeat_request(broker: str, body: bytes) -> Command:
    """Register producers and consumers; `body` comes from `bodies.encode_heartbeat`."""
    return Command(RequestCode.HEART_BEAT, {"bname": broker}, body)


def unregister_request(
    broker: str,
    client_id: str,
    *,
    producer_group: str | None = None,
    consumer_group: str | None = None,
) -> Command:
    """Take this connection out of a group."""
    fields = {"clientID": client_id, "bname": broker}
    if producer_group is not None:
        fields["producerGroup"] = producer_group
    if consumer_group is not None:
        fields["consumerGroup"] = consumer_group
    return Command(RequestCode.UNREGISTER_CLIENT, fields)


def consumer_list_request(broker: str, group: str) -> Command:
    """Ask for the client ids of a group's members."""
    return Command(
        RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group, "bname": broker}
    )


def lock_request(broker: str, body: bytes) -> Command:
    """Lock queues for ordered consumption; `body` comes from `bodies.encode_lock`."""
    return Command(RequestCode.LOCK_BATCH_MQ, {"bname": broker}, body)


def unlock_request(broker: str, body: bytes, *, oneway: bool = False) -> Command:
    """Unlock queues; `body` comes from `bodies.encode_lock`."""
    flag = FLAG_ONEWAY if oneway else 0
    return Command(RequestCode.UNLOCK_BATCH_MQ, {"bname": broker}, body, flag=flag)


def send_back_request(
    *,
    group: str,
    broker: str,
    physical_offset: int,
    delay_level: int = 0,
    topic: str | None = None,
    message_id: str | None = None,
    max_reconsume_times: int = _MAX_RECONSUME_TIMES,
) -> Command:
    """Have a message delivered again later: level 0 = by its history, below 0 = dead letter."""
    fields = {
        "offset": str(physical_offset),
        "group": group,
        "delayLevel": str(delay_level),
        "unitMode": "false",
        "maxReconsumeTimes": str(max_reconsume_times),
        "bname": broker,
    }
    if topic is not None:
        fields["originTopic"] = topic
    if message_id is not None:
        fields["originMsgId"] = message_id
    return Command(RequestCode.CONSUMER_SEND_MSG_BACK, fields)


def end_transaction_request(
    *,
    group: str,
    broker: str,
    topic: str,
    state: int,
    queue_offset: int,
    physical_offset: int,
    message_id: str,
    transaction_id: str = "",
    from_check: bool = False,
    remark: str | None = None,
    oneway: bool = True,
) -> Command:
    """Commit (`state` 8), roll back (12) or leave open (0) a half message.

    The two offsets are those of the send answer, or of the broker's check when answering one:
    they change with every check. Ending a transaction twice delivers it twice.
    """
    fields = {
        "producerGroup": group,
        "topic": topic,
        "tranStateTableOffset": str(queue_offset),
        "commitLogOffset": str(physical_offset),
        "commitOrRollback": str(state),
        "fromTransactionCheck": _text(from_check),
        "msgId": message_id,
        "transactionId": transaction_id or message_id,
        "bname": broker,
    }
    flag = FLAG_ONEWAY if oneway else 0
    return Command(RequestCode.END_TRANSACTION, fields, flag=flag, remark=remark)


def view_message_request(broker: str, physical_offset: int, *, topic: str | None = None) -> Command:
    """Ask for the one record at a place in the broker's log."""
    fields = {"offset": str(physical_offset), "bname": broker}
    if topic is not None:
        fields["topic"] = topic
    return Command(RequestCode.VIEW_MESSAGE_BY_ID, fields)


def query_message_request(
    *,
    broker: str,
    topic: str,
    key: str,
    begin_ms: int,
    end_ms: int,
    max_messages: int = 64,
    unique: bool = False,
) -> Command:
    """Ask for messages by key; `unique` = the key is a unique message id."""
    return Command(
        RequestCode.QUERY_MESSAGE,
        {
            "topic": topic,
            "key": key,
            "maxNum": str(max_messages),
            "beginTimestamp": str(begin_ms),
            "endTimestamp": str(end_ms),
            "bname": broker,
            "_UNIQUE_KEY_QUERY": _text(unique),
        },
    )


class SendResponse(msgspec.Struct, frozen=True):
    """What a broker says about a stored message; for a batch, one offset id per message."""

    offset_message_ids: tuple[str, ...]
    queue_id: int
    queue_offset: int
    transaction_id: str = ""
    recall_handle: str = ""
    region: str = ""
    trace_on: bool = True


_PULL_NAMES: Final = {
    "next_offset": "nextBeginOffset",
    "minimum": "minOffset",
    "maximum": "maxOffset",
    "suggested_broker_id": "suggestWhichBrokerId",
    "offset_delta": "offsetDelta",
}


class PullResponse(msgspec.Struct, frozen=True, rename=_PULL_NAMES):
    """What a broker says about a pull, with each of the codes 0, 19, 20 and 21."""

    next_offset: int
    minimum: int
    maximum: int
    suggested_broker_id: int
    #: Static topics of 5.x: to be added to the queue offset of each message.
    offset_delta: int = 0


#: In the order in which they are missed.
_PULL_NUMBERS: Final = (
    "nextBeginOffset",
    "minOffset",
    "maxOffset",
    "suggestWhichBrokerId",
    "offsetDelta",
)


def _number(command: Command, name: str) -> int:
    text = command.fields.get(name)
    try:
        return int(text or "")
    except ValueError:
        raise ProtocolError(
            f"answer with code {command.code} has {name} = {text!r} where a number must stand; "
            f"its remark is {command.remark!r}"
        ) from None


def parse_send_response(command: Command) -> SendResponse:
    """Read the answer to a send (codes 0, 10, 11 and 12).

    Raises:
        ProtocolError: a field that every broker sends is missing.
    """
    fields = command.fields
    ids = fields.get("msgId")
    if ids is None:
        raise ProtocolError(f"answer to a send has no msgId; its remark is {command.remark!r}")
    return SendResponse(
        tuple(ids.split(",")),
        _number(command, "queueId"),
        _number(command, "queueOffset"),
        fields.get("transactionId", ""),
        fields.get("recallHandle", ""),
        fields.get("MSG_REGION", ""),
        fields.get("TRACE_ON") != "false",
    )


def parse_pull_response(command: Command) -> PullResponse:
    """Read the header of a pull's answer; the messages are in its body.

    Raises:
        ProtocolError: a field that every broker sends is missing.
    """
    fields = command.fields
    try:
        return PullResponse(
            int(fields["nextBeginOffset"]),
            int(fields["minOffset"]),
            int(fields["maxOffset"]),
            int(fields["suggestWhichBrokerId"]),
            int(fields.get("offsetDelta", 0)),
        )
    except (KeyError, ValueError):
        for name in _PULL_NUMBERS:
            _number(command, name)
        raise


def parse_offset(command: Command) -> int:
    """The offset in the answer to an offset request (14, 29, 30, 31)."""
    return _number(command, "offset")


def parse_timestamp(command: Command) -> int:
    """The time in the answer to `earliest_time_request`; -1 when the queue is empty."""
    return _number(command, "timestamp")
